# SPDX-License-Identifier: Apache-2.0
"""Histories of the labelled runs of a site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cclbench.comparison.history import FigureHistory, history
from cclbench.ground.errors import CclbenchError
from cclbench.present.board.rows import BoardRow
from cclbench.record.run import Run
from cclbench.workspace import Workspace

LEAST_RUNS = 3


def read_series(
    rows: Sequence[BoardRow], runs: Mapping[Path, Run], by_id: Mapping[str, Path], session: Workspace
) -> tuple[list[tuple[str, FigureHistory]], list[str]]:
    """The history of each job of which at least three runs have labels, by its name; and why one has none."""
    jobs: dict[str, list[Run]] = {}
    for row in rows:
        if row.series is not None:
            jobs.setdefault(row.series, []).append(runs[by_id[row.id]])
    histories, notes = [], []
    for name, job_runs in sorted(jobs.items()):
        if len(job_runs) < LEAST_RUNS:
            continue
        try:
            figures, _ = history(
                *job_runs, store=session.store, engine=session.engine, progress=session.progress
            )
            histories += [(name, figure) for figure in figures]
        except CclbenchError as error:
            notes.append(f"history of {name}: {error}")
    return histories, notes
