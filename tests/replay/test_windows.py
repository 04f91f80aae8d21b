# SPDX-License-Identifier: Apache-2.0
"""Steps of changed replays: nothing that takes less time makes one longer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from replay_rows import item, rank, replayed

from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import Times, simulate
from cclbench.replay.tables import GraphInput
from cclbench.replay.windows import Pace, windows


def two_steps(number: int, each: float) -> GraphInput:
    """Warming up for 50 µs, kernels of `each` µs in two steps, an all-reduce of 20 from the last rank on."""
    work = [
        item("warm", 0, 50, lane=(0, 7), step=-1),
        item("k", 50, 50 + each, lane=(0, 7), step=0),
        item("k", 50 + each, 50 + 2 * each, lane=(0, 7), step=1),
        item("nccl", 50 + 2 * each, 370, lane=(0, 7), call=0, step=1),
    ]
    bounds = [(0, 50, 50 + each), (1, 50 + each, 370)]
    return rank(number, work=work, instances=[0], windows=bounds)


def paced() -> tuple[Graph, Pace, Times]:
    graph, times = replayed(two_steps(0, 100), two_steps(1, 150))
    return graph, Pace(windows(graph), times.start, times.end), times


def step(graph: Graph, pace: Pace, factor: dict[int, float]) -> float:
    """The step with kernels of those ranks so many times as long, µs."""
    nodes, chosen = graph.nodes, np.ones(len(graph.nodes))
    for number, times in factor.items():
        chosen[(nodes.rank == number) & (nodes.kind == n.COMPUTE)] = times
    dur = np.rint(nodes.dur * chosen).astype(np.int64)
    found = simulate(replace(nodes, dur=dur), graph.cut)
    return pace.step(found.start, found.end) / 1000


def test_a_faster_rank_makes_no_step_longer() -> None:
    """Its second step would begin 50 earlier and end with the other rank's: (150 + 270) / 2 for 185."""
    graph, pace, _ = paced()
    assert pace.step_ns == (150_000 + 220_000) / 2
    assert step(graph, pace, {}) == 185
    assert step(graph, pace, {0: 0.5}) < 185.001


def test_what_the_slowest_rank_gains_the_step_gains() -> None:
    """Both ranks' windows take 320 together; without 10 % of 150 twice, and of 50 before, 290 less the 5."""
    graph, pace, times = paced()
    inside = pace.inside(graph, pace.since(graph, times.start))
    assert inside[graph.nodes.start == 0].tolist() == [False, False]
    assert inside[graph.nodes.start >= 50_000].all()
    nodes = graph.nodes
    dur = np.where((nodes.kind == n.COMPUTE) & inside, nodes.dur * 9 // 10, nodes.dur)
    found = simulate(replace(nodes, dur=dur), graph.cut)
    assert pace.step(found.start, found.end) == 185_000 * 290 / 320
