# SPDX-License-Identifier: Apache-2.0
"""Where the step went: a stacked bar for the mean of the ranks and one for each rank, of every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cclbench.report.charts.chart import FULL_PX, Chart, Titles, canvas
from cclbench.report.charts.palette import light
from cclbench.report.charts.svg import drawn
from cclbench.report.seen import Seen, together
from cclbench.units import humanise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS: Final = 64
_READABLE: Final = 0.035
_BAR_PX: Final = (12, 19)
"""Least and largest height of a bar and the gap below it."""
_HEIGHT_PX: Final = 760
"""What many bars are squeezed into, as far as the least height allows."""
_GAP: Final = 0.9


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a bar: metric, label, colour, ink on it, hatching, and the finer parts that replace it."""

    metric: str
    label: str
    colour: str
    ink: str
    hatch: tuple[str, str] | None = None
    finer: tuple[Slice, ...] = ()


SLICES: Final = (
    Slice("time.compute_only", "compute only", "compute", "on-dark"),
    Slice("time.overlapped", "overlapped", "overlapped", "on-dark"),
    Slice(
        "time.exposed_comm",
        "exposed communication",
        "transfer",
        "on-dark",
        finer=(
            Slice("time.exposed_transfer", "exposed transfer", "transfer", "on-dark"),
            Slice("time.exposed_wait", "exposed wait", "wait", "on-pale", ("////", "wait-hatch")),
            Slice("time.exposed_unmatched", "exposed unmatched", "unmatched", "on-dark"),
        ),
    ),
    Slice("time.exposed_copy", "exposed copies", "copy", "on-pale"),
    Slice(
        "time.idle",
        "idle",
        "idle",
        "on-pale",
        ("////", "idle-hatch"),
        finer=(
            Slice("time.idle_host", "host-bound idle", "idle-host", "on-dark"),
            Slice("time.idle_device", "idle, waits on device", "idle", "on-pale", ("////", "idle-hatch")),
            Slice("time.idle_unknown", "idle, no launch known", "idle", "on-pale", ("....", "idle-hatch")),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what it is called and its slices with their seconds, in the order of `SLICES`."""

    name: str
    slices: tuple[tuple[Slice, float], ...]

    @property
    def seconds(self) -> float:
        """The whole window."""
        return sum(seconds for _, seconds in self.slices)


def partition(runs: Sequence[Seen]) -> Chart:
    """The bars of all runs on one axis; of many ranks the slowest and the fastest."""
    heading = "Where the step goes, rank by rank"
    caption = (
        "Exact partition of each rank's window, mean over its windows. Overlapped is computing while"
        " communication runs; exposed communication is told apart into waiting for a later rank and transfer"
        " where collectives are matched across ranks."
    )
    blocks, missing = [], []
    for run in runs:
        bars = _bars(run)
        if not bars:
            missing.append((run, f"no partition: {run.rows.why_not('time.compute_only')}"))
            continue
        ranks = sorted(bars[1:], key=lambda bar: -bar.seconds)
        half = max(MOST_BARS // len(runs), 8) // 2
        if len(ranks) > 2 * half:
            kept = {bar.name for bar in ranks[:half] + ranks[-half:]}
            between = len(ranks) - len(kept)
            missing.append((run, f"{between} ranks between the slowest and the fastest are not drawn"))
            bars = bars[:1] + [bar for bar in bars[1:] if bar.name in kept]
        blocks.append((run, bars))
    if not blocks:
        return Chart("partition", heading, caption, None, together(missing), wide=True)
    label = "; ".join(_said(run, bars[0]) for run, bars in blocks)
    svg = drawn(lambda: _draw(blocks), name="partition", label=f"Step partition: {label}")
    used = {one.label: one for _, bars in blocks for bar in bars for one, _ in bar.slices}
    ordered = (one for whole in SLICES for one in (whole, *whole.finer) if used.get(one.label) is one)
    legend = tuple((one.colour, "▨" if one.hatch else "■", one.label) for one in ordered)
    return Chart("partition", heading, caption, svg, together(missing), wide=True, legend=legend)


def _bars(run: Seen) -> list[Bar]:
    """The mean of the ranks, then each rank that has all parts; none where no rank has."""
    names = [one.metric for whole in SLICES for one in (whole, *whole.finer)]
    found = {name: run.rows.ranks(name) for name in names}
    whole = set.intersection(*(set(found[one.metric]) for one in SLICES))
    if not whole:
        return []
    chosen = [
        finer
        for one in SLICES
        for finer in (
            one.finer if one.finer and all(whole <= set(found[f.metric]) for f in one.finer) else [one]
        )
    ]
    ranks = [
        Bar(f"rank {rank}", tuple((one, found[one.metric][rank]) for one in chosen)) for rank in sorted(whole)
    ]
    mean = tuple((one, sum(found[one.metric][rank] for rank in whole) / len(whole)) for one in chosen)
    title = "one rank" if len(whole) == 1 else f"mean of {len(whole)} ranks"
    bars = [Bar(title, mean), *(ranks if len(ranks) > 1 else [])]
    present = {one for bar in bars for one, seconds in bar.slices if seconds > 0}
    return [Bar(bar.name, tuple(pair for pair in bar.slices if pair[0] in present)) for bar in bars]


def _said(run: Seen, bar: Bar) -> str:
    parts = ", ".join(f"{one.label} {humanise(seconds, 's')}" for one, seconds in bar.slices)
    return run.says(f"{bar.name}: {parts}")


def _draw(blocks: Sequence[tuple[Seen, Sequence[Bar]]]) -> tuple[Figure, Titles]:
    places, at = [], 0.0
    for run, bars in blocks:
        for index, bar in enumerate(bars):
            places.append((run, bar, at, index == 0))
            at += 1.25 if index == 0 and len(bars) > 1 else 1
        at += _GAP
    at -= _GAP
    bar_px = min(max(_HEIGHT_PX / at, _BAR_PX[0]), _BAR_PX[1])
    figure, axes = canvas(FULL_PX, int(bar_px * at) + 48, left=136, right=84, top=4, bottom=36)
    longest = max(bar.seconds for _, bar, _, _ in places) or 1.0
    titles: dict[str, str] = {}
    for run, bar, place, mean in places:
        _stack(axes, run, bar, place, longest, titles)
        axes.annotate(
            humanise(bar.seconds, "s"),
            (bar.seconds, place),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=min(11, bar_px - 2),
            fontweight="bold" if mean else "normal",
        )
    axes.set_yticks([place for _, _, place, _ in places], [run.says(bar.name) for run, bar, _, _ in places])
    for tick, (_, _, _, mean) in zip(axes.get_yticklabels(), places, strict=True):
        tick.set_fontweight("bold" if mean else "normal")
        tick.set_fontsize(min(11, bar_px - 2))
    axes.set_ylim(at - 0.4, -0.6)
    axes.set_xlim(0, longest)
    axes.xaxis.set_major_formatter(lambda x, _: humanise(x, "s"))
    axes.tick_params(axis="y", length=0, labelcolor=light("ink"))
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    return figure, titles


def _stack(axes: Axes, run: Seen, bar: Bar, place: float, longest: float, titles: dict[str, str]) -> None:
    left = 0.0
    for index, (one, seconds) in enumerate(bar.slices):
        hatch: dict[str, Any] = {"hatch": one.hatch[0], "edgecolor": light(one.hatch[1])} if one.hatch else {}
        (drawn_,) = axes.barh(place, seconds, left=left, height=0.8, color=light(one.colour), **hatch)
        gid = f"bar-{run.place}-{place:g}-{index}"
        drawn_.set_gid(gid)
        share = seconds / bar.seconds if bar.seconds else 0.0
        titles[gid] = (
            f"{run.says(bar.name)}: {one.label} {humanise(seconds, 's')}, {humanise(share, '1')} of"
            f" {humanise(bar.seconds, 's')}\n{one.metric}, measured"
        )
        if seconds > _READABLE * longest:
            axes.text(
                left + seconds / 2,
                place,
                f"{share:.0%}",
                ha="center",
                va="center",
                fontsize=9,
                color=light(one.ink),
            )
        left += seconds
