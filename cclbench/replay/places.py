# SPDX-License-Identifier: Apache-2.0
"""Places of device rows in a step, by which ranks and steps are compared: what comes where in every step.

A row's place is how many collectives its rank launched before it in the step, its name, and which of that
name between two collectives it is; a collective's is which of its kind, group size and payload in the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64, begins, occurrence
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class StepPlaces:
    """Nodes `at` of kernels, copies and collectives within steps, and the place of each, shape (rows,)."""

    at: Int64
    rank: Int64
    step: Int64
    place: Int64


def step_places(graph: Graph) -> StepPlaces:
    """The places of all nodes that begin a row of a step."""
    nodes = graph.nodes
    works = np.isin(nodes.kind, (n.COMPUTE, n.COPY, n.ARRIVAL))
    # of a trace that marks no step all is one
    at = np.flatnonzero(works & ((nodes.step >= 0) | (nodes.step[works].max(initial=-1) < 0)))
    rank, step = nodes.rank[at].astype(np.int64), nodes.step[at]
    return StepPlaces(at, rank, step, combination_codes(*place_in_step(graph, at)))


def place_in_step(graph: Graph, at: Int64) -> tuple[Int64, Int64, Int64]:
    """Of each node the collectives that its rank launched before it in the step, its name, and its number.

    Nodes of a name are numbered between two collectives, collectives of a kind in the step.
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
    """A code of each call's kind, group size and payload."""
    kinds = {kind: code for code, kind in enumerate(dict.fromkeys(graph.transfers.kind))}
    code = np.array([kinds[kind] for kind in graph.transfers.kind], np.int64)
    return combination_codes(code[call], graph.transfers.size[call], graph.transfers.bytes[call])


def combination_codes(*columns: npt.NDArray[np.signedinteger]) -> Int64:
    """A number for each distinct combination, from 0, shape of the columns."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, index = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + index, return_inverse=True)[1]
    return code


def lower_medians(of: Int64, values: Int64, expected: Int64) -> Int64:
    """The lower median of the values of each code, as it stands beside each row, shape (rows,).

    Values that lack to `expected` of a code are 0.  Of two values it is the smaller one: a slow rank beside
    one other is compared with that alone.
    """
    order = np.lexsort((values, of))
    first = np.flatnonzero(begins(of[order]))
    count = np.diff(np.append(first, len(of)))
    lacking = np.maximum(expected[order][first] - count, 0)
    middle = (count + lacking - 1) // 2 - lacking
    usual = np.where(middle >= 0, values[order][first + np.maximum(middle, 0)], 0)
    found = np.empty(len(of), np.int64)
    found[order] = np.repeat(usual, count)
    return found


def code_means(of: Int64, values: Int64, expected: Int64) -> Int64:
    """The mean of the values of each code, rounded, as it stands beside each row, shape (rows,).

    Values that lack to `expected` of a code are 0; what the others have beyond their mean is shared out.
    """
    if not len(of):
        return values
    count = np.maximum(np.bincount(of)[of], expected)
    return np.asarray(np.rint(np.bincount(of, values)[of] / count), np.int64)


def ranks_of(role: Int64, roles: Int64) -> Int64:
    """How many ranks have the role of each row, shape of `role`."""
    known, count = np.unique(roles, return_counts=True)
    return np.asarray(count[np.searchsorted(known, role)], np.int64)
