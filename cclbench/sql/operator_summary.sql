-- SPDX-License-Identifier: Apache-2.0
-- Operators over the whole trace, by the shapes and element types of their inputs.
--
-- Columns:
--   rank INTEGER: rank that called them
--   name VARCHAR: the framework's name of the operator
--   shapes VARCHAR: sizes of its inputs, as a JSON list
--   dtypes VARCHAR: element types of its inputs, as a JSON list
--   calls BIGINT: calls that launched device rows, or took time where the CPU is the device
--   kernels BIGINT: device rows that they launched, those of calls that they made aside
--   device_ns BIGINT [ns]: time of these rows; of a CPU's operators their time outside of calls that they made
--
-- Example:
--   SELECT name, shapes, sum(calls) AS calls, sum(device_ns) AS ns FROM operator_summary
--   GROUP BY ALL ORDER BY ns DESC, name, shapes LIMIT 20
SELECT
  rank, name, shapes, dtypes, count(*) AS calls, sum(kernels)::BIGINT AS kernels,
  sum(device_ns)::BIGINT AS device_ns
FROM operators
WHERE device_ns > 0 OR kernels > 0
GROUP BY ALL
