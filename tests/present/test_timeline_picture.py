# SPDX-License-Identifier: Apache-2.0
"""The timeline as a picture."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from cclbench.ground.intervals import EMPTY, Intervals
from cclbench.present.charts.palette import light_colour
from cclbench.present.picture import save_picture
from cclbench.present.timeline import CollectiveInstance, RankLanes, StepTimeline
from cclbench.present.timeline_picture import draw_timeline, labelled_instances, longest_wait_words

MS = 1_000_000


def intervals(*pairs: tuple[float, float]) -> Intervals:
    """Intervals in ms."""
    starts, ends = zip(*pairs, strict=True)
    return Intervals(*(np.array([round(MS * at) for at in ends_], np.int64) for ends_ in (starts, ends)))


def instance(at_ms: float, wait_ms: float, **other: Any) -> CollectiveInstance:
    """An all-reduce of 1 MB of ranks 0 and 1, rank 1 last."""
    facts = {
        "kind": "all_reduce",
        "bytes": 1_000_000,
        "dimension": None,
        "ranks": (0, 1),
        "last_rank": 1,
        "last_arrival_ns": round(MS * at_ms),
        "waiting_rank": 0,
        "longest_wait_ns": round(MS * wait_ms),
        "busy_ns": round(MS * wait_ms) + 2 * MS,
    }
    return CollectiveInstance(**(facts | other))


def shown(
    *instances: CollectiveInstance, step: int | None = 4, hidden: int = 0, copies: Intervals = EMPTY
) -> StepTimeline:
    """Two ranks, 100 ms."""
    return StepTimeline(
        step=step,
        origin_ns=0,
        begin_ns=0,
        end_ns=100 * MS,
        lanes=(
            RankLanes(0, intervals((0, 30)), intervals((30, 59)), intervals((59, 60)), EMPTY, copies),
            RankLanes(1, intervals((0, 59)), EMPTY, intervals((59, 60)), intervals((80, 90)), EMPTY),
        ),
        instances=instances,
        hidden=hidden,
    )


def rectangles(figure: Figure, colour: str) -> list[tuple[float, float, float, float]]:
    """(left, right, bottom, top) of what is filled with that colour."""
    (axes,) = figure.axes
    found = []
    for collection in axes.collections:
        if isinstance(collection, PolyCollection) and len(collection.get_facecolor()):
            for path, fill in zip(collection.get_paths(), collection.get_facecolor(), strict=True):
                if to_hex(fill) == colour:
                    x, y = path.vertices.T
                    found.append((x.min(), x.max(), y.min(), y.max()))
    return found


def test_each_rank_has_compute_above_communication_in_four_colours() -> None:
    figure = draw_timeline(shown(instance(59, 29)), title="tiny")
    compute = rectangles(figure, light_colour("compute"))
    assert [box[:2] for box in compute] == [(0, 30), (0, 59)]
    assert [box[:2] for box in rectangles(figure, light_colour("wait"))] == [(30, 59)]
    transfer = rectangles(figure, light_colour("transfer"))
    assert [box[:2] for box in transfer] == [(59, 60), (59, 60)]
    assert [box[:2] for box in rectangles(figure, light_colour("unmatched"))] == [(80, 90)]
    # The axis points down: rank 0 at 0, its compute lane above its communication lane, then rank 1.
    assert -0.5 < compute[0][2] < compute[0][3] <= transfer[0][2] < transfer[0][3] < 0.5 < compute[1][2]
    assert len({light_colour(what) for what in ("compute", "wait", "transfer", "unmatched")}) == 4


def test_copies_have_a_lane_below_where_there_are_any() -> None:
    figure = draw_timeline(shown(instance(59, 29), copies=intervals((70, 75))), title="tiny")
    ((left, right, low, high),) = rectangles(figure, light_colour("copy"))
    assert (left, right) == (70, 75)
    (transfer, _), (compute, _) = (rectangles(figure, light_colour(what)) for what in ("transfer", "compute"))
    assert -0.5 < compute[2] < compute[3] <= transfer[2] < transfer[3] <= low < high < 0.5
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()][4] == "copy"


def test_axis_title_and_legend() -> None:
    figure = draw_timeline(shown(instance(59, 29), hidden=6), title="tiny: step 4")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    assert axes.get_xlim() == (0, 100)
    assert axes.get_xlabel().startswith("ms from the start of step 4 (6 ranks")
    words = [text.get_text() for text in axes.texts]
    assert words == [
        "all_reduce 1.00 MB",
        "tiny: step 4",
        "longest wait: 29.0 ms of rank 0 for rank 1, in an all_reduce of 1.00 MB",
    ]
    (mark,) = [line.get_xydata() for line in axes.lines if len(line.get_xdata()) == 1]
    assert mark[0][0] == 59  # where the rank arrives that the others waited for
    assert 1 < mark[0][1] < 1.5
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        *("compute", "wait for a later rank", "transfer", "communication, not matched"),
        *("last rank of a labelled collective arrives", "the rank waited for longest"),
    ]


def test_without_a_match_that_is_said_and_nothing_marked() -> None:
    picture = shown(step=None)
    assert (
        longest_wait_words(picture)
        == "no collective is matched across ranks here: waiting and transfer cannot be separated"
    )
    (axes,) = draw_timeline(picture, title="t").axes
    assert axes.get_xlabel() == "ms from the trace's first work"
    assert not [line for line in axes.lines if len(line.get_xdata()) == 1]
    # that nothing communicates is another thing
    alone = StepTimeline(4, 0, 0, 100 * MS, (RankLanes(0, intervals((0, 30)), *[EMPTY] * 4),), (), 0)
    assert longest_wait_words(alone) == "no communication runs here"


def test_labels_of_the_longest_collectives_do_not_touch() -> None:
    close = [instance(at, wait) for at, wait in ((50, 10), (50.5, 30), (51, 20), (20, 1), (99.9, 90))]
    names = labelled_instances(shown(*close))
    # 99.9 leaves no room on the right; 50.5 takes the place of its neighbours.
    assert [one.last_arrival_ns for one, _ in names] == [round(50.5 * MS), 20 * MS]
    many = labelled_instances(shown(*(instance(0.5 * i, 1 + i % 7, dimension="tp") for i in range(200))))
    middles = sorted(one.last_arrival_ns for one, _ in many)
    assert len(many) > 3
    assert all(b - a > 8 * MS for a, b in pairwise(middles))
    assert many[0][1] == "all_reduce 1.00 MB (tp)"


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_same_timeline_gives_the_same_file(tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for path in (first, second):
        save_picture(lambda: draw_timeline(shown(instance(59, 29)), title="tiny"), path)
    assert first.read_bytes() == second.read_bytes()


def test_a_rank_of_a_million_kernels_is_a_bounded_number_of_rectangles() -> None:
    starts = np.arange(0, 100 * MS, 100)
    busy = Intervals(starts, starts + 50)
    lanes = (RankLanes(0, busy, EMPTY, EMPTY, EMPTY, EMPTY),)
    picture = StepTimeline(None, 0, 0, 100 * MS, lanes, (), 0)
    (axes,) = draw_timeline(picture, title="t").axes
    (collection,) = (c for c in axes.collections if isinstance(c, PolyCollection))
    assert len(collection.get_paths()) <= 3 * 1600
    # Half covered: half way between white and the colour #0072B2.
    assert collection.get_facecolor()[700][:3] == pytest.approx((0.5, 0.724, 0.849), abs=0.01)
