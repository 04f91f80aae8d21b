# SPDX-License-Identifier: Apache-2.0
"""Traced groups in another layout: new members, and scaled transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cclbench.classify import bus_factor
from cclbench.hardware.system import System
from cclbench.replay.layout import DIMENSIONS, Dimension, Layout, Relayout


class RegroupedGroup(NamedTuple):
    """A group's new members (empty: the same ones), and factors on payload and number of transfers."""

    members: tuple[int, ...] = ()
    payload: float = 1.0
    repeats: float = 1.0
    dimension: Dimension | None = None


STAYS = RegroupedGroup()


def dimension_in(layout: Layout, ranks: Sequence[int]) -> Dimension | None:
    """The dimension of a group, or of a part of one, in the layout; None for several or none."""
    if len(ranks) < 2:
        return None
    varies = {
        name
        for name in DIMENSIONS
        if len({layout.place_along(rank, name) for rank in ranks}) > 1
        and not (layout.nested and name == "ep")
    }
    return varies.pop() if len(varies) == 1 else None


def regroup_all(
    groups: Mapping[str, tuple[int, ...]],
    dimensions: Mapping[str, Dimension],
    change: Relayout,
    payload: Mapping[Dimension | None, float],
    repeats: Mapping[Dimension | None, float],
) -> dict[str | None, RegroupedGroup]:
    """The groups that change, by id; `dimensions`: as traces describe them, others by the layout."""
    changed: dict[str | None, RegroupedGroup] = {}
    for group, ranks in groups.items():
        dimension = dimensions.get(group) or dimension_in(change.old, ranks)
        members = change.new_members(ranks, dimension)
        regrouped = RegroupedGroup(
            () if members == ranks else members,
            payload.get(dimension, 1.0),
            repeats.get(dimension, 1.0),
            dimension,
        )
        if regrouped._replace(dimension=None) != STAYS:
            changed[group] = regrouped
    return changed


def even_ranks(
    kind: str, ranks: Sequence[int], system: System
) -> tuple[Sequence[int], tuple[float, float, float]]:
    """Ranks in equal parts per node in place of unequal ones, and factors on their time: expected, low, high.

    Formulas assume equal parts. For n ranks on k nodes with unequal parts, a ring has to pass the node with
    the fewest ranks and interfaces: the time is that of k such nodes, times the ratio of a rank's traffic.
    The low bound assumes nodes with n / k ranks.
    """
    parts = Counter(rank // system.domain_size for rank in ranks)
    fewest, count = min(parts.values()), len(parts)
    if count == 1 or fewest == max(parts.values()):
        return ranks, (1.0, 1.0, 1.0)
    even = [node * system.domain_size + place for node in range(count) for place in range(fewest)]
    growth = bus_factor(kind, len(ranks)) / bus_factor(kind, len(even))
    return even, (growth, min(1.0, growth) * fewest * count / len(ranks), growth)
