# SPDX-License-Identifier: Apache-2.0
"""Where a replay's critical path runs, in µs, of graphs made by hand."""

from __future__ import annotations

import numpy as np
from helpers.replay_rows import alone, item, kernel, launch, rank, replayed, syncs

from cclbench.replay import nodes as n
from cclbench.replay.critical_path import Path, critical_path
from cclbench.replay.tables import CONTEXT_SYNC, GraphInput


def path(*ranks: GraphInput, begin: float = 0, last: float | None = None) -> Path:
    """The path to the end of the row that begins at `last`, else of the last of all."""
    graph, times = replayed(*ranks)
    nodes = graph.nodes
    on_device = nodes.kind != n.HOST
    at = [i for i in range(len(nodes)) if on_device[i] and (last is None or nodes.start[i] == last * 1000)]
    found = critical_path(graph, times, max(at, key=lambda i: (times.end[i], i)), round(begin * 1000))
    assert sum(found.places.values()) == found.length_ns
    return found


def us(found: Path) -> dict[str, float]:
    return {place: ns / 1000 for place, ns in found.places.items() if ns}


def queued() -> GraphInput:
    """A host launches at 0, 10 and 20; latencies of 5; kernels of 100, then 30 and 40 with gaps of 2."""
    work = [kernel(5, 105, 1), kernel(107, 137, 2), kernel(139, 179, 3, copy=True)]
    return alone(*work, launches=[launch(0, 1), launch(10, 2), launch(20, 3)])


def test_a_queue_is_its_rows_its_gaps_and_the_first_latency() -> None:
    found = path(queued())
    assert found.length_ns == 179_000
    assert us(found) == {"compute": 130, "copy": 40, "latency": 9}
    assert found.ranks == {0: 179_000}
    assert list(found.places) == ["host", "compute", "copy", "communication", "latency", "untraced"]
    assert found.communication == {}
    # from another instant on
    assert us(path(queued(), begin=50)) == {"compute": 85, "copy": 40, "latency": 4}
    assert us(path(queued(), begin=106)) == {"compute": 30, "copy": 40, "latency": 3}
    assert path(queued(), begin=179).length_ns == path(queued(), begin=180).length_ns == 0


def test_what_was_launched_late_goes_through_its_host() -> None:
    """The second kernel is launched at 200, 190 of the host's time behind the first launch at 10."""
    one = alone(kernel(15, 45, 1), kernel(205, 235, 2), launches=[launch(10, 1), launch(200, 2)])
    assert us(path(one)) == {"compute": 30, "latency": 5, "host": 190, "untraced": 10}
    assert path(one).ranks == {0: 225_000}
    assert us(path(one, begin=150)) == {"compute": 30, "latency": 5, "host": 50}
    assert us(path(one, begin=202)) == {"compute": 30, "latency": 3}


def reduced(number: int, first: float) -> GraphInput:
    """A kernel of that length, and an all-reduce of 20 µs once both ranks, of 60 and 100, have come."""
    work = [kernel(0, first), kernel(first, 120, name="nccl", call=0), kernel(125, 135)]
    return rank(number, work=work, instances=[0], windows=[(0, 0, 135)])


def test_a_meeting_leads_to_the_rank_that_came_last() -> None:
    graph, times = replayed(reduced(0, 60), reduced(1, 100))
    last = int(np.where(graph.nodes.rank == 0, times.end, -1).argmax())
    found = critical_path(graph, times, last, 0)
    assert us(found) == {"compute": 110, "communication": 20, "latency": 5}
    assert found.communication == {("all_reduce", "0-1"): 20_000}
    assert found.ranks == {1: 100_000, 0: 35_000}
    assert list(found.ranks) == [1, 0]
    for begin, communication in ((119_999, {("all_reduce", "0-1"): 1}), (120_000, {})):
        assert critical_path(graph, times, last, begin).communication == communication
    # what ended at the instant at which the path begins is not on it
    assert critical_path(graph, times, last, 100_000).ranks == {0: 35_000}


def test_waiting_for_the_device_is_a_latency_and_what_the_host_does_then_its_own() -> None:
    """A synchronise call returns at 108, 3 behind the kernel; a launch at 120, its row from 125 on."""
    launches, waits = [launch(0, 1), launch(120, 2)], [item("cudaDeviceSynchronize", 5, 108)]
    one = alone(kernel(5, 105, 1), kernel(125, 130, 2), launches=launches, syncs=waits)
    assert us(path(one)) == {"compute": 105, "latency": 13, "host": 12}
    # the device is done at 55; the call of 60 to 64 is stated to wait for that
    launches, calls = [launch(0, 1), launch(70, 2)], [item("cudaDeviceSynchronize", 60, 64, 80)]
    stated = syncs((CONTEXT_SYNC, 60, -1, 80, -1, None))
    one = alone(kernel(5, 55, 1), kernel(75, 80, 2), launches=launches, syncs=calls, stated=stated)
    assert us(path(one)) == {"compute": 5, "latency": 5, "host": 70}


def test_transfers_of_several_groups_behind_one_another() -> None:
    """Without a rendezvous they are in the stream's order, between kernels."""
    first, second = kernel(10, 40, name="nccl", call=0), kernel(50, 55, name="nccl", call=1)
    one = alone(kernel(0, 10), first, kernel(40, 50), second, instances=[-1, -1])
    object.__setattr__(one.calls, "kind", ("all_gather", "broadcast"))
    found = path(one)
    assert found.communication == {("all_gather", "0-1"): 30_000, ("broadcast", "0-1"): 5_000}
    assert us(found) == {"compute": 20, "communication": 35}
