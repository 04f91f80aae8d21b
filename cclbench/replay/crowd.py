# SPDX-License-Identifier: Apache-2.0
"""Extra wait of a larger group for its last rank, from the spread of arrivals.

If n ranks of a group arrive with a spread s, the last one of N is expected s · (d(N) − d(n)) later, with
d(n) = E[max of n standard normal variables] = ∫ x n φ(x) Φ(x)^(n − 1) dx. s² is the mean variance of arrivals
at that place of the step, over steps and groups. Ranks are assumed independent and identically distributed:
a slow rack, or a tail that no traced rank shows, is not included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cclbench.ground.codes import combination_codes
from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph, Transfers
from cclbench.replay.layout import DIMENSIONS, Layout
from cclbench.replay.regroup import RegroupedGroup

Float64 = npt.NDArray[np.float64]

_POINTS: Final = 4_001
_EDGE: Final = 9.0
_NINE_TENTHS: Final = 1.2816
"""90 % quantile of the standard normal distribution."""
_PAIRS: Final = ("send", "recv")


@lru_cache(maxsize=64)
def expected_maximum(count: int) -> float:
    """d(n): 0 for 1, 0.564 for 2, 1.424 for 8, 3.24 for 1,024."""
    x = np.linspace(-_EDGE, _EDGE, _POINTS)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()], np.float64)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    step = 2 * _EDGE / (_POINTS - 1)
    return float((x * count * density * below ** (count - 1)).sum() * step)  # 0 at both ends


def maximum_limit(count: int) -> float:
    """90 % quantile of the maximum of that many standard normal variables: 2.22 of 8, 2.94 of 64."""
    return NormalDist().inv_cdf(0.9 ** (1 / count))


@dataclass(frozen=True, slots=True, eq=False)
class Delays:
    """Extra wait of rendezvous, ns, shape (nodes,): expected, and with the upper 90 % bound of the spread;
    and their number."""

    expected: Int64
    high: Int64
    meetings: int


class _Sizes(NamedTuple):
    """Sizes of groups before and after, and code of their dimension; shape (groups,)."""

    before: Int64
    after: Int64
    dimension: Int64


def crowd_delays(
    graph: Graph,
    start: Int64,
    inside: Mask,
    regrouped: Mapping[str | None, RegroupedGroup],
    groups: Mapping[str, tuple[int, ...]],
    layouts: tuple[Layout, Layout],
) -> Delays:
    """Extra waits in a replay with these node starts; 0 for groups that shrink.

    A group of all ranks counts by replicas, each by its last rank.
    """
    nodes, calls = graph.nodes, graph.transfers
    delays = Delays(np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64), 0)
    at = np.flatnonzero(nodes.kind == n.TRANSFER)
    at = at[calls.is_split[nodes.call[at]]]
    instance, meeting = np.unique(calls.instance[nodes.call[at]], return_inverse=True)
    names = {group: i for i, group in enumerate(dict.fromkeys(calls.group))}
    sizes = _group_sizes(names, regrouped, groups, layouts)
    kind, group = (
        _call_kinds(calls)[nodes.call[at]],
        np.array([names[g] for g in calls.group], np.int64)[nodes.call[at]],
    )
    grows = (sizes.before[group] >= 2) & (sizes.after > sizes.before)[group] & (kind >= 0) & inside[at]
    at, meeting, kind, group = at[grows], meeting[grows], kind[grows], group[grows]
    if not len(at):
        return delays
    old = layouts[0]
    replica = np.array([old.place_along(rank, "dp") for rank in range(old.world_size)], np.int64)
    rank = nodes.rank[at].astype(np.int64)
    unit = np.where(sizes.dimension[group] < 0, replica[rank % old.world_size], rank)
    mean, squares, freedom = _arrival_scatter(meeting, unit, start[at - 1] + nodes.dur[at - 1], len(instance))
    met, row = np.unique(meeting, return_index=True)
    alike = combination_codes(
        sizes.dimension[group[row]], kind[row], _meeting_turn(group[row], nodes.step[at[row]], mean[met])
    )
    degrees = np.maximum(np.bincount(alike, freedom[met]), 1)
    spread = np.sqrt(np.bincount(alike, squares[met]) / degrees)
    most = spread * (1 + _NINE_TENTHS / np.sqrt(2 * degrees))
    growth_factor = np.array(
        [
            expected_maximum(after) - expected_maximum(before)
            for before, after in zip(sizes.before.tolist(), sizes.after.tolist(), strict=True)
        ],
        np.float64,
    )[group[row]]
    node = np.flatnonzero(nodes.kind == n.RENDEZVOUS)[met]
    delays.expected[node] = np.rint(spread[alike] * growth_factor).astype(np.int64)
    delays.high[node] = np.rint(most[alike] * growth_factor).astype(np.int64)
    return Delays(delays.expected, delays.high, len(met))


def _group_sizes(
    names: Mapping[str | None, int],
    regrouped: Mapping[str | None, RegroupedGroup],
    groups: Mapping[str, tuple[int, ...]],
    layouts: tuple[Layout, Layout],
) -> _Sizes:
    """Sizes of the groups; 1 for groups that stay the same."""
    sizes = _Sizes(*(np.full(len(names), value) for value in (1, 1, -1)))
    old, new = layouts
    for name, i in names.items():
        regrouped_group = regrouped.get(name)
        if regrouped_group is None or not regrouped_group.members:
            continue
        if regrouped_group.dimension is None:
            sizes.before[i], sizes.after[i] = old.degrees["dp"], new.degrees["dp"]
        else:
            sizes.before[i], sizes.after[i] = len(groups.get(name or "", ())), len(regrouped_group.members)
            sizes.dimension[i] = DIMENSIONS.index(regrouped_group.dimension)
    return sizes


def _call_kinds(calls: Transfers) -> Int64:
    """Code of each call's kind, −1 for sends and receives, shape (calls,)."""
    codes = {kind: i for i, kind in enumerate(dict.fromkeys(calls.kind))} | dict.fromkeys(_PAIRS, -1)
    return np.array([codes[kind] for kind in calls.kind], np.int64)


def _arrival_scatter(
    meeting: Int64, unit: Int64, arrival: Int64, count: int
) -> tuple[Float64, Float64, Int64]:
    """Mean, sum of squares and degrees of freedom of the arrivals at each rendezvous; a unit arrives with its
    last rank."""
    width = int(unit.max()) + 1
    units, unit_of_arrival = np.unique(meeting * width + unit, return_inverse=True)
    latest = np.full(len(units), np.iinfo(np.int64).min)
    np.maximum.at(latest, unit_of_arrival, arrival)
    meeting_of_unit, since = units // width, (latest - latest.min()).astype(np.float64)
    number = np.bincount(meeting_of_unit, minlength=count)
    mean = np.bincount(meeting_of_unit, since, count) / np.maximum(number, 1)
    squares = np.bincount(meeting_of_unit, (since - mean[meeting_of_unit]) ** 2, count).astype(np.float64)
    return mean, squares, np.maximum(number - 1, 0).astype(np.int64)


def _meeting_turn(group: Int64, step: Int64, time: Float64) -> Int64:
    """Index of each rendezvous among its group's in the step, from 0; shape of `group`."""
    order = np.lexsort((time, step, group))
    is_first = begins(group[order], step[order])
    begin = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - begin
    return turn
