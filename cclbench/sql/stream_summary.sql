-- SPDX-License-Identifier: Apache-2.0
-- Streams of each rank over the whole trace: rows, busy time, and time by kind.
--
-- Columns:
--   rank INTEGER: rank
--   device SMALLINT: index of the accelerator as the process sees it
--   track BIGINT: stream
--   device_rows BIGINT: kernels, copies, memsets and graphs
--   first_ns BIGINT [ns]: begin of the first one
--   last_ns BIGINT [ns]: latest end
--   busy_ns BIGINT [ns]: union of their intervals
--   compute_ns BIGINT [ns]: summed durations of kernels that are not communication
--   communication_ns BIGINT [ns]: summed durations of communication kernels
--   copy_ns BIGINT [ns]: summed durations of copies and memsets
--
-- Example:
--   SELECT rank, track, device_rows, busy_ns / (last_ns - first_ns) AS busy_share FROM stream_summary
--   WHERE last_ns > first_ns ORDER BY busy_share DESC, rank, track
WITH pieces AS (
  SELECT
    *,
    max(end_ns) OVER (
      PARTITION BY rank, device, track ORDER BY start_ns, end_ns, name
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS busy_until
  FROM device_rows
)
SELECT
  rank, device, track, count(*) AS device_rows, min(start_ns) AS first_ns, max(end_ns) AS last_ns,
  sum(greatest(0, end_ns - greatest(start_ns, coalesce(busy_until, start_ns))))::BIGINT AS busy_ns,
  coalesce(
    sum(dur_ns) FILTER (kind = 'kernel' AND category != 'communication'), 0
  )::BIGINT AS compute_ns,
  coalesce(sum(dur_ns) FILTER (kind = 'kernel' AND category = 'communication'), 0)::BIGINT AS communication_ns,
  coalesce(sum(dur_ns) FILTER (kind IN ('copy', 'memset')), 0)::BIGINT AS copy_ns
FROM pieces
GROUP BY rank, device, track
