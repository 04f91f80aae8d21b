-- SPDX-License-Identifier: Apache-2.0
-- Calls that launch kernels, with their kernels: duration of the call, and delay until its first kernel.
--
-- Columns:
--   rank INTEGER: rank
--   step INTEGER: step whose window its first kernel begins in
--   in_window BOOLEAN: whether its first kernel begins in a window of step_windows
--   track BIGINT: thread that called
--   name VARCHAR: the runtime's call: cudaLaunchKernel, hipGraphLaunch, ...
--   start_ns BIGINT [ns]: begin of the call
--   dur_ns BIGINT [ns]: duration of the call; its mean is launch.call_time
--   correlation BIGINT: links it with what it launched
--   kernels BIGINT: kernels that it launched, of a CUDA graph several
--   first_kernel_ns BIGINT [ns]: begin of the first one
--   delay_ns BIGINT [ns]: from the call's begin to the first kernel's; its mean is launch.delay
--   kernel_ns BIGINT [ns]: summed durations of the kernels
--
-- Example:
--   SELECT name, count(*) AS calls, avg(dur_ns) AS call_ns, avg(delay_ns) AS delay_ns FROM launches
--   WHERE in_window AND delay_ns >= 0 GROUP BY name ORDER BY calls DESC, name
WITH calls AS (
  -- Of several calls of one correlation the earliest launched.
  SELECT rank, track, name, start_ns, dur_ns, correlation
  FROM events
  WHERE kind = 'launch' AND correlation IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY rank, correlation ORDER BY start_ns, dur_ns DESC, track, name) = 1
),
launched AS (
  SELECT
    rank, correlation, count(*) AS kernels, min(start_ns) AS first_kernel_ns, sum(dur_ns)::BIGINT AS kernel_ns,
    first(step ORDER BY start_ns, track) AS step, first(in_window ORDER BY start_ns, track) AS in_window
  FROM device_rows WHERE kind = 'kernel' AND correlation IS NOT NULL
  GROUP BY rank, correlation
)
SELECT
  rank, step, in_window, track, name, start_ns, dur_ns, correlation, kernels, first_kernel_ns,
  first_kernel_ns - start_ns AS delay_ns, kernel_ns
FROM calls JOIN launched USING (rank, correlation)
