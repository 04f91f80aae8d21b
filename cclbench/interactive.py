# SPDX-License-Identifier: Apache-2.0
"""The public API for Python sessions and notebooks: `api`, pictures and reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cclbench.api import diagnose, ingest, metrics, project, run, runs, search, whatif
from cclbench.comparison.build import compare, run_subject
from cclbench.comparison.comparison import Comparison
from cclbench.ground.text import html_of
from cclbench.record.run import Run

if TYPE_CHECKING:
    from cclbench.present.picture import Picture

__all__ = [
    "Comparison",
    "Run",
    "compare",
    "diagnose",
    "ingest",
    "metrics",
    "plot",
    "project",
    "report",
    "run",
    "runs",
    "search",
    "timeline",
    "whatif",
]


def plot(shown: Run | Comparison) -> Picture:
    """The step partition as a picture: of a run one bar per rank, of a comparison all runs on one axis.

    `UsageError` if no run has a step partition; metrics of a run are computed on demand.
    """
    from cclbench.present.charts.partition import partition_picture, picture_of_runs
    from cclbench.present.picture import Picture

    if isinstance(shown, Comparison):
        return Picture(picture_of_runs(shown.subjects))
    computed = shown if len(shown.figures) else metrics(shown)
    return Picture(partition_picture(list(computed.figures.summary), title=shown.id))


def timeline(
    run: Run,
    *,
    step: int | None = None,
    ranks: Sequence[int] | None = None,
    from_ms: float | None = None,
    to_ms: float | None = None,
) -> Picture:
    """One step, ranks over time, by default the first complete one; `from_ms`, `to_ms` are from its start.

    `UsageError` for a step or a rank that the run lacks.
    """
    from cclbench.present.picture import Picture
    from cclbench.present.timeline import step_timeline as timeline_of
    from cclbench.present.timeline_picture import draw_timeline, title_of

    drawn = timeline_of(run, step=step, ranks=ranks, from_ms=from_ms, to_ms=to_ms)
    return Picture(draw_timeline(drawn, title=title_of(run, drawn)))


def report(shown: Run | Comparison, path: str | Path) -> Path:
    """Write the report of a run or a comparison as one self-contained HTML file, and return its path."""
    from cclbench.present.html import check_page, write_page
    from cclbench.present.page import comparison_page, run_page

    target = Path(path)
    check_page(target)
    page = run_page(run_subject("A", shown)) if isinstance(shown, Run) else comparison_page(shown)
    write_page(page, target)
    return target


@html_of.register
def _(shown: Run) -> str:
    from cclbench.present.cell import run_cell

    return run_cell(shown)


@html_of.register
def _(shown: Comparison) -> str:
    from cclbench.present.cell import comparison_cell

    return comparison_cell(shown)
