# SPDX-License-Identifier: Apache-2.0
"""Which rank a trace is: by what it says, then by its file's name, then by the card; never two answers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cclbench.errors import InputError
from cclbench.schema import TraceFacts

_RANK = re.compile(r"(?:^|[^a-z])rank[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_PART_OF_A_NAME = (
    re.compile(r"(?:^|[^a-z0-9])(?<!num_)worker[-_]?(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"(?:^|[^a-z])tp[-_]?(\d{1,4})(?=[-_.]|$)", re.IGNORECASE),
)
"""Says a rank where nothing better does: `worker3`, `TP-3` (which may count within a group only)."""


def rank_of(name: str, facts: TraceFacts, by_card: int | None) -> tuple[int | None, str | None]:
    """The rank and who says so; None where nobody does; `InputError` where two disagree.

    `name` is the file's path within its source.
    """
    told: dict[str, int] = {}
    if facts.rank is not None and facts.rank_source is not None:
        told[facts.rank_source] = facts.rank
    found = [int(m) for m in _RANK.findall(name)]
    if found:
        told["file name"] = found[-1]
    if by_card is not None:
        told["card"] = by_card
    if len(set(told.values())) > 1:
        said = " but ".join(f"rank {rank} by its {source}" for source, rank in told.items())
        raise InputError(f"is {said}", where=name, hint="rename the file or mend the card")
    for source, rank in told.items():
        return rank, source
    for pattern in _PART_OF_A_NAME:
        if found := [int(m) for m in pattern.findall(name)]:
            return found[-1], "file name"
    return None, None


def distinct(ranks: Mapping[str, tuple[int | None, str | None]]) -> dict[str, tuple[int, str]]:
    """Each file's rank; a lone file without one is rank 0.  `InputError` where two files claim one rank."""
    if len(ranks) == 1:
        ((name, (rank, source)),) = ranks.items()
        return {name: (0, "nothing: taken as rank 0") if rank is None else (rank, source or "")}
    unknown = [name for name, (rank, _) in ranks.items() if rank is None]
    if unknown:
        raise InputError(
            f"{len(unknown)} of {len(ranks)} files do not say their rank",
            where=unknown[0],
            hint="name them rank<N>..., or list their ranks in a card",
        )
    owner: dict[int, str] = {}
    for name, (rank, _) in ranks.items():
        if (other := owner.setdefault(rank or 0, name)) != name:
            raise InputError(
                f"claims rank {rank}, and so does {other}", where=name, hint="give one capture of each rank"
            )
    return {name: (rank or 0, source or "") for name, (rank, source) in ranks.items()}
