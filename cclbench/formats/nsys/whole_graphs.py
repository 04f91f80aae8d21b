# SPDX-License-Identifier: Apache-2.0
"""Launches of CUDA graphs traced as a whole, and the iterations that they form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cclbench.formats import Rows
from cclbench.formats.trace import DeviceStep
from cclbench.ground.intervals import Int64, Mask

_MOST: Final = 0.5
"""Smallest share of graphs in the time of kernels and graphs from which iterations are derived."""


class GraphLaunches:
    """A member's graph launches, and the time of its other kernels."""

    def __init__(self) -> None:
        self._kernel_ns = 0
        self._launches: list[Int64] = []

    def add_kernels(self, kernels: Rows) -> None:
        """Add kernels outside of graphs."""
        self._kernel_ns += int(kernels.dur_ns.sum())

    def add_launches(self, graphs: Rows, device: Int64) -> None:
        """Add launches, in any order, and the device of each."""
        columns = graphs.start_ns, graphs.start_ns + graphs.dur_ns, device, graphs.track, graphs.codes
        self._launches.append(np.stack(columns).astype(np.int64))

    @property
    def launch_notes(self) -> Iterator[str]:
        """Notes for the user."""
        if count := sum(part.shape[1] for part in self._launches):
            yield (
                f"{count:,} CUDA graph launches were traced whole: what ran inside is unknown;"
                " capture again with --cuda-graph-trace=node"
            )

    def device_iterations(self) -> list[DeviceStep]:
        """Iterations on the stream where graphs run longest; none if other kernels take longer."""
        if not self._launches:
            return []
        start, end, device, track, graph = np.concatenate(self._launches, axis=1)
        graph_ns = int((end - start).sum())
        if graph_ns <= _MOST * (graph_ns + self._kernel_ns):
            return []
        streams, stream = np.unique(np.stack([device, track]), axis=1, return_inverse=True)
        busy = np.zeros(streams.shape[1], np.int64)
        np.add.at(busy, stream.ravel(), end - start)
        on_stream = np.flatnonzero(stream.ravel() == busy.argmax())
        on_stream = on_stream[np.lexsort((end[on_stream], start[on_stream]))]
        first = np.flatnonzero(begins_iteration(graph[on_stream]))
        if not len(first):
            return []
        last_end = np.maximum.reduceat(end[on_stream], first)
        return [
            DeviceStep("CUDA graph launches", begin, last, source="graph")
            for begin, last in zip(start[on_stream[first]].tolist(), last_end.tolist(), strict=True)
        ]


def begins_iteration(graphs: Int64) -> Mask:
    """Mask of launches that begin an iteration, from the graphs of launches in order, shape (launches,).

    If one sequence of launches repeats throughout, its first launch begins one.  Otherwise a launch continues
    an iteration if its graph only ever follows the previous one, and that one only ever precedes it: parts of
    one model that run in order.  The others begin one if their graph does so at least twice.
    """
    begins = np.ones(len(graphs), np.bool_)
    if period := _launch_period(graphs):
        begins[:] = np.arange(len(graphs)) % period == 0
        return begins
    previous, following = np.unique(np.stack([graphs[:-1], graphs[1:]]), axis=1)
    chained = np.isin(graphs[:-1], _unique_values(previous)) & np.isin(graphs[1:], _unique_values(following))
    begins[1:] = ~(chained & (graphs[:-1] != graphs[1:]))
    graph_ids, count = np.unique(graphs[begins], return_counts=True)
    return begins & np.isin(graphs, graph_ids[count > 1])


def _launch_period(graphs: Int64) -> int:
    """Number of launches after which the sequence repeats throughout; 0 if it does not."""
    graph_ids, counts = np.unique(graphs, return_counts=True)
    apart = np.diff(np.flatnonzero(graphs == graph_ids[counts.argmin()]))
    if not len(apart) or (apart != apart[0]).any():
        return 0
    period = int(apart[0])
    return period if (graphs[period:] == graphs[:-period]).all() else 0


def _unique_values(values: Int64) -> Int64:
    """The values that occur once."""
    distinct_values, counts = np.unique(values, return_counts=True)
    return np.asarray(distinct_values[counts == 1], np.int64)
