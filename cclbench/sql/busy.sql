-- SPDX-License-Identifier: Apache-2.0
-- Time of each step on each rank: five parts that add up to its length, and the device's busy time.
--
-- Columns:
--   rank INTEGER: rank
--   step INTEGER: step, as in step_windows
--   window_ns BIGINT [ns]: length of the step's window; its mean is time.step
--   compute_only_ns BIGINT [ns]: kernels compute and no communication runs; time.compute_only
--   overlapped_ns BIGINT [ns]: kernels compute while communication runs; time.overlapped
--   exposed_comm_ns BIGINT [ns]: communication runs and nothing computes; time.exposed_comm
--   exposed_copy_ns BIGINT [ns]: only copies and memsets run; time.exposed_copy
--   busy_ns BIGINT [ns]: union of the intervals in which the device runs anything
--   idle_ns BIGINT [ns]: the device runs nothing; time.idle
--
-- Example:
--   SELECT rank, step, busy_ns / window_ns AS busy_share FROM busy ORDER BY busy_share, rank, step LIMIT 10
WITH clipped AS (
  SELECT
    w.rank, w.step, w.start_ns, w.dur_ns AS window_ns, a.state,
    least(a.end_ns, w.end_ns) - greatest(a.start_ns, w.start_ns) AS ns
  FROM step_windows AS w
  LEFT JOIN activity AS a ON a.rank = w.rank AND a.start_ns < w.end_ns AND a.end_ns > w.start_ns
),
parts AS (
  SELECT
    rank, step, start_ns, window_ns,
    sum(ns) FILTER (state = 'compute') AS compute_only,
    sum(ns) FILTER (state = 'overlapped') AS overlapped,
    sum(ns) FILTER (state = 'communication') AS communication,
    sum(ns) FILTER (state = 'copy') AS copy
  FROM clipped GROUP BY ALL
)
SELECT
  rank, step, window_ns,
  coalesce(compute_only, 0)::BIGINT AS compute_only_ns,
  coalesce(overlapped, 0)::BIGINT AS overlapped_ns,
  coalesce(communication, 0)::BIGINT AS exposed_comm_ns,
  coalesce(copy, 0)::BIGINT AS exposed_copy_ns,
  compute_only_ns + overlapped_ns + exposed_comm_ns + exposed_copy_ns AS busy_ns,
  window_ns - busy_ns AS idle_ns
FROM parts
