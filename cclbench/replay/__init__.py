# SPDX-License-Identifier: Apache-2.0
"""What-if analysis: a run as a dependency graph, replayed with changes of hardware or software.

`tables` reads a run's rows; `events` finds dependencies that the trace states, `waits` those that times show;
`device`, `host`, `accelerator` and `cpu` build a rank's part of the graph, `graph` joins ranks, `simulate`
replays; `scenario` parses settings, `pricing` computes new times, `changes` edits the graph, `critical_path`
finds where the time goes, `answer` returns results. `space` and `sampler` choose many scenarios, `search`
ranks them.
"""

from typing import Final

PASSING_ROWS: Final = 2_000_000
"""Most rows of a run that findings, reports and comparisons replay automatically: some 4 s."""
