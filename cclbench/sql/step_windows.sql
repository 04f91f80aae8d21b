-- SPDX-License-Identifier: Apache-2.0
-- The steps that metrics are means over: each rank's closed windows, or its open ones if it has no others.
--
-- Columns:
--   rank INTEGER: rank whose window it is
--   step INTEGER: number that the workload gave the step; null if the window is the whole trace
--   start_ns BIGINT [ns]: begin, inclusive
--   end_ns BIGINT [ns]: end, exclusive
--   dur_ns BIGINT [ns]: length
--   source VARCHAR: how it was found, as in the table steps
--
-- Example:
--   SELECT rank, avg(dur_ns) AS mean_ns, max(dur_ns) AS longest_ns FROM step_windows GROUP BY rank ORDER BY rank
SELECT rank, step, start_ns, end_ns, end_ns - start_ns AS dur_ns, source
FROM (
  SELECT *, bool_and(open) OVER (PARTITION BY rank, policy) AS all_open
  FROM (
    SELECT *, CASE source WHEN 'whole_trace' THEN 2 WHEN 'annotation' THEN 1 ELSE 0 END AS policy
    FROM steps
  )
  QUALIFY policy = min(policy) OVER (PARTITION BY rank)
)
WHERE all_open OR NOT open
