# SPDX-License-Identifier: Apache-2.0
"""Rank of a trace: as it states, by its file's name, by the card; sources that disagree are an error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cclbench.ground.errors import InputError
from cclbench.record.facts import Communicator, ProcessGroup, TraceFacts

_RANK = re.compile(r"(?:^|[^a-z])rank[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_PART_OF_A_NAME = (
    re.compile(r"(?:^|[^a-z0-9])(?<!num_)worker[-_]?(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"(?:^|[^a-z])tp[-_]?(\d{1,4})(?=[-_.]|$)", re.IGNORECASE),
)
"""Used only if nothing better states a rank: `worker3`, `TP-3` (which may count within a group only)."""


@dataclass(frozen=True, slots=True)
class Member:
    """A future rank: `file` is the path within the source, `name` the member's name in the file."""

    file: str
    name: str
    facts: TraceFacts
    by_card: int | None = None
    alone: bool = True
    """Whether it is the file's only member: then the file's name may state the rank."""


def rank_of(member: Member) -> tuple[int | None, str | None]:
    """The rank and its source; None if not stated; `InputError` if two sources disagree."""
    facts, name = member.facts, member.file
    rank_by_source: dict[str, int] = {}
    if facts.rank is not None and facts.rank_source is not None:
        rank_by_source[facts.rank_source] = facts.rank
    numbers = [int(m) for m in _RANK.findall(name)] if member.alone else []
    if numbers:
        rank_by_source["file name"] = numbers[-1]
    if member.by_card is not None:
        rank_by_source["card"] = member.by_card
    if len(set(rank_by_source.values())) > 1:
        conflict = " but ".join(f"rank {rank} by its {source}" for source, rank in rank_by_source.items())
        raise InputError(f"is {conflict}", where=name, hint="rename the file or mend the card")
    for source, rank in rank_by_source.items():
        return rank, source
    for pattern in _PART_OF_A_NAME if member.alone else ():
        if numbers := [int(m) for m in pattern.findall(name)]:
            return numbers[-1], "file name"
    return None, None


def distinct_ranks(members: Sequence[Member]) -> list[tuple[int, str]]:
    """Each member's rank and its source; `InputError` if two claim one rank, or one has none.

    If no rank is stated, the devices or processes of one file are ranks in their own order, those of several
    files in the order of the files' names; a single file without any order is rank 0.
    """
    ranks = [rank_of(member) for member in members]
    if not any(rank is not None for rank, _ in ranks) and all(
        member.facts.local_rank is not None for member in members
    ):
        return _in_order(members)
    if len(members) == 1:
        ((rank, source),) = ranks
        return [(0, "nothing: taken as rank 0") if rank is None else (rank, source or "")]
    unknown = [member.file for member, (rank, _) in zip(members, ranks, strict=True) if rank is None]
    if unknown:
        what = "files" if _has_one_file_each(members) else "ranks"
        raise InputError(
            f"{len(unknown)} of {len(members)} {what} do not say their rank",
            where=unknown[0],
            hint="name them rank<N>..., or list their ranks in a card",
        )
    owner: dict[int | None, Member] = {}
    for member, (rank, _) in zip(members, ranks, strict=True):
        if (other := owner.setdefault(rank, member)) is not member:
            also = other.file if other.file != member.file else f"{other.name!r} of the same file"
            raise InputError(
                f"claims rank {rank}, and so does {also}",
                where=member.file,
                hint="give one capture of each rank",
            )
    return [(rank or 0, source or "") for rank, source in ranks]


def groups_of(communicators: Mapping[int, Sequence[Communicator]]) -> tuple[ProcessGroup, ...]:
    """Process groups, by global rank, of the communicators with a trace of every member.

    Communicators with inconsistent members (a rank twice, two sizes) or a missing trace are left out: their
    ranks are unknown.
    """
    members_by_name: dict[str, dict[int, list[Communicator]]] = {}
    for rank, listed in communicators.items():
        for communicator in dict.fromkeys(listed):
            members_by_name.setdefault(communicator.name, {}).setdefault(rank, []).append(communicator)
    groups = []
    for name, members in members_by_name.items():
        entries = [communicator for parts in members.values() for communicator in parts]
        sizes, places = {c.size for c in entries}, sorted(c.rank for c in entries)
        if len(sizes) == 1 and places == list(range(*sizes)) and len(members) == len(entries):
            groups.append(ProcessGroup(name=name, ranks=tuple(sorted(members))))
    return tuple(groups)


def _has_one_file_each(members: Sequence[Member]) -> bool:
    return len({member.file for member in members}) == len(members)


def _in_order(members: Sequence[Member]) -> list[tuple[int, str]]:
    several = len({member.file for member in members}) > 1
    source = "order of files and of their devices" if several else "order of devices"
    ordered = sorted(range(len(members)), key=lambda i: (members[i].file, members[i].facts.local_rank or 0))
    place = {i: rank for rank, i in enumerate(ordered)}
    return [(place[i], source) for i in range(len(members))]
