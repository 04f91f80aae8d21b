# SPDX-License-Identifier: Apache-2.0
"""Kernels that wait for a place on the device, in µs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.replay_rows import item, rank, replayed

from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import GraphInput

HELD = "kernels held up by a kernel of another stream that fills the device"


def launch(at: float, corr: int) -> dict[str, object]:
    return item("cudaLaunchKernel", at, at + 2, corr=corr)


def two_streams(start: float, *, blocks: int = 5000, processors: int | None = 108) -> GraphInput:
    """A kernel of 1 ms, and one of 10 µs of another stream that is ready at 105 and begins at `start`."""
    return rank(
        0,
        launches=[launch(0, 1), launch(100, 2)],
        work=[
            item("embedding", 5, 1005, corr=1, lane=(0, 7), blocks=blocks),
            item("permute", start, start + 10, corr=2, lane=(0, 20), blocks=200),
        ],
        windows=[(0, 5, 1010)],
        processors=processors,
    )


def end_of_second(graph: Graph, factor: float) -> float:
    nodes = graph.nodes
    kernels = np.flatnonzero(nodes.kind == n.COMPUTE)
    dur = nodes.dur.copy()
    dur[kernels[0]] = round(dur[kernels[0]] * factor)
    changed = replace(nodes, dur=dur)
    return float(simulate_nodes(changed, graph.cut).end[kernels[1]] / 1000)


@pytest.mark.parametrize("known", [{}, {"processors": None}, {"blocks": -1}])
def test_a_kernel_gets_its_place_when_anothers_last_blocks_run(known: dict[str, int]) -> None:
    graph, _ = replayed(two_streams(985, **known))
    assert graph.inferred[HELD] == 1
    assert end_of_second(graph, 1) == 995
    # the first ends at 505: the second begins 20 before
    assert end_of_second(graph, 0.5) == 495
    # at once: with its own launch
    assert end_of_second(graph, 0.05) == 115


@pytest.mark.parametrize(
    ("start", "known"),
    [
        # a grid that leaves processors free holds nobody up
        (985, {"blocks": 108}),
        # in the middle of the other kernel there was a place: something else held it up
        (600, {}),
        # it starts with its launch
        (105, {}),
    ],
)
def test_other_late_kernels_are_not_explained(start: float, known: dict[str, int]) -> None:
    graph, _ = replayed(two_streams(start, **known))
    assert HELD not in +graph.inferred
    assert end_of_second(graph, 0.5) == 115
