# SPDX-License-Identifier: Apache-2.0
"""Critical path of a replay: from the last end back, through what each node waited for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import NodeTimes

PLACES = ("host", "compute", "copy", "communication", "latency", "untraced")
"""Host, device work and transfers; latency: launches, gaps and wake-ups; untraced: before the first traced
cause."""
_OF_KIND = {n.HOST: "host", n.COMPUTE: "compute", n.COPY: "copy", n.TRANSFER: "communication"}


@dataclass(frozen=True, slots=True)
class Path:
    """Length of the path, ns: in total, by place, of communication by (kind, group), and by rank."""

    length_ns: int
    places: dict[str, int]
    communication: dict[tuple[str | None, str | None], int]
    ranks: dict[int, int]


def critical_path(graph: Graph, times: NodeTimes, last: int, begin: int) -> Path:
    """The path that ends with node `last`, back to the time `begin`."""
    return _Walk(graph, times, begin).back_from(last)


class _Walk:
    """State of a walk along the path, latest node first."""

    def __init__(self, graph: Graph, times: NodeTimes, begin: int) -> None:
        self.graph, self.times, self.begin = graph, times, begin
        self.cursor = begin
        self.places: Counter[str] = Counter()
        self.communication: Counter[tuple[str | None, str | None]] = Counter()
        self.ranks: Counter[int] = Counter()

    def back_from(self, last: int) -> Path:
        end = self.cursor = int(self.times.end[last])
        node: int | None = last
        while node is not None and self.times.end[node] > self.begin:
            node = self._walk_piece(node)
        length = max(end - self.begin, 0)
        self.places["untraced"] = max(length - sum(self.places.values()), 0)
        return Path(
            length,
            {place: self.places[place] for place in PLACES},
            dict(self.communication.most_common()),
            dict(self.ranks.most_common()),
        )

    def _walk_piece(self, node: int) -> int | None:
        """Account for the path's nodes in this node's piece; return its source in another piece."""
        cut, times = self.graph.cut, self.times
        piece = int(cut.piece[node])
        by_lane = times.entry[piece] + times.by_lane[node]
        first = int(cut.head[piece])
        launched = int(times.launched[node])
        through_launch = launched >= 0 and by_lane < times.end[node]
        if through_launch:
            first = launched
        self._walk_lane(first, node)
        if through_launch:
            feeder = int(self.graph.nodes.feeder[launched])
            self._account_wait(int(times.end[feeder]), launched)
            return feeder
        source = self._latest_source(piece)
        if source is not None:
            nodes = self.graph.nodes
            same_thread = nodes.lane[source] == nodes.lane[first] and nodes.kind[first] == n.HOST
            place = "host" if same_thread else "latency"
            self._account_wait(int(times.end[source]), first, place)
        return source

    def _walk_lane(self, first: int, last: int) -> None:
        """Account for a lane's nodes from `first` to `last`: durations, and time between them.

        A node counts up to the start of the next one, since rows of a thread may nest.
        """
        nodes = self.graph.nodes
        lane_nodes = slice(first, last + 1)
        start, end = (
            np.maximum(node_times[lane_nodes], self.begin)
            for node_times in (self.times.start, self.times.end)
        )
        until = np.minimum.accumulate(np.append(start[1:], self.cursor)[::-1])[::-1]
        start, end = np.minimum(start, until), np.minimum(end, until)
        own_ns, kinds = end - start, nodes.kind[lane_nodes]
        for kind, place in _OF_KIND.items():
            self.places[place] += int(own_ns[kinds == kind].sum())
        calls = self.graph.transfers
        for i in np.flatnonzero((kinds == n.TRANSFER) & (own_ns > 0)).tolist():
            call = int(nodes.call[first + i])
            self.communication[calls.kind[call], calls.group[call]] += int(own_ns[i])
        gap_ns = int((until - end).sum())
        self.places["host" if nodes.kind[last] == n.HOST else "latency"] += gap_ns
        if nodes.rank[last] >= 0:
            self.ranks[int(nodes.rank[last])] += int(own_ns.sum()) + gap_ns
        self.cursor = int(start[0])

    def _account_wait(self, end: int, node: int, place: str = "latency") -> None:
        """Account for the time from a cause's end to its effect, at the cursor."""
        ns = max(self.cursor - max(end, self.begin), 0)
        self.places[place] += ns
        if self.graph.nodes.rank[node] >= 0:
            self.ranks[int(self.graph.nodes.rank[node])] += ns
        self.cursor -= ns

    def _latest_source(self, piece: int) -> int | None:
        """The last dependency of the piece's first node."""
        cut, times = self.graph.cut, self.times
        terms = slice(int(cut.begin[piece]), int(cut.begin[piece + 1]))
        sources = cut.source[terms]
        if not len(sources):
            return None
        head = cut.head[piece]
        lag = np.where(cut.in_lane[terms], self.graph.nodes.gap[head], cut.lag[terms])
        return int(sources[np.argmax(times.end[sources] + lag)])
