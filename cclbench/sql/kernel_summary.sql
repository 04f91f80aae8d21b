-- SPDX-License-Identifier: Apache-2.0
-- Kernels of the whole trace by name: number and time.
--
-- Columns:
--   rank INTEGER: rank
--   category VARCHAR: what it does: gemm, attention, communication, ...
--   name VARCHAR: the kernel's name, as the profiler writes it
--   kernels BIGINT: how often it ran
--   total_ns BIGINT [ns]: summed durations
--   mean_ns DOUBLE [ns]: mean duration
--   min_ns BIGINT [ns]: the shortest
--   median_ns DOUBLE [ns]: median
--   max_ns BIGINT [ns]: the longest
--   share DOUBLE: part of the rank's summed kernel time
--
-- Example:
--   SELECT name, sum(kernels) AS kernels, sum(total_ns) AS ns FROM kernel_summary GROUP BY name
--   ORDER BY ns DESC, name LIMIT 20
SELECT
  rank, category, name, count(*) AS kernels, sum(dur_ns)::BIGINT AS total_ns, avg(dur_ns) AS mean_ns,
  min(dur_ns) AS min_ns, median(dur_ns) AS median_ns, max(dur_ns) AS max_ns,
  sum(dur_ns) / sum(sum(dur_ns)) OVER (PARTITION BY rank) AS share
FROM events
WHERE kind = 'kernel'
GROUP BY rank, category, name
