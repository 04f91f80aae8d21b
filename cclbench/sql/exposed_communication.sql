-- SPDX-License-Identifier: Apache-2.0
-- Part of each collective on each rank that no compute hides; concurrent collectives each count in full.
--
-- Columns:
--   rank INTEGER: rank
--   collective BIGINT: key into the table collectives
--   step INTEGER: step that contains it
--   kind VARCHAR: what it does: all_reduce, all_gather, ...
--   group VARCHAR: process group
--   start_ns BIGINT [ns]: begin on this rank
--   dur_ns BIGINT [ns]: duration on this rank, waiting included
--   exposed_ns BIGINT [ns]: part of it in which nothing computes
--
-- Example:
--   SELECT kind, "group", count(*) AS calls, sum(exposed_ns) AS ns FROM exposed_communication
--   GROUP BY ALL ORDER BY ns DESC, kind, "group" LIMIT 20
SELECT
  c.rank, c.collective, c.step, c.kind, c."group", c.start_ns, c.end_ns - c.start_ns AS dur_ns,
  coalesce(sum(least(a.end_ns, c.end_ns) - greatest(a.start_ns, c.start_ns)), 0)::BIGINT AS exposed_ns
FROM collectives AS c
LEFT JOIN (SELECT * FROM activity WHERE state = 'communication') AS a
  ON a.rank = c.rank AND a.start_ns < c.end_ns AND a.end_ns > c.start_ns
GROUP BY ALL
