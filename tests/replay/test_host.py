# SPDX-License-Identifier: Apache-2.0
"""Host threads as points: pauses, who goes on when, windows' bounds, time in data loaders; in µs."""

from __future__ import annotations

from collections import Counter

import numpy as np
from helpers.replay_rows import Item, item, rank, rows

from cclbench.replay import nodes as n
from cclbench.replay.host import (
    HostInstants,
    HostPauses,
    add_boundaries,
    add_turns,
    host_nodes,
    host_threads,
    thread_pauses,
    time_within_rows,
)

ONE, TWO = (-1, 1), (-1, 2)
AGES = 1 << 60


def ns(*values: float) -> np.ndarray:
    return np.array([round(1_000 * value) for value in values], np.int64)


def listed(found: HostPauses) -> list[tuple[int, int, int]]:
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
    assert listed(thread_pauses(one)) == [
        (1, -AGES, 0),
        *((1, 0, 100_000), (1, 200_000, 300_000), (1, 310_000, 400_000), (1, 600_000, 900_000)),
        (1, 900_000, 900_000 + AGES),
    ]


def test_threads_pause_each_on_its_own() -> None:
    one = rank(
        0,
        ops=[item("aten::a", 0, 10, lane=ONE), item("aten::b", 100, 110, lane=ONE)],
        launches=[item("cudaLaunchKernel", 50, 60, lane=TWO)],
    )
    assert listed(thread_pauses(one)) == [
        *((1, -AGES, 0), (1, 10_000, 100_000), (1, 110_000, 110_000 + AGES)),
        *((2, 50_000 - AGES, 50_000), (2, 60_000, 60_000 + AGES)),
    ]
    assert listed(thread_pauses(rank(0))) == []
    chosen = thread_pauses(one).take_pauses(np.array([True, False, False, False, False]))
    assert len(chosen.thread) == len(chosen.start) == len(chosen.end) == 1


def test_of_a_cpu_s_rank_transfers_are_no_pause() -> None:
    work: list[Item] = [item("gloo:all_reduce", 100, 300, lane=ONE, call=0)]
    for on_host, own in (
        (True, [(1, 10_000, 100_000), (1, 300_000, 400_000)]),
        (False, [(1, 10_000, 400_000)]),
    ):
        ops = [item("aten::a", 0, 10, lane=ONE), item("aten::b", 400, 410, lane=ONE)]
        found = thread_pauses(rank(0, on_host=on_host, ops=ops, work=work, instances=[-1]))
        assert listed(found)[1:-1] == own


def test_points_have_numbers() -> None:
    points = HostInstants()
    assert points.add_instants(np.array([1, 2]), ns(5, 6)).tolist() == [0, 1]
    assert points.add_instants(np.array([3]), ns(7), np.array([9])).tolist() == [2]
    assert [column.tolist() for column in points.as_arrays()] == [
        [1, 2, 3],
        [5_000, 6_000, 7_000],
        [-1, -1, 9],
    ]
    assert [column.tolist() for column in HostInstants().as_arrays()] == [[], [], []]


def test_points_become_nodes_of_their_threads() -> None:
    """A call that waited returns before what begins at the same time; gaps are since the point before."""
    points = HostInstants()
    number = points.add_instants(np.array([7, 3, 3, 3]), ns(5, 40, 10, 40), np.array([-1, -1, -1, 4_000]))
    loads = [
        item("enumerate(DataLoader)#x.__next__", 20, 30, lane=(-1, 3)),
        item("other", 12, 14, lane=(-1, 3)),
    ]
    made, place = host_nodes(rank(5, notes=loads), points)
    assert made.start.tolist() == made.end.tolist() == [10_000, 40_000, 40_000, 5_000]
    assert made.lane.tolist() == [0, 0, 0, 1]
    assert made.gap.tolist() == [0, 4_000, 0, 0]
    assert made.rank.tolist() == [5] * 4
    assert place[number].tolist() == [3, 2, 0, 1]
    # the own time of a call that waited is what lies right before its return
    assert made.held.sum(axis=1).tolist() == made.gap.tolist()
    returned = HostInstants()
    returned.add_instants(np.array([3, 3]), ns(10, 40))
    last = returned.add_instants(np.array([3]), ns(40), np.array([0]))
    made, place = host_nodes(rank(5), returned)
    assert (made.gap.tolist(), place[last].tolist()) == ([0, 0, 0], [1])
    apart = HostInstants()
    apart.add_instants(np.array([3, 3]), ns(10, 40))
    assert host_nodes(rank(5, notes=loads), apart)[0].held[:, n.HOST_CAUSES.index("loader")].tolist() == [
        0,
        10_000,
    ]


def test_time_within_rows_is_that_of_the_thread() -> None:
    own = rows([item("a", 0, 10, lane=ONE), item("a", 5, 20, lane=ONE), item("a", 0, 50, lane=TWO)])
    lane, until = np.array([0, 0, 1, 1]), ns(8, 30, 40, 100)
    since = ns(2, 8, 45, 30)
    found = time_within_rows(own, np.array([True] * 3), np.array([1, 2]), lane, since, until)
    assert found.tolist() == [6_000, 12_000, 0, 20_000]
    chosen = np.array([own.lane[i] == 0 for i in range(3)])
    assert time_within_rows(own, chosen, np.array([1, 2]), lane, since, until).tolist() == [
        6_000,
        12_000,
        0,
        0,
    ]
    assert host_threads(own).tolist() == [2, 1, 1]
    assert host_threads(rows([])).tolist() == []


def test_threads_that_hand_over() -> None:
    """Thread 2 pauses at 500; thread 1, which paused from 0 on, goes on at 520: 20 µs of thread 2's own."""
    idle = HostPauses(np.array([1, 2]), ns(0, 500), ns(520, 900))
    points, inferred = HostInstants(), Counter[str]()
    ((pause, go_on, lag),) = add_turns(idle, np.empty(0, np.int64), points, inferred)
    thread, time, own = points.as_arrays()
    assert (thread[pause].tolist(), time[pause].tolist(), own[pause].tolist()) == ([2], [520_000], [-1])
    assert (thread[go_on].tolist(), time[go_on].tolist(), own[go_on].tolist()) == ([1], [520_000], [0])
    assert lag.tolist() == [0]
    assert inferred == {"threads that resume when another pauses": 1}
    assert add_turns(idle, np.array([0]), HostInstants(), inferred) == []
    assert sum(inferred.values()) == 1


def test_times_are_rounded_where_threads_hand_over() -> None:
    """Thread 2 pauses 1 ns after thread 1 goes on, and paused before from 0 to 50."""
    idle = HostPauses(np.array([1, 2, 2]), ns(-9, 0, 520.001), ns(520, 50, 900))
    points = HostInstants()
    ((pause, _, lag),) = add_turns(idle, np.empty(0, np.int64), points, Counter())
    thread, time, _ = points.as_arrays()
    assert (thread[pause].tolist(), time[pause].tolist(), lag.tolist()) == ([2], [520_000], [0])


def test_a_thread_in_a_call_of_the_runtime_does_not_pause() -> None:
    """cudaFree from 10 to 300: between the operators the thread has no pause."""
    ops = [item("aten::a", 0, 10, lane=ONE), item("aten::b", 300, 310, lane=ONE)]
    idle = thread_pauses(
        rank(0, ops=ops, runtime=[item("cudaFree", 10, 300, lane=ONE)], work=[], instances=[])
    )
    assert listed(idle)[1:-1] == []
    assert listed(thread_pauses(rank(0, ops=ops, work=[], instances=[])))[1:-1] == [(1, 10_000, 300_000)]


def test_a_thread_that_goes_on_first_hands_over_where_it_paused() -> None:
    """Thread 2 goes on at 510, for a reason of its own, and thread 1 at 520."""
    idle = HostPauses(np.array([1, 2]), ns(0, 500), ns(520, 510))
    points = HostInstants()
    ((pause, _, lag),) = add_turns(idle, np.empty(0, np.int64), points, Counter())
    thread, time, _ = points.as_arrays()
    assert (thread[pause].tolist(), time[pause].tolist(), lag.tolist()) == ([2], [500_000], [20_000])


def test_windows_of_annotations_have_points_on_their_threads() -> None:
    def added(policy: str) -> list[tuple[int, int]]:
        one = rank(
            0,
            notes=[item("ProfilerStep#0", 0, 50, lane=TWO), item("x", 60, 90, lane=ONE)],
            ops=[item("aten::mm", 50, 90, lane=ONE)],
            policy=policy,
            windows=[(0, 0, 50), (1, 50, 90)],
        )
        points = HostInstants()
        add_boundaries(one, points)
        thread, time, _ = points.as_arrays()
        return list(zip(thread.tolist(), time.tolist(), strict=True))

    assert added("annotation") == [(2, 0), (2, 50_000)]
    assert added("device") == []


def test_points_of_pauses_without_a_beginning_stand_just_before_the_first() -> None:
    points = HostInstants()
    points.add_instants(np.array([1, 2, 1]), np.array([5_000_000 - AGES, 7_000_000, 5_000_000]))
    _, time, _ = points.as_arrays()
    assert time.tolist() == [4_000_000, 7_000_000, 5_000_000]
    assert all(len(column) == 0 for column in HostInstants().as_arrays())
