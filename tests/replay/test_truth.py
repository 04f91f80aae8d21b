# SPDX-License-Identifier: Apache-2.0
"""Random layouts whose truth under another network is known: simulated again with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from synthetic import Case, Distortion, Link, Network, Truth, layouts, write

import cclbench
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph, build
from cclbench.replay.simulate import simulate
from cclbench.replay.tables import ranks
from cclbench.replay.windows import lengths, step_time, windows
from cclbench.schema import group_id

LAYOUTS = 50
IDENTITY, MEDIAN, WORST = 0.01, 0.033, 0.1


def network(of: Network, change: Callable[[Link], Link]) -> Network:
    return Network(change(of.common), {key: change(link) for key, link in of.own.items()})


def true_step(truth: Truth) -> float:
    longest: dict[int, int] = {}
    for rank in truth.ranks.values():
        for one in rank.steps:
            longest[one.step] = max(longest.get(one.step, 0), one.window_ns)
    return sum(longest.values()) / len(longest)


def step_of(graph: Graph) -> float:
    times = simulate(graph.nodes, graph.cut)
    found = windows(graph)
    return step_time(found, lengths(found, times.start, times.end))


def under(graph: Graph, truth: Truth, change: Callable[[Link], Link]) -> Graph:
    """The graph with transfers × model(new) / model(old), the model being the true links."""
    ratio = {}
    for i in truth.instances:
        new, old = change(i.link).transfer_ns(i.payload), i.link.transfer_ns(i.payload)
        ratio[i.kind, group_id(i.group), i.payload] = new / old
    nodes, calls = graph.nodes, graph.transfers
    dur = nodes.dur.copy()
    for node in np.flatnonzero(nodes.kind == n.TRANSFER).tolist():
        call = nodes.call[node]
        kind = "send_recv" if calls.kind[call] in ("send", "recv") else calls.kind[call]
        dur[node] = round(dur[node] * ratio[kind, calls.group[call], int(calls.bytes[call])])
    return replace(graph, nodes=replace(nodes, dur=dur))


def fast(link: Link) -> Link:
    """Twice the bandwidth."""
    return Link(link.alpha_ns, link.ns_per_kib // 2)


def slow(link: Link) -> Link:
    """Half the bandwidth, twice the latency."""
    return Link(link.alpha_ns * 2, link.ns_per_kib * 2)


@pytest.mark.parametrize(
    ("seed", "change", "events"),
    [(1, fast, False), (2, slow, False), (3, slow, True)],
    ids=["fast", "slow", "slow, with events traced"],
)
def test_the_step_under_another_network(seed: int, change: Callable[[Link], Link], events: bool) -> None:
    identity, predicted = [], []

    @hypothesis.seed(seed)
    @settings(
        max_examples=LAYOUTS // 2,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(layouts())
    def one(case: Case) -> None:
        case = replace(case, network=network(case.network, lambda x: Link(x.alpha_ns, x.ns_per_kib * 2)))
        truth = case.simulate()
        other = replace(case, network=network(case.network, change)).simulate()
        with TemporaryDirectory() as folder:
            write(truth, Path(folder) / "traces", Distortion(events=events))
            run = cclbench.ingest(Path(folder) / "traces", store=Path(folder) / "store")
            graph = build(ranks(run._stored))
        identity.append(abs(step_of(graph) / true_step(truth) - 1))
        predicted.append(abs(step_of(under(graph, truth, change)) / true_step(other) - 1))

    one()
    assert len(predicted) >= LAYOUTS // 2
    assert max(identity) <= IDENTITY
    assert median(predicted) <= MEDIAN
    assert max(predicted) <= (IDENTITY if events else WORST)
