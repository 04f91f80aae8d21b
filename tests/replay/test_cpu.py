# SPDX-License-Identifier: Apache-2.0
"""CPU-only ranks, in µs: transfers on the library's threads, callers that pause until they have ended, and
what holds a rank outside of operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.replay_rows import Item, end_of, item, lengthened, rank, replayed, scaled, with_durations
from helpers.replay_subjects import subject

from cclbench.replay import nodes as n
from cclbench.replay.changes.host import host
from cclbench.replay.changes.kernels import kernels
from cclbench.replay.selection import read_setting
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import GraphInput

MAIN, GLOO = (-1, 1), (-1, 9)
Span = tuple[float, float]
AWAITED = "pauses that end with a transfer"
BY_ORDER = "transfers matched with calls by their order"
BY_CALL = "transfers attributed to the call before them"


def gloo(*times: Span) -> list[Item]:
    return [item("gloo:all_reduce", begin, end, lane=GLOO, call=i) for i, (begin, end) in enumerate(times)]


def worker(number: int, before: float, *, called: bool = True) -> GraphInput:
    """Computes, pauses for 3 ms of all-reduce on gloo's thread once both have called, computes 1 ms."""
    calls = [item("c10d::allreduce_", before, before + 20)] if called else []
    ops = [item("aten::mm", 0, before), *calls, item("aten::add_", 8050, 9050)]
    steps = {"notes": [item("ProfilerStep#0", 0, 9060)], "policy": "annotation", "windows": [(0, 0, 9060)]}
    return rank(number, on_host=True, ops=ops, work=gloo((before + 30, 8030)), instances=[0], **steps)


def one(ops: list[Item], work: list[Item], end: float) -> GraphInput:
    """A rank with a window up to that end, whose transfers meet no other rank's."""
    window: dict[str, Any] = {"policy": "whole_trace", "windows": [(None, 0, end)]}
    return rank(0, on_host=True, ops=ops, work=work, instances=[-1] * len(work), **window)


@pytest.mark.parametrize("called", [True, False])
def test_a_caller_that_pauses_for_a_transfer_goes_on_earlier_when_it_is_quicker(called: bool) -> None:
    graph, times = replayed(worker(0, 2000, called=called), worker(1, 5000, called=called))
    assert [end_of(graph, times, r) for r in (0, 1)] == [9060, 9060]
    assert graph.inferred[AWAITED] == 2
    times = scaled(graph, n.TRANSFER, 0.5)
    assert [end_of(graph, times, r) for r in (0, 1)] == [7560, 7560]


def test_compute_of_a_cpus_rank_is_what_its_operators_take() -> None:
    """Rank 1's 5 ms of operators take half, and so does the 1 ms behind the transfer, for which rank 0 then
    waits as much less."""
    graph, _ = replayed(worker(0, 2000), worker(1, 5000))
    made = kernels(subject(graph), read_setting("rank[1].kernels.time=x0.5", "x0.5"))
    times = simulate_nodes(made.nodes, made.cut)
    assert [end_of(made, times, r) for r in (0, 1)] == [6560, 6060]


def test_computing_through_a_transfers_end_is_no_pause() -> None:
    """An operator that runs while the transfer ends does not wait for it."""
    ops = [item("c10d::allreduce_", 0, 20), item("aten::mm", 30, 9000)]
    graph, _ = replayed(one(ops, gloo((30, 5000)), 9000))
    assert not graph.inferred[AWAITED]
    # a transfer of the caller's own thread is asked for by nobody
    ops = [item("c10d::a", 0, 5), item("aten::mm", 70, 200)]
    graph, times = replayed(one(ops, [item("mpi:x", 10, 60, lane=MAIN, call=0)], 200))
    _, target, _ = graph.wait_edges()
    assert not (graph.nodes.kind[target] == n.ARRIVAL).any()
    assert times.start.tolist() == graph.nodes.start.tolist()
    # the second thread pauses at 500, the first goes on at 520; the 20 between are the pausing one's own
    ops = [item("aten::a", 0, 100), item("aten::b", 110, 500, lane=(-1, 2)), item("aten::c", 520, 600)]
    graph, _ = replayed(one(ops, [], 600))
    source, target, lag = graph.wait_edges()
    start = graph.nodes.start
    found = zip(start[source].tolist(), start[target].tolist(), lag.tolist(), strict=True)
    assert (520_000, 520_000, 0) in found


def test_requests_in_flight_at_once_do_not_wait_for_one_another() -> None:
    """Both ranks begin a send to and a receive from the other, compute, and wait, at last for the receive.

    Rank 1 comes later: it sends from 3010 on, and receives from 3030 to 3200. In half the time rank 0 has
    received at 3105 and rank 1 at 3115, and they go on 10 later.
    """

    def exchange(number: int, at: float) -> GraphInput:
        calls = [item("c10d::send", at, at + 20), item("c10d::recv_", at + 20, at + 40)]
        work = [("gloo:send", at + 10, 3199), ("gloo:recv", at + 30, 3200)]
        return rank(
            number,
            on_host=True,
            ops=[
                *(item("aten::mm", 0, at), *calls, item("aten::relu", at + 40, at + 90)),
                item("aten::add_", 3210, 4210),
            ],
            notes=[item("ProfilerStep#0", 0, 4220)],
            work=[item(*one, lane=MAIN, call=i) for i, one in enumerate(work)],
            instances=[number, 1 - number],
            policy="annotation",
            windows=[(0, 0, 4220)],
        )

    graph, times = replayed(exchange(0, 1000), exchange(1, 3000))
    assert [end_of(graph, times, r) for r in (0, 1)] == [4220, 4220]
    times = scaled(graph, n.TRANSFER, 0.5)
    assert [end_of(graph, times, r) for r in (0, 1)] == [4125, 4135]


def pausing(begin: float, end: float, *transfers: Span, called: float | None = None) -> GraphInput:
    """A thread that computes until `begin` and from `end` on, for 50 µs; transfers on gloo's thread."""
    calls = [] if called is None else [item("c10d::allreduce_", called, called + 1)]
    ops = [item("aten::mm", 0, begin), *calls, item("aten::add_", end, end + 50)]
    return one(ops, gloo(*transfers), end + 50)


@pytest.mark.parametrize(
    ("end", "transfer", "awaited"),
    [
        # goes on up to 1 ms behind the transfer's end
        *((1_200, (100, 200), 1), (1_200.001, (100, 200), 0)),
        # or in the second half of a longer pause
        *((9_900, (100, 5_000), 1), (9_900.004, (100, 5_000), 0)),
        # wakes up to 1 ms before the transfer is recorded as done, having begun before
        *((200, (150, 1_200), 1), (200, (150, 1_200.001), 0)),
        *((200, (200, 300), 0), (200, (199.999, 300), 1)),
        # ended before the pause, and as it began
        *((300, (50, 99.999), 0), (300, (50, 100), 1)),
    ],
)
def test_a_pause_is_for_what_ends_about_then(end: float, transfer: Span, awaited: int) -> None:
    graph, times = replayed(pausing(100, end, transfer))
    assert graph.inferred[AWAITED] == awaited
    nodes = graph.nodes
    # what of a pause waits is over as much later as the transfer is
    later = lengthened(graph, dict.fromkeys(np.flatnonzero(nodes.kind == n.TRANSFER), 100))
    back = (nodes.kind == n.HOST) & (nodes.start == round(end * 1_000))
    assert (later.start[back] - times.start[back]).max(initial=0) == (100_000 if awaited else 0)


def test_a_transfer_follows_the_later_of_its_call_and_its_thread() -> None:
    """Calls at 10 and 20 for transfers from 15 to 60 and, 2 behind that, from 62 on: by their order."""
    ops = [item("c10d::a", 10, 11), item("c10d::b", 20, 21), item("aten::mm", 30, 200)]
    graph, _ = replayed(one(ops, gloo((15, 60), (62, 90)), 200))
    assert graph.inferred[BY_ORDER] == 2
    nodes = graph.nodes
    arrivals = np.flatnonzero(nodes.kind == n.ARRIVAL)
    columns = (nodes.start, nodes.gap, nodes.busy)
    assert [column[arrivals].tolist() for column in columns] == [[15_000, 62_000], [5_000, 2_000], [0, 0]]
    source, target, lag = graph.wait_edges()
    by_call = np.isin(target, arrivals)
    found = sorted(zip(nodes.start[source[by_call]].tolist(), lag[by_call].tolist(), strict=True))
    assert found == [(10_000, 5_000), (20_000, 2_000)]
    # the first transfer takes 20 less: the second one begins 20 earlier
    assert lengthened(graph, {arrivals[0] + 1: -20}).start[arrivals[1]] == 42_000


@pytest.mark.parametrize(
    ("calls", "asked", "in_order"),
    [((15, 20), [15, 20], True), ((15.001, 20), [15, 20], False), ((15,), [15, 15], False)],
)
def test_the_last_call_before_asked(calls: tuple[float, ...], asked: list[float], in_order: bool) -> None:
    """Transfers from 15 and from 62 on: before the first call the caller asked when the transfer began."""
    ops = [*(item("c10d::a", at, at + 0.5) for at in calls), item("aten::mm", 30, 200)]
    graph, _ = replayed(one(ops, gloo((15, 60), (62, 90)), 200))
    source, target, _ = graph.wait_edges()
    by_call = graph.nodes.kind[target] == n.ARRIVAL
    assert sorted((graph.nodes.start[source[by_call]] / 1_000).tolist()) == asked
    assert [graph.inferred[what] for what in (BY_ORDER, BY_CALL)] == ([2, 0] if in_order else [0, 2])


def test_nodes_of_a_cpu_s_rank() -> None:
    """The thread's points, and each transfer as two nodes, one behind the other."""
    graph, _ = replayed(pausing(100, 300, (110, 250), called=101))
    nodes = graph.nodes
    transfer = int(np.flatnonzero(nodes.kind == n.TRANSFER)[0])
    assert (nodes.start[transfer], nodes.end[transfer], nodes.dur[transfer]) == (110_000, 250_000, 140_000)
    assert (nodes.kind[transfer - 1], nodes.dur[transfer - 1]) == (n.ARRIVAL, 0)
    assert nodes.call[transfer] == nodes.call[transfer - 1] == 0
    assert (nodes.gap[transfer], nodes.feeder.max()) == (0, -1)
    assert (nodes.call[nodes.kind == n.HOST] == -1).all()


def test_a_thread_goes_on_no_earlier_than_it_has_computed() -> None:
    """It computes until 100; a transfer from 10 to 250, awaited until 300, takes nothing."""
    graph, _ = replayed(pausing(100, 300, (10, 250)))
    assert graph.inferred[BY_CALL] == 1
    nodes = graph.nodes
    back = np.flatnonzero((nodes.kind == n.HOST) & (nodes.start == 300_000))
    assert with_durations(graph, nodes.dur * 0).start[back].tolist() == [100_000]
    # of two transfers in a pause the last one to end is awaited
    graph, times = replayed(pausing(100, 400, (100, 250), (260, 350)))
    nodes = graph.nodes
    back = np.flatnonzero((nodes.kind == n.HOST) & (nodes.start == 400_000))
    source, target, lag = graph.wait_edges()
    assert lag[np.isin(target, back)].tolist() == [50_000]
    assert times.end[source[np.isin(target, back)]].tolist() == [350_000]


def loading(number: int, loads: float) -> GraphInput:
    """Loads, computes for 1 ms with 300 µs of an operator's own within the range, waits for an all-reduce."""
    ops = [item("aten::randint", loads - 300, loads), item("aten::mm", loads + 20, loads + 1000)]
    ops.append(item("MmBackward0", loads + 1000, loads + 2000))
    ops += [item("c10d::allreduce_", loads + 2000, loads + 2100), item("aten::add_", 10_000, 11_000)]
    notes = [item("enumerate(DataLoader)#x.__next__", 0, loads), item("ProfilerStep#0", 0, 11_000)]
    steps = {"policy": "annotation", "windows": [(0, 0, 11_000)], "notes": notes}
    return rank(number, on_host=True, ops=ops, work=gloo((loads + 2050, 9990)), instances=[0], **steps)


def test_what_holds_a_cpus_rank_is_divided_as_its_idle_time_is() -> None:
    nodes = replayed(loading(0, 2000), loading(1, 6000))[0].nodes
    on_main = (nodes.rank == 1) & (nodes.held.sum(axis=1) > 0)
    assert (nodes.held[on_main].sum(axis=1) + nodes.busy[on_main] == nodes.gap[on_main]).all()
    held = dict(zip(n.HOST_CAUSES, nodes.held[nodes.rank == 1].sum(axis=0).tolist(), strict=True))
    expected = {"loader": 5_700_000, "sync": 100_000, "launch": 20_000, "operators": 1_000_000}
    assert {cause: ns for cause, ns in held.items() if ns} == expected


@pytest.mark.parametrize(
    ("setting", "saved"),
    [
        *(("host[loader].time=0", 5_700), ("rank[1].host[loader].time=0", 4_000)),
        ("rank[0].host[loader].time=0", 0),
        *(("host[operators].time=x0.5", 500), ("host[loader+operators].time=0", 6_700)),
        ("host[sync].time=0", 60),  # 50 from call to transfer, 10 from transfer to thread
        ("host[sync].time=x0.5", 30),
        ("host[python].time=0", None),
    ],
)
def test_without_what_holds_a_cpus_rank_all_go_on_earlier(setting: str, saved: int | None) -> None:
    """Rank 0 loads for 2 ms, rank 1 for 6 ms: rank 1 is 4 ms late."""
    graph, times = replayed(loading(0, 2000), loading(1, 6000))
    made = host(subject(graph), read_setting(setting, setting.rpartition("=")[2]))
    if saved is None:
        assert made == "no host thread does that in the run's windows"
        return
    after = simulate_nodes(made.nodes, made.cut)
    gained = [end_of(graph, times, number) - end_of(made, after, number) for number in (0, 1)]
    assert gained == [saved, saved]
