# SPDX-License-Identifier: Apache-2.0
"""Traces of one kind into a run's folder: read in parts, put together per rank, matched across ranks."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path

import msgspec

from cclbench import engine
from cclbench.card import Card
from cclbench.engine import Progress
from cclbench.errors import InputError
from cclbench.formats import Part, execution_trace_reader, several_processes, trace_reader
from cclbench.ingestion.across import Places, match_ranks
from cclbench.ingestion.base_time import shift, shifts
from cclbench.ingestion.groups import Job, write_groups
from cclbench.ingestion.part import DEVICE_WORK, PartRead, PartTask, read_parts
from cclbench.ingestion.pending import kinds_in_order
from cclbench.ingestion.rank import RankTask, finish_rank, merge_facts
from cclbench.machine import machine_of_entries
from cclbench.normalize import execution_traces
from cclbench.normalize.ranks import Member, distinct, groups_of
from cclbench.record.facts import HOST_DEVICE, TraceFacts
from cclbench.record.manifest import Manifest, Options, RankEntry
from cclbench.source import Source, SourceFile
from cclbench.text import first_few

_Key = tuple[int, str]
"""A rank in the making: the ordinal of its file, and its member's name there."""


def ingest_traces(
    found: Source,
    card: Card | None,
    folder: Path,
    manifest: Manifest,
    *,
    jobs: int,
    progress: Progress | None,
) -> Manifest:
    """Bring the source's traces, all of one kind, into `folder`; returns `manifest` with what they hold."""
    if not found.files:
        write_groups(folder, [])
        return manifest
    options = manifest.ingest
    read = _read(found, folder, options, jobs, progress)
    tasks, idle = _rank_tasks(found, folder, read, options)
    what = "putting ranks together"
    done = engine.each(finish_rank, tasks, jobs=jobs, progress=progress, what=what)
    entries = [rank.entry for rank in done]
    _check_one_job(entries)
    write_groups(folder, done)
    machine = machine_of_entries(card, entries)
    inference, matching, clocks = match_ranks(
        folder,
        [entry.rank for entry in entries],
        Places(machine.nodes, _shared_clocks(entries)),
        {} if card is None else msgspec.structs.asdict(card.parallelism),
        Job(machine.world, [rank.names for rank in done]) if options.inference else None,
    )
    return msgspec.structs.replace(
        manifest,
        ranks=entries,
        inference=inference,
        matching=matching,
        clocks=clocks,
        notes=[*idle, *machine.contradicts, *_notes(found, entries, machine.stated_world)],
    )


def _read(
    found: Source, folder: Path, options: Options, jobs: int, progress: Progress | None
) -> dict[_Key, list[PartRead]]:
    """All files' parts, read side by side; where a range does not read, all is read again in order."""
    parts = [trace_reader(file.reader).parts(file.path) for file in found.files]
    whole = [[Part(member) for member in dict.fromkeys(part.member for part in listed)] for listed in parts]

    def read(parts: Sequence[Sequence[Part]], what: str) -> dict[_Key, list[PartRead]]:
        tasks = _part_tasks(found, folder, options, parts)
        keys: list[_Key] = []
        done = engine.each(
            read_parts, _side_by_side(tasks, keys, jobs), jobs=jobs, progress=progress, what=what
        )
        read: dict[_Key, list[PartRead]] = {key: [] for key in tasks}
        for key, own in zip(keys, done, strict=True):
            read[key] += own
        late = {key: shifts(own[0], read[key]) for key, own in tasks.items()}
        shifted = iter(engine.each(shift, [*chain(*late.values())], jobs=jobs, progress=progress, what=what))
        return {key: [next(shifted) for _ in late[key]] or parts for key, parts in read.items()}

    # What a damaged file still gives ends at its first defect: it must be read in order.
    in_order = options.allow_truncated or parts == whole
    try:
        return read(whole if in_order else parts, "reading traces")
    except InputError:
        if in_order:
            raise
        # A part may begin within a damaged event: only reading from the start tells what is wrong, and where.
        shutil.rmtree(folder / "events", ignore_errors=True)
        return read(whole, "reading traces again")


def _side_by_side(tasks: Mapping[_Key, list[PartTask]], keys: list[_Key], jobs: int) -> Iterable[PartTask]:
    """The tasks to hand out, and into `keys` whose each is.

    Streams that are fewer than the processes are inflated here, for all of them to decode; where there are
    more, each process inflates and decodes its own.  The tables are the same.
    """
    streams = sum(task.part.stream for own in tasks.values() for task in own)

    def handed_out() -> Iterator[PartTask]:
        for key, own in tasks.items():
            for task in own:
                for one in task.inflated() if task.part.stream and streams < jobs else [task]:
                    keys.append(key)
                    yield one

    return handed_out() if 0 < streams < jobs else [*handed_out()]


def _part_tasks(
    found: Source, folder: Path, options: Options, parts: Sequence[Sequence[Part]]
) -> dict[_Key, list[PartTask]]:
    """A task a part, member by member."""
    tasks: dict[_Key, list[PartTask]] = {}
    for index, (file, listed) in enumerate(zip(found.files, parts, strict=True)):
        for ordinal, member in enumerate(dict.fromkeys(part.member for part in listed)):
            own = [part for part in listed if part.member == member]
            place = _unnamed(folder, index, ordinal)
            tasks[index, member] = [PartTask(file, part, n, place, options) for n, part in enumerate(own)]
    return tasks


def _unnamed(folder: Path, file: int, member: int) -> Path:
    """Where a member's rows lie until its rank is known."""
    return folder / "events" / f"file-{file}-{member}"


def _rank_tasks(
    found: Source, folder: Path, read: dict[_Key, list[PartRead]], options: Options
) -> tuple[list[RankTask], list[str]]:
    """A task a rank, in rank order, once every member's rank is known and its folder has that name.

    Devices of a file that did nothing while others worked are no ranks: they are told beside the tasks.
    """
    members: list[Member] = []
    places: list[Path] = []
    for index, file in enumerate(found.files):
        names = [name for at, name in read if at == index]
        told = [[part.trace.facts for part in read[index, name]] for name in names]
        for processes in ({each.process_id for each in own} - {None} for own in told):
            if len(processes) > 1:
                raise several_processes(file.path, processes)
        facts = [merge_facts(own) for own in told]
        by_card = _by_card(file.ranks_by_card, facts)
        for ordinal, (name, own, rank) in enumerate(zip(names, facts, by_card, strict=True)):
            members.append(Member(file.name, name, own, rank, alone=len(names) == 1))
            places.append(_unnamed(folder, index, ordinal))
    _check_one_machine(members)
    ranks = distinct(members)
    beside = _execution_traces(found, members, [rank for rank, _ in ranks])
    groups = groups_of({rank: m.facts.communicators for m, (rank, _) in zip(members, ranks, strict=True)})
    tasks = []
    working = {key for key, parts in read.items() if any(map(_worked, parts))}
    idle: dict[int, list[str]] = {}
    for (index, name), place, (rank, source) in zip(read, places, ranks, strict=True):
        file, parts = found.files[index], read[index, name]
        if (index, name) not in working and any(at == index for at, _ in working):
            # The ranks of the file's other devices are what they would be had it worked.
            idle.setdefault(index, []).append(name)
            shutil.rmtree(place, ignore_errors=True)
            continue
        if not any(part.rows for part in parts):
            cut = next((part.trace.cut for part in parts if part.trace.cut), None)
            what = (
                f"nothing whole stands before byte {cut.byte:,}, where it is cut" if cut else "holds no rows"
            )
            raise InputError(what, where=str(file.path), hint="capture the trace again")
        into = folder / "events" / f"rank={rank}"
        place.rename(into)
        moved = [
            replace(
                part,
                pending=kinds_in_order([into / path.name for path in part.pending]),
                counters=part.counters and into / part.counters.name,
            )
            for part in parts
        ]
        tasks.append(
            RankTask(rank, source, folder, moved, options.step_annotation, file, beside.get(rank), groups)
        )
    notes = [
        f"{len(names)} of the {sum(at == index for at, _ in read)} devices in {found.files[index].name}"
        f" did nothing and are no ranks: {first_few(names, 8)}"
        for index, names in idle.items()
    ]
    return sorted(tasks, key=attrgetter("rank")), notes


def _worked(part: PartRead) -> bool:
    """Whether a device did anything in it, as far as its rows or graphs without rows tell."""
    return any(part.rows[kind] for kind in DEVICE_WORK) or bool(part.trace.facts.whole_graphs)


def _by_card(ranks: Sequence[int], members: Sequence[TraceFacts]) -> list[int | None]:
    """Rank by the card of each of a file's members: in order of their own ranks, else of their places."""
    told: list[int | None] = [None] * len(members)
    if len(ranks) == len(members):
        places = [(facts.rank or 0, facts.local_rank or 0, i) for i, facts in enumerate(members)]
        for rank, (*_, member) in zip(sorted(ranks), sorted(places), strict=True):
            told[member] = rank
    return told


def _execution_traces(
    found: Source, members: Sequence[Member], ranks: Sequence[int]
) -> dict[int, SourceFile]:
    """The execution trace of each rank that has one."""
    processes = {
        file.path: execution_trace_reader(file.reader).process_of(file.path) for file in found.beside
    }
    ids = {rank: member.facts.process_id for rank, member in zip(ranks, members, strict=True)}
    files = {file.path: file for file in found.beside}
    return {rank: files[path] for rank, path in execution_traces.owners(processes, ids).items()}


def _check_one_machine(members: Sequence[Member]) -> None:
    """`InputError` where files are of accelerators that no one job has, as told before any rank is known.

    No collective library joins accelerators of two vendors.  Models of one vendor may work together, which
    is rare: a process group or communicator that both files name shows that they did.
    """
    for fact in ("vendor", "device_name"):
        known = [member for member in members if getattr(member.facts, fact)]
        for other in known[1:]:
            first = known[0]
            if getattr(other.facts, fact) == getattr(first.facts, fact) or other.file == first.file:
                continue
            if fact == "device_name" and _groups_named(first.facts) & _groups_named(other.facts):
                continue
            said = " and ".join(
                f"{m.facts.device_name or _VENDORS.get(m.facts.vendor or '', m.facts.vendor)} in {m.file}"
                for m in (first, other)
            )
            raise InputError(f"traces of different jobs: {said}", hint="run one job at a time")


_VENDORS = {"nvidia": "an NVIDIA GPU", "amd": "an AMD GPU", "google": "a TPU"}


def _groups_named(facts: TraceFacts) -> set[str | tuple[int, ...]]:
    """The process groups of several ranks that a trace lists, and the communicators it names."""
    groups = {group.ranks for group in facts.groups if group.ranks and len(group.ranks) > 1}
    return {*groups, *(communicator.name for communicator in facts.communicators)}


_OF_A_JOB = {
    "world_size": "a world of {} ranks",
    "backend": "backend {}",
    "library_version": "communication library {}",
}
"""What all ranks of a job have in common, and how it is said."""


def _check_one_job(entries: Sequence[RankEntry]) -> None:
    """All ranks must agree on what a job's ranks share, and lie within its world."""
    for fact, words in _OF_A_JOB.items():
        told = {value: entry for entry in entries if (value := getattr(entry.facts, fact)) is not None}
        if len(told) > 1:
            said = " and ".join(
                f"{words.format(value)} in {told[value].files[0].name}" for value in sorted(told)
            )
            raise InputError(f"traces of different jobs: {said}", hint="run one job at a time")
        for entry in entries if fact == "world_size" else ():
            if told and entry.rank >= next(iter(told)):
                name = entry.files[0].name
                raise InputError(f"is rank {entry.rank} of a world of {next(iter(told))}", where=name)


def _shared_clocks(entries: Sequence[RankEntry]) -> dict[int, int]:
    """The lowest rank of those whose devices are the CPU of one process, which has one clock."""
    lowest: dict[str, int] = {}
    shared = {}
    for entry in entries:
        if entry.facts.device_name == HOST_DEVICE:
            shared[entry.rank] = lowest.setdefault(entry.files[0].name, entry.rank)
    return shared


def _notes(found: Source, entries: Sequence[RankEntry], world: int | None) -> list[str]:
    notes = []
    used = {file.name for entry in entries for file in entry.beside}
    if alone := [file.name for file in found.beside if file.name not in used]:
        which = f"are of no rank's process and were not used: {first_few(alone)}"
        notes.append(f"{len(alone)} execution traces {which}")
    known = [entry.span_ns for entry in entries if entry.span_ns]
    if known and max(begin for begin, _ in known) > min(end for _, end in known):
        notes.append("the ranks' traces were not taken at the same time: what they share cannot be told")
    if world and len(entries) < world:
        notes.append(f"traces of {len(entries)} of {world} ranks: the others are missing, not assumed")
    return notes
