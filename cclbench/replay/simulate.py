# SPDX-License-Identifier: Apache-2.0
"""Replay of a graph: when each node starts and ends, from lags and durations alone.

A lane's nodes between two meetings with other lanes are one piece.  With E its entry (when its first node
may start) and Q that of the host piece which launches its nodes, a node i ends at max(E + b_i, Q + a_i):
b and a are prefix sums and running maxima, vectorised.  Only pieces are simulated one after the other,
each as soon as all it waits for are known; a heap keeps the ready ones in order of time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.replay.nodes import Nodes

_NEVER = -(1 << 61)
"""Before all times; sums with it stay within 64 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphPieces:
    """How a graph falls into pieces, whatever its durations.

    `piece` is each node's piece, `head` each piece's first node, `fed_by` the host piece that launches a
    piece's nodes (−1 for none); `source`, `target` (a piece), `lag` the terms of each piece's entry, in order
    of piece, each piece's from `begin` on, shape (pieces + 1,); and `in_lane` which of them come from the
    lane itself (their lag is the head's gap).
    """

    piece: Int64
    head: Int64
    fed_by: Int64
    source: Int64
    target: Int64
    lag: Int64
    begin: Int64
    in_lane: Mask
    order: npt.NDArray[np.int64]
    """Pieces in an order in which each comes behind all that it waits for."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeTimes:
    """A replay: start and end of each node, ns, shape (nodes,)."""

    start: Int64
    end: Int64
    entry: Int64
    """Of each piece."""
    by_lane: Int64
    """b of each node."""
    launched: Int64
    """The node of the same piece whose launch decides a, −1 for none."""


def cut_pieces(nodes: Nodes, source: Int64, target: Int64, lag: Int64) -> GraphPieces:
    """Cut the lanes where nodes wait for others, and where another host piece launches them."""
    first = nodes.first_of_lane
    heads = first.copy()
    heads[target] = True
    host_piece = np.cumsum(heads) - 1
    fed = nodes.feeder >= 0
    feeder_piece = np.where(fed, host_piece[nodes.feeder], -1)
    heads |= _feeder_changes(feeder_piece, fed, first)
    piece = np.cumsum(heads) - 1
    head = np.flatnonzero(heads)
    fed_by = np.full(len(head), -1, np.int64)
    np.maximum.at(fed_by, piece[fed], piece[nodes.feeder[fed]])
    inner = head[~first[head]]
    terms = (
        np.concatenate([source, inner - 1]),
        piece[np.concatenate([target, inner])],
        np.concatenate([lag, nodes.gap[inner]]),
    )
    in_lane = np.arange(len(terms[0])) >= len(source)
    by_target = np.argsort(terms[1], kind="stable")
    sources, targets, lags = (t[by_target] for t in terms)
    begin = np.searchsorted(targets, np.arange(len(head) + 1))
    order = _dependency_order(piece[sources], targets, fed_by, nodes.start[head], nodes.rank[head])
    return GraphPieces(piece, head, fed_by, sources, targets, lags, begin, in_lane[by_target], order)


def _feeder_changes(feeder_piece: Int64, fed: Mask, first: Mask) -> Mask:
    """Nodes that another host piece launches than the launched node before them in the lane, if any."""
    lane: Int64 = np.cumsum(first)
    at = np.flatnonzero(fed)
    differs = np.zeros(len(fed), np.bool_)
    differs[at[begins(feeder_piece[at], lane[at])]] = True
    return differs


def _dependency_order(
    source: Int64, target: Int64, fed_by: Int64, at: Int64, rank: npt.NDArray[np.int32]
) -> Int64:
    """Pieces in an order that their dependencies allow, of those ready the earliest first."""
    fed = np.flatnonzero(fed_by >= 0)
    before, behind = np.concatenate([source, fed_by[fed]]), np.concatenate([target, fed])
    by_source = np.argsort(before, kind="stable")
    followers = behind[by_source].tolist()
    begin = np.searchsorted(before[by_source], np.arange(len(at) + 1)).tolist()
    missing = np.bincount(behind, minlength=len(at)).tolist()
    times = at.tolist()
    ready = [(times[p], p) for p, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, p = heapq.heappop(ready)
        order.append(p)
        for follower in followers[begin[p] : begin[p + 1]]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, (times[follower], follower))
    if len(order) < len(at):
        stuck = sorted({int(rank[p]) for p, count in enumerate(missing) if count} - {-1})
        raise InputError(
            f"ranks {', '.join(map(str, stuck[:8]))} wait for one another in a circle: their collectives are"
            " matched in contradictory order",
            hint="the run cannot be replayed",
        )
    return np.array(order, np.int64)


def simulate_nodes(nodes: Nodes, cut: GraphPieces) -> NodeTimes:
    """Start and end of all nodes."""
    step = nodes.gap + nodes.dur
    before = np.cumsum(step)
    # b: from the head's entry to the node's end; the head's own gap lies before its entry
    base = before[cut.head] - nodes.dur[cut.head]
    by_lane = before - base[cut.piece]
    by_launch, launched = _by_launch(nodes, cut, by_lane)
    entry = _piece_entries(nodes, cut, by_lane, by_launch)
    feeding = np.where(cut.fed_by >= 0, entry[cut.fed_by], _NEVER)
    end = np.maximum(entry[cut.piece] + by_lane, feeding[cut.piece] + by_launch)
    return NodeTimes(end - nodes.dur, end, entry, by_lane, launched)


def _by_launch(nodes: Nodes, cut: GraphPieces, by_lane: Int64) -> tuple[Int64, Int64]:
    """a of each node (from its host piece's entry to its end), and whose launch decides it."""
    fed = nodes.feeder >= 0
    feed_offset = np.full(len(nodes), _NEVER, np.int64)
    at = np.flatnonzero(fed)
    feed_offset[at] = by_lane[nodes.feeder[at]] + nodes.feed_lag[at] + nodes.dur[at] - by_lane[at]
    # a running maximum within each piece: pieces are lifted above one another, then let down again
    low, high = (int(feed_offset[at].min()), int(feed_offset[at].max())) if len(at) else (0, 0)
    lift = cut.piece * (high - low + 2)
    lifted = np.where(fed, feed_offset - low + 1, 0) + lift
    best = np.maximum.accumulate(lifted)
    reached = best > lift
    deciding = np.maximum.accumulate(np.where(fed & (lifted == best), np.arange(len(nodes)), 0))
    by_launch = np.where(reached, best - lift + low - 1 + by_lane, _NEVER)
    return by_launch, np.where(reached, deciding, -1)


def _piece_entries(nodes: Nodes, cut: GraphPieces, by_lane: Int64, by_launch: Int64) -> Int64:
    """When each piece's head may start; one that waits for nothing starts as measured."""
    source_piece = cut.piece[cut.source]
    lag = np.where(cut.in_lane, nodes.gap[cut.head[cut.target]], cut.lag)
    through = cut.fed_by[source_piece].tolist()
    lanes, launches = (by_lane[cut.source] + lag).tolist(), (by_launch[cut.source] + lag).tolist()
    pieces_of = source_piece.tolist()
    begin = cut.begin.tolist()
    free = (np.diff(begin) == 0) & (nodes.feeder[cut.head] < 0)
    entry: list[int] = np.where(free, nodes.start[cut.head], _NEVER).tolist()
    for p in cut.order.tolist():
        latest = entry[p]
        for term in range(begin[p], begin[p + 1]):
            at = entry[pieces_of[term]] + lanes[term]
            if at > latest:
                latest = at
            feeding = through[term]
            if feeding >= 0:
                at = entry[feeding] + launches[term]
                if at > latest:
                    latest = at
        entry[p] = latest
    return np.array(entry, np.int64)
