# SPDX-License-Identifier: Apache-2.0
"""A run as a graph of nodes: host order with measured gaps, launches, stream order, waits, rendezvous.

What no row states is inferred from times; how often is told in `Graph.inferred`, and in `Graph.traced` how
often it was not necessary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cclbench.ground.intervals import Int64, Mask
from cclbench.replay import nodes as n
from cclbench.replay.accelerator import accelerator_part
from cclbench.replay.cpu import cpu_part
from cclbench.replay.nodes import Edges, Nodes
from cclbench.replay.simulate import GraphPieces, cut_pieces
from cclbench.replay.tables import GraphInput, Windowed, recode_words


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """The run's collectives, one entry a rank's part, arrays of shape (calls,).

    `known` are those whose waiting is told from transfer.
    """

    kind: tuple[str | None, ...]
    group: tuple[str | None, ...]
    size: Int64
    bytes: Int64
    known: Mask
    instance: Int64


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """All ranks' nodes and how they fall into pieces."""

    nodes: Nodes
    cut: GraphPieces
    transfers: Transfers
    categories: tuple[str, ...]
    names: tuple[str, ...]
    windowed: tuple[Windowed, ...]
    """Of each rank."""
    inferred: Counter[str]
    traced: Counter[str]
    assumed: tuple[Int64, Int64]
    """Sources and targets of waits that no row shows."""

    def wait_edges(self) -> tuple[Int64, Int64, Int64]:
        """Source, target and lag of all waits but those for the node before in the lane."""
        told = ~self.cut.own
        return self.cut.source[told], self.cut.head[self.cut.target[told]], self.cut.lag[told]

    def with_waits(self, source: Int64, target: Int64, lag: Int64) -> Graph:
        """The graph with these waits besides; `InputError` where ranks then wait in a circle."""
        old = self.wait_edges()
        joined = (np.concatenate([a, b]) for a, b in zip(old, (source, target, lag), strict=True))
        return replace(self, cut=cut_pieces(self.nodes, *joined))

    def without_doubt(self) -> Graph:
        """The graph without waits that no row shows, and without delays that nothing explains."""
        nodes = self.nodes
        certain = replace(
            nodes,
            feed_lag=nodes.feed_lag - nodes.doubt,
            gap=np.where(nodes.first_of_lane, nodes.gap, nodes.gap - nodes.doubt),
            doubt=np.zeros_like(nodes.doubt),
        )
        source, target, lag = self.wait_edges()
        pair = source * len(nodes) + target
        # an edge may lead to a node that heads a piece: the same node as when it was added
        kept = ~np.isin(pair, self.assumed[0] * len(nodes) + self.assumed[1])
        return replace(self, nodes=certain, cut=cut_pieces(certain, source[kept], target[kept], lag[kept]))

    def transfer_gates(self) -> Int64:
        """The node with which each transfer's data begins to move: its rendezvous, else itself; −1 of other
        nodes, shape (nodes,)."""
        nodes = self.nodes
        found = np.where(nodes.kind == n.TRANSFER, np.arange(len(nodes)), -1)
        source, target, _ = self.wait_edges()
        met = (nodes.kind[source] == n.RENDEZVOUS) & (nodes.kind[target] == n.TRANSFER)
        found[target[met]] = source[met]
        return found


def build_graph(ranks: Sequence[GraphInput]) -> Graph:
    """The graph of these ranks."""
    categories: dict[str, int] = {}
    names: dict[str, int] = {}
    parts: list[Nodes] = []
    edges, assumed = Edges(), Edges()
    inferred, traced = Counter[str](), Counter[str]()
    shift = lanes = calls = 0
    for rank in ranks:
        part = cpu_part(rank) if rank.on_host else accelerator_part(rank)
        own = part.nodes
        own.category[:] = recode_words(own.category, part.categories, categories)
        own.name[:] = recode_words(own.name, part.names, names)
        own.call[:] = np.where(own.call >= 0, own.call + calls, -1)
        own.lane[:] += lanes
        edges.add_edges(*part.edges.as_arrays(shift))
        assumed.add_edges(*part.assumed.as_arrays(shift))
        parts.append(own)
        inferred += part.inferred
        traced += part.traced
        own.feeder[:] = np.where(own.feeder >= 0, own.feeder + shift, -1)
        shift += len(own)
        lanes = int(own.lane.max(initial=lanes - 1)) + 1
        calls += len(rank.calls.instance)
    transfers = _join_transfers(ranks)
    whole = n.join_nodes(parts) if parts else n.blank_nodes(0)
    whole = _add_meetings(whole, transfers, edges, lanes)
    return Graph(
        nodes=whole,
        cut=cut_pieces(whole, *edges.as_arrays()),
        transfers=transfers,
        categories=(*categories,),
        names=(*names,),
        windowed=tuple(rank.windowed_rank for rank in ranks),
        inferred=inferred,
        traced=traced,
        assumed=assumed.as_arrays()[:2],
    )


def _join_transfers(ranks: Sequence[GraphInput]) -> Transfers:
    empty = np.empty(0, np.int64)

    def joined_column(name: str) -> Int64:
        return np.concatenate([empty, *(getattr(r.calls, name) for r in ranks)]).astype(np.int64)

    instance, complete = joined_column("instance"), joined_column("complete").astype(np.bool_)
    kinds = tuple(k for r in ranks for k in r.calls.kind)
    size = np.where(np.array([k in ("send", "recv") for k in kinds], np.bool_), 2, joined_column("size"))
    # an instance of which a rank is not replayed has no rendezvous here
    there = np.bincount(instance[complete], minlength=1)[np.where(complete, instance, 0)]
    return Transfers(
        kind=kinds,
        group=tuple(g for r in ranks for g in r.calls.group),
        size=size,
        bytes=joined_column("bytes"),
        known=complete & (there == size),
        instance=instance,
    )


def _add_meetings(nodes: Nodes, transfers: Transfers, edges: Edges, lanes: int) -> Nodes:
    """The nodes with a meeting for each collective, behind which its ranks' transfers begin together."""
    at = np.flatnonzero(nodes.kind == n.TRANSFER)
    at = at[transfers.known[nodes.call[at]]]
    instance, of = np.unique(transfers.instance[nodes.call[at]], return_inverse=True)
    latest = np.full(len(instance), np.iinfo(np.int64).min)
    np.maximum.at(latest, of, nodes.end[at - 1])
    taken = np.maximum(nodes.end[at] - latest[of], 0)
    nodes.dur[at] = taken
    nodes.start[at] = nodes.end[at] - taken
    count = len(instance)
    meetings = n.blank_nodes(
        count, kind=n.RENDEZVOUS, lane=lanes + np.arange(count), start=latest, end=latest, rank=-1
    )
    edges.add_edges(at - 1, len(nodes) + of, 0)
    edges.add_edges(len(nodes) + of, at, 0)
    return n.join_nodes([nodes, meetings])
