# SPDX-License-Identifier: Apache-2.0
"""What a replay consists of: nodes in lanes, and edges between lanes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64, Mask, begins

Int8 = npt.NDArray[np.int8]

KINDS = ("host", "compute", "copy", "arrival", "transfer", "meeting")
"""What a node is: a point of a host thread, work of the device, a collective's two halves, its rendezvous."""
HOST, COMPUTE, COPY, ARRIVAL, TRANSFER, RENDEZVOUS = range(len(KINDS))

HOST_CAUSES = ("cold_start", "allocation", "loader", "sync", "launch", "operators", "python", "unrecorded")
"""What a launching thread does between two points, the columns of `Nodes.held`; of two at once the first."""


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Nodes in order of (lane, place in the lane), arrays of shape (nodes,), times in ns.

    A node starts at the latest of: the node before it in its lane ends + `gap`; `feeder` (a host node,
    −1 for none) + `feed_lag`; and the sources of its edges + their lags.  It takes `dur`, of which it may
    have taken `slack` less: a transfer that had ended when it was awaited.  Of a CPU-only rank's gaps `busy`
    ns are operators; `held` divides the gaps of a thread that launches by what it does, ns, shape
    (nodes, len(HOST_CAUSES)).  `doubt` ns of `feed_lag` and `gap` are a delay that nothing in the trace
    explains.  `direction` is a copy's, an index into `tables.DIRECTIONS`.  `start` and `end` are as
    measured, `call` a code into the graph's collectives, `category` and `name` codes of words; −1 for none.
    """

    rank: npt.NDArray[np.int32]
    lane: Int64
    kind: Int8
    start: Int64
    end: Int64
    gap: Int64
    dur: Int64
    slack: Int64
    busy: Int64
    held: Int64
    doubt: Int64
    direction: Int8
    feeder: Int64
    feed_lag: Int64
    call: Int64
    step: Int64
    category: Int64
    name: Int64

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def first_of_lane(self) -> Mask:
        """Which nodes are the first of their lane."""
        return begins(self.lane)


def blank_nodes(count: int, **columns: object) -> Nodes:
    """So many nodes with those columns; the others are −1, and times 0."""
    types = {"rank": np.int32, "kind": np.int8, "direction": np.int8}
    zero = ("gap", "dur", "slack", "busy", "held", "doubt", "feed_lag", "start", "end")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for f in fields(Nodes):
        value = columns.pop(f.name, 0 if f.name in zero else -1)
        shape = (count, len(HOST_CAUSES)) if f.name == "held" else (count,)
        arrays[f.name] = np.broadcast_to(np.asarray(value, types.get(f.name, np.int64)), shape).copy()
    assert not columns, columns  # noqa: S101  (a defect of ours)
    return Nodes(**arrays)


def join_nodes(parts: Sequence[Nodes]) -> Nodes:
    """Nodes of several parts, one behind the other."""
    return Nodes(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Nodes)})


@dataclass(slots=True, eq=False)
class Edges:
    """Edges from node to node that grow while a graph is made: source, target, lag in ns."""

    source: list[Int64] = field(default_factory=list)
    target: list[Int64] = field(default_factory=list)
    lag: list[Int64] = field(default_factory=list)

    def add_edges(self, source: npt.ArrayLike, target: npt.ArrayLike, lag: npt.ArrayLike) -> None:
        """Edges of one shape."""
        sources, targets, lags = np.broadcast_arrays(source, target, lag)
        self.source.append(sources.astype(np.int64).ravel())
        self.target.append(targets.astype(np.int64).ravel())
        self.lag.append(lags.astype(np.int64).ravel())

    def as_arrays(self, shift: int = 0) -> tuple[Int64, Int64, Int64]:
        """All of them, node numbers moved by `shift`."""
        empty = np.empty(0, np.int64)
        source, target, lag = (
            np.concatenate([empty, *part]) for part in (self.source, self.target, self.lag)
        )
        return source + shift, target + shift, lag


@dataclass(frozen=True, slots=True, eq=False)
class RankNodes:
    """One rank's nodes, numbered from 0, the edges among them, and how many are inferred, and traced, why.

    `categories` and `names` are what the nodes' codes mean.
    """

    nodes: Nodes
    categories: tuple[str, ...]
    names: tuple[str, ...]
    edges: Edges
    inferred: Counter[str]
    traced: Counter[str] = field(default_factory=Counter)
    assumed: Edges = field(default_factory=Edges)
    """Those of the edges that no row shows."""
