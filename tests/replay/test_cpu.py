# SPDX-License-Identifier: Apache-2.0
"""CPU-only ranks: transfers on the library's threads, callers that pause until they have ended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.replay_rows import end_of, item, rank, replayed
from helpers.replay_subjects import subject

from cclbench.replay import nodes as n
from cclbench.replay.changes.kernels import kernels
from cclbench.replay.graph import Graph
from cclbench.replay.selection import read_setting
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import GraphInput

MAIN, GLOO = (-1, 1), (-1, 9)


def worker(number: int, before: float, *, called: bool = True) -> GraphInput:
    """Computes, pauses for 3 ms of all-reduce on gloo's thread once both have called, computes 1 ms."""
    met, ms = 5000.0, 1000
    calls = [item("c10d::allreduce_", before, before + 20)] if called else []
    return rank(
        number,
        on_host=True,
        ops=[item("aten::mm", 0, before), *calls, item("aten::add_", met + 3 * ms + 50, met + 4 * ms + 50)],
        notes=[item("ProfilerStep#0", 0, met + 4 * ms + 60)],
        work=[item("gloo:all_reduce", before + 30, met + 30 + 3 * ms, lane=GLOO, call=0)],
        instances=[0],
        policy="annotation",
        windows=[(0, 0, met + 4 * ms + 60)],
    )


@pytest.mark.parametrize("called", [True, False])
def test_a_caller_that_pauses_for_a_transfer_goes_on_earlier_when_it_is_quicker(called: bool) -> None:
    graph, times = replayed(worker(0, 2000, called=called), worker(1, 5000, called=called))
    assert [end_of(graph, times, r) for r in (0, 1)] == [9060, 9060]
    assert graph.inferred["pauses that end with a transfer"] == 2
    dur = np.where(graph.nodes.kind == n.TRANSFER, graph.nodes.dur // 2, graph.nodes.dur)
    times = simulate_nodes(replace(graph.nodes, dur=dur), graph.cut)
    assert [end_of(graph, times, r) for r in (0, 1)] == [7560, 7560]


def test_waiting_for_a_slow_rank_is_worked_out_anew() -> None:
    graph, _ = replayed(worker(0, 2000), worker(1, 5000))
    # rank 1 computes for 2 ms less
    nodes = graph.nodes
    first = np.flatnonzero((nodes.rank == 1) & (nodes.gap == 5_000_000))
    assert len(first) == 1
    gap = nodes.gap.copy()
    gap[first] -= 2_000_000
    times = simulate_nodes(replace(nodes, gap=gap), graph.cut)
    assert [end_of(graph, times, r) for r in (0, 1)] == [7060, 7060]


def test_computing_through_a_transfers_end_is_no_pause() -> None:
    """An operator that runs while the transfer ends does not wait for it."""
    busy = rank(
        0,
        on_host=True,
        ops=[item("c10d::allreduce_", 0, 20), item("aten::mm", 30, 9000)],
        work=[item("gloo:all_reduce", 30, 5000, lane=GLOO, call=0)],
        instances=[-1],
        policy="whole_trace",
        windows=[(None, 0, 9000)],
    )
    graph, _ = replayed(busy)
    assert not graph.inferred["pauses that end with a transfer"]


def test_compute_of_a_cpus_rank_is_what_its_operators_take() -> None:
    """Rank 1's 5 ms of operators take half; the 1 ms behind the transfer too."""
    graph, _ = replayed(worker(0, 2000), worker(1, 5000))
    setting = read_setting("rank[1].kernels.time=x0.5", "x0.5")
    made = kernels(subject(graph), setting)
    assert isinstance(made, Graph)
    times = simulate_nodes(made.nodes, made.cut)
    assert [end_of(made, times, r) for r in (0, 1)] == [6560, 6060]


AWAITED = "pauses that end with a transfer"


def pausing(
    begin: float, end: float, *transfers: tuple[float, float], called: float | None = None
) -> GraphInput:
    """A thread that computes until `begin` and from `end` on, for 50 µs; transfers on gloo's thread."""
    calls = [] if called is None else [item("c10d::allreduce_", called, called + 1)]
    return rank(
        0,
        on_host=True,
        ops=[item("aten::mm", 0, begin), *calls, item("aten::add_", end, end + 50)],
        work=[item("gloo:all_reduce", a, b, lane=GLOO, call=i) for i, (a, b) in enumerate(transfers)],
        instances=[-1] * len(transfers),
        policy="whole_trace",
        windows=[(None, 0, end + 50)],
    )


@pytest.mark.parametrize(
    ("end", "transfer", "awaited"),
    [
        # goes on up to 1 ms behind the transfer's end
        (1_200, (100, 200), 1),
        (1_200.001, (100, 200), 0),
        # or in the second half of a longer pause
        (9_900, (100, 5_000), 1),
        (9_900.004, (100, 5_000), 0),
        # wakes up to 1 ms before the transfer is recorded as done, having begun before
        (200, (150, 1_200), 1),
        (200, (150, 1_200.001), 0),
        (200, (200, 300), 0),
        (200, (199.999, 300), 1),
        # ended before the pause, and as it began
        (300, (50, 99.999), 0),
        (300, (50, 100), 1),
    ],
)
def test_a_pause_is_for_what_ends_in_it_or_just_behind(
    end: float, transfer: tuple[float, float], awaited: int
) -> None:
    graph, times = replayed(pausing(100, end, transfer))
    assert graph.inferred[AWAITED] == awaited
    nodes = graph.nodes
    # what of a pause waits is over as much later as the transfer is
    later = replace(nodes, dur=np.where(nodes.kind == n.TRANSFER, nodes.dur + 100_000, nodes.dur))
    back = (nodes.kind == n.HOST) & (nodes.start == round(end * 1_000))
    moved = simulate_nodes(later, graph.cut).start[back] - times.start[back]
    assert moved.max(initial=0) == (100_000 if awaited else 0)


def test_of_two_transfers_in_a_pause_the_last_one_to_end_is_awaited() -> None:
    graph, times = replayed(pausing(100, 400, (100, 250), (260, 350)))
    nodes = graph.nodes
    back = np.flatnonzero((nodes.kind == n.HOST) & (nodes.start == 400_000))
    source, target, lag = graph.wait_edges()
    assert lag[np.isin(target, back)].tolist() == [50_000]
    assert times.end[source[np.isin(target, back)]].tolist() == [350_000]


def test_a_transfer_follows_the_later_of_its_call_and_its_thread() -> None:
    """Calls at 10 and 20 for transfers from 15 to 60 and, 2 behind that, from 62 on: by their order."""
    one = rank(
        0,
        on_host=True,
        ops=[item("c10d::a", 10, 11), item("c10d::b", 20, 21), item("aten::mm", 30, 200)],
        work=[item("gloo:x", 15, 60, lane=GLOO, call=0), item("gloo:x", 62, 90, lane=GLOO, call=1)],
        instances=[-1, -1],
        policy="whole_trace",
        windows=[(None, 0, 200)],
    )
    graph, _ = replayed(one)
    assert graph.inferred["transfers matched with calls by their order"] == 2
    nodes = graph.nodes
    arrivals = np.flatnonzero(nodes.kind == n.ARRIVAL)
    assert (nodes.start[arrivals].tolist(), nodes.gap[arrivals].tolist()) == (
        [15_000, 62_000],
        [5_000, 2_000],
    )
    assert nodes.busy[arrivals].tolist() == [0, 0]
    source, target, lag = graph.wait_edges()
    by_call = np.isin(target, arrivals)
    assert sorted(zip(nodes.start[source[by_call]].tolist(), lag[by_call].tolist(), strict=True)) == [
        (10_000, 5_000),
        (20_000, 2_000),
    ]
    # the first transfer takes 20 less: the second one begins 20 earlier
    dur = nodes.dur.copy()
    dur[arrivals[0] + 1] -= 20_000
    assert simulate_nodes(replace(nodes, dur=dur), graph.cut).start[arrivals[1]] == 42_000


@pytest.mark.parametrize(
    ("calls", "asked", "in_order"),
    [((15, 20), [15, 20], True), ((15.001, 20), [15, 20], False), ((15,), [15, 15], False)],
)
def test_without_a_call_for_each_the_last_one_before_a_transfer_asked_for_it(
    calls: tuple[float, ...], asked: list[float], in_order: bool
) -> None:
    """Transfers from 15 and from 62 on: before the first call the caller asked when the transfer began."""
    one = rank(
        0,
        on_host=True,
        ops=[*(item("c10d::a", at, at + 0.5) for at in calls), item("aten::mm", 30, 200)],
        work=[item("gloo:x", 15, 60, lane=GLOO, call=0), item("gloo:x", 62, 90, lane=GLOO, call=1)],
        instances=[-1, -1],
        policy="whole_trace",
        windows=[(None, 0, 200)],
    )
    graph, _ = replayed(one)
    source, target, _ = graph.wait_edges()
    by_call = graph.nodes.kind[target] == n.ARRIVAL
    assert sorted((graph.nodes.start[source[by_call]] / 1_000).tolist()) == asked
    said = ("transfers matched with calls by their order", "transfers attributed to the call before them")
    assert [graph.inferred[what] for what in said] == ([2, 0] if in_order else [0, 2])


def test_nodes_of_a_cpu_s_rank() -> None:
    """The thread's points, and each transfer as two nodes, one behind the other."""
    graph, _ = replayed(pausing(100, 300, (110, 250), called=101))
    nodes = graph.nodes
    transfer = int(np.flatnonzero(nodes.kind == n.TRANSFER)[0])
    assert (nodes.start[transfer], nodes.end[transfer], nodes.dur[transfer]) == (110_000, 250_000, 140_000)
    assert (nodes.kind[transfer - 1], nodes.dur[transfer - 1]) == (n.ARRIVAL, 0)
    assert nodes.call[transfer] == nodes.call[transfer - 1] == 0
    assert (nodes.gap[transfer], nodes.feeder.max()) == (0, -1)
    host = nodes.kind == n.HOST
    assert (nodes.call[host] == -1).all()


def test_a_thread_goes_on_no_earlier_than_it_has_computed() -> None:
    """It computes until 100; a transfer from 10 to 250, awaited until 300, takes nothing."""
    graph, _ = replayed(pausing(100, 300, (10, 250)))
    assert graph.inferred["transfers attributed to the call before them"] == 1
    nodes = graph.nodes
    back = np.flatnonzero((nodes.kind == n.HOST) & (nodes.start == 300_000))
    times = simulate_nodes(replace(nodes, dur=nodes.dur * 0), graph.cut)
    assert times.start[back].tolist() == [100_000]


def test_a_transfer_of_the_caller_s_own_thread_is_asked_for_by_nobody() -> None:
    one = rank(
        0,
        on_host=True,
        ops=[item("c10d::a", 0, 5), item("aten::mm", 70, 200)],
        work=[item("mpi:x", 10, 60, lane=MAIN, call=0)],
        instances=[-1],
        policy="whole_trace",
        windows=[(None, 0, 200)],
    )
    graph, times = replayed(one)
    _, target, _ = graph.wait_edges()
    assert not (graph.nodes.kind[target] == n.ARRIVAL).any()
    assert times.start.tolist() == graph.nodes.start.tolist()


def test_threads_of_a_cpu_s_rank_hand_over() -> None:
    """The second thread pauses at 500, the first goes on at 520."""
    two = (-1, 2)
    one = rank(
        0,
        on_host=True,
        ops=[item("aten::a", 0, 100), item("aten::b", 110, 500, lane=two), item("aten::c", 520, 600)],
        policy="whole_trace",
        windows=[(None, 0, 600)],
    )
    graph, _ = replayed(one)
    source, target, lag = graph.wait_edges()
    found = list(
        zip(graph.nodes.start[source].tolist(), graph.nodes.start[target].tolist(), lag.tolist(), strict=True)
    )
    # the 20 µs between them are the pausing thread's own
    assert (520_000, 520_000, 0) in found
