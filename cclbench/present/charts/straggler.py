# SPDX-License-Identifier: Apache-2.0
"""Lateness of ranks: a heat map of ranks and steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.intervals import Int64
from cclbench.ground.units import humanise
from cclbench.present.charts.chart import FULL_PX, Chart, Titles, blank_canvas, section, with_letter
from cclbench.present.charts.palette import light_colour
from cclbench.present.charts.svg import drawn_svg
from cclbench.record.metric_name import metric_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COMM_WAIT: Final = metric_name("comm.wait")
_COMPUTE_TIME: Final = metric_name("compute.time")

MOST_COLUMNS: Final = 500
MOST_ROWS: Final = 256
_LATE, _EARLY = "transfer", "compute"
_ROW_PX: Final = (6, 22)
_UNSEEN: Final = 0.004
"""Opacity of areas that only carry hover text: matplotlib omits fully transparent ones."""
_CLIP: Final = 98
"""Percentile of the magnitudes at which colours saturate, so that one slow step does not hide others."""

Values = np.ma.MaskedArray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class LatenessByStep:
    """How late each rank is in each step, s, shape (ranks, steps); `words` describe the measure."""

    ranks: Int64
    steps: Int64
    values: Values
    words: str


@section("straggler", place=50)
def straggler_charts(runs: Sequence[ComparisonSubject]) -> Iterable[Chart]:
    """The heat map of each run."""
    return map(straggler_chart, runs)


def straggler_chart(run: ComparisonSubject) -> Chart:
    """The heat map of one run, or the reason why there is none."""
    key, heading = f"straggler-{run.index}", with_letter(run, "Late ranks")
    late, why = rank_lateness(run)
    if late is None:
        return Chart(key, heading, "How late each rank is in each step.", None, (why,), wide=True)
    shown, notes = pool_lateness(late)
    label = f"Heat map of {len(late.ranks)} ranks and {len(late.steps)} steps; {_worst_words(late)}"
    svg = drawn_svg(lambda: _draw_lateness(shown, late, limit_of(late.values)), name=key, label=label)
    return Chart(key, heading, f"{late.words} {_scale_words(late)}", svg, tuple(notes), wide=True)


def rank_lateness(run: ComparisonSubject) -> tuple[LatenessByStep | None, str]:
    """How much less than the median rank each waits for others; else how much longer it computes."""
    if len(run.each_capture) > 1:
        return None, "steps of several captures do not correspond: see cclbench report of one of them"
    unknown = run.results.missing_reason(_COMM_WAIT)
    waits = (
        "Per step, how much less than the median rank a rank waits for others in matched collectives"
        " (comm.wait): an orange rank is late and the others wait for it, a blue one waits for others."
    )
    computes = (
        "Per step, how much longer than the median rank a rank computes (compute.time): orange ranks hold"
        f" the others up. Waiting is unknown: {unknown}."
    )
    ranks = 0
    for metric, sign, words in ((_COMM_WAIT, -1, waits), (_COMPUTE_TIME, 1, computes)):
        grid = run.results.grid(metric)
        if len(grid.ranks) > 1 and grid.values.count():
            median: Values = np.ma.median(grid.values, axis=0)  # type: ignore[no-untyped-call]
            return LatenessByStep(grid.ranks, grid.steps, sign * (grid.values - median), words), ""
        ranks = max(ranks, len(grid.ranks))
    why = "needs at least two ranks" if ranks == 1 else f"no waiting by rank and step: {unknown}"
    return None, why


def limit_of(values: Values) -> float:
    """The magnitude at which colours saturate, s."""
    return float(np.percentile(np.abs(values.compressed()), _CLIP)) or float(np.abs(values).max()) or 1e-9


def _scale_words(late: LatenessByStep) -> str:
    limit, most = limit_of(late.values), float(np.abs(late.values).max())
    return f"Colours saturate at ±{humanise(limit, 's')}; the largest value is {humanise(most, 's')}."


def pool_lateness(late: LatenessByStep) -> tuple[LatenessByStep, list[str]]:
    """Reduced to a picture's size: the largest value of each block of steps, and the latest ranks."""
    values, ranks, steps, notes = late.values, late.ranks, late.steps, []
    if len(ranks) > MOST_ROWS:
        kept = np.sort(np.argsort(-values.mean(axis=1).filled(-np.inf), kind="stable")[:MOST_ROWS])
        notes.append(f"the {len(ranks) - MOST_ROWS} least late ranks are not drawn")
        values, ranks = values[kept], ranks[kept]
    if len(steps) > MOST_COLUMNS:
        block = -(-len(steps) // MOST_COLUMNS)
        starts = np.arange(0, len(steps), block)
        largest = np.abs(values.filled(0.0))
        pick = np.stack(
            [start + largest[:, start : start + block].argmax(axis=1) for start in starts], axis=1
        )
        values, steps = values[np.arange(len(ranks))[:, None], pick], steps[starts]
        notes.append(f"a column is {block} steps: the largest magnitude of each rank")
    return LatenessByStep(ranks, steps, values, late.words), notes


_STEP_TICKS: Final = 16


def _worst_words(late: LatenessByStep) -> str:
    mean = late.values.mean(axis=1)
    rank = int(mean.argmax())
    return f"latest on average is rank {late.ranks[rank]}, by {humanise(float(mean[rank]), 's')} a step"


def _draw_lateness(shown: LatenessByStep, lateness: LatenessByStep, limit: float) -> tuple[Figure, Titles]:
    from cclbench.present.charts.ticks import index_axis

    count = len(shown.ranks)
    row = min(max(420 // count, _ROW_PX[0]), _ROW_PX[1])
    figure, axes = blank_canvas(FULL_PX, row * count + 46, left=72, right=14, top=4, bottom=42)
    axes.imshow(_image_values(shown.values, limit), aspect="auto", interpolation="none")
    titles: dict[str, str] = {}
    for place, rank in enumerate(shown.ranks.tolist()):
        (strip,) = axes.barh(
            place, len(shown.steps), left=-0.5, height=1, color=light_colour("bg"), alpha=_UNSEEN
        )
        strip.set_gid(f"rank-{rank}")
        titles[f"rank-{rank}"] = _hover_text(lateness, rank)
    stride = -(-12 // row)
    index_axis(axes.yaxis, [f"rank {rank}" for rank in shown.ranks], max(count // stride, 1))
    index_axis(axes.xaxis, list(map(str, shown.steps)), _STEP_TICKS)
    axes.set_xlim(-0.5, len(shown.steps) - 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_xlabel("step")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    return figure, titles


def _image_values(values: Values, limit: float) -> np.ndarray[Any, Any]:
    """RGBA: hue by sign, opacity by magnitude, so that 0 shows the background; missing values are grey."""
    from matplotlib.colors import to_rgb

    late, early, none = (to_rgb(light_colour(name)) for name in (_LATE, _EARLY, "idle"))
    image = np.zeros((*values.shape, 4))
    filled = values.filled(0.0)
    image[..., :3] = np.where((filled > 0)[..., None], late, early)
    image[..., 3] = np.minimum(np.abs(filled) / limit, 1.0)
    image[np.ma.getmaskarray(values)] = (*none, 1.0)
    return image


def _hover_text(late: LatenessByStep, rank: int) -> str:
    by_step = late.values[int(np.searchsorted(late.ranks, rank))]
    most = int(by_step.argmax())
    return (
        f"rank {rank}: {_lag_words(float(by_step.mean()))} on average, {_lag_words(float(by_step[most]))}"
        f" in step {late.steps[most]}, where it is latest"
    )


def _lag_words(seconds: float) -> str:
    return f"{humanise(abs(seconds), 's')} {'later' if seconds >= 0 else 'earlier'} than the median rank"
