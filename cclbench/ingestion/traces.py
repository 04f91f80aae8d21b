# SPDX-License-Identifier: Apache-2.0
"""Ingest traces of one kind: read them in parts, join the parts by rank, match the ranks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from cclbench.card import Card
from cclbench.engine import Engine, Progress, text_bytes
from cclbench.formats import Part, execution_trace_reader, several_processes
from cclbench.ground.errors import InputError
from cclbench.ground.text import first_few
from cclbench.ground.units import humanise
from cclbench.ingestion.across import Places, match_ranks
from cclbench.ingestion.base_time import add_base_times
from cclbench.ingestion.entry import without_kernels
from cclbench.ingestion.evidence import EvidenceDone
from cclbench.ingestion.groups import JobGroups, StatedGroups
from cclbench.ingestion.part import PartDone, PartTask, parts_of, read_parts
from cclbench.ingestion.rank import RankDone, RankTask, finish_rank, merge_facts
from cclbench.ingestion.source import Source, SourceFile
from cclbench.machine import machine_of_entries
from cclbench.normalize import execution_traces
from cclbench.normalize.ranks import Member, distinct_ranks, groups_of
from cclbench.record.facts import HOST_DEVICE, ProcessGroup, TraceFacts
from cclbench.record.inventory import remove_rank, tables_of_rank
from cclbench.record.manifest import Manifest, Options, RankEntry

_RANK_IN_NAME: Final = re.compile(r"rank[_-]?(\d{1,9})")
_MOST_STREAMS: Final = 16
"""Most compressed files to inflate in this process, which can supply some 25 decoding processes."""
_HASHED: Final = 50
"""Ratio of the time to read a text to the time to hash its tables."""
_Key = tuple[int, str]
"""A future rank: the index of its file, and its member's name in it."""
Read = dict[_Key, list[PartDone]]
"""The parts of each member, in order."""


def read_traces(
    files: Mapping[int, SourceFile],
    folder: Path,
    options: Options,
    engine: Engine,
    progress: Progress | None,
) -> Read:
    """Read all parts of files of one kind, by index in the source, in parallel into `folder`.

    If a part cannot be read, all files are read again in order.
    """
    parts = {index: parts_of(file) for index, file in files.items()}
    full_parts = {
        index: [Part(member) for member in dict.fromkeys(part.member for part in listed)]
        for index, listed in parts.items()
    }

    def read(parts: Mapping[int, Sequence[Part]], what: str) -> Read:
        tasks = _part_tasks(files, folder, options, parts)
        groups: dict[ProcessGroup, ProcessGroup] = {}
        coming, indices = _Coming(tasks), count()
        read: Read = {key: [] for key in tasks}

        def take(parts: list[PartDone]) -> None:
            key, task = coming.yielded_tasks[next(indices)]
            task.part.remove_inflated()
            for part in parts:
                # Every rank lists the same groups: one copy of each is kept.
                part_groups = tuple(groups.setdefault(group, group) for group in part.facts.groups)
                facts = msgspec.structs.replace(part.facts, groups=part_groups)
                read[key].append(msgspec.structs.replace(part, facts=facts))

        size = sum(text_bytes(file.path, file.bytes) for file in files.values())
        engine.gather(read_parts, coming, take, progress=progress, what=what, size_bytes=size)
        add_base_times([(member_tasks[0], read[key]) for key, member_tasks in tasks.items()], engine, size)
        return read

    # A damaged file is usable up to its first defect: it must be read in order.
    in_order = options.allow_truncated or parts == full_parts
    try:
        return read(full_parts if in_order else parts, "reading traces")
    except InputError:
        if in_order:
            raise
        # A part may begin within a damaged event: only reading from the start locates the defect.
        shutil.rmtree(folder / "events", ignore_errors=True)
        return read(full_parts, "reading traces again")


class _Coming(Sequence[PartTask]):
    """Tasks in order of files; a stream's parts are known only once it is inflated, and so is the length.

    With more than `_MOST_STREAMS` streams, the reading processes inflate them: the tables are the same.
    """

    def __init__(self, tasks: Mapping[_Key, list[PartTask]]) -> None:
        self._tasks = [(key, task) for key, member_tasks in tasks.items() for task in member_tasks]
        self._streams = sum(task.part.stream for _, task in self._tasks)
        self.yielded_tasks: list[tuple[_Key, PartTask]] = []
        """Tasks yielded so far, each with its member."""

    def __iter__(self) -> Iterator[PartTask]:
        for key, task in self._tasks:
            in_process = task.part.stream and self._streams <= _MOST_STREAMS
            for part_task in task.inflated_parts() if in_process else (task,):
                self.yielded_tasks.append((key, part_task))
                yield part_task

    def __len__(self) -> int:
        return max(len(self._tasks) + self._streams, len(self.yielded_tasks))

    def __getitem__(self, index: Any) -> Any:
        return [task for _, task in self.yielded_tasks][index]


def join_traces(
    source: Source,
    card: Card | None,
    folder: Path,
    manifest: Manifest,
    read: Read,
    evidence: EvidenceDone,
    *,
    engine: Engine,
    progress: Progress | None,
) -> Manifest:
    """Join the parts by rank and match the ranks; returns `manifest` with their records."""
    tasks, idle = _rank_tasks(source, folder, read, manifest.ingest, evidence)
    entries: list[RankEntry] = []
    names: list[frozenset[str]] = []
    stated = StatedGroups()

    def take(rank: RankDone) -> None:
        entries.append(rank.entry)
        names.append(rank.names)
        stated.add(rank)
        for path in rank.spent:
            path.unlink()

    what, size = "putting ranks together", sum(text_bytes(file.path, file.bytes) for file in source.files)
    engine.gather(finish_rank, tasks, take, progress=progress, what=what, size_bytes=size)
    _check_one_job(entries)
    for entry in without_kernels(entries):
        place = entries.index(entry)
        del entries[place], names[place]
        remove_rank(folder, entry.rank)
        idle.append(f"rank {entry.rank} is none: the device in {entry.files[0].name} ran no kernel")
    stated.write(folder)
    machine = machine_of_entries(card, entries)
    inference, matching, clocks = match_ranks(
        folder,
        [entry.rank for entry in entries],
        Places(machine.node_by_rank, _shared_clocks(entries)),
        {} if card is None else msgspec.structs.asdict(card.parallelism),
        JobGroups(machine.world_size, names) if manifest.ingest.inference else None,
        engine=engine,
        progress=progress,
        size_bytes=size,
    )
    stored = engine.map(
        partial(tables_of_rank, folder),
        [entry.rank for entry in entries],
        progress=progress,
        what="hashing tables",
        size_bytes=size // _HASHED,
    )
    return msgspec.structs.replace(
        manifest,
        ranks=[
            msgspec.structs.replace(entry, stored=files) for entry, files in zip(entries, stored, strict=True)
        ],
        inference=inference,
        matching=matching,
        clocks=clocks,
        notes=[*idle, *machine.contradictions, *_run_notes(source, entries, machine.stated_world)],
    )


def _part_tasks(
    files: Mapping[int, SourceFile], folder: Path, options: Options, parts: Mapping[int, Sequence[Part]]
) -> dict[_Key, list[PartTask]]:
    """One task per part, by member."""
    tasks: dict[_Key, list[PartTask]] = {}
    for index, file in files.items():
        of_member: dict[str, list[Part]] = {}
        for part in parts[index]:
            of_member.setdefault(part.member, []).append(part)
        for ordinal, (member, member_parts) in enumerate(of_member.items()):
            place = pending_folder(folder, index, ordinal)
            tasks[index, member] = [
                PartTask(file, part, n, place, options) for n, part in enumerate(member_parts)
            ]
    return tasks


def pending_folder(folder: Path, file: int, member: int) -> Path:
    """Folder of the rows of a file's member until its rank is known."""
    return folder / "events" / f"file-{file}-{member}"


def _rank_tasks(
    source: Source, folder: Path, read: Read, options: Options, evidence: EvidenceDone
) -> tuple[list[RankTask], list[str]]:
    """Determine every member's rank and rename its folder; one task per rank, in order, and notes.

    Devices of a file that did nothing while others worked are not ranks: the notes list them.
    """
    members: list[Member] = []
    places: list[Path] = []
    of_file: dict[int, list[str]] = {}
    for index, name in read:
        of_file.setdefault(index, []).append(name)
    for index, names in of_file.items():
        file = source.files[index]
        facts_of_parts = [[part.facts for part in read[index, name]] for name in names]
        for processes in ({each.process_id for each in part_facts} - {None} for part_facts in facts_of_parts):
            if len(processes) > 1:
                raise several_processes(file.path, processes)
        facts = [merge_facts(part_facts) for part_facts in facts_of_parts]
        by_card = _by_card(file.ranks_by_card, facts)
        for ordinal, (name, member_facts, rank) in enumerate(zip(names, facts, by_card, strict=True)):
            members.append(Member(file.name, name, member_facts, rank, alone=len(names) == 1))
            places.append(pending_folder(folder, index, ordinal))
    _check_one_machine(members)
    ranks = distinct_ranks(members)
    beside = _execution_traces(source, members, [rank for rank, _ in ranks])
    groups = _groups_by_rank(
        groups_of({rank: m.facts.communicators for m, (rank, _) in zip(members, ranks, strict=True)})
    )
    tasks = []
    working = {key for key, parts in read.items() if any(part.worked for part in parts)}
    files_that_work = {index for index, _ in working}
    idle: dict[int, list[str]] = {}
    for (index, name), place, (rank, rank_source) in zip(read, places, ranks, strict=True):
        file, parts = source.files[index], read[index, name]
        if (index, name) not in working and index in files_that_work:
            # An idle device does not change the ranks of the file's other devices.
            idle.setdefault(index, []).append(name)
            shutil.rmtree(place, ignore_errors=True)
            continue
        if not any(part.holds_rows for part in parts):
            cut = next((part.cut for part in parts if part.cut), None)
            what = (
                f"nothing whole stands before byte {cut.byte:,}, where it is cut" if cut else "holds no rows"
            )
            raise InputError(what, where=str(file.path), hint="capture the trace again")
        into = folder / "events" / f"rank={rank}"
        place.rename(into)
        moved = [into / part.file.name for part in parts]
        own_groups = tuple(groups.get(rank, ()))
        tasks.append(
            RankTask(
                rank,
                rank_source,
                folder,
                moved,
                options.step_annotation,
                file,
                beside.get(rank),
                own_groups,
                _captures_of(source, rank),
                evidence.call_lists(rank),
            )
        )
    notes = [
        f"{len(names)} of the {len(of_file[index])} devices in {source.files[index].name}"
        f" did nothing and are no ranks: {first_few(names, 8)}"
        for index, names in idle.items()
    ]
    return sorted(tasks, key=attrgetter("rank")), notes


def _captures_of(source: Source, rank: int) -> tuple[SourceFile, ...]:
    """Captures of a rank's graphs: files whose names state this rank or none."""
    matches = ((file, _RANK_IN_NAME.search(file.path.name)) for file in source.captures)
    return tuple(file for file, named in matches if named is None or int(named[1]) == rank)


def _groups_by_rank(groups: Iterable[ProcessGroup]) -> dict[int, list[ProcessGroup]]:
    by_rank: dict[int, list[ProcessGroup]] = {}
    for group in groups:
        for rank in group.ranks or ():
            by_rank.setdefault(rank, []).append(group)
    return by_rank


def _by_card(ranks: Sequence[int], members: Sequence[TraceFacts]) -> list[int | None]:
    """The card's rank of each of a file's members, in order of their own ranks, else of their places."""
    card_ranks: list[int | None] = [None] * len(members)
    if len(ranks) == len(members):
        places = [(facts.rank or 0, facts.local_rank or 0, i) for i, facts in enumerate(members)]
        for rank, (*_, member) in zip(sorted(ranks), sorted(places), strict=True):
            card_ranks[member] = rank
    return card_ranks


def _execution_traces(
    source: Source, members: Sequence[Member], ranks: Sequence[int]
) -> dict[int, SourceFile]:
    """The execution trace of each rank that has one."""
    processes = {
        file.path: execution_trace_reader(file.reader).process_of(file.path) for file in source.beside
    }
    ids = {rank: member.facts.process_id for rank, member in zip(ranks, members, strict=True)}
    files = {file.path: file for file in source.beside}
    return {rank: files[path] for rank, path in execution_traces.traces_by_process(processes, ids).items()}


def _check_one_machine(members: Sequence[Member]) -> None:
    """`InputError` if the files' accelerators cannot belong to one job; runs before ranks are known.

    No collective library joins accelerators of two vendors.  Models of one vendor rarely work together: a
    process group or communicator that both files name shows that they did.
    """
    for fact in ("vendor", "device_name"):
        stating_members = [member for member in members if getattr(member.facts, fact)]
        for other in stating_members[1:]:
            first = stating_members[0]
            if getattr(other.facts, fact) == getattr(first.facts, fact) or other.file == first.file:
                continue
            if fact == "device_name" and _groups_named(first.facts) & _groups_named(other.facts):
                continue
            conflict = " and ".join(
                f"{m.facts.device_name or _VENDORS.get(m.facts.vendor or '', m.facts.vendor)} in {m.file}"
                for m in (first, other)
            )
            raise InputError(f"traces of different jobs: {conflict}", hint="run one job at a time")


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
"""Facts that all ranks of a job share, and their wording in messages."""


def _check_one_job(entries: Sequence[RankEntry]) -> None:
    """`InputError` unless all ranks agree on the facts of `_OF_A_JOB` and lie within the world size."""
    for fact, words in _OF_A_JOB.items():
        by_value = {value: entry for entry in entries if (value := getattr(entry.facts, fact)) is not None}
        if len(by_value) > 1:
            conflict = " and ".join(
                f"{words.format(value)} in {by_value[value].files[0].name}" for value in sorted(by_value)
            )
            raise InputError(f"traces of different jobs: {conflict}", hint="run one job at a time")
        for entry in entries if fact == "world_size" else ():
            if by_value and entry.rank >= next(iter(by_value)):
                name = entry.files[0].name
                raise InputError(f"is rank {entry.rank} of a world of {next(iter(by_value))}", where=name)


def _shared_clocks(entries: Sequence[RankEntry]) -> dict[int, int]:
    """Lowest of the ranks whose devices are the CPU of one process, which has one clock, by rank."""
    lowest: dict[str, int] = {}
    shared = {}
    for entry in entries:
        if entry.facts.device_name == HOST_DEVICE:
            shared[entry.rank] = lowest.setdefault(entry.files[0].name, entry.rank)
    return shared


def _run_notes(source: Source, entries: Sequence[RankEntry], world: int | None) -> list[str]:
    notes = []
    used = {file.name for entry in entries for file in entry.beside}
    if alone := [file.name for file in source.beside if file.name not in used]:
        which = f"are of no rank's process and were not used: {first_few(alone)}"
        notes.append(f"{len(alone)} execution traces {which}")
    before = {entry.rank: entry.steps.host_before_ns for entry in entries if entry.steps.host_before_ns}
    if before:
        rank, most_ns = max(before.items(), key=itemgetter(1))
        notes.append(
            f"the annotation of the only step begins up to {humanise(most_ns / 1e9, 's')} (rank {rank})"
            " before its first kernel: no window holds what the host does until then"
        )
    spans = [entry.span_ns for entry in entries if entry.span_ns]
    if spans and max(begin for begin, _ in spans) > min(end for _, end in spans):
        notes.append("the ranks' traces were not taken at the same time: what they share cannot be told")
    if world and len(entries) < world:
        notes.append(f"traces of {len(entries)} of {world} ranks: the others are missing, not assumed")
    return notes
