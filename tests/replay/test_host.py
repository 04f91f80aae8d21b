# SPDX-License-Identifier: Apache-2.0
"""Host threads as points: pauses, who goes on when, windows' bounds, time in data loaders; in µs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from helpers.replay_rows import item, rank, rows

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
        *((1, -AGES, 0), (1, 0, 100_000), (1, 200_000, 300_000), (1, 310_000, 400_000)),
        *((1, 600_000, 900_000), (1, 900_000, 900_000 + AGES)),
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
    assert listed(thread_pauses(rank(0, ops=ops, **busy)))[1:-1] == pauses


def test_points_have_numbers() -> None:
    points = HostInstants()
    assert points.add_instants(np.array([1, 2]), ns(5, 6)).tolist() == [0, 1]
    assert points.add_instants(np.array([3]), ns(7), np.array([9])).tolist() == [2]
    columns = [[1, 2, 3], [5_000, 6_000, 7_000], [-1, -1, 9]]
    assert [column.tolist() for column in points.as_arrays()] == columns
    assert [column.tolist() for column in HostInstants().as_arrays()] == [[], [], []]
    # those of pauses without a beginning stand 1 ms before the first
    early = HostInstants()
    early.add_instants(np.array([1, 2, 1]), np.array([5_000_000 - AGES, 7_000_000, 5_000_000]))
    assert early.as_arrays()[1].tolist() == [4_000_000, 7_000_000, 5_000_000]


def test_points_become_nodes_of_their_threads() -> None:
    """A call that waited returns before what begins at the same time; gaps are since the point before."""
    points = HostInstants()
    number = points.add_instants(np.array([7, 3, 3, 3]), ns(5, 40, 10, 40), np.array([-1, -1, -1, 4_000]))
    lane = (-1, 3)
    loads = [item("enumerate(DataLoader)#x.__next__", 20, 30, lane=lane), item("other", 12, 14, lane=lane)]
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
    held = host_nodes(rank(5, notes=loads), apart)[0].held
    assert held[:, n.HOST_CAUSES.index("loader")].tolist() == [0, 10_000]


def test_time_within_rows_is_that_of_the_thread() -> None:
    own = rows([item("a", 0, 10, lane=ONE), item("a", 5, 20, lane=ONE), item("a", 0, 50, lane=TWO)])
    lane, until = np.array([0, 0, 1, 1]), ns(8, 30, 40, 100)
    since = ns(2, 8, 45, 30)
    for chosen, within in (
        (own.lane >= 0, [6_000, 12_000, 0, 20_000]),
        (own.lane == 0, [6_000, 12_000, 0, 0]),
    ):
        assert time_within_rows(own, chosen, np.array([1, 2]), lane, since, until).tolist() == within
    assert host_threads(own).tolist() == [2, 1, 1]
    assert host_threads(rows([])).tolist() == []


def test_threads_that_hand_over() -> None:
    """Thread 2 pauses at 500; thread 1, which paused from 0 on, goes on at 520: 20 µs of thread 2's own."""
    idle = HostPauses(np.array([1, 2]), ns(0, 500), ns(520, 900))
    points, inferred = HostInstants(), Counter[str]()
    ((pause, go_on, lag),) = add_turns(idle, np.empty(0, np.int64), points, inferred)
    columns = points.as_arrays()
    assert [column[pause].tolist() for column in columns] == [[2], [520_000], [-1]]
    assert [column[go_on].tolist() for column in columns] == [[1], [520_000], [0]]
    assert lag.tolist() == [0]
    assert inferred == {"threads that resume when another pauses": 1}
    assert add_turns(idle, np.array([0]), HostInstants(), inferred) == []
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
    points = HostInstants()
    pauses = HostPauses(np.array(idle[0]), *idle[1:])
    ((pause, _, lag),) = add_turns(pauses, np.empty(0, np.int64), points, Counter())
    thread, time, _ = points.as_arrays()
    assert (thread[pause].tolist(), time[pause].tolist(), lag.tolist()) == found


def test_windows_of_annotations_have_points_on_their_threads() -> None:
    def added(policy: str) -> list[tuple[int, int]]:
        notes = [item("ProfilerStep#0", 0, 50, lane=TWO), item("x", 60, 90, lane=ONE)]
        ops, windows = [item("aten::mm", 50, 90, lane=ONE)], [(0, 0, 50), (1, 50, 90)]
        points = HostInstants()
        add_boundaries(rank(0, notes=notes, ops=ops, policy=policy, windows=windows), points)
        thread, time, _ = points.as_arrays()
        return list(zip(thread.tolist(), time.tolist(), strict=True))

    assert added("annotation") == [(2, 0), (2, 50_000)]
    assert added("device") == []
