# SPDX-License-Identifier: Apache-2.0
"""Bytes exchanged between ranks, as a matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cclbench.analyzers.view.exchanged import ExchangedBytes, Float, exchanged_bytes
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.present.charts.chart import HALF_PX, Chart, Titles, blank_canvas, section, with_letter
from cclbench.present.charts.palette import light_colour
from cclbench.present.charts.svg import drawn_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_RANKS: Final = 128
"""With more ranks, a cell is a block of ranks."""
MOST_WORLD: Final = 2048
"""With more ranks, no matrix is drawn."""
_SIDE_PX: Final = 384
_LEFT_PX: Final = 64
_SCALE_PX: Final = (460, 12)
"""Place and width of the scale."""
_MOST_NUMBERS: Final = 8
"""Most ranks for which each cell states its bytes."""
_NUMBER_PX: Final = 9.5
_ON_DARK: Final = "#fdfdfd"
"""White of both themes: the cells' blue is the same in both."""
_RANK_TICKS: Final = 16
_UNSEEN: Final = 0.004
"""Opacity of areas that only carry hover text: matplotlib omits fully transparent ones."""


@section("exchange", place=35)
def exchange_charts(runs: Sequence[ComparisonSubject]) -> Iterable[Chart]:
    """The matrix of each run."""
    return map(exchange_chart, runs)


def exchange_chart(run: ComparisonSubject) -> Chart:
    """The matrix of one run, or the reason why there is none."""
    key, heading = f"exchange-{run.index}", with_letter(run, "Bytes sent between ranks")
    caption = (
        "Bytes from the rank of a row to that of a column, over the whole capture. Sends count for their"
        " receiver; all-reduce, all-gather, reduce-scatter and all-to-all are spread evenly over their group,"
        " since traces do not state the algorithm."
    )
    stored = run.stored
    if not stored.ranks:
        return Chart(key, heading, caption, None, ("the run has no trace",))
    groups = {row["group"]: tuple(row["ranks"]) for row in stored.groups().to_pylist()}
    world = len({*stored.ranks, *(rank for group in groups.values() for rank in group)})
    if world > MOST_WORLD:
        why = f"a matrix of {world:,} ranks is not drawn: pairs are not visible beyond {MOST_WORLD:,}"
        return Chart(key, heading, caption, None, (why,))
    tables = {rank: stored.rank(rank).collectives() for rank in stored.ranks}
    traffic = exchanged_bytes(tables, groups)
    missing = tuple(
        f"left out: {count:,} parts of collectives {why}" for why, count in traffic.left_out.items()
    )
    if not traffic.sent_bytes.any():
        return Chart(key, heading, caption, None, missing or ("no collectives between several ranks",))
    cells = pool_blocks(traffic.sent_bytes)
    if len(cells) < len(traffic.ranks):
        missing = (*missing, f"a cell is {-(-len(traffic.ranks) // len(cells))} ranks by as many")
    label = f"Matrix of {len(traffic.ranks)} ranks; {_most_words(traffic)}"
    svg = drawn_svg(lambda: _draw_exchange(traffic, cells), name=key, label=label)
    return Chart(key, heading, caption, svg, missing)


def pool_blocks(values: Float) -> Float:
    """Sums over blocks of ranks, such that there are at most `MOST_RANKS`; shape (blocks, blocks)."""
    block = -(-len(values) // MOST_RANKS)
    begins = np.arange(0, len(values), block)
    return np.asarray(np.add.reduceat(np.add.reduceat(values, begins, axis=0), begins, axis=1))


def _most_words(traffic: ExchangedBytes) -> str:
    source, target = np.unravel_index(int(traffic.sent_bytes.argmax()), traffic.sent_bytes.shape)
    most = humanise(float(traffic.sent_bytes[source, target]), "B")
    return f"most is {most}, from rank {traffic.ranks[source]} to rank {traffic.ranks[target]}"


def _draw_exchange(traffic: ExchangedBytes, cells: Float) -> tuple[Figure, Titles]:
    from cclbench.present.charts.ticks import index_axis

    count = len(cells)
    block = -(-len(traffic.ranks) // count)
    figure, axes = blank_canvas(
        HALF_PX, _SIDE_PX + 46, left=_LEFT_PX, right=HALF_PX - _LEFT_PX - _SIDE_PX, top=4, bottom=42
    )
    axes.imshow(_image_cells(cells), aspect="auto", interpolation="none")
    if count <= _MOST_NUMBERS:
        dark = cells > cells.max() / 2
        for row, column in np.argwhere(cells > 0).tolist():
            ink = _ON_DARK if dark[row, column] else light_colour("ink")
            size = humanise(float(cells[row, column]), "B")
            axes.text(column, row, size, ha="center", va="center", fontsize=_NUMBER_PX, color=ink)
    _draw_scale(figure, float(cells.max()))
    titles: dict[str, str] = {}
    for place in range(count):
        (strip,) = axes.barh(place, count, left=-0.5, height=1, color=light_colour("bg"), alpha=_UNSEEN)
        strip.set_gid(f"from-{place}")
        titles[f"from-{place}"] = "; ".join(
            _hover_text(traffic, row)
            for row in range(place * block, min((place + 1) * block, len(traffic.ranks)))
        )
    labels = [str(rank) for rank in traffic.ranks[::block]]
    index_axis(axes.xaxis, labels, _RANK_TICKS)
    index_axis(axes.yaxis, [f"rank {label}" for label in labels], _RANK_TICKS)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_xlabel("to rank")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    return figure, titles


def _draw_scale(figure: Figure, most: float) -> None:
    """Colours from 0 to the most bytes, beside the matrix."""
    from cclbench.present.charts.ticks import quantity_axis

    height = _SIDE_PX + 46
    left, width = _SCALE_PX
    axes = figure.add_axes((left / HALF_PX, 42 / height, width / HALF_PX, _SIDE_PX / height))
    levels = np.linspace(0.0, most, 64)[:, None]
    axes.imshow(
        _image_cells(levels), aspect="auto", interpolation="none", origin="lower", extent=(0, 1, 0, most)
    )
    axes.yaxis.tick_right()
    quantity_axis(axes.yaxis, "B", 5)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.grid(visible=False)


def _image_cells(cells: Float) -> np.ndarray[Any, Any]:
    """RGBA; opacity by bytes, so that 0 shows the page's background."""
    from matplotlib.colors import to_rgb

    image = np.zeros((*cells.shape, 4))
    image[..., :3] = to_rgb(light_colour("compute"))
    image[..., 3] = cells / cells.max()
    return image


def _hover_text(traffic: ExchangedBytes, row: int) -> str:
    sent = traffic.sent_bytes[row]
    if not sent.any():
        return f"rank {traffic.ranks[row]} sends no known bytes"
    most = int(sent.argmax())
    text = f"rank {traffic.ranks[row]} sends {humanise(float(sent.sum()), 'B')}"
    text += f", most to rank {traffic.ranks[most]}: {humanise(float(sent[most]), 'B')}"
    rate = float(traffic.pair_rates[row, most])
    return text if np.isnan(rate) else f"{text} at {humanise(rate, 'B/s')} during transfers"
