# SPDX-License-Identifier: Apache-2.0
"""How much longer a larger group waits for its last rank: a statistical term, from how far arrivals spread.

Where n ranks of a group arrive with a spread s, the last one of N is expected s · (d(N) − d(n)) later, with
d(n) = E[max of n standard normal variables] = ∫ x n φ(x) Φ(x)^(n − 1) dx.  s² is the mean, over steps and
groups, of the variance of arrivals at that place in the step: what each rank's work since they last met has
added up to.  Ranks are taken to be independent and alike: a rack that is slow as a whole, or a tail that no
traced rank shows, is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph, Transfers
from cclbench.replay.layout import DIMENSIONS, Layout
from cclbench.replay.regroup import RegroupedGroup

Float64 = npt.NDArray[np.float64]

_POINTS: Final = 4_001
_EDGE: Final = 9.0
_NINE_TENTHS: Final = 1.2816
"""Standard deviations below which nine of ten normal values lie."""
_PAIRS: Final = ("send", "recv")


@lru_cache(maxsize=64)
def expected_maximum(count: int) -> float:
    """d(n): 0 of one, 0.564 of two, 1.424 of eight, 3.24 of 1,024."""
    x = np.linspace(-_EDGE, _EDGE, _POINTS)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()], np.float64)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    step = 2 * _EDGE / (_POINTS - 1)
    return float((x * count * density * below ** (count - 1)).sum() * step)  # it vanishes at both ends


@dataclass(frozen=True, slots=True, eq=False)
class Delays:
    """By how much longer meetings wait, ns, shape (nodes,): expected, and with the upper 90 % bound of the
    spread; and how many of them."""

    expected: Int64
    high: Int64
    meetings: int


class _Sizes(NamedTuple):
    """Of each group of the calls, shape (groups,): ranks before and after, a code of its dimension."""

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
    """Those of a replay in which nodes have those starts; of groups that shrink there are none.

    Of a group of all ranks replicas count, each by its last rank.
    """
    nodes, calls = graph.nodes, graph.transfers
    found = Delays(np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64), 0)
    at = np.flatnonzero(nodes.kind == n.TRANSFER)
    at = at[calls.known[nodes.call[at]]]
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
        return found
    old = layouts[0]
    replica = np.array([old.place_along(rank, "dp") for rank in range(old.world_size)], np.int64)
    rank = nodes.rank[at].astype(np.int64)
    unit = np.where(sizes.dimension[group] < 0, replica[rank % old.world_size], rank)
    mean, squares, freedom = _arrival_scatter(meeting, unit, start[at - 1] + nodes.dur[at - 1], len(instance))
    met, row = np.unique(meeting, return_index=True)
    like = _combination_codes(
        sizes.dimension[group[row]], kind[row], _meeting_turn(group[row], nodes.step[at[row]], mean[met])
    )
    degrees = np.maximum(np.bincount(like, freedom[met]), 1)
    spread = np.sqrt(np.bincount(like, squares[met]) / degrees)
    most = spread * (1 + _NINE_TENTHS / np.sqrt(2 * degrees))
    more = np.array(
        [
            expected_maximum(after) - expected_maximum(before)
            for before, after in zip(sizes.before.tolist(), sizes.after.tolist(), strict=True)
        ],
        np.float64,
    )[group[row]]
    node = np.flatnonzero(nodes.kind == n.RENDEZVOUS)[met]
    found.expected[node] = np.rint(spread[like] * more).astype(np.int64)
    found.high[node] = np.rint(most[like] * more).astype(np.int64)
    return Delays(found.expected, found.high, len(met))


def _group_sizes(
    names: Mapping[str | None, int],
    regrouped: Mapping[str | None, RegroupedGroup],
    groups: Mapping[str, tuple[int, ...]],
    layouts: tuple[Layout, Layout],
) -> _Sizes:
    """Groups that stay have sizes of 1."""
    found = _Sizes(*(np.full(len(names), value) for value in (1, 1, -1)))
    old, new = layouts
    for name, i in names.items():
        one = regrouped.get(name)
        if one is None or not one.members:
            continue
        if one.dimension is None:
            found.before[i], found.after[i] = old.degrees["dp"], new.degrees["dp"]
        else:
            found.before[i], found.after[i] = len(groups.get(name or "", ())), len(one.members)
            found.dimension[i] = DIMENSIONS.index(one.dimension)
    return found


def _call_kinds(calls: Transfers) -> Int64:
    """A code of each call's kind, −1 of sends and receives, shape (calls,)."""
    codes = {kind: i for i, kind in enumerate(dict.fromkeys(calls.kind))} | dict.fromkeys(_PAIRS, -1)
    return np.array([codes[kind] for kind in calls.kind], np.int64)


def _arrival_scatter(
    meeting: Int64, unit: Int64, arrival: Int64, count: int
) -> tuple[Float64, Float64, Int64]:
    """Mean, squares about it and degrees of freedom of the arrivals at each meeting, a unit's being its
    last."""
    width = int(unit.max()) + 1
    units, of = np.unique(meeting * width + unit, return_inverse=True)
    latest = np.full(len(units), np.iinfo(np.int64).min)
    np.maximum.at(latest, of, arrival)
    at, since = units // width, (latest - latest.min()).astype(np.float64)
    number = np.bincount(at, minlength=count)
    mean = np.bincount(at, since, count) / np.maximum(number, 1)
    squares = np.bincount(at, (since - mean[at]) ** 2, count).astype(np.float64)
    return mean, squares, np.maximum(number - 1, 0).astype(np.int64)


def _meeting_turn(group: Int64, step: Int64, time: Float64) -> Int64:
    """Which of its group's meetings of a step each is, from 0; shape of `group`."""
    order = np.lexsort((time, step, group))
    new = begins(group[order], step[order])
    begin = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - begin
    return turn


def _combination_codes(*columns: Int64) -> Int64:
    """A number for each distinct combination, shape of the columns."""
    return np.unique(np.stack(columns), axis=1, return_inverse=True)[1].ravel()
