# SPDX-License-Identifier: Apache-2.0
"""Nodes in lanes, and edges between lanes."""

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
"""Kinds of nodes: a host point, device work, the two parts of a collective, its rendezvous."""
HOST, COMPUTE, COPY, ARRIVAL, TRANSFER, RENDEZVOUS = range(len(KINDS))

HOST_CAUSES = ("cold_start", "allocation", "loader", "sync", "launch", "operators", "python", "unrecorded")
"""Causes of a launching thread's time between two points, columns of `Nodes.held`, by precedence."""


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Nodes ordered by (lane, position in the lane); arrays of shape (nodes,), times in ns.

    A node starts at the latest of: end of the previous node of its lane + `gap`; `feeder` (a host node, −1
    for none) + `feed_lag`; sources of its edges + their lags. It takes `dur`, possibly `slack` less (a
    transfer that ended before its wait). `busy`: operators in a CPU-only rank's gaps; `held`: gaps of a
    launching thread by cause, shape (nodes, len(HOST_CAUSES)); `doubt`: unexplained part of `feed_lag` and
    `gap`; `direction`: of a copy, an index into `tables.DIRECTIONS`; `start`, `end`: as measured; `call`:
    index into the graph's collectives; `category`, `name`: codes of words; −1 for none.
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
        """Mask of the first node of each lane."""
        return begins(self.lane)


def blank_nodes(count: int, **columns: object) -> Nodes:
    """`count` nodes with these columns; others are −1, and times 0."""
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
    """The nodes of several parts, concatenated."""
    return Nodes(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Nodes)})


@dataclass(slots=True, eq=False)
class Edges:
    """A growing list of edges between nodes: source, target, lag in ns."""

    source: list[Int64] = field(default_factory=list)
    target: list[Int64] = field(default_factory=list)
    lag: list[Int64] = field(default_factory=list)

    def add_edges(self, source: npt.ArrayLike, target: npt.ArrayLike, lag: npt.ArrayLike) -> None:
        """Add edges; the arguments are broadcast."""
        sources, targets, lags = np.broadcast_arrays(source, target, lag)
        self.source.append(sources.astype(np.int64).ravel())
        self.target.append(targets.astype(np.int64).ravel())
        self.lag.append(lags.astype(np.int64).ravel())

    def as_arrays(self, shift: int = 0) -> tuple[Int64, Int64, Int64]:
        """All edges, with node numbers shifted by `shift`."""
        empty = np.empty(0, np.int64)
        source, target, lag = (
            np.concatenate([empty, *part]) for part in (self.source, self.target, self.lag)
        )
        return source + shift, target + shift, lag


@dataclass(frozen=True, slots=True, eq=False)
class RankNodes:
    """One rank's nodes, numbered from 0, their edges, and counts of inferred and of traced ones by reason.

    `categories`, `names`: the words of the nodes' codes.
    """

    nodes: Nodes
    categories: tuple[str, ...]
    names: tuple[str, ...]
    edges: Edges
    inferred: Counter[str]
    traced: Counter[str] = field(default_factory=Counter)
    assumed: Edges = field(default_factory=Edges)
    """The edges that are only assumed."""
