-- SPDX-License-Identifier: Apache-2.0
-- Gaps in which a stream runs nothing, or a thread no operator, and the row that ends each.
--
-- Columns:
--   rank INTEGER: rank
--   side VARCHAR: device for streams, host for threads
--   track BIGINT: stream or thread
--   name VARCHAR: device row or operator that ends the gap
--   start_ns BIGINT [ns]: its begin, the gap's end
--   gap_ns BIGINT [ns]: length of the gap
--
-- Example:
--   SELECT rank, track, name, gap_ns FROM track_gaps WHERE side = 'device'
--   ORDER BY gap_ns DESC, rank, track, start_ns LIMIT 20
SELECT rank, side, track, name, start_ns, gap_ns
FROM (
  SELECT
    rank, side, track, name, start_ns,
    start_ns - max(start_ns + dur_ns) OVER (
      PARTITION BY rank, side, device, track ORDER BY start_ns, operator, dur_ns DESC, name
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS gap_ns
  FROM events
  WHERE (side = 'device' AND kind IN ('kernel', 'copy', 'memset', 'graph'))
    OR (side = 'host' AND kind = 'op' AND contains(name, '::') AND NOT contains(name, 'autograd::'))
)
WHERE gap_ns > 0
