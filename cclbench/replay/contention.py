# SPDX-License-Identifier: Apache-2.0
"""Kernels that run slower beside communication: a factor fitted from the run, and durations under it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench import intervals
from cclbench.intervals import Int64
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import Times, simulate

Float = npt.NDArray[np.float64]

_LEAST: Final = 3
"""Runs of a kernel beside communication, and alone, before they are compared."""
_ROUNDS: Final = 6
_SETTLED_NS: Final = 100
_BESIDE, _ALONE = 0.9, 0.1


@dataclass(frozen=True, slots=True)
class Contention:
    """How much longer kernels take beside communication, and how many kernels by name tell so."""

    factor: float
    kernels: int


def fit(graph: Graph) -> Contention | None:
    """Median over kernel names, weighted by their time, of mean duration beside communication / alone.

    None where no kernel ran both ways often enough.
    """
    nodes = graph.nodes
    at = np.flatnonzero((nodes.kind == n.COMPUTE) & (nodes.dur > 0))
    share = shares(graph, nodes.start, nodes.end)[at]
    name, dur = nodes.name[at], nodes.dur[at].astype(np.float64)
    size = int(name.max(initial=-1)) + 1
    sums = {}
    for way, chosen in (("beside", share >= _BESIDE), ("alone", share <= _ALONE)):
        sums[way] = np.bincount(name[chosen], minlength=size), np.bincount(name[chosen], dur[chosen], size)
    both = (sums["beside"][0] >= _LEAST) & (sums["alone"][0] >= _LEAST)
    if not both.any():
        return None
    ratio = (sums["beside"][1] / np.maximum(sums["beside"][0], 1))[both] / (
        sums["alone"][1] / np.maximum(sums["alone"][0], 1)
    )[both]
    weight = (sums["beside"][1] + sums["alone"][1])[both]
    order = np.argsort(ratio)
    middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    return Contention(max(float(ratio[order][middle]), 1.0), int(both.sum()))


def shares(graph: Graph, start: Int64, end: Int64) -> Float:
    """The share of each compute node that runs beside communication of its rank, 0 of other nodes."""
    nodes = graph.nodes
    share = np.zeros(len(nodes))
    for rank in graph.ranks:
        own = np.flatnonzero(nodes.rank == rank.rank)
        moving = own[nodes.kind[own] == n.TRANSFER]
        # a collective occupies the device from its arrival on, the node before its transfer
        busy = intervals.union(start[moving - 1], end[moving])
        compute = own[(nodes.kind[own] == n.COMPUTE) & (end[own] > start[own])]
        beside = intervals.within(busy, start[compute], end[compute])
        share[compute] = beside / (end[compute] - start[compute])
    return share


def replayed(graph: Graph, factor: float) -> Times:
    """A replay of nodes with their durations, where kernels go on at 1 / factor beside communication.

    A kernel's work is measured · (1 − share beside · (1 − 1 / factor)), and its new time is that over the
    same with the new share; shares are found by repeated replays.
    """
    nodes, dur = graph.nodes, graph.nodes.dur
    if factor == 1.0:
        return simulate(nodes, graph.cut)
    lost = 1 - 1 / factor
    work = dur * (1 - lost * shares(graph, nodes.start, nodes.end))
    now = dur
    for _ in range(_ROUNDS):
        times = simulate(replace(nodes, dur=now), graph.cut)
        new = np.rint(work / (1 - lost * shares(graph, times.start, times.end))).astype(np.int64)
        new = np.where(nodes.kind == n.COMPUTE, new, dur)
        settled = bool(abs(new - now).max(initial=0) <= _SETTLED_NS)
        now = new
        if settled:
            break
    return simulate(replace(nodes, dur=now), graph.cut)
