-- SPDX-License-Identifier: Apache-2.0
-- State of each device's allocator after each of its events, as recorded in the trace (profile_memory=True).
--
-- Columns:
--   rank INTEGER: rank
--   device SMALLINT: index of the accelerator as the process sees it; null of the CPU's own memory
--   time_ns BIGINT [ns]: when
--   allocated_bytes BIGINT [B]: bytes allocated then
--   change_bytes BIGINT [B]: change since the event before; null of the first
--   reserved_bytes BIGINT [B]: bytes that the allocator holds
--
-- Example:
--   SELECT rank, device, max(allocated_bytes) AS peak_bytes, max(reserved_bytes) AS reserved_bytes
--   FROM memory_timeline GROUP BY rank, device ORDER BY rank, device
SELECT
  rank, device, start_ns AS time_ns, bytes AS allocated_bytes,
  bytes - lag(bytes) OVER (PARTITION BY rank, device ORDER BY start_ns) AS change_bytes,
  reserved AS reserved_bytes
FROM events
WHERE kind = 'other' AND name = '[memory]' AND bytes IS NOT NULL
