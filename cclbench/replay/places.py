# SPDX-License-Identifier: Apache-2.0
"""Places of device rows in a step, by which ranks and steps are compared.

A row's place: number of collectives that its rank launched before it in the step, its name, and its index
among rows of that name between two collectives. A collective's: its index among those of its kind, group size
and payload in the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cclbench.ground.codes import combination_codes
from cclbench.ground.intervals import Int64, begins, occurrence
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class StepPlaces:
    """Places of the nodes `at`: kernels, copies and collectives within steps; arrays of shape (rows,)."""

    at: Int64
    rank: Int64
    step: Int64
    place: Int64


def step_places(graph: Graph) -> StepPlaces:
    """The places of all nodes that begin a row of a step."""
    nodes = graph.nodes
    works = np.isin(nodes.kind, (n.COMPUTE, n.COPY, n.ARRIVAL))
    # a trace without steps is a single one
    at = np.flatnonzero(works & ((nodes.step >= 0) | (nodes.step[works].max(initial=-1) < 0)))
    rank, step = nodes.rank[at].astype(np.int64), nodes.step[at]
    return StepPlaces(at, rank, step, combination_codes(*place_in_step(graph, at)))


def place_in_step(graph: Graph, at: Int64) -> tuple[Int64, Int64, Int64]:
    """Number of collectives launched before each node in its rank's step, its name, and its index.

    Nodes of a name are counted between two collectives, collectives of a kind within the step.
    """
    nodes = graph.nodes
    fed = nodes.feeder[at] >= 0
    launched = np.where(fed, nodes.start[nodes.feeder[at]], nodes.start[at])
    arrives = nodes.kind[at] == n.ARRIVAL
    order = np.lexsort((at, launched, nodes.step[at], nodes.rank[at]))
    of_step = combination_codes(nodes.rank[at], nodes.step[at])
    calls = np.cumsum(arrives[order]) - arrives[order]
    first = begins(of_step[order])
    segment = np.empty(len(at), np.int64)
    segment[order] = calls - np.repeat(calls[first], np.diff(np.append(np.flatnonzero(first), len(at))))
    name = nodes.name[at] + 1
    name[arrives] = -1 - call_kinds(graph, nodes.call[at[arrives]])
    segment[arrives] = -1
    return segment, name, occurrence(combination_codes(of_step, segment, name), order)


def call_kinds(graph: Graph, call: Int64) -> Int64:
    """Code of each call's kind, group size and payload."""
    kinds = {kind: code for code, kind in enumerate(dict.fromkeys(graph.transfers.kind))}
    code = np.array([kinds[kind] for kind in graph.transfers.kind], np.int64)
    return combination_codes(code[call], graph.transfers.size[call], graph.transfers.bytes[call])


def lower_medians(codes: Int64, values: Int64, expected: Int64) -> Int64:
    """Lower median of the values of each row's code, shape (rows,).

    Missing values, up to `expected` per code, count as 0. Of two values it is the smaller one, so that a slow
    rank is compared with the other.
    """
    order = np.lexsort((values, codes))
    first = np.flatnonzero(begins(codes[order]))
    count = np.diff(np.append(first, len(codes)))
    lacking = np.maximum(expected[order][first] - count, 0)
    middle = (count + lacking - 1) // 2 - lacking
    code_medians = np.where(middle >= 0, values[order][first + np.maximum(middle, 0)], 0)
    medians = np.empty(len(codes), np.int64)
    medians[order] = np.repeat(code_medians, count)
    return medians


def code_means(codes: Int64, values: Int64, expected: Int64) -> Int64:
    """Rounded mean of the values of each row's code, shape (rows,).

    Missing values, up to `expected` per code, count as 0.
    """
    if not len(codes):
        return values
    count = np.maximum(np.bincount(codes)[codes], expected)
    return np.asarray(np.rint(np.bincount(codes, values)[codes] / count), np.int64)


def occurrences(values: Int64, listed: Int64) -> Int64:
    """How often each value is listed, such as ranks by role or steps by rank, shape of `values`."""
    distinct, count = np.unique(listed, return_counts=True)
    return np.asarray(count[np.searchsorted(distinct, values)], np.int64)
