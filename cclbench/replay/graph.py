# SPDX-License-Identifier: Apache-2.0
"""A run as a graph: host order with measured gaps, launches, stream order, waits, rendezvous.

Dependencies that no row states are inferred from times; `Graph.inferred` counts them, `Graph.traced` the
stated ones.
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
    """The run's collectives, one entry per rank's call; arrays of shape (calls,).

    `is_split`: wait and transfer are separated.
    """

    kind: tuple[str | None, ...]
    group: tuple[str | None, ...]
    size: Int64
    bytes: Int64
    is_split: Mask
    instance: Int64


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """All ranks' nodes, divided into pieces."""

    nodes: Nodes
    cut: GraphPieces
    transfers: Transfers
    categories: tuple[str, ...]
    names: tuple[str, ...]
    windowed: tuple[Windowed, ...]
    """By rank."""
    inferred: Counter[str]
    traced: Counter[str]
    assumed: tuple[Int64, Int64]
    """Sources and targets of assumed waits."""

    def wait_edges(self) -> tuple[Int64, Int64, Int64]:
        """Source, target and lag of all waits except those for the previous node of the lane."""
        is_wait = ~self.cut.in_lane
        return self.cut.source[is_wait], self.cut.head[self.cut.target[is_wait]], self.cut.lag[is_wait]

    def with_waits(self, source: Int64, target: Int64, lag: Int64) -> Graph:
        """The graph with additional waits; `InputError` where ranks then deadlock."""
        old = self.wait_edges()
        joined = (np.concatenate([a, b]) for a, b in zip(old, (source, target, lag), strict=True))
        return replace(self, cut=cut_pieces(self.nodes, *joined))

    @property
    def has_doubt(self) -> bool:
        """Whether it has assumed waits or unexplained delays."""
        return bool(len(self.assumed[0]) or self.nodes.doubt.any())

    def without_doubt(self) -> Graph:
        """The graph without assumed waits and unexplained delays."""
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
        stated = ~np.isin(pair, self.assumed[0] * len(nodes) + self.assumed[1])
        return replace(
            self, nodes=certain, cut=cut_pieces(certain, source[stated], target[stated], lag[stated])
        )

    def transfer_gates(self) -> Int64:
        """The node at which each transfer starts to move data: its rendezvous, else itself; −1 for other
        nodes, shape (nodes,)."""
        nodes = self.nodes
        gates = np.where(nodes.kind == n.TRANSFER, np.arange(len(nodes)), -1)
        source, target, _ = self.wait_edges()
        from_rendezvous = (nodes.kind[source] == n.RENDEZVOUS) & (nodes.kind[target] == n.TRANSFER)
        gates[target[from_rendezvous]] = source[from_rendezvous]
        return gates


def build_graph(ranks: Sequence[GraphInput]) -> Graph:
    """The graph of the ranks."""
    categories: dict[str, int] = {}
    names: dict[str, int] = {}
    parts: list[Nodes] = []
    edges, assumed = Edges(), Edges()
    inferred, traced = Counter[str](), Counter[str]()
    shift = lanes = calls = 0
    for rank in ranks:
        part = cpu_part(rank) if rank.on_host else accelerator_part(rank)
        rank_nodes = part.nodes
        rank_nodes.category[:] = recode_words(rank_nodes.category, part.categories, categories)
        rank_nodes.name[:] = recode_words(rank_nodes.name, part.names, names)
        rank_nodes.call[:] = np.where(rank_nodes.call >= 0, rank_nodes.call + calls, -1)
        rank_nodes.lane[:] += lanes
        edges.add_edges(*part.edges.as_arrays(shift))
        assumed.add_edges(*part.assumed.as_arrays(shift))
        parts.append(rank_nodes)
        inferred += part.inferred
        traced += part.traced
        rank_nodes.feeder[:] = np.where(rank_nodes.feeder >= 0, rank_nodes.feeder + shift, -1)
        shift += len(rank_nodes)
        lanes = int(rank_nodes.lane.max(initial=lanes - 1)) + 1
        calls += len(rank.calls.instance)
    transfers = _join_transfers(ranks)
    nodes = n.join_nodes(parts) if parts else n.blank_nodes(0)
    may_leave = np.concatenate([np.empty(0, np.bool_), *(rank.calls.may_leave for rank in ranks)])
    nodes = _add_meetings(nodes, transfers, may_leave, edges, lanes)
    return Graph(
        nodes=nodes,
        cut=cut_pieces(nodes, *edges.as_arrays()),
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
    # an instance with a rank that is not replayed has no rendezvous
    replayed = np.bincount(instance[complete], minlength=1)[np.where(complete, instance, 0)]
    return Transfers(
        kind=kinds,
        group=tuple(g for r in ranks for g in r.calls.group),
        size=size,
        bytes=joined_column("bytes"),
        is_split=complete & (replayed == size),
        instance=instance,
    )


def _add_meetings(nodes: Nodes, transfers: Transfers, may_leave: Mask, edges: Edges, lanes: int) -> Nodes:
    """The nodes with a rendezvous for each collective, after which its ranks' transfers begin together.

    A rank that `may_leave`, shape (calls,), and left before the last one arrived, did not wait for it.
    """
    moving = np.flatnonzero(nodes.kind == n.TRANSFER)
    moving = moving[transfers.is_split[nodes.call[moving]]]
    instance, instance_code = np.unique(transfers.instance[nodes.call[moving]], return_inverse=True)
    latest = np.full(len(instance), np.iinfo(np.int64).min)
    np.maximum.at(latest, instance_code, nodes.end[moving - 1])
    left = may_leave[nodes.call[moving]] & (nodes.end[moving] < latest[instance_code])
    begin = np.where(left, nodes.end[moving - 1], latest[instance_code])
    transfer_ns = np.maximum(nodes.end[moving] - begin, 0)
    nodes.dur[moving] = transfer_ns
    nodes.start[moving] = nodes.end[moving] - transfer_ns
    count = len(instance)
    meetings = n.blank_nodes(
        count, kind=n.RENDEZVOUS, lane=lanes + np.arange(count), start=latest, end=latest, rank=-1
    )
    edges.add_edges(moving - 1, len(nodes) + instance_code, 0)
    edges.add_edges(len(nodes) + instance_code[~left], moving[~left], 0)
    edges.add_edges(moving[left] - 1, moving[left], 0)
    return n.join_nodes([nodes, meetings])
