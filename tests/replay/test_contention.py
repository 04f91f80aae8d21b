# SPDX-License-Identifier: Apache-2.0
"""Kernels that are slowed by a known factor beside communication, replayed without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.replay_rows import Item, item, rank

from cclbench.replay import nodes as n
from cclbench.replay.contention import replay_contended
from cclbench.replay.graph import Graph, build_graph

ON, OFF, KERNELS, CHANCE, LATENCY = 400.0, 300.0, 400, 0.03, 5.0
FACTORS = (1.0, 1.1, 1.3, 2.0)


def slowed(factor: float, seed: int) -> tuple[Graph, float]:
    """Kernels of three lengths in a row, µs, and collectives that are on and off; the work in all.

    A kernel does 1 µs of work in a µs, and 1 / factor where a collective runs.
    """
    random = np.random.default_rng(seed)
    time, work = LATENCY, 0.0
    kernels: list[Item] = []
    for i in range(KERNELS):
        name, base = (("gemm", 20.0), ("norm", 35.0), ("attention", 50.0))[i % 3]
        left = base * float(random.uniform(1 - CHANCE, 1 + CHANCE))
        work, begin = work + left, time
        while left > 1e-9:
            place = time % (ON + OFF)
            beside = place < ON
            rest = (ON if beside else ON + OFF) - place
            taken = min(rest, left * factor if beside else left)
            left -= taken / factor if beside else taken
            time += taken
        kernels.append(item(name, begin, time, corr=i))
    periods = int(time // (ON + OFF)) + 1
    calls = [
        item("nccl", k * (ON + OFF), k * (ON + OFF) + ON, corr=1000 + k, lane=(0, 20), call=k)
        for k in range(periods)
    ]
    ahead = [item("cudaLaunchKernel", i / 1e3, i / 1e3, corr=i) for i in range(KERNELS)]
    timely = [
        item("cudaLaunchKernel", call["start"] - LATENCY, call["start"] - 4, corr=call["corr"])
        for call in calls
    ]
    one = rank(
        0,
        work=[*kernels, *calls],
        launches=[*ahead, *timely],
        instances=[-1] * periods,
        windows=[(0, 0, time)],
    )
    return build_graph([one]), work


@pytest.mark.parametrize("factor", FACTORS)
def test_without_communication_kernels_take_the_time_of_their_work(factor: float) -> None:
    graph, work = slowed(factor, seed=7)
    nodes = graph.nodes
    kernels = nodes.kind == n.COMPUTE
    same = replay_contended(graph, factor)
    assert abs(same.end - nodes.end)[kernels].max() <= 5_000
    free = replace(graph, nodes=replace(nodes, dur=np.where(nodes.kind == n.TRANSFER, 0, nodes.dur)))
    times = replay_contended(free, factor)
    # to rounding; a kernel of 20 to 50 µs that begins or ends beside is off by its jitter at most
    assert times.end[kernels].max() / 1000 - LATENCY == pytest.approx(work, rel=1e-3)
