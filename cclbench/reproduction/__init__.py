# SPDX-License-Identifier: Apache-2.0
"""From a gap to its proof: a call of a trace as a micro-benchmark, and its result beside the trace.

`recorded` finds the calls of a row of the operators' table, `arguments` reads what the trace records of their
arguments, or says why that does not suffice.  `script` writes `microbenchmark`, which no module imports: it
runs by itself, with PyTorch alone.  `check` compares what it printed with the trace.
"""
