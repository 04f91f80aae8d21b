# SPDX-License-Identifier: Apache-2.0
"""What a replay's rows take where no rank is slower than the others of its role: work, transfers, launches.

Every row has a *place*: the step, how many collectives its rank launched before it in the step, its name, and
which of that name it is there.  A *site* is the same in whichever step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from cclbench.ground.codes import combination_codes
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask, begins, occurrence
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.places import call_kinds, place_in_step

Float = npt.NDArray[np.float64]
_Number = TypeVar("_Number", np.int64, np.float64)

_MOST_UNSHARED: Final = 0.1
"""Share of the time of rows that most ranks of their role do not have, above which they do other work."""
_WAIT_SHARE, _WAIT_NS = 0.001, 100_000
"""Of a step, and at least: how much longer than the call needs a launch delay is that may be a wait."""


def rank_roles(graph: Graph, placed: Mapping[str, Mapping[int, int]]) -> tuple[list[int], Int64]:
    """The ranks, and each one's role by its number; `InputError` where they cannot be compared."""
    nodes = graph.nodes
    ranks: list[int] = np.unique(nodes.rank[nodes.rank >= 0]).tolist()
    if len(ranks) < 2:
        raise InputError("stragglers are told by comparing ranks, and there is one")
    if any(rank.on_host for rank in graph.windowed):
        raise InputError("the kernels of a CPU are its operators, whose times are no part of a replay's rows")
    stages = placed.get("pp", {})
    return ranks, np.array([stages.get(rank, -1) for rank in range(max(ranks) + 1)], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class TypicalWork:
    """What nodes take without stragglers, ns, arrays of shape (nodes,).

    `dur` is what the median rank takes; `even` times it where roles are even.  `lead` is how much later than
    measured each is launched, `awaited` the same where only unrecorded waits are left out, `undelayed` where
    nothing is launched late at all.
    """

    dur: Float
    even: Float
    lead: Int64
    awaited: Int64
    undelayed: Int64


def typical_work(graph: Graph, role: Int64, ranks: Sequence[int]) -> TypicalWork:
    """`InputError` where ranks of a role do not do the same work."""
    nodes = graph.nodes
    works = np.isin(nodes.kind, (n.COMPUTE, n.COPY, n.ARRIVAL)) & (nodes.step >= 0)
    at = np.flatnonzero(works)
    row_role = role[nodes.rank[at]]
    size = {int(code): sum(int(role[rank]) == code for rank in ranks) for code in np.unique(row_role)}
    in_role = np.array([size[code] for code in row_role.tolist()], np.int64)
    site = combination_codes(*place_in_step(graph, at))
    place = combination_codes(row_role, nodes.step[at], site)
    of_role = np.zeros(int(place.max(initial=-1)) + 1, np.int64)
    of_role[place] = in_role
    row_count = np.bincount(place, minlength=len(of_role))[place]
    unshared = (2 * row_count < of_role[place]) & (nodes.kind[at] != n.ARRIVAL)
    total = int(nodes.dur[at].sum())
    if total and nodes.dur[at[unshared]].sum() / total > _MOST_UNSHARED:
        share = nodes.dur[at[unshared]].sum() / total
        raise InputError(f"ranks do different work: {share:.0%} of its time has no counterpart on most ranks")
    profile = _medians_by_row(
        combination_codes(row_role, site), _medians_by_code(place, nodes.dur[at], of_role)
    )
    usual = _median_rank_times(nodes, at, row_role, in_role, profile)
    dur = nodes.dur.astype(np.float64)
    dur[at] = usual
    even = np.ones(len(nodes))
    computes = nodes.kind[at] == n.COMPUTE
    even[at[computes]] = _evening_factors(row_role[computes], nodes.name[at[computes]], usual[computes], size)
    transfers = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.step >= 0))
    transfers = transfers[separable_transfers(graph)[nodes.call[transfers]]]
    dur[transfers] = _usual_transfers(graph, transfers)
    lead, awaited, undelayed = np.zeros((3, len(nodes)), np.int64)
    launched, launch_lead = _launch_leads(graph, at)
    steps = [end - start for rank in graph.windowed for _, start, end in rank.windows]
    least = max(_WAIT_SHARE * sum(steps) / max(len(steps), 1), _WAIT_NS)
    need = np.rint(_launch_needs(site, row_role, nodes.step[at], launch_lead)).astype(np.int64)
    late = np.maximum(_behind_others(place, nodes.start[launched]), 0) if len(size) == 1 else 0
    counted = np.where(launch_lead - need > least, np.minimum(launch_lead, need + late), launch_lead)
    present = np.maximum(np.bincount(place, minlength=len(of_role)), 1)
    present = np.where(2 * present < of_role, of_role, present)
    lead[launched] = np.rint(_medians_by_code(place, counted, present)).astype(np.int64) - launch_lead
    awaited[launched] = counted - launch_lead
    undelayed[launched] = -np.maximum(launch_lead, 0)
    return TypicalWork(dur, even, lead, awaited, undelayed)


def _median_rank_times(nodes: n.Nodes, at: Int64, role: Int64, in_role: Int64, profile: Float) -> Float:
    """Times of rows, if those of a name took each rank of a role and step as long as its median rank; ns.

    They share that as their `profile`, or as measured where that is 0.  All arrays of shape (rows,).
    """
    work = combination_codes(role, nodes.step[at], nodes.kind[at], nodes.name[at])
    rank_work = combination_codes(work, nodes.rank[at])
    measured_ns = np.bincount(rank_work, nodes.dur[at])
    shared = np.bincount(rank_work, profile)
    first = np.zeros(len(measured_ns), np.int64)
    first[rank_work] = np.arange(len(at))
    ranks = np.zeros(int(work.max(initial=-1)) + 1, np.int64)
    ranks[work] = in_role
    median = _medians_by_code(work[first], measured_ns.astype(np.int64), ranks)[rank_work]
    shape = np.where(shared[rank_work] > 0, profile, nodes.dur[at])
    total = np.where(shared > 0, shared, measured_ns)[rank_work]
    return np.asarray(median * shape / np.where(total > 0, total, 1.0))


def _launch_needs(site: Int64, role: Int64, step: Int64, launch_lead: Int64) -> Float:
    """How long each call needs to be launched where its rank waits for nobody, ns, shape (rows,).

    Of a role the last of its ranks in each step waits for none of them: the median of those over the steps.
    Of a call that several roles make, the least of theirs.
    """
    _, rows, least = _least_by_code(combination_codes(site, role, step), launch_lead)
    middle = _medians_by_row(combination_codes(site[rows], role[rows]), least)
    number, _, needs = _least_by_code(site[rows], middle)
    need_of_site = np.zeros(int(site.max(initial=-1)) + 1)
    need_of_site[number] = needs
    return np.asarray(need_of_site[site])


def _behind_others(code: Int64, begin: Int64) -> Int64:
    """How much later each row begins than the median of the others of its code, 0 of one alone; ns."""
    order = np.lexsort((begin, code))
    first = np.flatnonzero(begins(code[order]))
    count = np.diff(np.append(first, len(order)))
    place = np.arange(len(order)) - np.repeat(first, count)
    others = np.repeat(count, count) - 1
    low, high = np.maximum(others - 1, 0) // 2, others // 2
    begun, origin = begin[order], np.repeat(first, count)
    last = np.repeat(first + count, count) - 1
    lower, upper = (begun[np.minimum(origin + at + (at >= place), last)] for at in (low, high))
    behind = np.empty(len(order), np.int64)
    behind[order] = np.where(others > 0, begun - (lower + (upper - lower) // 2), 0)
    return behind


def _least_by_code(code: Int64, values: npt.NDArray[_Number]) -> tuple[Int64, Int64, npt.NDArray[_Number]]:
    """The distinct codes, the row with the least value of each, and that value."""
    order = np.lexsort((values, code))
    rows = order[begins(code[order])]
    return code[rows], rows, values[rows]


def separable_transfers(graph: Graph) -> Mask:
    """Calls whose transfer is separated from waiting, or of a single rank: nobody waits; shape (calls,)."""
    return np.asarray(graph.transfers.is_split | (graph.transfers.size == 1))


def _usual_transfers(graph: Graph, at: Int64) -> Float:
    """The median time of transfers of the same kind, group size and payload as each of `at`.

    Where the payload is unknown, of those at the same place: its number among the transfers of its kind and
    group size on its rank in the step.
    """
    nodes = graph.nodes
    kind = call_kinds(graph, nodes.call[at])
    order = np.lexsort((at, nodes.start[at], nodes.step[at], nodes.rank[at]))
    place = occurrence(combination_codes(nodes.rank[at], nodes.step[at], kind), order)
    like = combination_codes(kind, np.where(graph.transfers.bytes[nodes.call[at]] >= 0, -1, place))
    return _medians_by_code(like, nodes.dur[at], np.bincount(like))


def _evening_factors(role: Int64, name: Int64, usual: Float, size: Mapping[int, int]) -> Float:
    """By what rows are scaled so that their name takes a rank of each role equally long, shape (rows,).

    1 of a name that not all roles have: such work cannot be shared out.
    """
    if not size:
        return np.ones(len(role))
    roles = {code: number for number, code in enumerate(size)}
    names, of_name = np.unique(name, return_inverse=True)
    total = np.zeros((len(roles), len(names)))
    np.add.at(total, (np.array([roles[code] for code in role.tolist()], np.int64), of_name), usual)
    each = total / np.array([*size.values()], np.float64)[:, None]
    shared = (each > 0).all(axis=0)
    scale = np.where(shared, each.mean(axis=0) / np.where(each > 0, each, 1.0), 1.0)
    return np.asarray(scale[np.array([roles[code] for code in role.tolist()], np.int64), of_name])


def _launch_leads(graph: Graph, at: Int64) -> tuple[Int64, Int64]:
    """The node that decides when each of those is launched, and how long after what that waits for; ns.

    It is the point of the host that launches it, else the row itself.
    """
    nodes, cut = graph.nodes, graph.cut
    node_lead = nodes.gap.copy()
    waited = nodes.start[cut.head[cut.target]] - nodes.end[cut.source]
    least = np.full(len(cut.head), np.iinfo(np.int64).max)
    np.minimum.at(least, cut.target, waited)
    node_lead[cut.head] = np.where(np.diff(cut.begin) > 0, least, 0)
    launched = np.where(nodes.feeder[at] >= 0, nodes.feeder[at], at)
    launch_lead = np.where(nodes.feeder[at] >= 0, nodes.gap[launched], node_lead[launched])
    return launched, launch_lead


def _medians_by_code(code: Int64, values: npt.NDArray[_Number], count: Int64) -> Float:
    """The median of the values of each code, of which there are `count`; those not there are 0.

    `code`, `values` and the result have shape (rows,), `count` (codes,).
    """
    row_count = np.bincount(code, minlength=len(count))
    lacking = np.maximum(count - row_count, 0)
    every = np.concatenate([code, np.repeat(np.arange(len(count)), lacking)])
    value = np.concatenate([values, np.zeros(int(lacking.sum()), values.dtype)])
    value = value[np.lexsort((value, every))]
    number = row_count + lacking
    first = np.cumsum(number) - number
    low, high = value[first + (number - 1) // 2], value[first + number // 2]
    return np.asarray((low / 2 + high / 2)[code])


def _medians_by_row(code: Int64, values: npt.NDArray[_Number]) -> Float:
    """The median of the values of each code, shape (rows,)."""
    return _medians_by_code(code, values, np.zeros(int(code.max(initial=-1)) + 1, np.int64))
