-- SPDX-License-Identifier: Apache-2.0
-- Lateness of each rank in each collective matched across ranks, and its wait for the last rank.
--
-- Columns:
--   rank INTEGER: rank
--   step INTEGER: step that contains the collective
--   instance BIGINT: as in collective_instances
--   kind VARCHAR: what the collective does
--   group VARCHAR: process group
--   arrival_ns BIGINT [ns]: when the rank begins it, on the common clock
--   late_ns BIGINT [ns]: time since the first rank's arrival
--   wait_ns BIGINT [ns]: time until the last rank's; a lower bound if a rank has no trace
--   is_last BOOLEAN: whether no rank came later
--
-- Example:
--   SELECT rank, count(*) AS collectives, count(*) FILTER (is_last) AS last, avg(late_ns) AS mean_late_ns
--   FROM late_arrivals WHERE kind NOT IN ('send', 'recv') GROUP BY rank ORDER BY mean_late_ns DESC, rank
SELECT
  rank, step, instance, kind, "group", arrival_ns,
  arrival_ns - min(arrival_ns) OVER (PARTITION BY instance) AS late_ns,
  coalesce(wait_ns, least_wait_ns) AS wait_ns,
  coalesce(wait_ns, least_wait_ns) = 0 AS is_last
FROM collectives
WHERE arrival_ns IS NOT NULL AND coalesce(wait_ns, least_wait_ns) IS NOT NULL
