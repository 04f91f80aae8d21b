-- SPDX-License-Identifier: Apache-2.0
-- Each metric's value on each rank, and the mean of all ranks.
--
-- Columns:
--   metric VARCHAR: topic.name
--   unit VARCHAR: base unit
--   rank INTEGER: rank
--   value DOUBLE: the rank's value
--   mean DOUBLE: mean of all ranks that have one
--   ratio DOUBLE: value over mean
--
-- Example:
--   SELECT metric, rank, value, mean, unit FROM results_by_rank WHERE ratio > 1.1
--   ORDER BY ratio DESC, metric, rank LIMIT 20
SELECT
  metric, unit, rank, value, avg(value) OVER (PARTITION BY metric) AS mean,
  value / nullif(avg(value) OVER (PARTITION BY metric), 0) AS ratio
FROM results
WHERE rank IS NOT NULL AND value IS NOT NULL AND step IS NULL AND "group" IS NULL AND collective IS NULL
  AND category IS NULL AND stat IS NULL
