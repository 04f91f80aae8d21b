# SPDX-License-Identifier: Apache-2.0
"""A cause's time in words: of one rank, the one that loses most, and divided into its parts there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cclbench.ground.units import humanise

_SHOWN: Final = 3
"""Most parts that a claim names."""


def largest_rank(lost: Mapping[int, float]) -> int | None:
    """The rank that loses most; None if none loses any time."""
    rank = max(lost, key=lambda rank: lost[rank], default=None)
    return rank if rank is not None and lost[rank] else None


def loss_words(lost: Mapping[int, float]) -> str:
    """`1.2 ms of a step on rank 3`, of the rank that loses most; without `on rank` if only one was traced."""
    rank = max(lost, key=lambda rank: lost[rank])
    return f"{humanise(lost[rank], 's')} of a step" + f" on rank {rank}" * (len(lost) > 1)


def parts_words(parts: Iterable[tuple[float, str]], unit: str = "s") -> str:
    """` (all_gather 37.0 ms, all_reduce 14.6 ms)`: the largest parts that are not 0; empty without any."""
    largest = [(size, name) for size, name in sorted(parts, reverse=True)[:_SHOWN] if size]
    listed = ", ".join(f"{name} {humanise(size, unit)}" for size, name in largest)
    return f" ({listed})" if listed else ""
