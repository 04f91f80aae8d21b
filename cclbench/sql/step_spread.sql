-- SPDX-License-Identifier: Apache-2.0
-- Each step over all ranks: shortest and longest time, and the slowest rank.
--
-- Columns:
--   step INTEGER: step
--   ranks BIGINT: ranks that have it
--   min_ns BIGINT [ns]: length on the fastest rank
--   mean_ns DOUBLE [ns]: mean length
--   max_ns BIGINT [ns]: length on the slowest rank; its mean over steps is time.step
--   spread_ns BIGINT [ns]: longest − shortest
--   slowest_rank INTEGER: the slowest rank, of several the lowest
--
-- Example:
--   SELECT * FROM step_spread ORDER BY max_ns DESC, step LIMIT 10
SELECT
  step, count(*) AS ranks, min(dur_ns) AS min_ns, avg(dur_ns) AS mean_ns, max(dur_ns) AS max_ns,
  max(dur_ns) - min(dur_ns) AS spread_ns, first(rank ORDER BY dur_ns DESC, rank) AS slowest_rank
FROM step_windows
GROUP BY step
