# SPDX-License-Identifier: Apache-2.0
"""Compute roofline: kernels by arithmetic intensity and rate, with the accelerator's two peaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.platform import hbm_bytes_per_s, peak_flops_per_s
from cclbench.analyzers.view.rank_view import RankView
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.machine import machine_of
from cclbench.present.charts.chart import (
    HALF_PX,
    Chart,
    Titles,
    blank_canvas,
    legend_entries,
    merge_alike,
    roofline_axes,
    section,
    with_letter,
)
from cclbench.present.charts.palette import drawing_colour, light_colour, marker_of
from cclbench.present.charts.svg import drawn_svg
from cclbench.present.kernels import SHORT_NAME
from cclbench.record.metric_name import metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BOUND_SHARE: Final = metric_name("memory.bound_share")

MOST_KERNELS: Final = 150
_KERNELS: Final = f"""
    WITH kernels AS (
        SELECT name::VARCHAR AS name, flops, hbm_bytes, dur_ns FROM events
        WHERE kind = 'kernel' AND flops > 0 AND hbm_bytes > 0 AND dur_ns > 0
    )
    SELECT {SHORT_NAME} AS name, sum(flops) AS flops, sum(hbm_bytes)::DOUBLE AS bytes,
        sum(dur_ns)::DOUBLE AS ns, sum(sum(dur_ns)) OVER ()::DOUBLE AS all_ns, count(*) OVER () AS names
    FROM kernels GROUP BY kernels.name ORDER BY ns DESC, kernels.name LIMIT {MOST_KERNELS}
"""  # noqa: S608 - of constants


@dataclass(frozen=True, slots=True)
class KernelWork:
    """The kernels with one name: FLOP and bytes as stated in the trace, seconds of all calls."""

    name: str
    flops: float
    bytes: float
    seconds: float

    @property
    def flop_per_byte(self) -> float:
        """FLOP per byte of device memory."""
        return self.flops / self.bytes

    @property
    def flop_per_s(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds


Peaks = tuple[float | None, float | None]
"""The accelerator's peak FLOP/s and bytes/s; None if unknown."""


@section("roofline", place=40)
def roofline_chart(runs: Sequence[ComparisonSubject]) -> Chart:
    """The kernels of all runs with FLOPs and traffic stated in the trace."""
    heading = "Compute roofline"
    caption = (
        "A mark is a kernel: FLOP/s over FLOP per byte, both as stated in the trace; its area is the time of"
        " all its calls. Left of the ridge it is bound by memory, right of it by the peak of the card's"
        " precision."
    )
    rooflines, missing = [], []
    for run in runs:
        kernels, note = kernels_of(run)
        if not kernels:
            missing.append((run, f"no roofline: {note}"))
            continue
        peaks, lacking = peaks_of(run)
        rooflines.append((run, kernels, peaks))
        missing += [(run, why) for why in (*lacking, note) if why]
    label = "; ".join(
        with_letter(
            run, f"{len(kernels)} kernels, up to {humanise(max(k.flop_per_s for k in kernels), 'FLOP/s')}"
        )
        for run, kernels, _ in rooflines
    )
    svg = (
        drawn_svg(lambda: _draw_roofline(rooflines), name="roofline", label=f"{heading}: {label}")
        if rooflines
        else None
    )
    drawn_runs = legend_entries(run for run, _, _ in rooflines)
    return Chart("roofline", heading, caption, svg, merge_alike(missing), legend=drawn_runs)


def kernels_of(run: ComparisonSubject) -> tuple[list[KernelWork], str]:
    """The kernels with the most time, and a note on how many are not drawn, or why there are none."""
    stored = run.stored
    if not stored.ranks:
        return [], "the run has no trace"
    rows = stored.sql(_KERNELS).to_pylist() if "kernel" in stored.record.event_kinds else []
    if not rows:
        if run.results.value(_BOUND_SHARE) is not None:
            return [], "the trace states no FLOPs of kernels; see the operators' roofline, by cost models"
        return [], run.results.missing_reason(_BOUND_SHARE)
    kernels = [KernelWork(printable(r["name"]), r["flops"], r["bytes"], r["ns"] / 1e9) for r in rows]
    more = rows[0]["names"] - len(rows)
    share = 1 - sum(r["ns"] for r in rows) / rows[0]["all_ns"]
    return kernels, f"{more} kernels with {humanise(share, '1')} of the time are not drawn" if more else ""


def peaks_of(run: ComparisonSubject) -> tuple[Peaks, list[str]]:
    """The two peaks of the first rank's accelerator, as metrics use them, and why one is unknown."""
    stored = run.stored
    rank = stored.ranks[0]
    view = RankView(stored.rank(rank), rank=rank, card=stored.card, machine=machine_of(stored))
    lacking: list[str] = []

    def known_peak(ask: Callable[[RankView], float]) -> float | None:
        try:
            return ask(view)
        except NotApplicable as why:
            lacking.append(f"no peak: {why}")
            return None

    return (known_peak(peak_flops_per_s), known_peak(hbm_bytes_per_s)), lacking


def _draw_roofline(
    rooflines: Sequence[tuple[ComparisonSubject, Sequence[KernelWork], Peaks]],
) -> tuple[Figure, Titles]:
    figure, axes = blank_canvas(HALF_PX, 330, left=88, right=16, top=18, bottom=46)
    axes.set_xscale("log")
    axes.set_yscale("log")
    titles: dict[str, str] = {}
    for run, kernels, _ in rooflines:
        longest = max(kernel.seconds for kernel in kernels)
        for n, kernel in enumerate(kernels):
            (mark,) = axes.plot(
                [kernel.flop_per_byte],
                [kernel.flop_per_s],
                marker=marker_of(run.index),
                markersize=math.sqrt(18 + 260 * kernel.seconds / longest),
                color=drawing_colour(run.index),
                alpha=0.6,
                markeredgewidth=0,
            )
            mark.set_gid(f"kernel-{run.index}-{n}")
            titles[f"kernel-{run.index}-{n}"] = _hover_text(run, kernel)
    left, right = axes.get_xlim()
    for run, _, peaks in rooflines:
        _draw_roof(axes, run, peaks, left, right, titles)
    axes.set_xlim(left, right)
    roofline_axes(axes)
    axes.set_xlabel("FLOP per byte of device memory")
    return figure, titles


def _draw_roof(
    axes: Axes, run: ComparisonSubject, peaks: Peaks, left: float, right: float, titles: dict[str, str]
) -> None:
    """min(peak, intensity · bandwidth); a single line if only one is known."""
    flops, memory = peaks
    if flops is None and memory is None:
        return
    ridge = {min(max(flops / memory, left), right)} if flops is not None and memory is not None else set()
    x = sorted({left, *ridge, right})
    y = [
        min(at * memory if memory is not None else math.inf, math.inf if flops is None else flops) for at in x
    ]
    colour = drawing_colour(run.index) if run.letter else light_colour("ink")
    (line,) = axes.plot(x, y, color=colour, linewidth=1.3, linestyle=(0, (5, 3)))
    line.set_gid(f"roof-{run.index}")
    peak_words = [
        humanise(peak, unit) for peak, unit in ((flops, "FLOP/s"), (memory, "B/s")) if peak is not None
    ]
    titles[f"roof-{run.index}"] = with_letter(
        run, f"peaks: {' and '.join(peak_words)}, from the trace or the catalog"
    )


def _hover_text(run: ComparisonSubject, kernel: KernelWork) -> str:
    return (
        f"{with_letter(run, kernel.name)}\n{humanise(kernel.flop_per_s, 'FLOP/s')} at"
        f" {kernel.flop_per_byte:.3g} FLOP/B, {humanise(kernel.seconds, 's')} in all\n"
        "derived from FLOPs and bytes in the trace"
    )
