# SPDX-License-Identifier: Apache-2.0
"""Timelines of steps: rows, spans and pictures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.report_run import HOSTILE, Event, subject
from helpers.typed import rewrite_manifest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import cclbench
from cclbench.ground.errors import UsageError
from cclbench.ground.intervals import EMPTY, Intervals, union
from cclbench.ground.schema import COLLECTIVES
from cclbench.present import step_spans
from cclbench.present.charts.palette import light_colour
from cclbench.present.picture import save_picture
from cclbench.present.step_spans import StepSpans
from cclbench.present.timeline import (
    CollectiveInstance,
    RankLanes,
    StepTimeline,
    TimelineClock,
    chosen_step,
    clocks_of,
    crop_to_window,
    least_and_most_waiting,
    longest_instances,
    rank_waits,
    set_segments,
    shift_to_common,
    split_communication,
    step_timeline,
)
from cclbench.present.timeline_picture import draw_timeline, labelled_instances, longest_wait_words
from cclbench.record.manifest import ClockCorrection as RankClock
from cclbench.record.manifest import ClockCorrections
from cclbench.workspace import open_run


def array(*values: int) -> Any:
    return np.array(values, np.int64)


def pieces(s: Intervals) -> list[tuple[int, int]]:
    return list(zip(s.starts.tolist(), s.ends.tolist(), strict=True))


def part(collective: int, rank: int, start: int, end: int, wait: int | None, **other: Any) -> dict[str, Any]:
    """A row of `schema.COLLECTIVES`; matched where it has a wait, its clock 1,000 ns ahead."""
    row = dict.fromkeys(COLLECTIVES.names)
    row |= {"collective": collective, "rank": rank, "kind": "all_reduce", "library": "nccl"}
    row |= {"start_ns": start, "end_ns": end}
    if wait is not None:
        row |= {"instance": collective, "arrival_ns": start - 1000}
        row |= {"wait_ns": wait, "transfer_ns": end - start - wait}
    return row | other


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), COLLECTIVES)


def test_a_clock_subtracts_offset_and_drift() -> None:
    clock = TimelineClock(offset_ns=250.0, drift=20e-6, reference_ns=1_000_000)
    # 20 ppm of 50 ms, 50,000,000 ns, are 1,000 ns.
    assert clock.on_common_clock(array(1_000_000, 51_000_000)).tolist() == [999_750, 50_998_750]
    assert pieces(shift_to_common(Intervals(array(1_000_000), array(51_000_000)), clock)) == [
        (999_750, 50_998_750)
    ]


def test_only_applied_corrections_are_clocks() -> None:
    account = ClockCorrections(
        7, [RankClock(0, 0.0, 0.0, 0.0, 0.0, False), RankClock(3, 250000.5, 20.0, 0.0, 0.0, True)]
    )
    assert clocks_of(account) == {3: TimelineClock(250000.5, 2e-05, 7)}


def test_wait_transfer_and_unmatched_are_disjoint_and_all_of_the_communication() -> None:
    parts = table(
        part(0, 0, 100, 200, 60),  # waits 100-160, transfers 160-200
        part(1, 0, 150, 300, 120),  # waits 150-270, of which the first one's transfer hides 160-200
        part(2, 0, 400, 450, None),  # not matched
    )
    communication = union(array(100, 150, 400), array(200, 300, 450))
    wait, transfer, unmatched = split_communication(communication, parts)
    assert pieces(wait) == [(100, 160), (200, 270)]
    assert pieces(transfer) == [(160, 200), (270, 300)]
    assert pieces(unmatched) == [(400, 450)]
    alone = split_communication(union(array(5), array(9)), table(part(0, 0, 5, 9, None)))
    assert [pieces(s) for s in alone] == [[], [], [(5, 9)]]


def test_cropped() -> None:
    s = Intervals(array(0, 20, 40), array(10, 30, 50))
    assert pieces(crop_to_window(s, 5, 45)) == [(5, 10), (20, 30), (40, 45)]
    assert pieces(crop_to_window(s, 10, 20)) == []


def test_meetings_say_who_came_last_and_who_waited_longest() -> None:
    parts = table(
        part(0, 0, 2000, 2500, 300, in_bytes=64, out_bytes=128, dimension="tp"),
        part(0, 1, 2300, 2500, 0, in_bytes=64, out_bytes=128, dimension="tp"),
        part(1, 0, 3000, 4000, 900),
        part(1, 2, 3900, 4000, 0),
        part(1, 1, 3100, 4000, 800),
        part(2, 2, 9000, 9900, 800),
        part(2, 1, 9800, 9900, 0),
        part(3, 1, 9000, 9900, None),
    )
    second, first = longest_instances(parts, 0, 5000, [0])
    assert (first.last_rank, first.waiting_rank, first.longest_wait_ns) == (1, 0, 300)
    assert (first.last_arrival_ns, first.ranks, first.busy_ns) == (1300, (0, 1), 700)
    assert (first.bytes, first.dimension) == (128, "tp")
    assert (second.last_rank, second.waiting_rank, second.longest_wait_ns) == (2, 0, 900)
    assert (second.last_arrival_ns, set(second.ranks), second.bytes) == (2900, {0, 1, 2}, None)
    assert [one.last_arrival_ns for one in longest_instances(parts, 0, 99_999, [2])] == [2900, 8800]
    assert longest_instances(parts, 2901, 8800, [0, 1, 2]) == ()
    assert longest_instances(table(), 0, 1, [0]) == ()


def test_of_many_ranks_those_that_wait_least_and_most_are_shown() -> None:
    waited = rank_waits(table(*(part(r, r, 1000 + r, 2000, 10 * (r % 7)) for r in range(8))), 1, 7)
    # Ranks 1 to 6 arrive in [1, 7); rank 7, whose wait is 0, and rank 0 do not.
    assert waited == {1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 6: 60}
    assert least_and_most_waiting(range(8), waited, 8) == list(range(8))
    assert least_and_most_waiting(range(8), waited, 4) == [0, 5, 6, 7]
    assert least_and_most_waiting(range(8), waited, 3) == [0, 5, 6]


WINDOWS = {0: [(3, 100, 200), (4, 200, 300)], 1: [(4, 210, 310), (5, 310, 400)]}


def test_the_first_step_that_most_ranks_have() -> None:
    assert chosen_step(WINDOWS, {}, None) == (4, {0: (200, 300), 1: (210, 310)})
    assert chosen_step(WINDOWS, {1: TimelineClock(offset_ns=10.0)}, 5) == (5, {1: (300, 390)})


def test_a_step_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"no complete step 9; it has 3, 4, 5"):
        chosen_step(WINDOWS, {}, 9)
    with pytest.raises(UsageError, match="it has none"):
        chosen_step({0: [(None, 1, 2)]}, {}, 1)
    assert chosen_step({0: [(None, 1, 2)]}, {}, None) == (None, {0: (1, 2)})
    with pytest.raises(UsageError, match="nothing to draw"):
        chosen_step({0: []}, {}, None)


def test_long_pieces_stay_exact_and_short_ones_become_shares_of_cells() -> None:
    s = Intervals(array(0, 12, 15, 33), array(1, 14, 16, 57))
    starts, ends, share = set_segments(s, 0, 100, 10)
    expected = [(0, 10, pytest.approx(0.1)), (10, 20, pytest.approx(0.3)), (33, 57, 1.0)]
    assert list(zip(starts.tolist(), ends.tolist(), share.tolist(), strict=True)) == expected


spans = st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 300)), max_size=300)


@given(spans, st.integers(1, 40))
def test_segments_are_few_and_cover_what_the_set_covers(found: Sequence[tuple[int, int]], cells: int) -> None:
    s = crop_to_window(union(array(*(a for a, _ in found)), array(*(a + n for a, n in found))), 0, 2000)
    starts, ends, share = set_segments(s, 0, 2000, cells)
    assert len(starts) <= 3 * cells
    assert float(((ends - starts) * share).sum()) == pytest.approx(s.length)


@pytest.fixture
def dlrm(test_data: Path, evidence_store: Path) -> cclbench.Run:
    return cclbench.ingest(test_data / "kineto" / "dlrm_8xv100", store=evidence_store)


def test_dlrm(dlrm: cclbench.Run) -> None:
    shown = step_timeline(dlrm)
    assert shown.step == 10
    # The first kernel of the step is rank 1's, the last event rank 4's (the traces' own µs).
    assert (shown.origin_ns, shown.end_ns) == (1694128201423011000, 1694128201441928000)
    assert [lanes.rank for lanes in shown.lanes] == list(range(8))
    assert len(shown.instances) == 8
    worst = shown.instances[0]
    # Rank 7's all-to-all runs from ...431930 to ...431940, rank 1's from ...424306 µs.
    assert (worst.kind, worst.last_rank, worst.waiting_rank) == ("all_to_all", 7, 1)
    assert worst.longest_wait_ns == 7_624_000
    for lanes in shown.lanes:
        communicating = lanes.wait.length + lanes.transfer.length
        parts = dlrm.collectives().to_pylist()
        own = [p["end_ns"] - p["start_ns"] for p in parts if p["rank"] == lanes.rank]
        # No two collectives of this step run at once on a rank.
        assert communicating == sum(own)
        assert not len(lanes.unmatched)


def test_narrowed_in_time_and_to_ranks(dlrm: cclbench.Run) -> None:
    shown = step_timeline(dlrm, ranks=[7, 1], from_ms=12, to_ms=14.5)
    assert [lanes.rank for lanes in shown.lanes] == [1, 7]
    assert shown.begin_ns - shown.origin_ns == 12_000_000
    assert shown.end_ns - shown.origin_ns == 14_500_000
    for s in (shown.lanes[0].compute, shown.lanes[0].wait, shown.lanes[1].transfer):
        assert shown.begin_ns <= s.starts.min() < s.ends.max() <= shown.end_ns
    empty = {"from_ms": 20.0}, {"from_ms": 3.0, "to_ms": 3.0}, {"to_ms": float("nan")}, {"from_ms": -1}
    for window in empty:
        with pytest.raises(UsageError, match="there is nothing from"):
            step_timeline(dlrm, **window)


def test_corrections_of_the_manifest_are_applied(dlrm: cclbench.Run, tmp_path: Path) -> None:
    before = step_timeline(dlrm).lanes[7]
    store = shutil.copytree(dlrm.path, tmp_path / dlrm.id).parent
    path = store / dlrm.id / "manifest.json"
    manifest = json.loads(path.read_text())
    entry = next(entry for entry in manifest["clocks"]["ranks"] if entry["rank"] == 7)
    entry |= {"offset_ns": 250_000.0, "applied": True}
    rewrite_manifest(store / dlrm.id, manifest)
    after = step_timeline(open_run(dlrm.id, store=store)).lanes[7]
    assert (before.compute.starts - after.compute.starts == 250_000).all()


def timeline(folder: Path, events: tuple[Event, ...]) -> StepSpans:
    found = step_spans.step_spans(subject(folder, events=events).stored)
    assert isinstance(found, StepSpans)
    return found


def spans_of(found: StepSpans) -> dict[str, list[tuple[int, int, str, str, int]]]:
    """By lane: begin and duration in ns, name, colour, number of merged events."""
    data: dict[str, Any] = json.loads(found.data)
    lanes = {}
    for lane in data["lanes"]:
        shown, at = [], 0
        for place in range(0, len(lane["spans"]), 4):
            gap, ns, name, number = lane["spans"][place : place + 4]
            shown.append((at + gap, ns, *data["names"][name], number))
            at += gap + ns
        lanes[lane["label"]] = shown
    return lanes


def test_each_kernel_is_where_it_runs(tmp_path: Path) -> None:
    events = (
        (0, "void at::native::add<float>(int)", "elementwise", 1000, 500),
        (0, "ncclDevKernel_AllReduce", "communication", 1700, 200),
        (1, "gemm", "gemm", 1100, 600),
    )
    found = timeline(tmp_path, events)
    shown = spans_of(found)
    begin = shown["rank 1, stream 7"][0][0] - 100
    assert shown == {
        "rank 0, stream 7": [
            (begin, 500, "add<float>", "compute", 1),
            (begin + 700, 200, "ncclDevKernel_AllReduce", "transfer", 1),
        ],
        "rank 1, stream 7": [(begin + 100, 600, "gemm", "compute", 1)],
    }
    assert found.legend == (("compute", "compute"), ("transfer", "communication"))
    assert found.notes == ()


def test_a_limit_merges_the_short_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long kernel stays itself; of 300 short ones as many are left as the limit allows."""
    short: list[Event] = [(0, f"short_{n % 7}", "elementwise", 1400 + 2 * n, 1) for n in range(300)]
    monkeypatch.setattr(step_spans, "MOST_SPANS", 100)
    found = timeline(tmp_path, ((0, "long", "gemm", 1000, 300), *short))
    (shown,) = spans_of(found).values()
    assert len(shown) <= 100
    assert shown[0] == (0, 300, "long", "compute", 1)
    assert sum(span[4] for span in shown) == 301
    assert shown[-1][0] + shown[-1][1] == 400 + 2 * 299 + 1
    assert "is merged" in found.notes[0]


def test_the_text_is_bounded_and_inert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: tuple[Event, ...] = tuple(
        (0, f"{text}{n}", "gemm", 1000 + 9 * n, 5) for n, text in enumerate(HOSTILE)
    )
    found = timeline(tmp_path / "hostile", events)
    assert not {"<", ">", "&", "\u202e"} & set(found.data)
    many: tuple[Event, ...] = tuple(
        (0, f"kernel_{n}_of_many", "gemm", 1000 + 40 * n, 30) for n in range(2000)
    )
    monkeypatch.setattr(step_spans, "MOST_BYTES", 10_000)
    assert len(timeline(tmp_path / "many", many).data.encode()) <= 10_000


def test_nothing_to_draw_has_a_reason(tmp_path: Path) -> None:
    assert isinstance(step_spans.step_spans(subject(tmp_path, events=()).stored), str)


MS = 1_000_000


def intervals(*pairs: tuple[float, float]) -> Intervals:
    """Intervals in ms."""
    starts, ends = zip(*pairs, strict=True)
    return Intervals(*(np.array([round(MS * at) for at in ends_], np.int64) for ends_ in (starts, ends)))


def instance(at_ms: float, wait_ms: float, **other: Any) -> CollectiveInstance:
    """An all-reduce of 1 MB of ranks 0 and 1, rank 1 last."""
    facts = {"kind": "all_reduce", "bytes": 1_000_000, "dimension": None, "ranks": (0, 1), "last_rank": 1}
    facts |= {"last_arrival_ns": round(MS * at_ms), "waiting_rank": 0, "longest_wait_ns": round(MS * wait_ms)}
    facts |= {"busy_ns": round(MS * wait_ms) + 2 * MS}
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
    expected = ["all_reduce 1.00 MB", "tiny: step 4"]
    expected += ["longest wait: 29.0 ms of rank 0 for rank 1, in an all_reduce of 1.00 MB"]
    assert words == expected
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
    assert "waiting and transfer cannot be separated" in longest_wait_words(picture)
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
