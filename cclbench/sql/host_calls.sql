-- SPDX-License-Identifier: Apache-2.0
-- Runtime and driver calls of the whole trace by name: number, and time that they block their thread.
--
-- Columns:
--   rank INTEGER: rank
--   kind VARCHAR: launch, sync, or other
--   name VARCHAR: the call: cudaLaunchKernel, cudaStreamSynchronize, cudaMalloc, ...
--   calls BIGINT: how many
--   total_ns BIGINT [ns]: summed durations
--   mean_ns DOUBLE [ns]: mean duration
--   min_ns BIGINT [ns]: the shortest
--   max_ns BIGINT [ns]: the longest
--
-- Example:
--   SELECT name, sum(calls) AS calls, sum(total_ns) AS ns, max(max_ns) AS longest_ns FROM host_calls
--   GROUP BY name ORDER BY ns DESC, name LIMIT 20
SELECT
  rank, kind, name, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns, avg(dur_ns) AS mean_ns,
  min(dur_ns) AS min_ns, max(dur_ns) AS max_ns
FROM events
WHERE side = 'host' AND kind IN ('launch', 'sync', 'other') AND name != '[memory]'
GROUP BY rank, kind, name
