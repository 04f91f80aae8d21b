-- SPDX-License-Identifier: Apache-2.0
-- State of each rank's device at any time, from its first row to its last, as intervals of one state.
--
-- Columns:
--   rank INTEGER: rank
--   start_ns BIGINT [ns]: begin of the interval
--   end_ns BIGINT [ns]: its end, where the next one begins
--   dur_ns BIGINT [ns]: its length
--   state VARCHAR: compute, overlapped (compute and communication), communication, copy (and neither) or idle
--
-- Example:
--   SELECT rank, state, count(*) AS intervals, sum(dur_ns) AS ns FROM activity GROUP BY ALL ORDER BY rank, ns DESC
WITH host_operators AS (
  -- On a rank whose device is the CPU: operators compute, but for calls of the communication library on their
  -- thread; its transfers are the rows with a collective, on threads of its own where it is gloo.
  SELECT
    rank, track, start_ns, start_ns + dur_ns AS end_ns,
    collective IS NOT NULL AS transfers,
    category = 'communication' AS calls,
    NOT calls AND NOT regexp_matches(name, '^(torch::)?autograd::') AND contains(name, ':') AS works,
    bool_or(
      collective IS NOT NULL AND starts_with(name, 'gloo:')
      AND NOT ends_with(name, ':send') AND NOT ends_with(name, ':recv')
    ) OVER (PARTITION BY rank, track) AS on_library_thread
  FROM events JOIN rank_devices USING (rank)
  WHERE works_on = 'host' AND kind = 'op'
),
thread_edges AS (
  SELECT rank, track, start_ns AS edge_ns, works::INTEGER AS work, calls::INTEGER AS call
  FROM host_operators WHERE NOT on_library_thread AND (works OR calls)
  UNION ALL
  SELECT rank, track, end_ns, -works::INTEGER, -calls::INTEGER
  FROM host_operators WHERE NOT on_library_thread AND (works OR calls)
),
thread_levels AS (
  -- Of several edges at one instant each sees the changes of all.
  SELECT
    rank, edge_ns AS start_ns,
    lead(edge_ns) OVER (PARTITION BY rank, track ORDER BY edge_ns) AS end_ns,
    sum(work) OVER (PARTITION BY rank, track ORDER BY edge_ns) AS work,
    sum(call) OVER (PARTITION BY rank, track ORDER BY edge_ns) AS call
  FROM thread_edges
),
intervals AS (
  SELECT
    rank, start_ns, start_ns + dur_ns AS end_ns,
    CASE
      WHEN kind IN ('copy', 'memset') THEN 'copy'
      WHEN category = 'communication' THEN 'communication'
      ELSE 'compute'
    END AS what
  FROM events JOIN rank_devices USING (rank)
  WHERE works_on = 'device' AND kind IN ('kernel', 'copy', 'memset', 'graph')
  UNION ALL
  SELECT rank, start_ns, end_ns, 'communication' FROM host_operators WHERE transfers
  UNION ALL
  SELECT rank, start_ns, end_ns, 'compute' FROM thread_levels WHERE work > 0 AND call = 0
),
edges AS (
  SELECT rank, start_ns AS edge_ns, what, 1 AS change FROM intervals WHERE end_ns > start_ns
  UNION ALL
  SELECT rank, end_ns, what, -1 FROM intervals WHERE end_ns > start_ns
),
levels AS (
  SELECT
    rank, edge_ns,
    lead(edge_ns) OVER (PARTITION BY rank ORDER BY edge_ns) AS next_ns,
    coalesce(sum(change) FILTER (what = 'compute') OVER (PARTITION BY rank ORDER BY edge_ns), 0) > 0 AS computes,
    coalesce(sum(change) FILTER (what = 'communication') OVER (PARTITION BY rank ORDER BY edge_ns), 0) > 0
      AS communicates,
    coalesce(sum(change) FILTER (what = 'copy') OVER (PARTITION BY rank ORDER BY edge_ns), 0) > 0 AS moves
  FROM edges
),
states AS (
  SELECT
    rank, edge_ns, next_ns,
    CASE
      WHEN computes AND communicates THEN 'overlapped'
      WHEN computes THEN 'compute'
      WHEN communicates THEN 'communication'
      WHEN moves THEN 'copy'
      ELSE 'idle'
    END AS state
  FROM levels WHERE next_ns > edge_ns
),
changes AS (
  SELECT *, state IS DISTINCT FROM lag(state) OVER (PARTITION BY rank ORDER BY edge_ns) AS changes FROM states
),
numbered AS (
  SELECT *, sum(changes::INTEGER) OVER (PARTITION BY rank ORDER BY edge_ns) AS stretch FROM changes
)
SELECT
  rank, min(edge_ns) AS start_ns, max(next_ns) AS end_ns, max(next_ns) - min(edge_ns) AS dur_ns,
  any_value(state) AS state
FROM numbered
GROUP BY rank, stretch
