# SPDX-License-Identifier: Apache-2.0
"""Find a data point's files: in the collection, in a folder or archive, or on the web."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cclbench.card.evidence import fetched_copy
from cclbench.contribute.archive import is_archive, unpack_archive
from cclbench.contribute.manifest import DataPointFile
from cclbench.contribute.place import MANIFEST, SIGNATURE, DataPointPlace, file_digest, file_names
from cclbench.contribute.remote import fetch_to_cache
from cclbench.engine import Progress
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.scratch import temporary_folder
from cclbench.ground.units import humanise


@dataclass(frozen=True)
class FileState:
    """State of one file against the manifest; `where` is its path, `reason` what is wrong with it."""

    path: str
    state: Literal["ok", "changed", "missing", "not here", "not listed"]
    reason: str | None = None
    where: Path | None = None


class EvidenceElsewhere:
    """Folders to search for files that are too large for the collection; then the cache of fetched files."""

    def __init__(self, folders: Sequence[Path], fetching: bool) -> None:
        self.folders, self.fetching = folders, fetching

    def find_file(self, place: DataPointPlace, file: DataPointFile, progress: Progress | None) -> Path | None:
        """Path of the file, fetched if `fetching`; None if it is not available."""
        for folder in self.folders:
            for path in (folder / place.id / file.path, folder / file.path):
                if path.is_file():
                    return path
        if file.url is None:
            return None
        if self.fetching:
            return fetch_to_cache(file.path, file.url, sha256=file.sha256, size=file.bytes, progress=progress)
        fetched = fetched_copy(file.path, file.sha256)
        return fetched if fetched.is_file() else None


@contextmanager
def evidence_elsewhere(folders: Sequence[Path], *, fetching: bool = False) -> Iterator[EvidenceElsewhere]:
    """Search the given folders and archives for files; archives are unpacked to a temporary folder."""
    with temporary_folder() as folder:
        unpacked = []
        for number, path in enumerate(folders):
            if is_archive(path):
                unpack_archive(path, folder / str(number))
                unpacked.append(folder / str(number))
            elif path.is_dir():
                unpacked.append(path)
            else:
                raise UsageError("is neither a folder nor an archive of evidence", where=str(path))
        yield EvidenceElsewhere(unpacked, fetching)


def file_states(
    place: DataPointPlace,
    files: Sequence[DataPointFile],
    elsewhere: EvidenceElsewhere,
    progress: Progress | None = None,
) -> list[FileState]:
    """State of every file in the manifest, then of those in the folder that it does not list."""
    states = [_file_state(place, file, elsewhere, progress) for file in files]
    present = set(file_names(place.traces_folder)) - {MANIFEST, SIGNATURE}
    extra = sorted(present - {file.path for file in files})
    return [*states, *(FileState(name, "not listed", "the manifest does not list it") for name in extra)]


def _file_state(
    place: DataPointPlace, file: DataPointFile, elsewhere: EvidenceElsewhere, progress: Progress | None
) -> FileState:
    path: Path | None = place.traces_folder / file.path
    assert path is not None  # noqa: S101  (for the type checker)
    if not path.is_file():
        if file.url is None:
            return FileState(file.path, "missing", "there is no such file")
        try:
            path = elsewhere.find_file(place, file, progress)
        except InputError as error:
            return FileState(file.path, "not here", str(error))
        if path is None:
            return FileState(file.path, "not here", f"{humanise(file.bytes, 'B')} at {file.url}")
    sha256, size = file_digest(path)
    if size != file.bytes:
        return FileState(file.path, "changed", f"has {size:,} bytes, but {file.bytes:,} are recorded", path)
    if sha256 != file.sha256:
        return FileState(
            file.path, "changed", f"its SHA-256 is {sha256}, but {file.sha256} is recorded", path
        )
    return FileState(file.path, "ok", None, path)


def paths_by_card_name(place: DataPointPlace, states: Sequence[FileState]) -> Mapping[str, Path]:
    """Paths of the files that were found, by their names in the card."""
    return {f"traces/{place.id}/{s.path}": s.where for s in states if s.where is not None}
