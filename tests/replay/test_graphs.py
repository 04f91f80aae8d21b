# SPDX-License-Identifier: Apache-2.0
"""Rows of one graph launch keep the device's gaps; rows late on an idle device stay late; in µs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.replay_rows import DEVICE, Item, end_of, item, rank, replayed

from cclbench.replay import nodes as n
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import GraphInput

BESIDE = (0, 20)


def launch(at: float, corr: int, name: str = "cudaLaunchKernel") -> Item:
    return item(name, at, at + 2, corr=corr)


def kernel(start: float, end: float, corr: int, **more: object) -> Item:
    return item("gemm", start, end, corr=corr, **{"lane": DEVICE, **more})


def graph_among_kernels(*of_graph: Item) -> GraphInput:
    """Kernels of 20 at 5, 30, ... 130, the rows of a graph that is launched at 14, kernels from 400 on."""
    alone = [kernel(5 + 25 * i, 25 + 25 * i, i) for i in range(6)]
    behind = [kernel(400 + 25 * i, 420 + 25 * i, 20 + i) for i in range(6)]
    return rank(
        0,
        launches=[
            *(launch(2 * i, i) for i in range(6)),
            launch(14, 10, "cudaGraphLaunch"),
            *(launch(20 + 2 * i, 20 + i) for i in range(6)),
        ],
        work=[*alone, *of_graph, *behind],
        windows=[(0, 5, 545)],
    )


def test_kernels_of_one_graph_keep_their_gaps() -> None:
    """Gaps of 40 that no other kernel of the stream has, as where the profiler left kernels out."""
    made = graph_among_kernels(kernel(190, 210, 10), kernel(250, 270, 10), kernel(310, 395, 10))
    graph, times = replayed(made)
    assert end_of(graph, times, 0) == 545
    assert times.start.tolist() == graph.nodes.start.tolist()
    half = replace(graph.nodes, dur=np.where(graph.nodes.kind == n.COMPUTE, graph.nodes.dur // 2, 0))
    # 6 × 10 + 5 × 5 from 5 on, 40 + 10 + 40 + 10 + 40 + 42.5, 5 + 6 × 10 + 5 × 5
    assert end_of(graph, simulate_nodes(half, graph.cut), 0) == 5 + 85 + 182.5 + 90


def test_a_graph_of_which_one_row_is_told() -> None:
    graph, times = replayed(graph_among_kernels(kernel(300, 395, 10)))
    assert end_of(graph, times, 0) == 545


def test_branches_of_a_graph_wait_for_one_another() -> None:
    """The branch beside begins 3 after the graph's first kernel began, the last kernel 5 after the branch."""
    made = graph_among_kernels(kernel(190, 210, 10), kernel(193, 305, 10, lane=BESIDE), kernel(310, 395, 10))
    graph, times = replayed(made)
    assert times.start.tolist() == graph.nodes.start.tolist()
    nodes = graph.nodes
    branch = int(np.flatnonzero(nodes.start == 193_000)[0])
    dur = nodes.dur.copy()
    dur[branch] -= 60_000
    assert end_of(graph, simulate_nodes(replace(nodes, dur=dur), graph.cut), 0) == 485


@pytest.mark.parametrize(("late", "busy", "end"), [(200, False, 250), (20, False, 125), (200, True, 125)])
def test_a_row_late_on_an_idle_device_stays_late(late: float, busy: bool, end: float) -> None:
    """A kernel of 20 launched at 100 that should begin at 105, and begins `late` more; no row says why.

    With another stream's kernel running all along it may have waited for that one's place: not known.
    """
    first = [(0, DEVICE, 5, 25), (30, DEVICE, 35, 55), (60, DEVICE, 65, 85)]
    work = [kernel(a, b, i, lane=lane) for i, (_, lane, a, b) in enumerate(first)]
    work.append(kernel(105 + late, 125 + late, 3))
    launches = [launch(at, i) for i, (at, *_) in enumerate(first)] + [launch(100, 3)]
    if busy:
        launches.append(launch(62, 4))
        work.append(kernel(67, 500, 4, lane=BESIDE))
    made = rank(0, launches=launches, work=work, windows=[(0, 5, 125 + late)])
    graph, times = replayed(made)
    last = int(np.flatnonzero(graph.nodes.start == round((105 + late) * 1000))[-1])
    assert times.end[last] / 1000 == (125 + late if late > 30 and not busy else end)


def test_what_the_first_launch_finds_idle_waits_for_no_other_lane() -> None:
    """A graph launched at 50, long after a row that nobody launched ended beside it."""
    work = [kernel(5, 20, -1, lane=BESIDE), kernel(55, 60, 0), kernel(60, 65, 0)]
    graph, _ = replayed(rank(0, launches=[launch(50, 0, "cudaGraphLaunch")], work=work, windows=[(0, 5, 65)]))
    nodes = graph.nodes
    dur = np.where(nodes.start == 5_000, 2 * nodes.dur, nodes.dur)
    assert end_of(graph, simulate_nodes(replace(nodes, dur=dur), graph.cut), 0) == 65


def test_kernels_that_begin_and_end_together_are_not_one_call() -> None:
    """Rows that nobody launched, on three lanes: the last follows one of the first two, no transfers."""
    work = [kernel(5, 20, -1, lane=(0, lane)) for lane in (20, 21)] + [kernel(25, 30, -1, lane=(0, 22))]
    graph, _ = replayed(rank(0, launches=[], work=work, windows=[(0, 5, 30)]))
    nodes = graph.nodes
    longer = [int(place) for place in np.flatnonzero(nodes.start == 5_000)]
    ends = []
    for place in longer:
        dur = nodes.dur.copy()
        dur[place] += 20_000
        ends.append(
            simulate_nodes(replace(nodes, dur=dur), graph.cut).end[nodes.start == 25_000].max() / 1000
        )
    assert sorted(ends) == [30, 50]
