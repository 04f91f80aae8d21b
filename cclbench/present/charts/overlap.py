# SPDX-License-Identifier: Apache-2.0
"""Step time over overlap ratio: a mark for each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.present.charts.chart import (
    HALF_PX,
    Chart,
    Titles,
    blank_canvas,
    legend_entries,
    merge_alike,
    section,
    with_letter,
)
from cclbench.present.charts.palette import drawing_colour, light_colour, marker_of
from cclbench.present.charts.svg import drawn_svg
from cclbench.record.metric_name import metric_name
from cclbench.record.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OVERLAP: Final = metric_name("overlap.ratio")
_STEP: Final = metric_name("time.step")
_OVERLAPPED: Final = metric_name("time.overlapped")
_COMM_TIME: Final = metric_name("comm.time")

MOST_SINGLE: Final = 1500
"""With more steps, they are drawn as an image without hover text."""

Point = tuple[int | None, float, float]
"""Step (None: the run), overlap ratio, step time in s."""


@section("overlap", place=20)
def overlap_chart(runs: Sequence[ComparisonSubject]) -> Chart:
    """The steps of all runs; runs without steps or communication are listed with the reason."""
    heading = "Overlap and step time"
    caption = (
        "A mark is a step: the share of communication hidden behind compute (Σ time.overlapped / Σ comm.time"
        " over ranks), and the slowest rank's window (time.step). A run without single steps is one mark,"
        " hollow if its figures are published."
    )
    points_by_run, missing = [], []
    for run in runs:
        points, silent = points_of(run.results)
        if not points:
            ratio, step = run.results.value(_OVERLAP), run.results.value(_STEP)
            if ratio is None:
                missing.append((run, f"no overlap: {run.results.missing_reason(_OVERLAP)}"))
                continue
            if step is None:
                missing.append((run, f"no step time: {run.results.missing_reason(_STEP)}"))
                continue
            points = [(None, ratio, step)]
        points_by_run.append((run, points))
        if silent:
            missing.append(
                (run, f"not drawn: {silent} step{'s'[: silent != 1]} without communication on any rank")
            )
    if sum(len(points) for _, points in points_by_run) == 1:
        ((run, ((_, ratio, _),)),) = points_by_run
        missing.append((run, f"one step: {humanise(ratio, '1')} of its communication is hidden"))
        points_by_run = []
    label = "; ".join(
        with_letter(
            run,
            f"{len(points)} steps, overlap {humanise(min(p[1] for p in points), '1')} to"
            f" {humanise(max(p[1] for p in points), '1')}",
        )
        for run, points in points_by_run
    )
    svg = (
        drawn_svg(lambda: _draw_overlap(points_by_run), name="overlap", label=f"{heading}: {label}")
        if points_by_run
        else None
    )
    drawn_runs = legend_entries(run for run, _ in points_by_run)
    return Chart("overlap", heading, caption, svg, merge_alike(missing), legend=drawn_runs)


def points_of(rows: Results) -> tuple[list[Point], int]:
    """The steps as points, and the number of steps without communication on any rank."""
    step = rows.steps(_STEP)
    hidden, comm = rows.grid(_OVERLAPPED), rows.grid(_COMM_TIME)
    if not step or hidden.values.shape != comm.values.shape:
        return [], 0
    has_both = ~(np.ma.getmaskarray(hidden.values) | np.ma.getmaskarray(comm.values))
    hidden_s, comm_s = (np.where(has_both, grid.values.data, 0.0).sum(axis=0) for grid in (hidden, comm))
    ratio = np.divide(hidden_s, comm_s, out=np.zeros(len(comm_s)), where=comm_s > 0)
    points = [
        (number, share, step[number])
        for number, share, comm_time in zip(comm.steps.tolist(), ratio.tolist(), comm_s.tolist(), strict=True)
        if comm_time > 0 and number in step
    ]
    return points, len(comm.steps) - len(points)


def _draw_overlap(
    points_by_run: Sequence[tuple[ComparisonSubject, Sequence[Point]]],
) -> tuple[Figure, Titles]:
    from cclbench.present.charts.ticks import label_above, quantity_axis

    figure, axes = blank_canvas(HALF_PX, 330, left=76, right=24, top=24, bottom=46)
    titles: dict[str, list[str]] = {}
    for run, points in points_by_run:
        x, y = [point[1] for point in points], [point[2] for point in points]
        many = len(points) > MOST_SINGLE
        (marks,) = axes.plot(
            x,
            y,
            linestyle="none",
            marker=marker_of(run.index),
            markersize=4 if many else 6.5,
            color="none" if run.is_published else drawing_colour(run.index),
            markeredgecolor=drawing_colour(run.index),
            alpha=0.35 if many else 0.75,
            markeredgewidth=1.5 if run.is_published else 0,
            rasterized=many,
            clip_on=False,
        )
        if not many:
            marks.set_gid(f"steps-{run.index}")
            titles[f"steps-{run.index}"] = [
                _hover_text(run, number, ratio, seconds) for number, ratio, seconds in points
            ]
        if run.letter:
            axes.annotate(
                run.letter,
                (float(np.median(x)), float(np.median(y))),
                (9, 9),
                textcoords="offset points",
                fontweight="bold",
                color=light_colour("ink"),
            )
    axes.margins(0.12)
    low, high = axes.get_xlim()
    axes.set_xlim(max(low, 0.0), min(high, 1.0))
    quantity_axis(axes.xaxis, "1", 6)
    quantity_axis(axes.yaxis, "s")
    axes.set_xlabel("communication hidden behind compute")
    label_above(axes, "step time")
    return figure, titles


def _hover_text(run: ComparisonSubject, number: int | None, ratio: float, seconds: float) -> str:
    figures = f"overlap {humanise(ratio, '1')}, step time {humanise(seconds, 's')}"
    if number is not None:
        return f"{with_letter(run, f'step {number}')}: {figures}\nmeasured"
    rows = [run.results.run[metric] for metric in (_OVERLAP, _STEP)]
    reasons = (f"{row.metric}, {row.provenance}: {row.reason or 'no remark'}" for row in rows)
    return "\n".join([f"{with_letter(run, 'the run')}: {figures}", *reasons])
