-- SPDX-License-Identifier: Apache-2.0
-- Host calls that wait for the device, one by one.
--
-- Columns:
--   rank INTEGER: rank
--   track BIGINT: thread that waits
--   name VARCHAR: the call: cudaStreamSynchronize, cudaDeviceSynchronize, ...
--   start_ns BIGINT [ns]: begin of the call
--   end_ns BIGINT [ns]: its end
--   dur_ns BIGINT [ns]: duration
--   correlation BIGINT: links it with other rows of the same call
--
-- Example:
--   SELECT name, count(*) AS calls, sum(dur_ns) AS ns, max(dur_ns) AS longest_ns FROM syncs GROUP BY name
--   ORDER BY ns DESC, name
SELECT rank, track, name, start_ns, start_ns + dur_ns AS end_ns, dur_ns, correlation
FROM events
WHERE side = 'host' AND kind = 'sync'
