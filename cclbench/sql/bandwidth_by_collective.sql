-- SPDX-License-Identifier: Apache-2.0
-- Algorithm and bus bandwidth of the steps' collectives by kind, group and payload, as nccl-tests defines them.
--
-- Columns:
--   rank INTEGER: rank
--   kind VARCHAR: what they do: all_reduce, all_gather, ...
--   group VARCHAR: process group
--   group_size INTEGER: ranks in the group
--   matched BOOLEAN: whether the time is that after the last rank's arrival; else it includes waiting for others
--   payload_bytes BIGINT [B]: payload of each: the larger side
--   collectives BIGINT: how many
--   total_ns BIGINT [ns]: summed times
--   algbw DOUBLE [B/s]: payload over time
--   busbw DOUBLE [B/s]: that times the factor which makes it comparable with a link's rate
--
-- Example:
--   SELECT kind, "group", payload_bytes, sum(collectives) AS calls, max(busbw) AS best, median(busbw) AS median
--   FROM bandwidth_by_collective WHERE matched GROUP BY ALL ORDER BY kind, "group", payload_bytes
WITH calls AS (
  SELECT
    c.rank, kind, "group", group_size, transfer_ns IS NOT NULL AS matched,
    CASE
      -- Of gather and scatter only the root has the large side.
      WHEN kind = 'gather' THEN in_bytes * group_size
      WHEN kind = 'scatter' THEN out_bytes * group_size
      WHEN kind NOT IN ('all_gather', 'reduce_scatter') OR (in_bytes + out_bytes) IS NOT NULL
        THEN greatest(in_bytes, out_bytes)
    END AS payload_bytes,
    coalesce(transfer_ns, c.end_ns - c.start_ns) AS ns
  FROM collectives AS c
  ASOF JOIN step_windows AS w ON w.rank = c.rank AND c.start_ns >= w.start_ns
  WHERE c.start_ns < w.end_ns AND kind != 'barrier' AND group_size > 1
),
sums AS (
  SELECT
    rank, kind, "group", group_size, matched, payload_bytes, count(*) AS collectives, sum(ns)::BIGINT AS total_ns
  FROM calls WHERE payload_bytes > 0 AND ns > 0 GROUP BY ALL
)
SELECT
  *, payload_bytes * collectives * 1e9 / total_ns AS algbw,
  bus_factor(kind, group_size) * payload_bytes * collectives * 1e9 / total_ns AS busbw
FROM sums
