-- SPDX-License-Identifier: Apache-2.0
-- Collectives matched across ranks: the last rank, the spread of arrivals and the transfer time.
--
-- Columns:
--   instance BIGINT: number that the parts of one collective share
--   kind VARCHAR: what it does: all_reduce, all_gather, ...
--   group VARCHAR: process group
--   group_size INTEGER: ranks in the group
--   seq BIGINT: sequence number within the group
--   step INTEGER: step that contains it, of several the first
--   ranks BIGINT: ranks whose part is in the run
--   complete BOOLEAN: whether all of its ranks have a trace
--   in_windows BOOLEAN: whether it begins in a window of step_windows on each of them
--   bytes BIGINT [B]: largest payload that a rank hands in or gets
--   first_arrival_ns BIGINT [ns]: when the first rank begins it, on the common clock
--   last_arrival_ns BIGINT [ns]: when the last one does
--   skew_ns BIGINT [ns]: time between the two; its mean is comm.skew
--   last_rank INTEGER: rank that came last, of several the lowest
--   waits_ns BIGINT [ns]: time that all ranks together waited in it
--   transfer_ns BIGINT [ns]: longest time from the last arrival to a rank's end
--
-- Example:
--   SELECT last_rank, count(*) AS times, sum(waits_ns) AS waits_ns FROM collective_instances
--   WHERE complete AND in_windows GROUP BY last_rank ORDER BY waits_ns DESC, last_rank
SELECT
  instance,
  any_value(kind) AS kind,
  any_value("group") AS "group",
  any_value(group_size) AS group_size,
  min(seq) AS seq,
  min(step) AS step,
  count(*) AS ranks,
  bool_and(wait_ns IS NOT NULL) AS complete,
  bool_and(coalesce(start_ns < window_end_ns, false)) AS in_windows,
  max(greatest(in_bytes, out_bytes)) AS bytes,
  min(arrival_ns) AS first_arrival_ns,
  max(arrival_ns) AS last_arrival_ns,
  max(arrival_ns) - min(arrival_ns) AS skew_ns,
  min(rank) FILTER (coalesce(wait_ns, least_wait_ns) = 0) AS last_rank,
  sum(coalesce(wait_ns, least_wait_ns))::BIGINT AS waits_ns,
  max(transfer_ns) AS transfer_ns
FROM (
  SELECT c.*, w.end_ns AS window_end_ns
  FROM collectives AS c
  ASOF LEFT JOIN step_windows AS w ON w.rank = c.rank AND c.start_ns >= w.start_ns
  WHERE instance IS NOT NULL
)
GROUP BY instance
