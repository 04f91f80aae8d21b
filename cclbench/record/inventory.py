# SPDX-License-Identifier: Apache-2.0
"""Check the files of a run against its manifest: presence and sizes at every opening, hashes on request."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Final

import msgspec

from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import ChangedRunError, InputError
from cclbench.ground.scratch import stamp_of
from cclbench.record import manifest as manifests
from cclbench.record.files import content_hash, parquet_file, reading, refuse_links
from cclbench.record.manifest import MANIFEST, Manifest, StoredFile, source_command

RESULTS_FILE: Final = "results.parquet"
OTHER_CONTENT: Final = "its content is not what was written"
_TABLE: Final = ".parquet"
_BY_RANK: Final = ("collectives", "operators", "steps", "counters", "program_buffers")
"""Tables with one file per rank; events have several."""
_FOOTER_END: Final = 8
"""Bytes after a footer: its length and the magic number."""


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """A difference between a file of a run and the manifest."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of `verify`: files compared and their bytes, and the command that ingests the source again."""

    run: str
    files: int
    bytes: int
    changes: list[Change]
    command: str


def file_sizes(folder: Path) -> dict[str, int]:
    """Bytes of all files below a folder by relative path, without hidden ones; `InputError` for a link."""
    sizes: dict[str, int] = {}
    waiting = [("", os.fspath(folder))]
    while waiting:
        base, path = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = base + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name[0] != ".":
                            waiting.append((f"{name}/", entry.path))
                    elif entry.name[0] != ".":
                        if entry.is_symlink():
                            refuse_links(Path(entry.path))
                        sizes[name] = entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            pass  # removed in the meantime: its files are missing
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", where=path) from None
    return sizes


def stored_file(folder: Path, path: str) -> StoredFile:
    """Size and hash of a file of a run; for a table also its rows and the hash in its footer."""
    place = folder / path
    with place.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
        size = file.tell()
    if not path.endswith(_TABLE):
        return StoredFile(path, size, digest)
    with reading(place), parquet_file(place) as table:
        return StoredFile(path, size, digest, table.metadata.num_rows, content_hash(table))


def remove_rank(folder: Path, rank: int) -> None:
    """Delete a rank's tables in the folder of a run."""
    shutil.rmtree(folder / "events" / f"rank={rank}")
    for table in _BY_RANK:
        (folder / table / f"rank={rank}{_TABLE}").unlink(missing_ok=True)


def tables_of_rank(folder: Path, rank: int) -> list[StoredFile]:
    """Entries of a rank's tables in the run's folder."""
    events = f"events/rank={rank}"
    paths = [f"{events}/{name}" for name in sorted(file_sizes(folder / events))]
    paths += [path for table in _BY_RANK if (folder / (path := f"{table}/rank={rank}{_TABLE}")).is_file()]
    return [stored_file(folder, path) for path in paths]


def write_manifest(manifest: Manifest, folder: Path) -> Manifest:
    """Write the manifest of the run at `folder`, and add all files that it does not list yet."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = [
        entry if entry.stored else msgspec.structs.replace(entry, stored=tables_of_rank(folder, entry.rank))
        for entry in manifest.ranks
    ]
    manifest = msgspec.structs.replace(manifest, ranks=ranks)
    listed_paths = {file.path for file in manifest.files} | {MANIFEST, *_computed_tables(manifest)}
    others = [stored_file(folder, path) for path in sorted(file_sizes(folder)) if path not in listed_paths]
    manifest = msgspec.structs.replace(manifest, stored=[*manifest.stored, *others])
    manifests.write(manifest, folder)
    return manifest


def read_manifest(folder: Path, place: str, sizes: Mapping[str, int] | None = None) -> Manifest:
    """The manifest of the run at `folder`, called `place` in messages; `InputError` if a file changed.

    Presence and sizes of the files are checked: `sizes`, by default those in the folder.
    """
    while True:
        stamp = _file_stamp(folder / MANIFEST)
        manifest = manifests.read(folder / MANIFEST)
        change = next(file_changes(manifest, file_sizes(folder) if sizes is None else sizes), None)
        if change is None:
            return manifest
        if _file_stamp(folder / MANIFEST) == stamp:  # or another process has just replaced the run
            run = folder.name
            raise ChangedRunError(
                f"{change.what}: run {run} differs from what was written",
                where=f"{place}/{change.path}",
                hint=f"see all changes: cclbench verify --run {run}; read its source again:"
                f" {source_command(manifest)}; or remove it: cclbench remove {run}",
            )


def file_changes(manifest: Manifest, sizes: Mapping[str, int]) -> Iterator[Change]:
    """Files of a run that are missing or of another size, and tables that the manifest does not list."""
    return changes_of(list(manifest.files), sizes, besides=_computed_tables(manifest))


def changes_of(
    files: Sequence[StoredFile], sizes: Mapping[str, int], besides: Sequence[str] = ()
) -> Iterator[Change]:
    """See `file_changes`; `besides` are paths of further allowed tables."""
    for file in files:
        size = sizes.get(file.path)
        if size is None:
            yield Change(file.path, f"is missing ({file.bytes:,} bytes were written)")
        elif size != file.bytes:
            yield Change(file.path, f"has {size:,} bytes, but {file.bytes:,} were written")
    listed = {*besides, *(file.path for file in files)}
    for path in sizes:
        if path.endswith(_TABLE) and path not in listed:
            yield Change(path, "is a table that was not written with the run")


def verify(folder: Path, *, engine: Engine = SERIAL, progress: Progress | None = None) -> Verification:
    """Check the files of the run at `folder`: `file_changes`, and the hashes of their contents."""
    manifest = manifests.read(folder / MANIFEST)
    found_changes = list(file_changes(manifest, file_sizes(folder)))
    changed_paths = {change.path for change in found_changes}
    files = [file for file in manifest.files if file.path not in changed_paths]
    size = sum(file.bytes for file in files)
    has_other_hash = engine.map(
        partial(has_changed, folder), files, progress=progress, what="hashing", size_bytes=size
    )
    found_changes += [
        Change(file.path, OTHER_CONTENT) for file, other in zip(files, has_other_hash, strict=True) if other
    ]
    results = folder / RESULTS_FILE
    if manifest.published is None and results.is_file() and not has_stated_content(results):
        found_changes.append(Change(RESULTS_FILE, f"{OTHER_CONTENT}; delete it"))
    return Verification(
        run=folder.name,
        files=len(list(manifest.files)),
        bytes=sum(file.bytes for file in manifest.files),
        changes=sorted(found_changes),
        command=source_command(manifest),
    )


def has_stated_content(path: Path) -> bool:
    """Whether the content of a table has the hash in its footer."""
    with reading(path):
        with parquet_file(path) as table:
            stated = content_hash(table)
        with path.open("rb") as file:
            digest, remaining = sha256(), file.seek(-_FOOTER_END, os.SEEK_END)
            remaining -= int.from_bytes(file.read(4), "little")
            file.seek(0)
            while remaining > 0 and (piece := file.read(min(remaining, 1 << 20))):
                digest.update(piece)
                remaining -= len(piece)
    return digest.hexdigest() == stated


def require_unchanged(folder: Path, files: Sequence[StoredFile]) -> None:
    """`InputError` if one of the files has another hash."""
    for file in files:
        if has_changed(folder, file):
            hint = f"remove the run and read its source again: cclbench remove {folder.name}"
            raise ChangedRunError(OTHER_CONTENT, where=str(folder / file.path), hint=hint)


def has_changed(folder: Path, file: StoredFile) -> bool:
    """Whether a file has another hash than when it was written, or cannot be read."""
    try:
        with (folder / file.path).open("rb") as content:
            return file_digest(content, "sha256").hexdigest() != file.sha256
    except OSError:
        return True


def _computed_tables(manifest: Manifest) -> list[str]:
    """Tables that may be in the run's folder besides those from its source: result rows."""
    return [RESULTS_FILE] if manifest.published is None else []


def _file_stamp(path: Path) -> tuple[int, ...] | None:
    try:
        return stamp_of(path.stat())
    except OSError:
        return None
