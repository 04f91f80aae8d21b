-- SPDX-License-Identifier: Apache-2.0
-- Ranges that the program marked (record_function, NVTX, rocTX), by name: number and time on the host.
--
-- Columns:
--   rank INTEGER: rank
--   name VARCHAR: the range's name
--   ranges BIGINT: how many
--   total_ns BIGINT [ns]: summed durations
--   mean_ns DOUBLE [ns]: mean duration
--   min_ns BIGINT [ns]: the shortest
--   max_ns BIGINT [ns]: the longest
--
-- Example:
--   SELECT name, sum(ranges) AS ranges, sum(total_ns) AS ns FROM annotations GROUP BY name
--   ORDER BY ns DESC, name LIMIT 20
SELECT
  rank, name, count(*) AS ranges, sum(dur_ns)::BIGINT AS total_ns, avg(dur_ns) AS mean_ns,
  min(dur_ns) AS min_ns, max(dur_ns) AS max_ns
FROM events
WHERE side = 'host' AND kind = 'annotation'
GROUP BY rank, name
