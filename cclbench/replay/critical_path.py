# SPDX-License-Identifier: Apache-2.0
"""Where a replay's critical path runs: from the last end back, through whatever each node waited for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cclbench.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import Times

PLACES = ("host", "compute", "copy", "communication", "latency", "untraced")
"""Time of the host, of the device's work, of transfers; between them: launches, gaps, wake-ups; and before
the first cause that is traced."""
_OF_KIND = {n.HOST: "host", n.COMPUTE: "compute", n.COPY: "copy", n.TRANSFER: "communication"}


@dataclass(frozen=True, slots=True)
class Path:
    """ns on the path by place, communication by (kind, group) too, and by rank; `length_ns` of it all."""

    length_ns: int
    places: dict[str, int]
    communication: dict[tuple[str | None, str | None], int]
    ranks: dict[int, int]


def critical_path(graph: Graph, times: Times, dur: Int64, last: int, begin: int) -> Path:
    """The path that ends with node `last`, back to the instant `begin`; durations as they were replayed."""
    return _Walk(graph, times, dur, begin).back_from(last)


class _Walk:
    """The state of a walk along the path, latest node first."""

    def __init__(self, graph: Graph, times: Times, dur: Int64, begin: int) -> None:
        self.graph, self.times, self.dur, self.begin = graph, times, dur, begin
        self.places: Counter[str] = Counter()
        self.communication: Counter[tuple[str | None, str | None]] = Counter()
        self.ranks: Counter[int] = Counter()
        self.terms = np.searchsorted(graph.cut.target, np.arange(len(graph.cut.head) + 1))

    def back_from(self, last: int) -> Path:
        end = int(self.times.end[last])
        at: int | None = last
        while at is not None and self.times.end[at] > self.begin:
            at = self._piece(at)
        length = max(end - self.begin, 0)
        self.places["untraced"] = max(length - sum(self.places.values()), 0)
        return Path(
            length,
            {place: self.places[place] for place in PLACES},
            dict(self.communication.most_common()),
            dict(self.ranks.most_common()),
        )

    def _piece(self, at: int) -> int | None:
        """Account for the path's nodes in this node's piece; the node of another piece that it comes from."""
        cut, times = self.graph.cut, self.times
        piece = int(cut.piece[at])
        by_lane = times.entry[piece] + times.by_lane[at]
        first = int(cut.head[piece])
        launched = int(times.launched[at])
        through_launch = launched >= 0 and by_lane < times.end[at]
        if through_launch:
            first = launched
        self._along(first, at)
        if through_launch:
            feeder = int(self.graph.nodes.feeder[launched])
            self._between(int(times.end[feeder]), int(times.start[launched]), launched)
            return feeder
        source = self._source(piece)
        if source is not None:
            nodes = self.graph.nodes
            own = nodes.lane[source] == nodes.lane[first] and nodes.kind[first] == n.HOST
            place = "host" if own else "latency"
            self._between(int(times.end[source]), int(times.start[first]), first, place)
        return source

    def _along(self, first: int, last: int) -> None:
        """The nodes of one lane from `first` to `last`: their durations, and what lies between them."""
        nodes, times = self.graph.nodes, self.times
        here = slice(first, last + 1)
        start, end = np.maximum(times.start[here], self.begin), np.maximum(times.end[here], self.begin)
        # rows of one thread may lie within one another: each instant counts once, for the earlier row
        reached = np.maximum.accumulate(end)
        before = np.append(start[0], reached[:-1])
        own, kinds = np.maximum(end - np.maximum(start, before), 0), nodes.kind[here]
        for kind, place in _OF_KIND.items():
            self.places[place] += int(own[kinds == kind].sum())
        calls = self.graph.transfers
        for i in (first + np.flatnonzero((kinds == n.TRANSFER) & (own > 0))).tolist():
            call = int(nodes.call[i])
            self.communication[calls.kind[call], calls.group[call]] += int(own[i - first])
        between = int(np.maximum(start - before, 0).sum())
        host = int(nodes.kind[last]) == n.HOST
        self.places["host" if host else "latency"] += between
        if nodes.rank[last] >= 0:
            self.ranks[int(nodes.rank[last])] += int(own.sum()) + between

    def _between(self, end: int, start: int, node: int, place: str = "latency") -> None:
        """What passes from a cause to its effect."""
        nodes = self.graph.nodes
        ns = max(start, self.begin) - max(end, self.begin)
        self.places[place] += ns
        if nodes.rank[node] >= 0:
            self.ranks[int(nodes.rank[node])] += ns

    def _source(self, piece: int) -> int | None:
        """What the piece's first node waited for last."""
        cut, times = self.graph.cut, self.times
        terms = slice(int(self.terms[piece]), int(self.terms[piece + 1]))
        sources = cut.source[terms]
        if not len(sources):
            return None
        head = cut.head[piece]
        lag = np.where(cut.own[terms], self.graph.nodes.gap[head], cut.lag[terms])
        return int(sources[np.argmax(times.end[sources] + lag)])
