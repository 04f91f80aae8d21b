-- SPDX-License-Identifier: Apache-2.0
-- Summed kernel time of each step by category; concurrent kernels each count in full.
--
-- Columns:
--   rank INTEGER: rank
--   step INTEGER: step whose window they begin in
--   category VARCHAR: what they do: gemm, attention, communication, ...
--   kernels BIGINT: how many
--   total_ns BIGINT [ns]: summed durations
--
-- Example:
--   SELECT category, sum(kernels) AS kernels, sum(total_ns) AS ns FROM category_time GROUP BY category
--   ORDER BY ns DESC, category
SELECT rank, step, category, count(*) AS kernels, sum(dur_ns)::BIGINT AS total_ns
FROM device_rows
WHERE kind = 'kernel' AND in_window
GROUP BY ALL
