# SPDX-License-Identifier: Apache-2.0
"""What if: a run rebuilt as a dependency graph and replayed under other hardware.

`tables` reads a run's rows; `events` finds who waited for whom where the trace states it, `waits` where it
shows; `device`, `host`, `accelerator` and `cpu` make a rank's part of the graph, `graph` puts ranks together,
`simulate` replays; `scenario` says what changes, `pricing` by how much, `changes` what else of the graph,
`critical_path` where the time goes, `answer` what people get.  `space` and `sampler` are many scenarios and
which of them to look at, `search` ranks them.
"""

from typing import Final

PASSING_ROWS: Final = 2_000_000
"""Rows of a run up to which findings, a report or a comparison replay it in passing: some 4 s."""
