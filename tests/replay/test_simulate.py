# SPDX-License-Identifier: Apache-2.0
"""The replay of pieces gives what a replay of node after node gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cclbench.ground.errors import InputError
from cclbench.replay import nodes as n
from cclbench.replay.nodes import Nodes
from cclbench.replay.simulate import cut_pieces, simulate_nodes

NONE = np.empty(0, np.int64)


def one_by_one(nodes: Nodes, source: np.ndarray, target: np.ndarray, lag: np.ndarray) -> list[int]:
    """Ends of all nodes by the definition, each when all it needs is known."""
    ends: dict[int, int] = {}
    first = nodes.first_of_lane
    while len(ends) < len(nodes):
        for i in range(len(nodes)):
            own = [] if first[i] else [(i - 1, int(nodes.gap[i]))]
            fed = [(int(nodes.feeder[i]), int(nodes.feed_lag[i]))] if nodes.feeder[i] >= 0 else []
            edges = [(int(s), int(g)) for s, t, g in zip(source, target, lag, strict=True) if t == i]
            causes = own + fed + edges
            if i not in ends and all(cause in ends for cause, _ in causes):
                ready = max((ends[c] + g for c, g in causes), default=int(nodes.start[i]))
                ends[i] = ready + int(nodes.dur[i])
    return [ends[i] for i in range(len(nodes))]


def test_kernels_start_when_launched_and_when_their_stream_is_free() -> None:
    # host points at 0, 10, 20; kernels of 30, 5, 5 launched by them, 3 later, gap 1 on the stream
    host = n.blank_nodes(3, lane=0, kind=n.HOST, start=[0, 10, 20], end=[0, 10, 20], gap=[0, 10, 10], rank=0)
    work = n.blank_nodes(
        3, lane=1, kind=n.COMPUTE, dur=[30, 5, 5], gap=[0, 1, 1], feeder=[0, 1, 2], feed_lag=3, rank=0
    )
    nodes = n.join_nodes([host, work])
    cut = cut_pieces(nodes, NONE, NONE, NONE)
    assert simulate_nodes(nodes, cut).end.tolist() == [0, 10, 20, 33, 39, 45]
    slow = replace(nodes, gap=np.array([0, 100, 10, 0, 1, 1]))
    assert simulate_nodes(slow, cut).end.tolist() == [0, 100, 110, 33, 108, 118]
    assert simulate_nodes(slow, cut).launched.tolist()[4:] == [4, 5]


@pytest.mark.parametrize("seed", range(25))
def test_pieces_give_what_the_definition_gives(seed: int) -> None:
    random = np.random.default_rng(seed)
    count, lanes = 60, 5
    lane = np.sort(random.integers(0, lanes, count))
    when = np.empty(count, np.int64)  # an order of all nodes in which every edge points forward
    for one in range(lanes):
        when[lane == one] = np.sort(random.choice(10_000, int((lane == one).sum()), replace=False))
    host = np.flatnonzero(lane < 2)
    feeder = np.full(count, -1)
    last = dict.fromkeys(range(lanes), -1)
    for i in np.flatnonzero(lane >= 2):
        before = [h for h in host if when[h] < when[i] and h > last[int(lane[i])]]
        if before and random.random() < 0.7:
            feeder[i] = last[int(lane[i])] = int(random.choice(before))
    pairs = random.integers(0, count, (14, 2))
    pairs = pairs[when[pairs[:, 0]] < when[pairs[:, 1]]]
    source, target = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    nodes = n.blank_nodes(
        count,
        lane=lane,
        rank=0,
        start=when,
        end=when,
        gap=random.integers(0, 20, count),
        dur=random.integers(0, 40, count),
        feeder=feeder,
        feed_lag=random.integers(0, 9, count),
    )
    lag = random.integers(-3, 10, len(source))
    found = simulate_nodes(nodes, cut_pieces(nodes, source, target, lag))
    assert found.end.tolist() == one_by_one(nodes, source, target, lag)
    assert (found.end - found.start == nodes.dur).all()


def test_a_circle_is_one_clear_error() -> None:
    nodes = n.blank_nodes(4, lane=[0, 0, 1, 1], rank=[0, 0, 1, 1], start=[0, 10, 0, 10], end=[5, 15, 5, 15])
    with pytest.raises(InputError, match="ranks 0, 1 wait for one another in a circle"):
        cut_pieces(nodes, np.array([1, 3]), np.array([2, 0]), np.array([0, 0]))
