# SPDX-License-Identifier: Apache-2.0
"""Random layouts replayed, and the truth: simulated again under another network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import cclbench
from cclbench.ground.intervals import Mask
from cclbench.ground.schema import group_id
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import graph_inputs
from cclbench.replay.windows import StepPace, rank_windows
from helpers.synthetic import Case, Distortion, Link, Network, Truth, in_layouts, write

Change = Callable[[Link], Link]


def fast(link: Link) -> Link:
    return Link(link.alpha_ns, link.ns_per_kib // 2)


def slow(link: Link) -> Link:
    return Link(link.alpha_ns * 2, link.ns_per_kib * 2)


@dataclass(slots=True)
class Errors:
    """Replayed / true − 1 of each layout: of the step as it was, and of the step under another network."""

    identity: list[float]
    predicted: list[float]


def errors(count: int, seed: int, change: Change, *, events: bool) -> Errors:
    """Those of so many layouts, the same ones for a seed; `events` are traced or have to be inferred."""
    found = Errors([], [])

    def one(case: Case) -> None:
        # an even number of ns a KiB, so that half of it is whole
        case = replace(case, network=_network(case.network, lambda x: Link(x.alpha_ns, x.ns_per_kib * 2)))
        truth = case.simulate()
        other = replace(case, network=_network(case.network, change)).simulate()
        with TemporaryDirectory() as folder:
            write(truth, Path(folder) / "traces", Distortion(events=events))
            run = cclbench.ingest(Path(folder) / "traces", store=Path(folder) / "store")
            graph = build_graph(graph_inputs(run))
        times = simulate_nodes(graph.nodes, graph.cut)
        pace = StepPace(rank_windows(graph), times.start, times.end)
        inside = pace.nodes_in_windows(graph, pace.time_since_windows(graph, times.start))
        found.identity.append(pace.step_ns / _true_step(truth) - 1)
        new = _under(graph, truth, change, inside)
        times = simulate_nodes(new.nodes, new.cut)
        found.predicted.append(pace.mean_step_ns(times.start, times.end) / _true_step(other) - 1)

    in_layouts(count, seed, one)
    return found


def _network(of: Network, change: Change) -> Network:
    return Network(change(of.common), {key: change(link) for key, link in of.own.items()})


def _true_step(truth: Truth) -> float:
    longest: dict[int, int] = {}
    for rank in truth.ranks.values():
        for one in rank.steps:
            longest[one.step] = max(longest.get(one.step, 0), one.window_ns)
    return sum(longest.values()) / len(longest)


def _under(graph: Graph, truth: Truth, change: Change, inside: Mask) -> Graph:
    """The graph with transfers × model(new) / model(old), the model being the true links."""
    ratio = {}
    for i in truth.instances:
        new, old = change(i.link).transfer_ns(i.payload), i.link.transfer_ns(i.payload)
        ratio[i.kind, group_id(i.group), i.payload] = new / old
    nodes, calls = graph.nodes, graph.transfers
    dur = nodes.dur.copy()
    for node in np.flatnonzero((nodes.kind == n.TRANSFER) & inside).tolist():
        call = nodes.call[node]
        kind = "send_recv" if calls.kind[call] in ("send", "recv") else calls.kind[call]
        dur[node] = round(dur[node] * ratio[kind, calls.group[call], int(calls.bytes[call])])
    return replace(graph, nodes=replace(nodes, dur=dur))
