# SPDX-License-Identifier: Apache-2.0
"""Ingest a source with several independent jobs: each reads a share of the files, and one merges the shards.

A shard is a folder of the store: `shard.json` and the rows of its files, as `part` writes them.  Work that
needs all ranks is done at the merge, so the run equals that of a single job.  A merge does not change the
shards; to merge again, or to make a shard again, gives the same result.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from cclbench.engine import SERIAL, Engine, Progress, text_bytes
from cclbench.formats import READERS
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.file_names import path_of, stored_name
from cclbench.ground.out_of_memory import is_out_of_memory
from cclbench.ground.text import first_few
from cclbench.ingestion import by_kind, code_versions, ingest, place_of
from cclbench.ingestion.part import PartDone, read_summary
from cclbench.ingestion.part_file import read_part_file
from cclbench.ingestion.source import Listed, Source, SourceFile, find_source, hash_files
from cclbench.ingestion.traces import Read, pending_folder, read_traces
from cclbench.normalize.steps import step_patterns
from cclbench.record.inventory import (
    OTHER_CONTENT,
    Change,
    changes_of,
    file_sizes,
    has_changed,
    stored_file,
)
from cclbench.record.manifest import Options, StoredFile
from cclbench.record.run import Run
from cclbench.record.store import Store

SHARD: Final = "shard.json"
MOST: Final = 1 << 16
_AGAIN: Final = "make it again: cclbench ingest SOURCE --shard I/N"
_Place = Annotated[int, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(pattern=r"^\d{3,6}\.part$")]


class MemberParts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parts of a file's member: `file` is the file's index among its reader's, `ordinal` the member's."""

    reader: str
    file: _Place
    ordinal: _Place
    member: str
    parts: list[_Name]


class ShardFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source file as it was when it was read, see `source.SourceFile`."""

    name: str
    reader: str
    bytes: int
    sha256: str
    stamp: tuple[int, ...]


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`shard.json`: the source, the share, the options it was read with, and its content."""

    source: str
    absolute: str
    versions: list[Any]
    options: Options
    index: _Place
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST)]
    listing: list[tuple[str, int]]
    """Name and size of all trace files of the source."""
    descriptions: list[str]
    """SHA-256 of the source's description files."""
    files: list[ShardFile]
    members: list[MemberParts]
    stored: list[StoredFile]
    """The files of the shard itself, except `shard.json`."""

    @property
    def display_name(self) -> str:
        """Its name in messages, counted from 1."""
        return f"shard {self.index + 1} of {self.count}"


def ingest_shard(
    source: str | Path,
    store: Store,
    options: Options,
    index: int,
    count: int,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> tuple[Path, Shard]:
    """Read share `index` of `count` of the source's trace files into a folder of the store.

    Shares are counted from 1; 0 means the last one, for callers that count from 0.
    """
    if not 0 <= index <= count or not 1 <= count <= MOST:
        hint = f"--shard I/N with I from 1 to N, N at most {MOST:,}"
        raise UsageError(f"there is no shard {index}/{count}", hint=hint)
    step_patterns(options.step_annotation)
    share: set[str] = set()
    listing: list[tuple[str, int]] = []

    def hash_share(listed: Sequence[Listed]) -> list[SourceFile]:
        traces = [(file, file[0].stat().st_size) for file in listed if _is_trace(file)]
        listing.extend((name, size) for (_, name, *_), size in traces)
        share.update(_files_of_share([(size, name) for (_, name, *_), size in traces], index % count, count))
        hashed = {file.name: file for file in hash_files([file for file in listed if file[1] in share])}
        return [hashed.get(file[1]) or _without_hash(file) for file in listed]

    run_source = find_source(source, hashing=hash_share)
    kinds = by_kind(run_source.files)
    about = (stored_name(run_source.path.absolute()), sorted(listing), options, code_versions())
    name = (
        f"{run_source.name}-{sha256(repr(about).encode()).hexdigest()[:8]}.shard-{index or count}-of-{count}"
    )
    members: list[MemberParts] = []
    with store.new_run_folder(name) as folder:
        engine.require_shared(folder, run_source.path)
        for kind in kinds:
            files = {at: file for at, file in enumerate(kind) if file.name in share}
            read = read_traces(files, folder / place_of(kind, kinds[0]), options, engine, progress)
            ordinals: dict[int, int] = {}
            for (at, member), parts in read.items():
                ordinals[at] = ordinals.get(at, -1) + 1
                names = [part.file.name for part in parts]
                members.append(MemberParts(kind[0].reader, at, ordinals[at], member, names))
        size = sum(file.bytes for file in run_source.files if file.name in share)
        stored = engine.map(
            partial(stored_file, folder),
            sorted(file_sizes(folder)),
            progress=progress,
            what="hashing tables",
            size_bytes=size,
        )
        shard = Shard(
            source=stored_name(str(source)),
            absolute=stored_name(run_source.path.absolute()),
            versions=list(code_versions()),
            options=options,
            index=(index - 1) % count,
            count=count,
            listing=listing,
            descriptions=_described_files(run_source),
            files=[
                ShardFile(file.name, file.reader, file.bytes, file.sha256, file.stamp)
                for file in run_source.files
                if file.name in share
            ],
            members=members,
            stored=stored,
        )
        (folder / SHARD).write_bytes(msgspec.json.format(msgspec.json.encode(shard), indent=1))
        for file in run_source.files:
            if file.name in share:
                file.require_unchanged()
    return store.folder / name, shard


def merge_shards(
    folders: Sequence[Path], store: Store, *, engine: Engine = SERIAL, progress: Progress | None = None
) -> Run:
    """Merge all shards of one source, in any order, into a run; the shards are not changed."""
    shards = {folder: _read_shard(folder) for folder in folders}
    _check_complete(shards)
    first = next(iter(shards.values()))
    files_by_name = {file.name: file for shard in shards.values() for file in shard.files}

    def hash_others(listed: Sequence[Listed]) -> list[SourceFile]:
        hashed = {file.name: file for file in hash_files([file for file in listed if not _is_trace(file)])}
        return [hashed.get(file[1]) or _as_read(file, files_by_name) for file in listed]

    path = Path(path_of(first.source))
    path = path if path.expanduser().exists() else Path(path_of(first.absolute))
    source = find_source(path, hashing=hash_others)
    if _described_files(source) != first.descriptions:
        where = " or ".join(map(str, source.description_files))
        raise InputError("changed since the shards were made", where=where, hint=_AGAIN)
    reading = partial(_link_parts, shards)
    try:
        return ingest(source, store, first.options, engine=engine, progress=progress, reading=reading)
    except (pa.ArrowException, OSError) as error:
        # Arrow's own read errors have no errno, those of the system have one.
        if is_out_of_memory(error) or (isinstance(error, OSError) and error.errno is not None):
            raise
        words = next(iter(str(error).splitlines()), type(error).__name__)
        where = f"{next(iter(shards))} or another shard"
        raise InputError(f"damaged table: {words}", where=where, hint=_AGAIN) from None


def _described_files(source: Source) -> list[str]:
    def hash_of(path: Path) -> str:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()

    return [hash_of(path) for path in source.description_files]


def _is_trace(file: Listed) -> bool:
    return READERS.get(file[2]).reads == "trace"


def _files_of_share(sizes: Sequence[tuple[int, str]], index: int, count: int) -> list[str]:
    """File names of one share: files go, largest first, to the share with the fewest bytes."""
    loads = [0] * count
    names = []
    for size, name in sorted(sizes, reverse=True):
        least = loads.index(min(loads))
        loads[least] += max(size, 1)
        if least == index:
            names.append(name)
    return names


def _without_hash(file: Listed) -> SourceFile:
    path, name, reader, ranks = file
    return SourceFile(path, name, reader, path.stat().st_size, "", ranks)


def _as_read(file: Listed, files_by_name: Mapping[str, ShardFile]) -> SourceFile:
    path, name, reader, ranks = file
    read = files_by_name.get(name)
    if read is None or read.reader != reader:
        raise InputError("is in none of the shards", where=str(path), hint="make all shards again")
    return SourceFile(path, name, reader, read.bytes, read.sha256, ranks, read.stamp)


def _read_shard(folder: Path) -> Shard:
    """A shard's record; `InputError` if the folder is not an intact shard of this version."""
    try:
        content = (folder / SHARD).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"is no shard: {SHARD}: {reason}", where=str(folder), hint=_AGAIN) from None
    try:
        shard = msgspec.json.decode(content, type=Shard)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"damaged {SHARD}: {error}", where=str(folder), hint=_AGAIN) from None
    if shard.versions != list(code_versions()):
        raise InputError("was made by another version", where=str(folder), hint=_AGAIN)
    for change in changes_of(shard.stored, file_sizes(folder)):
        raise _update_folder(folder, change)
    return shard


def _update_folder(folder: Path, change: Change) -> InputError:
    return InputError(
        f"{change.what}: the shard is not what was written", where=f"{folder}/{change.path}", hint=_AGAIN
    )


def _check_complete(shards: Mapping[Path, Shard]) -> None:
    """`UsageError` unless the shards are all those of one source, each once."""
    if not shards:
        raise UsageError("no shard to merge", hint="name the folders that `ingest --shard` made")
    folders = {shard.index: folder for folder, shard in shards.items()}
    first = folders[next(iter(shards.values())).index]
    for folder, shard in shards.items():
        for what in ("absolute", "count", "options", "listing", "descriptions"):
            if getattr(shard, what) != getattr(shards[first], what):
                changed = what in ("listing", "descriptions")
                words = "its source has changed since" if changed else "another source or options"
                raise UsageError(f"{folder} and {first} are not of one run: {words}", hint=_AGAIN)
        if folders[shard.index] != folder:
            hint = "name one of them"
            raise UsageError(f"{folder} and {folders[shard.index]} are both {shard.display_name}", hint=hint)
    count = shards[first].count
    if missing := [str(index + 1) for index in range(count) if index not in folders]:
        raise UsageError(f"of {count} shards {first_few(missing)} are missing", hint=_AGAIN)


def _link_parts(
    shards: Mapping[Path, Shard],
    files: Mapping[int, SourceFile],
    folder: Path,
    options: Options,  # noqa: ARG001 - those of the shards
    engine: Engine,
    progress: Progress | None,
) -> Read:
    """Link the shards' parts of files of one kind into the run's folder."""
    reader = files[0].reader
    members: list[tuple[MemberParts, Path, Path]] = []
    stored: dict[Path, list[StoredFile]] = {}
    for shard_folder, shard in shards.items():
        for file in shard.stored:
            stored.setdefault((shard_folder / file.path).parent, []).append(file)
        # As in `place_of`: the first kind of the source is in the folder itself.
        kind_folder = shard_folder / "sources" / reader
        place = kind_folder if kind_folder.is_dir() else shard_folder
        members += [
            (member, shard_folder, pending_folder(place, member.file, member.ordinal))
            for member in shard.members
            if member.reader == reader
        ]
    members.sort(key=lambda each: (each[0].file, each[0].ordinal))
    tasks = [
        _Adoption(
            shard_folder,
            stored.get(place, []),
            pending_folder(folder, member.file, member.ordinal),
            member.parts,
        )
        for member, shard_folder, place in members
    ]
    what, size = "gathering shards", sum(text_bytes(file.path, file.bytes) for file in files.values())
    parts = engine.map(_adopt_member, tasks, progress=progress, what=what, size_bytes=size)
    read = {
        (member.file, member.member): member_parts
        for (member, *_), member_parts in zip(members, parts, strict=True)
    }
    if {at for at, _ in read} != set(files):
        raise InputError("the shards do not hold all files of the source", hint="make all shards again")
    return read


@dataclass(frozen=True, slots=True)
class _Adoption:
    """Link a member's `files` from the folder of the `shard` into the `target` folder."""

    shard: Path
    files: list[StoredFile]
    target: Path
    parts: list[str]


def _adopt_member(task: _Adoption) -> list[PartDone]:
    try:
        task.target.mkdir(parents=True, exist_ok=True)
        for file in task.files:
            if has_changed(task.shard, file):
                raise _update_folder(task.shard, Change(file.path, OTHER_CONTENT))
            _link_file(task.shard / file.path, task.target / Path(file.path).name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"damaged shard: {reason}", where=str(task.shard), hint=_AGAIN) from None
    return [read_summary(path, read_part_file(path)) for path in (task.target / name for name in task.parts)]


def _link_file(file: Path, target: Path) -> None:
    """Hard-link the file to `target`, or copy it if the file system has no hard links."""
    target.unlink(missing_ok=True)
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)
