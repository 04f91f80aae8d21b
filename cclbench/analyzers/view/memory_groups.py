# SPDX-License-Identifier: Apache-2.0
"""Blocks grouped by category, module or call site, and what each group holds over time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.analyzers.view.allocator import Owners
from cclbench.analyzers.view.memory_categories import CATEGORIES, block_categories
from cclbench.ground.intervals import Int64

GROUPINGS: Final = ("category", "module", "call_site")
_FORWARD: Final = re.compile(r"(?:^| < )(forward (?!torch/)\S+\.py:\d+)")


@dataclass(frozen=True, slots=True, eq=False)
class BlockGroups:
    """A group of each block."""

    names: tuple[str | None, ...]
    """None: what belongs to no module, or has no call site."""
    group: Int64
    """Index into `names`, shape (blocks,)."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupLevels:
    """Bytes of groups over time; arrays of shape (groups,) unless stated otherwise."""

    names: tuple[str | None, ...]
    peak: Int64
    """Most bytes that the group holds at any moment."""
    peak_moment: Int64
    """The first moment at which it does."""
    _moments: int
    _keys: Int64
    """Group and moment of each change of a group's bytes, as one number, ascending; shape (changes,)."""
    _levels: Int64
    """The group's bytes from then on, shape (changes,)."""

    def at(self, moment: int) -> Int64:
        """Bytes of each group at a moment."""
        return self.over(np.array([moment], np.int64))[:, 0]

    def over(self, moments: Int64) -> Int64:
        """Bytes of each group at the moments, shape (groups, moments)."""
        first = np.arange(len(self.names))[:, None] * self._moments
        place = np.searchsorted(self._keys, first + moments, side="right")
        begun = place > np.searchsorted(self._keys, first)
        return np.where(begun, np.append(self._levels, 0)[place - 1], 0)


def block_groups(owners: Owners, grouping: str) -> BlockGroups:
    """The blocks by one of `GROUPINGS`.

    A module is the path of the nn.Module whose call allocated the block, of a backward operator that of its
    forward call; in a snapshot, which does not name modules, the innermost line of a `forward`.
    """
    if grouping == "category":
        return BlockGroups(CATEGORIES, block_categories(owners))
    if grouping == "call_site":
        return BlockGroups(owners.call_sites, owners.owner)
    if owners.calls is not None:
        return BlockGroups(
            (*owners.calls.modules, None), owners.calls.module % (len(owners.calls.modules) + 1)
        )
    matches = [None if site is None else _FORWARD.search(site) for site in owners.call_sites]
    lines = [None if match is None else match[1] for match in matches]
    places = {line: place for place, line in enumerate(dict.fromkeys(lines))}
    return BlockGroups(tuple(places), np.array([places[line] for line in lines], np.int64)[owners.owner])


def group_levels(owners: Owners, groups: BlockGroups) -> GroupLevels:
    """What each group holds over time."""
    moments = owners.moments + 1
    freed = owners.end < owners.moments
    keys = np.append(groups.group * moments + owners.begin, (groups.group * moments + owners.end)[freed])
    changes = np.append(owners.bytes, -owners.bytes[freed])
    keys, places = np.unique(keys, return_inverse=True)
    change = np.zeros(len(keys), np.int64)
    np.add.at(change, places, changes)
    group = keys // moments
    levels = np.cumsum(change)
    first = np.searchsorted(group, np.arange(len(groups.names)))
    levels -= np.append(0, levels)[first][group]
    peak, peak_moment = np.zeros((2, len(groups.names)), np.int64)
    order = np.lexsort((-np.arange(len(keys)), levels, group))  # the last of a group is its first peak
    last = order[np.append(group[1:] != group[:-1], True)] if len(keys) else order
    peak[group[last]], peak_moment[group[last]] = levels[last], keys[last] % moments
    return GroupLevels(groups.names, peak, peak_moment, moments, keys, levels)
