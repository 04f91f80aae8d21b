-- SPDX-License-Identifier: Apache-2.0
-- Time of each step in which a rank waits in any collective for its last rank, and in which any transfers.
--
-- Columns:
--   rank INTEGER: rank
--   step INTEGER: step, as in step_windows
--   wait_ns BIGINT [ns]: union of the waits; comm.wait
--   transfer_ns BIGINT [ns]: union of the transfers, of collectives that all ranks have; comm.transfer
--
-- Example:
--   SELECT rank, avg(wait_ns) AS wait_ns, avg(transfer_ns) AS transfer_ns FROM waits GROUP BY rank
--   ORDER BY wait_ns, rank
WITH intervals AS (
  SELECT rank, 'wait' AS what, start_ns, start_ns + coalesce(wait_ns, least_wait_ns) AS end_ns FROM collectives
  UNION ALL
  SELECT rank, 'transfer', start_ns + wait_ns, end_ns FROM collectives
),
begins AS (
  -- A piece of the union begins where no earlier interval reaches.
  SELECT
    *,
    coalesce(
      start_ns > max(end_ns) OVER (
        PARTITION BY rank, what ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ),
      true
    ) AS begins
  FROM intervals
  WHERE end_ns > start_ns
),
numbered AS (
  SELECT
    rank, what, start_ns, end_ns,
    sum(begins::INTEGER) OVER (
      PARTITION BY rank, what ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING
    ) AS piece
  FROM begins
),
pieces AS (
  SELECT rank, what, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM numbered GROUP BY rank, what, piece
)
SELECT
  w.rank, any_value(w.step) AS step,
  coalesce(
    sum(least(p.end_ns, w.end_ns) - greatest(p.start_ns, w.start_ns)) FILTER (p.what = 'wait'), 0
  )::BIGINT AS wait_ns,
  coalesce(
    sum(least(p.end_ns, w.end_ns) - greatest(p.start_ns, w.start_ns)) FILTER (p.what = 'transfer'), 0
  )::BIGINT AS transfer_ns
FROM step_windows AS w
LEFT JOIN pieces AS p ON p.rank = w.rank AND p.start_ns < w.end_ns AND p.end_ns > w.start_ns
GROUP BY w.rank, w.start_ns
