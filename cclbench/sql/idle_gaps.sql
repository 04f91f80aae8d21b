-- SPDX-License-Identifier: Apache-2.0
-- Gaps in which a rank's device runs nothing, and the device row that ends each.
--
-- Columns:
--   rank INTEGER: rank
--   step INTEGER: step whose window the gap ends in
--   start_ns BIGINT [ns]: begin: the end of all earlier device rows
--   end_ns BIGINT [ns]: end
--   gap_ns BIGINT [ns]: length
--   name VARCHAR: device row that begins where the gap ends, of several that on the lowest stream
--   track BIGINT: its stream
--   correlation BIGINT: links that row with its launch
--
-- Example:
--   SELECT rank, step, name, gap_ns FROM idle_gaps ORDER BY gap_ns DESC, rank, end_ns LIMIT 20
SELECT rank, step, end_ns - gap_ns AS start_ns, end_ns, gap_ns, name, track, correlation
FROM (
  SELECT
    rank, step, name, track, correlation, start_ns AS end_ns,
    start_ns - max(end_ns) OVER (
      PARTITION BY rank ORDER BY start_ns, track, device, dur_ns DESC, name
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS gap_ns
  FROM device_rows
  WHERE dur_ns > 0
)
WHERE gap_ns > 0
