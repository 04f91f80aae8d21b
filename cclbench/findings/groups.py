# SPDX-License-Identifier: Apache-2.0
"""Ranks and shape of a process group, by its id (`schema.group_id`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_SHOWN: Final = 3
"""Most groups that a claim names."""


def ranks_of_group(group: str) -> Sequence[int] | None:
    """The ranks of a group id, regular ones as a range; None for an abbreviated id."""
    if re.fullmatch(r"n\d+:[0-9a-f]+", group):
        return None
    if spanned := re.fullmatch(r"(\d+)-(\d+)(?::([1-9]\d*))?", group):
        return range(int(spanned[1]), int(spanned[2]) + 1, int(spanned[3] or 1))
    return [int(rank) for rank in group.split(",") if rank.isdecimal()]


def describe_groups(groups: Sequence[str]) -> str:
    """`groups 0-3, 4-7, 8-11, ...`: the ids of the first groups."""
    shown = ", ".join(groups[:_SHOWN]) + ", ..." * (len(groups) > _SHOWN)
    return f"group{'s' * (len(groups) > 1)} {shown}"


def shape_of(group: str) -> tuple[int, ...]:
    """Number of ranks of a group and the strides between them, by its id; equal for similar groups.

    For an abbreviated id the number alone.
    """
    ranks = ranks_of_group(group)
    if ranks is None:
        return (int(group[1:].partition(":")[0]),)
    if isinstance(ranks, range):
        return len(ranks), ranks.step
    return len(ranks), *sorted({b - a for a, b in pairwise(ranks)})
