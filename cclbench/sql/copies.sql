-- SPDX-License-Identifier: Apache-2.0
-- Copies and memsets by step and direction: number, bytes and bandwidth.
--
-- Columns:
--   rank INTEGER: rank
--   step INTEGER: step whose window they begin in
--   in_window BOOLEAN: whether that is a window of step_windows
--   kind VARCHAR: copy or memset
--   copy_direction VARCHAR: of copies: h2d, d2h, d2d, p2p; null if the trace does not state it
--   copies BIGINT: how many
--   bytes BIGINT [B]: bytes copied or set; null if none states them
--   total_ns BIGINT [ns]: summed durations
--   max_ns BIGINT [ns]: the longest
--   bytes_per_s DOUBLE [B/s]: bytes over time, of those that state their bytes
--
-- Example:
--   SELECT copy_direction, sum(copies) AS copies, sum(bytes) AS bytes, sum(total_ns) AS ns FROM copies
--   GROUP BY copy_direction ORDER BY ns DESC, copy_direction
SELECT
  rank, step, in_window, kind, copy_direction, count(*) AS copies, sum(bytes)::BIGINT AS bytes,
  sum(dur_ns)::BIGINT AS total_ns, max(dur_ns) AS max_ns,
  sum(bytes) * 1e9 / nullif(sum(dur_ns) FILTER (bytes IS NOT NULL), 0) AS bytes_per_s
FROM device_rows
WHERE kind IN ('copy', 'memset')
GROUP BY ALL
