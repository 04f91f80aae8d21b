# SPDX-License-Identifier: Apache-2.0
"""Rows without launches follow what ended last before them, in µs; clocks may err, calls may be batched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.replay_rows import item, rank, replayed

from cclbench.replay import nodes as n
from cclbench.replay.simulate import simulate_nodes


def start_of(later: float, *, gone: float = 0, lasts: float = 400) -> float:
    """When a kernel begins that began `later` than a receive of `lasts` ended, if that takes `gone` less."""
    work = [
        item("k", 0, 100, lane=(0, 7)),
        item("recv", 110, 110 + lasts, lane=(0, 9), category="communication"),
        item("k", 110 + lasts + later, 710 + lasts + later, lane=(0, 7)),
    ]
    graph, times = replayed(rank(0, work=work, windows=[(0, 0, 2000)]))
    assert times.start.tolist() == graph.nodes.start.tolist()
    nodes = graph.nodes
    dur = nodes.dur.copy()
    dur[np.argmax(nodes.lane)] -= round(gone * 1000)
    last = int(np.flatnonzero(nodes.kind == n.COMPUTE)[nodes.start[nodes.kind == n.COMPUTE].argmax()])
    return float(simulate_nodes(replace(nodes, dur=dur), graph.cut).start[last] / 1000)


@pytest.mark.parametrize("later", [5, 0, -10])
def test_a_row_that_overlaps_a_little_follows(later: float) -> None:
    """It begins earlier by what the receive takes less."""
    assert start_of(later) == 510 + later
    assert start_of(later, gone=300) == 210 + later


@pytest.mark.parametrize(("later", "lasts"), [(-40, 2000), (-10, 150)])
def test_a_row_that_overlaps_more_does_not(later: float, lasts: float) -> None:
    """More than 30 µs, or a twentieth of the shorter row: it keeps its gap behind its own lane's last."""
    assert start_of(later, lasts=lasts, gone=100) == 110 + lasts + later


def test_what_follows_one_call_waits_for_all_of_it() -> None:
    """A send and a receive of 100 with the same times: whichever is shorter, the other is waited for."""
    work = [
        item("k", 0, 100, lane=(0, 7)),
        item("send", 110, 210, lane=(0, 8), call=0),
        item("recv", 110, 210, lane=(0, 9), call=1),
        item("k", 215, 300, lane=(0, 7)),
    ]
    graph, _ = replayed(rank(0, work=work, instances=[-1, -1], windows=[(0, 0, 300)]))
    nodes = graph.nodes
    last = int(nodes.start.argmax())
    for shorter in np.flatnonzero(nodes.kind == n.TRANSFER).tolist():
        dur = nodes.dur.copy()
        dur[shorter] -= 50_000
        assert simulate_nodes(replace(nodes, dur=dur), graph.cut).start[last] == 215_000
    dur = np.where(nodes.kind == n.TRANSFER, nodes.dur - 50_000, nodes.dur)
    assert simulate_nodes(replace(nodes, dur=dur), graph.cut).start[last] == 165_000
