# SPDX-License-Identifier: Apache-2.0
"""A graph made by hand as tasks that begin when all they wait for has ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cclbench.export.resources import share_resources
from cclbench.export.tasks import behind_transfers, graph_dependencies, rank_tasks
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph, Transfers
from cclbench.replay.simulate import NodeTimes, cut_pieces, simulate_nodes
from cclbench.replay.tables import Windowed

H0, H1, H2, K0, K1, ARRIVAL, TRANSFER, C, ARRIVAL_1, TRANSFER_1, MEETING = range(11)


NOTHING_ELSE: dict[str, Any] = {
    "categories": (),
    "names": (),
    "inferred": Counter(),
    "traced": Counter(),
    "windowed": tuple(Windowed(rank, False, "device", (), ()) for rank in (0, 1)),
    "assumed": (np.empty(0, np.int64), np.empty(0, np.int64)),
}
"""Of a graph of two ranks: no names, nothing inferred."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Two ranks, times in ns.

    Rank 0: a thread H0, 10 later H1, 20 of its own later H2, which also waits for K1 and returns 5 behind
    it.  A stream: K0 of 30, launched by H0, K1 of 5, launched by H1, both with 3 of latency and 2 between
    them, then a collective, 1 behind.  Another stream: C of 4 begins 10 before K0's end.  Rank 1 has its part
    of the collective alone, from 100 on; the transfer takes 50.
    """
    nodes = n.blank_nodes(
        11,
        rank=[0] * 8 + [1, 1, -1],
        lane=[0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 4],
        kind=[n.HOST] * 3
        + [n.COMPUTE] * 2
        + [n.ARRIVAL, n.TRANSFER, n.COMPUTE, n.ARRIVAL, n.TRANSFER, n.RENDEZVOUS],
        start=[0, 10, 45, 3, 35, 41, 100, 23, 100, 100, 100],
        gap=[0, 10, 20, 0, 2, 1, 0, 0, 0, 0, 0],
        dur=[0, 0, 0, 30, 5, 0, 50, 4, 0, 50, 0],
        feeder=[-1, -1, -1, H0, H1, -1, -1, -1, -1, -1, -1],
        feed_lag=[0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0],
        call=[-1, -1, -1, -1, -1, 0, 0, -1, 1, 1, -1],
    )
    edges = [
        (K1, H2, 5), (K0, C, -10), (ARRIVAL, MEETING, 0), (ARRIVAL_1, MEETING, 0), (MEETING, TRANSFER, 0),
        (MEETING, TRANSFER_1, 0),
    ]  # fmt: skip
    source, target, lag = (np.array(column, np.int64) for column in zip(*edges, strict=True))
    two = np.array([2, 2])
    return Graph(
        nodes=nodes,
        cut=cut_pieces(nodes, source, target, lag),
        transfers=Transfers(
            ("all_reduce",) * 2, ("0-1",) * 2, two, two * 512, two > 0, np.zeros(2, np.int64)
        ),
        **NOTHING_ELSE,
    )


@pytest.fixture(scope="module")
def times(graph: Graph) -> NodeTimes:
    found = simulate_nodes(graph.nodes, graph.cut)
    assert found.end.tolist() == [0, 10, 45, 33, 40, 41, 150, 27, 100, 150, 100]
    return found


def made(graph: Graph, times: NodeTimes, place: int, *, simulated: bool = False) -> list[tuple[object, ...]]:
    """Role, begin, end and what each task waits for."""
    found = rank_tasks(graph, times, graph_dependencies(graph), place, (), simulated=simulated)
    assert [task.id for task in found.tasks] == list(range(len(found.tasks)))
    assert not found.clipped
    return [(t.role, t.start, t.end, sorted(each.id for each in t.after)) for t in found.tasks]


def test_lags_are_tasks_and_what_is_overtaken_is_cut(graph: Graph, times: NodeTimes) -> None:
    assert made(graph, times, 0) == [
        ("host", 0, 0, []),
        ("host", 0, 10, [0]),  # H1 and the thread's time before it
        ("launch", 0, 3, [0]),
        ("compute", 3, 23, [2]),  # K0 up to where C goes on
        ("host", 10, 30, [1]),  # the thread's own time before H2
        ("launch", 10, 13, [1]),
        ("rest", 23, 33, [3]),
        ("compute", 23, 27, [3]),  # C
        ("gap", 33, 35, [6]),
        ("compute", 35, 40, [5, 8]),  # K1
        ("wait", 40, 45, [9]),
        ("gap", 40, 41, [9]),
        ("host", 45, 45, [4, 10]),  # H2
        ("transfer", 100, 150, [11]),
    ]


def test_a_rank_that_begins_later_waits_for_its_begin(graph: Graph, times: NodeTimes) -> None:
    assert made(graph, times, 1) == [("begin", 0, 100, []), ("transfer", 100, 150, [0])]


def test_latencies_that_delay_nothing_are_no_tasks(graph: Graph, times: NodeTimes) -> None:
    """K0 waits for its launch alone; K1, launched before K0 ended, waits for the gap behind K0."""
    found = made(graph, times, 0, simulated=True)
    assert [task for task in found if task[0] == "launch"] == [("launch", 0, 3, [0])]
    k1 = next(task for task in found if task[1:3] == (35, 40))
    assert [found[each][:3] for each in k1[3]] == [("host", 0, 10), ("gap", 33, 35)]  # type: ignore[attr-defined]


def test_a_wait_ends_behind_its_transfer(graph: Graph) -> None:
    """H2 returned 20 before the recorded end of the transfer: for a simulator it waits for all of it."""
    source, target, lag = graph.wait_edges()
    waiting = replace(
        graph,
        cut=cut_pieces(graph.nodes, np.append(source, TRANSFER), np.append(target, H2), np.append(lag, -20)),
    )
    early, whole = (simulate_nodes(each.nodes, each.cut) for each in (waiting, behind_transfers(waiting)))
    expected = ([150, 130], [150, 150])
    assert (early.end[[TRANSFER, H2]].tolist(), whole.end[[TRANSFER, H2]].tolist()) == expected


def test_transfers_follow_one_another_in_the_same_order_on_all_ranks() -> None:
    """Rank 0 comes to A at 0 and to B at 5, rank 1 to B at 0 and to A at 10; A takes 20, B takes 3."""
    arrivals = [0, 5, 10, 0]  # rank 0: A, B; rank 1: A, B
    nodes = n.blank_nodes(
        10,
        rank=[0] * 4 + [1] * 4 + [-1] * 2,
        lane=[0, 0, 1, 1, 2, 2, 3, 3, 4, 5],
        kind=[n.ARRIVAL, n.TRANSFER] * 4 + [n.RENDEZVOUS] * 2,
        start=[t for at, begun in zip(arrivals, (10, 5) * 2, strict=True) for t in (at, begun)] + [10, 5],
        dur=[0, 20, 0, 3] * 2 + [0, 0],
        call=[0, 0, 1, 1, 2, 2, 3, 3, -1, -1],
    )
    a, b = 8, 9
    source = np.array([0, 4, a, a, 2, 6, b, b])
    target = np.array([a, a, 1, 5, b, b, 3, 7])
    graph = Graph(
        nodes=nodes,
        cut=cut_pieces(nodes, source, target, np.zeros(8, np.int64)),
        transfers=Transfers(
            ("all_reduce",) * 4,
            ("0-1",) * 4,
            np.full(4, 2),
            np.full(4, 64),
            np.ones(4, np.bool_),
            np.array([0, 1, 0, 1]),
        ),
        **NOTHING_ELSE,
    )
    times = simulate_nodes(nodes, graph.cut)
    needed = graph_dependencies(graph)
    for place in (0, 1):
        found = rank_tasks(graph, times, needed, place, (), simulated=True)
        first, second = (task for task in found.tasks if task.role == "transfer")
        assert [(task.start, task.end) for task in (first, second)] == [(5, 8), (10, 30)]
        share_resources(found.tasks, {first.node: True, second.node: True})
        assert (first.behind, second.behind) == ([], [first])
