# SPDX-License-Identifier: Apache-2.0
"""From a source to a run in the store: traces read in parts, put together per rank, whole or not at all.

`part` streams one file, or one part of it, to Parquet.  What needs the whole rank (which step a kernel
belongs to, which process group a collective) is filled in by `rank`, in a second pass over the rows of
the device alone; `entry` writes down what was found and left out.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cclbench import __version__, engine
from cclbench.card import load as load_card
from cclbench.engine import Progress
from cclbench.errors import InputError
from cclbench.ingestion.across import match_ranks, write_groups
from cclbench.ingestion.part import PartRead, PartTask, read_part
from cclbench.ingestion.rank import RankTask, finish_rank, kinds_in_order, merge_facts
from cclbench.normalize import execution_traces
from cclbench.normalize.ranks import distinct, rank_of
from cclbench.normalize.steps import families
from cclbench.readers import READERS, execution_trace
from cclbench.schema import VERSION
from cclbench.source import Source, SourceFile
from cclbench.store import Store, StoredRun


@dataclass(frozen=True, slots=True)
class Options:
    """What shapes a run besides its source."""

    allow_truncated: bool = False
    step_annotation: str | None = None


def ingest(
    found: Source, store: Store, options: Options, *, jobs: int = 1, progress: Progress | None = None
) -> StoredRun:
    """Bring a source into the store, unless an unchanged copy is there."""
    families(options.step_annotation)
    fingerprint = found.fingerprint(VERSION, __version__, options)
    run = f"{found.name}-{fingerprint[:8]}"
    kept = store.find(run)
    if kept is not None and kept.manifest.get("fingerprint") == fingerprint:
        return kept
    with store.creating(run) as folder:
        read = _read(found, folder, options, jobs, progress)
        tasks = _rank_tasks(found, folder, read, options)
        what = "putting ranks together"
        done = engine.each(finish_rank, [task for task, _ in tasks], jobs=jobs, progress=progress, what=what)
        entries = [rank.entry for rank in done]
        for entry, (task, file) in zip(entries, tasks, strict=True):
            entry["files"] = [_kept(file)]
            entry["beside"] = [] if task.beside is None else [_kept(task.beside)]
        _check_one_job(entries)
        write_groups(folder, done)
        across = match_ranks(
            folder, [entry["rank"] for entry in entries], _hosts(found, entries), _degrees(found)
        )
        if found.card is not None:
            shutil.copyfile(found.card, folder / "card.yaml")
        manifest = {
            "schema": VERSION,
            "cclbench": __version__,
            "run": run,
            "fingerprint": fingerprint,
            "source": str(found.path),
            "card": _card(found),
            "ingest": {
                "allow_truncated": options.allow_truncated,
                "step_annotation": options.step_annotation,
            },
            "ranks": entries,
            **across,
            "notes": _notes(found, entries),
        }
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, allow_nan=False) + "\n")
    return StoredRun(store.folder / run)


def _read(
    found: Source, folder: Path, options: Options, jobs: int, progress: Progress | None
) -> dict[str, list[PartRead]]:
    """All files' parts, read side by side; files whose parts do not read are read again as a whole."""
    tasks = [task for index in range(len(found.files)) for task in _part_tasks(found, index, folder, options)]
    try:
        read = engine.each(read_part, tasks, jobs=jobs, progress=progress, what="reading traces")
    except InputError:
        if all(task.part is None for task in tasks):
            raise
        # A part may begin within a damaged event: only reading from the start tells what is wrong, and where.
        shutil.rmtree(folder / "events", ignore_errors=True)
        tasks = [replace(task, part=None) for task in tasks if task.index == 0]
        read = engine.each(read_part, tasks, jobs=jobs, progress=progress, what="reading traces again")
    by_file: dict[str, list[PartRead]] = {file.name: [] for file in found.files}
    names = {file.path: file.name for file in found.files}
    for task, part in zip(tasks, read, strict=True):
        by_file[names[task.path]].append(part)
    return by_file


def _part_tasks(found: Source, index: int, folder: Path, options: Options) -> list[PartTask]:
    file = found.files[index]
    # What a damaged file still gives ends at its first defect: it must be read in order.
    ranges = [] if options.allow_truncated else READERS.get(file.reader).parts(file.path)
    parts: list[tuple[int, int] | None] = [*ranges] if len(ranges) > 1 else [None]
    return [
        PartTask(
            path=file.path,
            reader=file.reader,
            part=part,
            index=i,
            folder=folder / "events" / f"file-{index}",
            allow_truncated=options.allow_truncated,
            step_annotation=options.step_annotation,
        )
        for i, part in enumerate(parts)
    ]


def _rank_tasks(
    found: Source, folder: Path, read: dict[str, list[PartRead]], options: Options
) -> list[tuple[RankTask, SourceFile]]:
    """A task a rank, in rank order, once every file's rank is known and its folder has that name."""
    ranks = distinct(
        {
            file.name: rank_of(file.name, merge_facts([p.facts for p in read[file.name]]), file.rank_by_card)
            for file in found.files
        }
    )
    beside = _beside(found, read, ranks)
    tasks = []
    for index, file in enumerate(found.files):
        if not any(p.rows for p in read[file.name]):
            cut = next((p.cut for p in read[file.name] if p.cut), None)
            what = (
                f"nothing whole stands before byte {cut.byte:,}, where it is cut" if cut else "holds no rows"
            )
            raise InputError(what, where=str(file.path), hint="capture the trace again")
        rank, source = ranks[file.name]
        into = folder / "events" / f"rank={rank}"
        (folder / "events" / f"file-{index}").rename(into)
        parts = [
            replace(p, pending=kinds_in_order([into / q.name for q in p.pending])) for p in read[file.name]
        ]
        tasks.append((RankTask(rank, source, folder, parts, options.step_annotation, beside.get(rank)), file))
    return sorted(tasks, key=lambda pair: pair[0].rank)


def _beside(
    found: Source, read: dict[str, list[PartRead]], ranks: dict[str, tuple[int, str]]
) -> dict[int, SourceFile]:
    """The execution trace of each rank that has one."""
    processes = {file.path: execution_trace.process_of(file.path) for file in found.beside}
    ids = {rank: merge_facts([p.facts for p in read[name]]).process_id for name, (rank, _) in ranks.items()}
    files = {file.path: file for file in found.beside}
    return {rank: files[path] for rank, path in execution_traces.owners(processes, ids).items()}


_OF_A_JOB = {
    "world_size": "a world of {} ranks",
    "backend": "backend {}",
    "library_version": "communication library {}",
}
"""What all ranks of a job have in common, and how it is said."""


def _check_one_job(entries: Sequence[dict[str, Any]]) -> None:
    """All ranks must agree on what a job's ranks share, and lie within its world."""
    for fact, words in _OF_A_JOB.items():
        told = {value: entry for entry in entries if (value := entry["facts"].get(fact)) is not None}
        if len(told) > 1:
            said = " and ".join(
                f"{words.format(value)} in {told[value]['files'][0]['name']}" for value in sorted(told)
            )
            raise InputError(f"traces of different jobs: {said}", hint="run one job at a time")
        for entry in entries if fact == "world_size" else ():
            if told and entry["rank"] >= next(iter(told)):
                name = entry["files"][0]["name"]
                raise InputError(f"is rank {entry['rank']} of a world of {next(iter(told))}", where=name)


def _kept(file: SourceFile) -> dict[str, Any]:
    return {"name": file.name, "bytes": file.bytes, "sha256": file.sha256, "reader": file.reader}


def _hosts(found: Source, entries: Sequence[dict[str, Any]]) -> dict[int, int]:
    """Number of each rank's host: by the card's devices in a node, else one host where it has a device
    for every rank of the world; else unknown."""
    per_node = None if found.card is None else load_card(found.card).hardware.per_node
    hosts = {}
    for entry in entries:
        devices, world = entry["facts"].get("device_count"), entry["facts"].get("world_size")
        if per_node:
            hosts[entry["rank"]] = entry["rank"] // per_node
        elif devices and world and devices >= world:
            hosts[entry["rank"]] = 0
    return hosts


def _degrees(found: Source) -> dict[str, int]:
    """The card's parallel degrees, by name."""
    return {} if found.card is None else dict(msgspec.structs.asdict(load_card(found.card).parallelism))


def _card(found: Source) -> dict[str, Any] | None:
    if found.card is None:
        return None
    card = load_card(found.card)
    return {"id": card.id, "path": str(found.card), "description": card.description}


def _notes(found: Source, entries: Sequence[dict[str, Any]]) -> list[str]:
    notes = []
    if found.ignored:
        shown = ", ".join(found.ignored[:3]) + (", ..." if len(found.ignored) > 3 else "")
        notes.append(f"{len(found.ignored)} files in the folder are no traces and were not read: {shown}")
    used = {file["name"] for entry in entries for file in entry["beside"]}
    if alone := [file.name for file in found.beside if file.name not in used]:
        shown = ", ".join(alone[:3]) + (", ..." if len(alone) > 3 else "")
        notes.append(f"{len(alone)} execution traces are of no rank's process and were not used: {shown}")
    known = [entry["span_ns"] for entry in entries if entry["span_ns"]]
    if known and max(begin for begin, _ in known) > min(end for _, end in known):
        notes.append("the ranks' traces were not taken at the same time: what they share cannot be told")
    world = next((e["facts"]["world_size"] for e in entries if e["facts"].get("world_size")), None)
    if world and len(entries) < world:
        notes.append(f"traces of {len(entries)} of {world} ranks: the others are missing, not assumed")
    return notes
