-- SPDX-License-Identifier: Apache-2.0
-- Kernels, copies, memsets and CUDA graphs traced as a whole, with the window that each begins in.
--
-- Columns:
--   rank INTEGER: rank whose device ran it
--   step INTEGER: step whose window it begins in
--   in_window BOOLEAN: whether it begins in a window of step_windows
--   device SMALLINT: index of the accelerator as the process sees it
--   track BIGINT: stream
--   kind VARCHAR: kernel, copy, memset or graph
--   category VARCHAR: what it does, by its name: gemm, attention, communication, ...
--   name VARCHAR: the profiler's name for it
--   start_ns BIGINT [ns]: begin
--   end_ns BIGINT [ns]: end
--   dur_ns BIGINT [ns]: duration
--   correlation BIGINT: links it with its launch
--   operator BIGINT: id of the innermost operator call that launched it
--   phase VARCHAR: what its launch was for: forward, backward, optimizer, ...
--   module VARCHAR: path of the nn.Module that launched it
--   bytes BIGINT [B]: bytes copied or set
--   copy_direction VARCHAR: of a copy: h2d, d2h, d2d, p2p
--   flops DOUBLE [FLOP]: operations, where the trace states them
--   hbm_bytes BIGINT [B]: device memory traffic, where the trace states it
--   program VARCHAR: name of the compiled program (XLA)
--   awaited_ns BIGINT [ns]: of a transfer that runs beside the device's core: time of the core to issue and await it
--
-- Example:
--   SELECT module, count(*) AS device_rows, sum(dur_ns) AS ns FROM device_rows WHERE in_window GROUP BY module
--   ORDER BY ns DESC, module LIMIT 20
SELECT
  d.rank,
  CASE WHEN d.start_ns < w.end_ns THEN w.step END AS step,
  coalesce(d.start_ns < w.end_ns, false) AS in_window,
  d.device, d.track, d.kind, d.category, d.name, d.start_ns, d.start_ns + d.dur_ns AS end_ns, d.dur_ns,
  d.correlation, d.operator, d.phase, d.module, d.bytes, d.copy_direction, d.flops, d.hbm_bytes,
  d.program, d.awaited_ns
FROM (SELECT * FROM events WHERE kind IN ('kernel', 'copy', 'memset', 'graph')) AS d
ASOF LEFT JOIN step_windows AS w ON d.rank = w.rank AND d.start_ns >= w.start_ns
