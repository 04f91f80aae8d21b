# SPDX-License-Identifier: Apache-2.0
"""What becomes of a traced group in another layout: its new members, and what it moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cclbench.classify import bus_factor
from cclbench.hardware.system import System
from cclbench.replay.layout import DIMENSIONS, Dimension, Layout, Relayout


class RegroupedGroup(NamedTuple):
    """A group's new members (empty: the same ones), and factors on its payload and on how often it moves
    it."""

    members: tuple[int, ...] = ()
    payload: float = 1.0
    repeats: float = 1.0
    dimension: Dimension | None = None


STAYS = RegroupedGroup()


def dimension_in(layout: Layout, ranks: Sequence[int]) -> Dimension | None:
    """The dimension whose groups in the layout have those ranks, or a part of them; None of several, or
    none."""
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
    """Of each group, by its id; `dimensions` are those that traces describe, others follow from the
    layout."""
    found: dict[str | None, RegroupedGroup] = {}
    for group, ranks in groups.items():
        dimension = dimensions.get(group) or dimension_in(change.old, ranks)
        members = change.new_members(ranks, dimension)
        one = RegroupedGroup(
            () if members == ranks else members,
            payload.get(dimension, 1.0),
            repeats.get(dimension, 1.0),
            dimension,
        )
        if one._replace(dimension=None) != STAYS:
            found[group] = one
    return found


def even_ranks(
    kind: str, ranks: Sequence[int], system: System
) -> tuple[Sequence[int], tuple[float, float, float]]:
    """Ranks in equal parts in place of those, and by what to multiply their price: expected, low and high.

    Formulas are for equal parts.  Of n ranks whose k nodes hold unequal parts, the node with the fewest has
    the fewest interfaces, through which a ring has to pass: priced are k nodes of as few each, times the
    ratio of what a rank moves, n to those.  At best the nodes are as good as one that holds n / k: the low
    bound.
    """
    parts = Counter(rank // system.domain_size for rank in ranks)
    fewest, count = min(parts.values()), len(parts)
    if count == 1 or fewest == max(parts.values()):
        return ranks, (1.0, 1.0, 1.0)
    even = [node * system.domain_size + place for node in range(count) for place in range(fewest)]
    more = bus_factor(kind, len(ranks)) / bus_factor(kind, len(even))
    return even, (more, min(1.0, more) * fewest * count / len(ranks), more)
