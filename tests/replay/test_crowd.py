# SPDX-License-Identifier: Apache-2.0
"""How much longer more ranks wait for their last one: by hand, from arrivals in µs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from helpers.replay_rows import item, rank
from helpers.replay_subjects import degrees

from cclbench.replay import nodes as n
from cclbench.replay.crowd import Delays, crowd_delays, expected_maximum
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.regroup import RegroupedGroup

GROWN = {"0-1": RegroupedGroup((0, 1, 2, 3), dimension="dp")}
LAYOUTS = degrees(dp=2), degrees(dp=4)
MORE = expected_maximum(4) - expected_maximum(2)
"""d(4) − d(2), 1.0294 − 0.5642."""


def meetings(arrivals: Sequence[Sequence[float]], steps: Sequence[int], size: int = 2) -> Graph:
    """All-reduces of 5 µs, one behind the other, that ranks reach at those times."""
    made = []
    for r in range(len(arrivals[0])):
        work = [
            item("nccl", own[r], max(own) + 5, lane=(0, 9), call=i, step=step)
            for i, (own, step) in enumerate(zip(arrivals, steps, strict=True))
        ]
        count = len(arrivals)
        made.append(rank(r, work=work, instances=[*range(count)], size=size, windows=[(0, 0, 1000)]))
    return build_graph(made)


def later(
    graph: Graph,
    regrouped: Mapping[str | None, RegroupedGroup] = GROWN,
    groups: Mapping[str, tuple[int, ...]] | None = None,
    layouts: object = LAYOUTS,
    inside: np.ndarray | None = None,
) -> tuple[Delays, list[int], list[int]]:
    here = np.ones(len(graph.nodes), np.bool_) if inside is None else inside
    found = crowd_delays(graph, graph.nodes.start, here, regrouped, groups or {"0-1": (0, 1)}, layouts)  # type: ignore[arg-type]
    meet = graph.nodes.kind == n.RENDEZVOUS
    assert not found.expected[~meet].any()
    assert not found.high[~meet].any()
    return found, found.expected[meet].tolist(), found.high[meet].tolist()


@pytest.mark.parametrize(
    ("count", "known"),
    [(1, 0), (2, 0.56419), (3, 0.84628), (4, 1.02938), (8, 1.42360), (1000, 3.24144)],
)
def test_expected_maxima_of_normal_variables(count: int, known: float) -> None:
    """Harter 1961, table 1."""
    assert expected_maximum(count) == pytest.approx(known, abs=2e-5)


def test_the_spread_is_that_of_the_same_place_in_all_steps() -> None:
    """Arrivals 10 and 30 µs apart at the first place of two steps, s² = (50 + 450) / 2; 4 at the second,
    s² = 8, of two steps too.  The upper bound has as many degrees of freedom as meetings."""
    graph = meetings([(100, 110), (200, 204), (330, 300), (400, 404)], [0, 0, 1, 1])
    found, expected, high = later(graph)
    first, second = (1_000 * math.sqrt(s2) * MORE for s2 in (250, 8))
    assert expected == [round(first), round(second)] * 2
    upper = 1 + 1.2816 / math.sqrt(2 * 2)
    assert high == [round(first * upper), round(second * upper)] * 2
    assert found.meetings == 4
    # of one step only: each place has its own spread, of one degree of freedom
    graph = meetings([(100, 110), (200, 230)], [0, 0])
    _, expected, high = later(graph)
    assert expected == [round(1_000 * math.sqrt(50) * MORE), round(1_000 * math.sqrt(450) * MORE)]
    assert high == [round(1_000 * math.sqrt(s2) * MORE * (1 + 1.2816 / math.sqrt(2))) for s2 in (50, 450)]
    # collectives of other kinds have spreads of their own
    graph = meetings([(100, 110), (300, 330)], [0, 1])
    object.__setattr__(graph.transfers, "kind", ("all_reduce", "all_gather") * 2)
    assert later(graph)[1] == [round(1_000 * math.sqrt(s2) * MORE) for s2 in (50, 450)]


def test_what_does_not_grow_waits_no_longer() -> None:
    graph = meetings([(100, 110)], [0])
    nothing = ([0], [0])
    assert later(graph, {})[1:] == nothing
    assert later(graph, {"0-1": RegroupedGroup((), 0.5, 1.0, "dp")})[1:] == nothing
    assert later(graph, {"0-1": RegroupedGroup((0, 5), dimension="dp")})[1:] == nothing
    assert later(graph, groups={"0-1": (0,)})[1:] == nothing
    assert later(graph, inside=np.zeros(len(graph.nodes), np.bool_))[1:] == nothing
    assert later(graph, {})[0].meetings == 0
    # sends wait for no more ranks
    for kind in ("send", "recv"):
        object.__setattr__(graph.transfers, "kind", (kind, kind))
        assert later(graph)[1:] == ([0], [0])
    # a run without collectives waits for nobody
    graph = build_graph([rank(0, work=[item("gemm", 0, 10, step=0)], windows=[(0, 0, 10)])])
    found, expected, high = later(graph, {}, {})
    assert (found.meetings, expected, high) == (0, [], [])


def test_of_a_group_of_all_ranks_replicas_are_what_arrives() -> None:
    """Four ranks, two of each replica: the last of each arrive at 110 and 140, s² = 450; d(dp) grows."""
    graph = meetings([(100, 110, 140, 90)], [0], size=4)
    old, new = degrees(tp=2, dp=2), degrees(tp=2, dp=4)
    whole = {"0-3": RegroupedGroup(tuple(range(8)))}
    _, expected, _ = later(graph, whole, {"0-3": (0, 1, 2, 3)}, (old, new))
    assert expected == [round(1_000 * math.sqrt(450) * MORE)]
    # of a dimension all ranks are: 100, 110, 140, 90 have a variance of 1400 / 3
    _, expected, _ = later(
        graph, {"0-3": RegroupedGroup(tuple(range(8)), dimension="dp")}, {"0-3": (0, 1, 2, 3)}, (old, new)
    )
    more = expected_maximum(8) - expected_maximum(4)
    assert expected == [round(1_000 * math.sqrt(1400 / 3) * more)]
