# SPDX-License-Identifier: Apache-2.0
"""The step partition: a stacked bar a rank, as data for any medium and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cclbench.errors import UsageError
from cclbench.record.rows import Row
from cclbench.report.picture import check_picture, save_picture
from cclbench.units import humanise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_READABLE: Final = 0.05
"""Least width, of the axis, of a part that holds its percentage."""
_ROOM_FOR_TOTAL: Final = 1.1


@dataclass(frozen=True, slots=True)
class Part:
    """One of the five parts of a step: its metric, name, colours, and its glyph in Unicode and in ASCII."""

    metric: str
    label: str
    colour: str
    ink: str
    glyph: str
    plain: str


PARTS: Final = (
    # Okabe and Ito's palette, which colour-blind people tell apart (jfly.uni-koeln.de/color).
    Part("time.compute_only", "compute only", "#0072B2", "#FFFFFF", "█", "#"),
    Part("time.overlapped", "overlapped", "#009E73", "#FFFFFF", "▓", "%"),
    Part("time.exposed_comm", "exposed comm.", "#D55E00", "#FFFFFF", "▒", "="),
    Part("time.exposed_copy", "exposed copy", "#E69F00", "#333333", "░", "-"),
    Part("time.idle", "idle", "#D9D9D9", "#333333", "·", "."),
)


@dataclass(frozen=True, slots=True)
class RankPartition:
    """Where one rank's time went: seconds, mean over windows, in the order of `PARTS`."""

    rank: int
    seconds: tuple[float, ...]

    @property
    def step(self) -> float:
        """The length of the window, the sum of its parts."""
        return sum(self.seconds)


def partitions(rows: Sequence[Row]) -> list[RankPartition]:
    """The partition of every rank whose five parts are all among the rows, by rank."""
    found: dict[int, dict[str, float]] = {}
    wanted = {part.metric for part in PARTS}
    for row in rows:
        if row.metric in wanted and row.has_value and row.rank is not None and not row.narrowed:
            found.setdefault(row.rank, {})[row.metric] = row.number
    return [
        RankPartition(rank, tuple(values[part.metric] for part in PARTS))
        for rank, values in sorted(found.items())
        if len(values) == len(PARTS)
    ]


def extremes(ranks: Sequence[RankPartition], most: int) -> list[RankPartition]:
    """All ranks, or where there are more than `most` the slowest and the fastest, by rank."""
    if len(ranks) <= most:
        return list(ranks)
    slowest_first = sorted(ranks, key=lambda r: (-r.step, r.rank))
    fast = most // 2
    return sorted(slowest_first[: most - fast] + slowest_first[-fast:], key=lambda r: r.rank)


def plot_partition(rows: Sequence[Row], path: Path, *, title: str) -> None:
    """Write the partition as PNG, SVG or PDF, as the file's suffix says.

    Raises `UsageError` for another suffix and where the rows hold no partition.
    """
    check_picture(path)
    ranks = partitions(rows)
    if not ranks:
        raise UsageError(
            "there is no step partition to plot", hint="it needs the figures of `--metric 'time.*'` on a rank"
        )
    save_picture(lambda: draw_partition(ranks, title=title), path)


def draw_partition(ranks: Sequence[RankPartition], *, title: str) -> Figure:
    """A horizontal stacked bar a rank, in ms; of more than 32 ranks the slowest and fastest 16."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    shown = extremes(ranks, 32)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(8, 1.4 + 0.3 * max(len(shown), 1.4)), layout=layout)
        axes = figure.add_subplot()
        _bars(axes, shown)
        _frame(axes, shown, hidden=len(ranks) - len(shown))
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold", pad=28)
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            ncols=len(PARTS),
            frameon=False,
            borderpad=0,
            borderaxespad=0.5,
            handlelength=1.2,
            handleheight=0.9,
            columnspacing=1.4,
        )
    return figure


def _bars(axes: Axes, ranks: Sequence[RankPartition]) -> None:
    left = [0.0] * len(ranks)
    longest = max(rank.step for rank in ranks)
    for index, part in enumerate(PARTS):
        seconds = [rank.seconds[index] for rank in ranks]
        bars = axes.barh(
            range(len(ranks)),
            [1e3 * s for s in seconds],
            left=left,
            height=0.76,
            color=part.colour,
            edgecolor="#FFFFFF",
            linewidth=0.4,
            hatch="////" if part.metric == "time.idle" else None,
            label=part.label,
        )
        shares = [
            f"{s / rank.step:.0%}" if s > _READABLE * longest else ""
            for s, rank in zip(seconds, ranks, strict=True)
        ]
        axes.bar_label(bars, shares, label_type="center", fontsize=7, color=part.ink)
        left = [start + 1e3 * s for start, s in zip(left, seconds, strict=True)]
    for position, rank in enumerate(ranks):
        axes.annotate(
            humanise(rank.step, "s"),
            (1e3 * rank.step, position),
            (5, 0),
            textcoords="offset points",
            va="center",
        )


def _frame(axes: Axes, ranks: Sequence[RankPartition], *, hidden: int) -> None:
    axes.set_yticks(range(len(ranks)), [f"rank {rank.rank}" for rank in ranks])
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    axes.set_xlim(0, 1e3 * _ROOM_FOR_TOTAL * max(rank.step for rank in ranks))
    axes.set_xlabel(
        f"ms ({hidden} ranks between the slowest and the fastest are not shown)" if hidden else "ms"
    )
    axes.tick_params(axis="y", length=0)
    axes.xaxis.grid(visible=True, color="#000000", alpha=0.12, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
