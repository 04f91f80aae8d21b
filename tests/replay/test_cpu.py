# SPDX-License-Identifier: Apache-2.0
"""CPU-only ranks: transfers on the library's threads, callers that pause until they have ended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from replay_rows import end_of, item, rank, replayed

from cclbench.machine import Machine
from cclbench.replay import nodes as n
from cclbench.replay.pricing import ratios
from cclbench.replay.scenario import scenario
from cclbench.replay.simulate import simulate
from cclbench.replay.tables import GraphInput

MAIN, GLOO = (-1, 1), (-1, 9)


def worker(number: int, before: float, *, called: bool = True) -> GraphInput:
    """Computes, pauses for 3 ms of all-reduce on gloo's thread once both have called, computes 1 ms."""
    met, ms = 5000.0, 1000
    calls = [item("c10d::allreduce_", before, before + 20)] if called else []
    return rank(
        number,
        on_host=True,
        ops=[
            item("aten::mm", 0, before),
            *calls,
            item("aten::add_", met + 3 * ms + 50, met + 4 * ms + 50),
        ],
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
    times = simulate(replace(graph.nodes, dur=dur), graph.cut)
    assert [end_of(graph, times, r) for r in (0, 1)] == [7560, 7560]


def test_waiting_for_a_slow_rank_is_worked_out_anew() -> None:
    graph, _ = replayed(worker(0, 2000), worker(1, 5000))
    # rank 1 computes for 2 ms less
    nodes = graph.nodes
    first = np.flatnonzero((nodes.rank == 1) & (nodes.gap == 5_000_000))
    assert len(first) == 1
    gap = nodes.gap.copy()
    gap[first] -= 2_000_000
    times = simulate(replace(nodes, gap=gap), graph.cut)
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
    found = ratios(graph, scenario(["rank.1.compute=x0.5"]), Machine(), {})
    nodes = graph.nodes
    gap = nodes.gap + np.rint(nodes.busy * (found.expected - 1)).astype(np.int64)
    times = simulate(replace(nodes, gap=gap), graph.cut)
    assert [end_of(graph, times, r) for r in (0, 1)] == [6560, 6060]
