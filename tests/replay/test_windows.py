# SPDX-License-Identifier: Apache-2.0
"""Windows of steps and what the host does in them, in a replay."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from helpers.replay_rows import item, kernel, launch, rank, replayed, rows, with_durations

from cclbench.ground.errors import UsageError
from cclbench.replay import host
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import NodeTimes
from cclbench.replay.tables import GraphInput
from cclbench.replay.windows import StepPace, rank_windows, step_time, window_bounds, window_lengths


def two_steps(number: int, each: float) -> GraphInput:
    """Warming up for 50 µs, kernels of `each` µs in two steps, an all-reduce of 20 from the last rank on."""
    first, second = 50 + each, 50 + 2 * each
    work = [kernel(0, 50, step=-1), kernel(50, first, step=0), kernel(first, second, step=1)]
    work.append(kernel(second, 370, name="nccl", call=0, step=1))
    return rank(number, work=work, instances=[0], windows=[(0, 50, first), (1, first, 370)])


def pace_of(*ranks: GraphInput) -> tuple[Graph, StepPace, NodeTimes]:
    graph, times = replayed(*ranks)
    return graph, StepPace(rank_windows(graph), times.start, times.end), times


def paced() -> tuple[Graph, StepPace, NodeTimes]:
    return pace_of(two_steps(0, 100), two_steps(1, 150))


def test_a_faster_rank_makes_no_step_longer() -> None:
    """Its second step would begin 50 earlier and end with the other rank's: (150 + 270) / 2 for 185."""
    graph, pace, times = paced()
    assert pace.step_ns == (150_000 + 220_000) / 2
    assert pace.mean_step_ns(times.start, times.end) == 185_000
    nodes = graph.nodes
    halved = (nodes.rank == 0) & (nodes.kind == n.COMPUTE)
    found = with_durations(graph, np.where(halved, nodes.dur // 2, nodes.dur))
    assert pace.mean_step_ns(found.start, found.end) < 185_001
    # both ranks' windows take 320 together; without 10 % of 150 twice, and of 50 before, 290 less the 5
    inside = pace.nodes_in_windows(graph, pace.time_since_windows(graph, times.start))
    assert inside[nodes.start == 0].tolist() == [False, False]
    assert inside[nodes.start >= 50_000].all()
    cut = (nodes.kind == n.COMPUTE) & inside
    found = with_durations(graph, np.where(cut, nodes.dur * 9 // 10, nodes.dur))
    assert pace.mean_step_ns(found.start, found.end) == 185_000 * 290 / 320


def kernels(*times: tuple[float, float, int], **more: object) -> GraphInput:
    """Kernels that begin and end then, of those steps, on one stream."""
    work = [kernel(begin, end, step=step) for begin, end, step in times]
    return rank(0, work=[*work, *more.pop("beside", ())], **more)  # type: ignore[arg-type, misc]


def test_windows_of_a_device_begin_and_end_with_their_step_s_rows() -> None:
    """A copy before the first kernel begins none; the first ends where the next begins, the last 5 later."""
    one = kernels(
        *((10, 20, 0), (40, 60, 1), (95, 99, 2)),
        beside=[item("copy", 5, 8, lane=(0, 9), step=0, copy=True)],
        windows=[(0, 8, 38), (1, 38, 65)],
    )
    object.__setattr__(one, "open_windows", ((2, 90_000, 100_000),))
    graph, times = replayed(one)
    found = rank_windows(graph)
    assert [(w.rank, w.step, w.measured_ns, w.before, w.behind, w.joined, w.open) for w in found] == [
        *((0, 0, 30_000, -2_000, 18_000, True, False), (0, 1, 27_000, -2_000, 5_000, False, False)),
        (0, 2, 10_000, -5_000, 1_000, False, True),
    ]
    assert [graph.nodes.start[w.openers].tolist() for w in found] == [[10_000], [40_000], [95_000]]
    assert sorted(graph.nodes.start[found[0].members].tolist()) == [5_000, 10_000]
    begins, ends = window_bounds(found, times.start, times.end)
    assert (begins.tolist(), ends.tolist()) == ([8_000, 38_000, 90_000], [38_000, 65_000, 100_000])
    own = window_lengths(found, times.start, times.end)
    assert own.tolist() == [30_000, 27_000, 10_000]
    # where the next step's first row begins at 15, the first ends with its own work at 20, and not at 13
    sooner = times.start - 25_000 * (graph.nodes.start == 40_000)
    assert window_bounds(found, sooner, times.end)[1].tolist() == [20_000, 65_000, 100_000]
    # what is open is in no mean
    assert step_time(found, own) == 28_500
    assert step_time([], own[:0]) == 0


def test_what_ran_beside_the_next_step_when_measured_may_do_so() -> None:
    """The second step's first row begins at 40, 20 before the first's last one ends; and no more may."""
    one = kernels(
        (10, 60, 0), beside=[item("k", 40, 90, lane=(0, 9), step=1)], windows=[(0, 10, 40), (1, 40, 90)]
    )
    graph, times = replayed(one)
    found = rank_windows(graph)
    assert [(w.joined, w.overlap) for w in found] == [(True, 20_000), (False, 0)]
    sooner = times.start - 30_000 * (graph.nodes.start == 40_000)
    assert window_bounds(found, sooner, times.end)[1].tolist() == [40_000, 90_000]
    # a window without rows joins nothing
    one = kernels(
        *((10, 20, 0), (30, 40, 1), (50, 60, 3)), windows=[(0, 10, 30), (1, 30, 45), (2, 45, 50), (3, 50, 60)]
    )
    graph, _ = replayed(one)
    assert [(w.step, w.joined) for w in rank_windows(graph)] == [(0, True), (1, False), (3, False)]
    empty = kernels((50, 60, 2), windows=[(1, 30, 50), (2, 50, 60)])
    assert [w.step for w in rank_windows(replayed(empty)[0])] == [2]


def test_windows_of_annotations_are_bound_by_their_thread_s_points() -> None:
    windows = [(0, 0, 50), (1, 50, 90)]
    notes = [item("ProfilerStep#0", 0, 50), item("ProfilerStep#1", 50, 90)]
    launches, work = [launch(2, 1), launch(52, 2)], [kernel(10, 20, 1), kernel(60, 70, 2)]
    one = rank(0, notes=notes, launches=launches, work=work, policy="annotation", windows=windows)
    graph, _ = replayed(one)
    found = rank_windows(graph)
    assert [(w.before, w.behind, w.joined) for w in found] == [(0, 0, False)] * 2
    assert all((graph.nodes.kind[w.members] == n.HOST).all() for w in found)
    bounds = [sorted({*graph.nodes.start[w.members].tolist()}) for w in found]
    assert bounds == [[0, 50_000], [50_000, 90_000]]


def test_other_windows_are_of_all_work_or_of_the_host() -> None:
    whole = {"launches": [launch(1, 1, took=1)], "policy": "x", "windows": [(None, 0, 30)]}
    work = [item("copy", 5, 8, lane=(0, 9), copy=True), kernel(10, 20, 1)]
    (one,) = rank_windows(replayed(rank(0, work=work, **whole))[0])  # type: ignore[arg-type]
    assert (one.before, one.behind, len(one.members)) == (-5_000, 10_000, 2)
    (one,) = rank_windows(replayed(rank(0, **whole))[0])  # type: ignore[arg-type]
    assert (one.before, one.behind) == (-1_000, 29_000)


def test_the_step_is_the_longest_rank_s_in_each_step() -> None:
    own = []
    for r, end in ((0, 40), (1, 30)):
        work = [kernel(0, 10, step=0), kernel(20, end, step=1)]
        own.append(rank(r, work=work, windows=[(0, 0, 10 + 5 * r), (1, 20, end)]))
    graph, times = replayed(*own)
    found = rank_windows(graph)
    assert step_time(found, window_lengths(found, times.start, times.end)) == (15_000 + 20_000) / 2


def by_start(graph: Graph, column: np.ndarray) -> dict[int, int]:
    return dict(zip(graph.nodes.start.tolist(), column.tolist(), strict=True))


def test_how_long_windows_have_lasted_when_nodes_begin() -> None:
    """Windows at 10, 30 (joined) and 60 to 80, with a kernel each: a break at 50; behind the last window a
    rank goes on."""
    windows = [(0, 10, 30), (1, 30, 50), (2, 60, 80)]
    inside = [(begin, end, step) for step, begin, end in windows]
    graph, pace, times = pace_of(kernels((1, 2, -1), *inside, (200, 201, -1), windows=windows))
    since = pace.time_since_windows(graph, times.start)
    expected = {1_000: -1, 10_000: 0, 30_000: 20_000, 60_000: 0, 200_000: 140_000}
    assert by_start(graph, since) == expected
    moved = pace.time_since_windows(graph, np.array([9_999, 29_999, 49_999, 50_000, 59_999]))
    assert moved.tolist() == [-1, 19_999, 39_999, -1, -1]
    assert pace.nodes_in_windows(graph, since).tolist() == [False, True, True, True, True]


def test_what_a_thread_does_up_to_a_window_s_end_lies_within() -> None:
    """Between two steps are 2 µs: the time before each one's end is the step's, the break is nobody's."""
    ops = [item("aten::mm", begin, end) for begin, end in ((0, 10), (60, 70), (110, 120))]
    notes = [item("ProfilerStep#0", 0, 50), item("ProfilerStep#1", 52, 120)]
    bounds = [(0, 0, 50), (1, 52, 120)]
    graph, pace, times = pace_of(
        rank(0, on_host=True, ops=ops, notes=notes, policy="annotation", windows=bounds)
    )
    since = by_start(graph, pace.time_since_windows(graph, times.start))
    steps = by_start(graph, pace.steps_of_nodes(graph, times.start))
    assert (since[50_000], since[52_000], since[120_000]) == (50_000, 0, 68_000)
    assert (steps[50_000], steps[52_000], steps[120_000]) == (0, 1, 1)


def test_the_pace_of_some_ranks_is_theirs() -> None:
    graph, pace, times = paced()
    assert pace.mean_step_ns(times.start, times.end, {0, 1}) == 185_000
    late = times.end + np.where(graph.nodes.rank == 1, 32_000, 0)
    assert pace.mean_step_ns(times.start, late) == pytest.approx(185_000 * 352 / 320, rel=1e-12)
    assert pace.mean_step_ns(times.start, late, {0}) == 185_000
    # no step is without length
    assert pace.mean_step_ns(times.start, times.end - 1_000_000) == pytest.approx(185_000 / 160_000)
    with pytest.raises(UsageError, match="no rank of the replay is left"):
        pace.mean_step_ns(times.start, late, {2})
    # a transfer is inside where one rank's part is
    graph, pace, _ = paced()
    since = np.full(len(graph.nodes), -1)
    assert not pace.nodes_in_windows(graph, since).any()
    transfers = np.flatnonzero(graph.nodes.kind == n.TRANSFER)
    since[transfers[0]] = 0
    assert np.flatnonzero(pace.nodes_in_windows(graph, since)).tolist() == transfers.tolist()


def test_only_steps_that_all_ranks_have_are_compared() -> None:
    """Rank 1 has no window of step 0: of rank 0's the second alone counts; without one in common all do."""

    def compared(*ranks: list[tuple[int, float, float]]) -> dict[int, tuple[int, int, int]]:
        work = [[kernel(a, b, step=s) for s, a, b in own] for own in ranks]
        return pace_of(*(rank(r, work=work[r], windows=own) for r, own in enumerate(ranks)))[1].ranks

    both = [(0, 0, 10), (1, 20, 50)]
    assert compared(both, [(1, 20, 60)]) == {0: (1, 30_000, 1), 1: (1, 40_000, 2)}
    assert compared(both, [(2, 20, 60)]) == {0: (2, 40_000, 1), 1: (1, 40_000, 2)}
    assert [count for count, _, _ in compared(both, both, [(1, 20, 60)]).values()] == [1, 1, 1]


def test_savings_are_shares_of_closed_steps_and_of_all_with_the_open_one() -> None:
    """Kernels one after another: steps of 10, 40 and 10, and 20 of the open one; then 20 of the second's."""
    windows = [(0, 10, 20), (1, 20, 60), (2, 60, 70)]
    one = kernels((10, 20, 0), (20, 60, 1), (60, 70, 2), (70, 90, 3), windows=windows)
    _, closed, _ = pace_of(one)
    object.__setattr__(one, "open_windows", ((3, 70_000, 90_000),))
    graph, pace, times = pace_of(one)
    changed = with_durations(graph, np.where(graph.nodes.start == 20_000, 20_000, graph.nodes.dur))
    # all closed ones, all but the first, all with the open one
    assert pace.saved_shares(changed.start, changed.end) == pytest.approx([20 / 60, 20 / 50, 20 / 80])
    assert closed.saved_shares(changed.start, changed.end) == pytest.approx([20 / 60, 20 / 50])
    assert pace.saved_shares(times.start, times.end) == [0.0, 0.0, 0.0]


def test_what_a_rank_does_while_another_s_first_window_is_open_counts() -> None:
    """Rank 1 loads from 0 to 80 before its first kernel at 90; rank 0's window begins at 10."""
    notes = [item("enumerate(DataLoader)#x.__next__", 0, 80, lane=(-1, 3))]
    calls, work = [launch(85, 1, lane=(-1, 3))], [kernel(90, 100, 1, step=0)]
    late = rank(1, notes=notes, launches=calls, work=work, windows=[(0, 90, 100)])
    early = rank(0, work=[kernel(10, 100, step=0)], windows=[(0, 10, 100)])
    graph, pace, times = pace_of(early, late)
    at = np.flatnonzero((graph.nodes.rank == 1) & (graph.nodes.kind == n.HOST))
    # the thread's first row and its launch, which the loader holds up for 80
    assert graph.nodes.start[at].tolist() == [0, 85_000]
    assert pace.time_since_windows(graph, times.start)[at].tolist() == [-1, 75_000]
    assert graph.nodes.held[at[1], n.HOST_CAUSES.index("loader")] == 80_000
    assert pace.steps_of_nodes(graph, times.start)[at].tolist() == [-1, 0]


ONE, TWO = (-1, 1), (-1, 2)
AGES = 1 << 60


def ns(*values: float) -> np.ndarray:
    return np.array([round(1_000 * value) for value in values], np.int64)


def listed(found: host.HostPauses) -> list[tuple[int, int, int]]:
    return sorted(zip(found.thread.tolist(), found.start.tolist(), found.end.tolist(), strict=True))


def test_a_thread_pauses_where_neither_it_computes_nor_calls() -> None:
    """An annotation of 0 to 900 around an operator of 100 to 200, a launch at 300, and a call until 600."""
    one = rank(
        0,
        notes=[item("forward", 0, 900, lane=ONE)],
        ops=[item("aten::mm", 100, 200, lane=ONE)],
        launches=[item("cudaLaunchKernel", 300, 310, lane=ONE)],
        syncs=[item("cudaStreamSynchronize", 400, 600, lane=ONE)],
    )
    assert listed(host.thread_pauses(one)) == [
        *((1, -AGES, 0), (1, 0, 100_000), (1, 200_000, 300_000), (1, 310_000, 400_000)),
        *((1, 600_000, 900_000), (1, 900_000, 900_000 + AGES)),
    ]


def test_threads_pause_each_on_its_own() -> None:
    one = rank(
        0,
        ops=[item("aten::a", 0, 10, lane=ONE), item("aten::b", 100, 110, lane=ONE)],
        launches=[item("cudaLaunchKernel", 50, 60, lane=TWO)],
    )
    assert listed(host.thread_pauses(one)) == [
        *((1, -AGES, 0), (1, 10_000, 100_000), (1, 110_000, 110_000 + AGES)),
        *((2, 50_000 - AGES, 50_000), (2, 60_000, 60_000 + AGES)),
    ]
    assert listed(host.thread_pauses(rank(0))) == []
    chosen = host.thread_pauses(one).take_pauses(np.array([True, False, False, False, False]))
    assert len(chosen.thread) == len(chosen.start) == len(chosen.end) == 1


@pytest.mark.parametrize(
    ("busy", "pauses"),
    [
        ({}, [(1, 10_000, 300_000)]),
        # of a CPU's rank a transfer is no pause, nor is a call of the runtime
        ({"work": True}, [(1, 10_000, 300_000)]),
        ({"work": True, "on_host": True}, [(1, 10_000, 100_000), (1, 200_000, 300_000)]),
        ({"runtime": [item("cudaFree", 10, 300, lane=ONE)]}, []),
    ],
)
def test_what_a_thread_does_between_operators(busy: dict[str, Any], pauses: list[tuple[int, ...]]) -> None:
    ops = [item("aten::a", 0, 10, lane=ONE), item("aten::b", 300, 310, lane=ONE)]
    if busy.get("work"):
        busy = busy | {"work": [item("gloo:x", 100, 200, lane=ONE, call=0)], "instances": [-1]}
    assert listed(host.thread_pauses(rank(0, ops=ops, **busy)))[1:-1] == pauses


def test_points_have_numbers() -> None:
    points = host.HostInstants()
    assert points.add_instants(np.array([1, 2]), ns(5, 6)).tolist() == [0, 1]
    assert points.add_instants(np.array([3]), ns(7), np.array([9])).tolist() == [2]
    columns = [[1, 2, 3], [5_000, 6_000, 7_000], [-1, -1, 9]]
    assert [column.tolist() for column in points.as_arrays()] == columns
    assert [column.tolist() for column in host.HostInstants().as_arrays()] == [[], [], []]
    # those of pauses without a beginning stand 1 ms before the first
    early = host.HostInstants()
    early.add_instants(np.array([1, 2, 1]), np.array([5_000_000 - AGES, 7_000_000, 5_000_000]))
    assert early.as_arrays()[1].tolist() == [4_000_000, 7_000_000, 5_000_000]


def test_points_become_nodes_of_their_threads() -> None:
    """A call that waited returns before what begins at the same time; gaps are since the point before."""
    points = host.HostInstants()
    number = points.add_instants(np.array([7, 3, 3, 3]), ns(5, 40, 10, 40), np.array([-1, -1, -1, 4_000]))
    lane = (-1, 3)
    loads = [item("enumerate(DataLoader)#x.__next__", 20, 30, lane=lane), item("other", 12, 14, lane=lane)]
    made, place = host.host_nodes(rank(5, notes=loads), points)
    assert made.start.tolist() == made.end.tolist() == [10_000, 40_000, 40_000, 5_000]
    assert made.lane.tolist() == [0, 0, 0, 1]
    assert made.gap.tolist() == [0, 4_000, 0, 0]
    assert made.rank.tolist() == [5] * 4
    assert place[number].tolist() == [3, 2, 0, 1]
    # the own time of a call that waited is what lies right before its return
    assert made.held.sum(axis=1).tolist() == made.gap.tolist()
    returned = host.HostInstants()
    returned.add_instants(np.array([3, 3]), ns(10, 40))
    last = returned.add_instants(np.array([3]), ns(40), np.array([0]))
    made, place = host.host_nodes(rank(5), returned)
    assert (made.gap.tolist(), place[last].tolist()) == ([0, 0, 0], [1])
    apart = host.HostInstants()
    apart.add_instants(np.array([3, 3]), ns(10, 40))
    held = host.host_nodes(rank(5, notes=loads), apart)[0].held
    assert held[:, n.HOST_CAUSES.index("loader")].tolist() == [0, 10_000]


def test_time_within_rows_is_that_of_the_thread() -> None:
    own = rows([item("a", 0, 10, lane=ONE), item("a", 5, 20, lane=ONE), item("a", 0, 50, lane=TWO)])
    lane, until = np.array([0, 0, 1, 1]), ns(8, 30, 40, 100)
    since = ns(2, 8, 45, 30)
    for chosen, within in (
        (own.lane >= 0, [6_000, 12_000, 0, 20_000]),
        (own.lane == 0, [6_000, 12_000, 0, 0]),
    ):
        assert host.time_within_rows(own, chosen, np.array([1, 2]), lane, since, until).tolist() == within
    assert host.host_threads(own).tolist() == [2, 1, 1]
    assert host.host_threads(rows([])).tolist() == []


def test_threads_that_hand_over() -> None:
    """Thread 2 pauses at 500; thread 1, which paused from 0 on, goes on at 520: 20 µs of thread 2's own."""
    idle = host.HostPauses(np.array([1, 2]), ns(0, 500), ns(520, 900))
    points, inferred = host.HostInstants(), Counter[str]()
    ((pause, go_on, lag),) = host.add_turns(idle, np.empty(0, np.int64), points, inferred)
    columns = points.as_arrays()
    assert [column[pause].tolist() for column in columns] == [[2], [520_000], [-1]]
    assert [column[go_on].tolist() for column in columns] == [[1], [520_000], [0]]
    assert lag.tolist() == [0]
    assert inferred == {"threads that resume when another pauses": 1}
    assert host.add_turns(idle, np.array([0]), host.HostInstants(), inferred) == []
    assert sum(inferred.values()) == 1


@pytest.mark.parametrize(
    ("idle", "found"),
    [
        # thread 2 pauses 1 ns after thread 1 goes on, as times are rounded, and paused before from 0 to 50
        (([1, 2, 2], ns(-9, 0, 520.001), ns(520, 50, 900)), ([2], [520_000], [0])),
        # thread 2 goes on at 510, for a reason of its own, and thread 1 at 520
        (([1, 2], ns(0, 500), ns(520, 510)), ([2], [500_000], [20_000])),
    ],
)
def test_when_threads_hand_over(idle: tuple[Any, ...], found: tuple[list[int], ...]) -> None:
    points = host.HostInstants()
    pauses = host.HostPauses(np.array(idle[0]), *idle[1:])
    ((pause, _, lag),) = host.add_turns(pauses, np.empty(0, np.int64), points, Counter())
    thread, time, _ = points.as_arrays()
    assert (thread[pause].tolist(), time[pause].tolist(), lag.tolist()) == found


def test_windows_of_annotations_have_points_on_their_threads() -> None:
    def added(policy: str) -> list[tuple[int, int]]:
        notes = [item("ProfilerStep#0", 0, 50, lane=TWO), item("x", 60, 90, lane=ONE)]
        ops, windows = [item("aten::mm", 50, 90, lane=ONE)], [(0, 0, 50), (1, 50, 90)]
        points = host.HostInstants()
        host.add_boundaries(rank(0, notes=notes, ops=ops, policy=policy, windows=windows), points)
        thread, time, _ = points.as_arrays()
        return list(zip(thread.tolist(), time.tolist(), strict=True))

    assert added("annotation") == [(2, 0), (2, 50_000)]
    assert added("device") == []
