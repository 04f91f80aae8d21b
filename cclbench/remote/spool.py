# SPDX-License-Identifier: Apache-2.0
"""Download a SOURCE behind a URL for as long as it is read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from cclbench.card import load_card, root_of
from cclbench.engine import Progress
from cclbench.ground.errors import CclbenchError, InputError
from cclbench.ground.scratch import temporary_folder
from cclbench.record.manifest import MANIFEST
from cclbench.remote.objects import MissingError, Object, Objects
from cclbench.remote.url import Url, check_names

_CARDS: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class SpooledSource:
    """A downloaded source: `path` is the local copy, `folder` the local equivalent of `url`."""

    path: Path
    folder: Path
    url: Url

    def with_url(self, text: str) -> str:
        """A text with the URL in place of the local folder."""
        return text.replace(str(self.folder), str(self.url))


@dataclass(frozen=True, slots=True)
class FileSelection:
    """The choice of files of a folder that are read."""

    by_name: Callable[[str], bool]
    """Whether a file is read, by its name."""
    by_beginning: Callable[[Path], bool | None]
    """Whether a file is read, by its first bytes; None if more of them are needed."""
    sizes: Sequence[int]
    """Numbers of first bytes, each tried if the one before did not suffice."""


@contextmanager
def spooled_source(
    url: Url, selection: FileSelection, progress: Progress | None = None, *, public: bool = False
) -> Iterator[SpooledSource]:
    """Download a folder, a trace, or a card with the traces it names; removed at the end.

    Of files that the selection leaves out, only the first bytes are downloaded.  Errors raised within the
    block name URLs, not the local copies.  `public`: see `Objects`.
    """
    with temporary_folder() as folder:
        objects = Objects(url, public=public)
        item = objects.own_object()
        spooled = _spool_place(url, item, folder)
        try:
            if item is None:
                _download_folder(objects, selection, spooled.path, progress)
            else:
                _download_object(objects, item, spooled.path)
                if _is_card(url):
                    _download_named(spooled, progress, public)
            yield spooled
        except CclbenchError as error:
            where, hint = (
                None if text is None else spooled.with_url(text) for text in (error.where, error.hint)
            )
            raise type(error)([*map(spooled.with_url, error.lines)], where=where, hint=hint) from None


def _is_card(url: Url) -> bool:
    return url.name.lower().endswith(_CARDS)


def _spool_place(url: Url, item: Object | None, within: Path) -> SpooledSource:
    """Where a URL's files go: under the same names, on which run ids and paths in cards depend."""
    name = url.name
    check_names([name], url)
    if item is None:
        folder = within / name
        folder.mkdir()
        return SpooledSource(folder, folder, url)
    if _is_card(url) and url.parent.name == "workload_cards":
        path, root = within / "root" / "workload_cards" / name, url.parent.parent
        return SpooledSource(path, within / "root", root)
    return SpooledSource(within / "root" / name, within / "root", url.parent)


def _download_named(spooled: SpooledSource, progress: Progress | None, public: bool) -> None:
    """Download the files that a card names; missing ones are reported when the card is read."""
    card = load_card(spooled.path)
    root = root_of(spooled.path)
    names = [(root, trace.path) for trace in card.evidence.traces]
    if card.hardware.calibration is not None:
        names.append((spooled.path.parent, card.hardware.calibration))
    for done, (folder, name) in enumerate(names, 1):
        check_names([name], spooled.url)
        target = folder / name
        objects = Objects(spooled.url.below(target.relative_to(spooled.folder).as_posix()), public=public)
        if not target.exists() and (item := _own_or_none(objects)) is not None:
            _download_object(objects, item, target)
        if progress:
            progress(f"reading {spooled.url}", done, len(names))


def _download_object(objects: Objects, item: Object, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    _require_room(item.size, target.parent, objects.url)
    objects.download(item, target)


def _own_or_none(objects: Objects) -> Object | None:
    try:
        return objects.own_object()
    except MissingError:
        return None


def _source_objects(objects: Objects) -> list[Object]:
    """The objects below a folder, except those of hidden folders and of stored runs."""
    listed = objects.list_all()
    names = {item.name for item in listed}
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    runs = {
        place
        for place in folders
        if {str(PurePosixPath(place, MANIFEST))} <= names
        and {str(PurePosixPath(place, kind)) for kind in ("events", "steps")} <= folders
    }

    def is_source(item: Object) -> bool:
        parents = [str(parent) for parent in PurePosixPath(item.name).parents]
        return not runs & set(parents) and not any(
            part.startswith(".") for part in PurePosixPath(item.name).parts[:-1]
        )

    if not listed:
        raise InputError("no such file or folder", where=str(objects.url))
    return [item for item in listed if is_source(item)]


def _download_folder(
    objects: Objects, selection: FileSelection, folder: Path, progress: Progress | None
) -> None:
    """Download the folder's files that are read, and of the others the bytes needed to decide."""
    listed = _source_objects(objects)
    to_read = [item for item in listed if selection.by_name(item.name)]
    _download_missing(objects, to_read, folder, progress)
    undecided = [item for item in listed if not selection.by_name(item.name)]
    for size in selection.sizes:
        _download_missing(objects, undecided, folder, progress, most=size)
        undecided = [item for item in undecided if item.size > size]
        verdicts = [selection.by_beginning(folder / item.name) for item in undecided]
        to_read += [item for item, is_read in zip(undecided, verdicts, strict=True) if is_read]
        undecided = [item for item, is_read in zip(undecided, verdicts, strict=True) if is_read is None]
    _download_missing(objects, to_read, folder, progress)
    _download_missing(objects, _calibration_objects(listed, folder), folder, progress)


def _calibration_objects(listed: Sequence[Object], folder: Path) -> list[Object]:
    """The calibrations that the folder's cards name."""
    calibrations = set()
    for item in listed:
        try:
            card = load_card(folder / item.name) if item.name.lower().endswith(_CARDS) else None
        except CclbenchError:
            continue  # not a valid card
        if card is not None and card.hardware.calibration is not None:
            calibrations.add(PurePosixPath(item.name).parent.joinpath(card.hardware.calibration))
    return [item for item in listed if PurePosixPath(item.name) in calibrations]


def _download_missing(
    objects: Objects,
    listed: Sequence[Object],
    folder: Path,
    progress: Progress | None,
    *,
    most: int | None = None,
) -> None:
    missing = [
        item for item in listed if _missing_bytes(item, folder, most) or not (folder / item.name).exists()
    ]
    _require_room(sum(_missing_bytes(item, folder, most) for item in missing), folder, objects.url)
    objects.download_all(missing, folder, most=most, progress=progress)


def _missing_bytes(item: Object, folder: Path, most: int | None) -> int:
    """Bytes of the object, or of its first `most` bytes, that are not yet downloaded."""
    path = folder / item.name
    present = path.stat().st_size if path.exists() else 0
    return max((item.size if most is None else min(most, item.size)) - present, 0)


def _require_room(needed: int, folder: Path, url: Url) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"needs {needed:,} bytes, and {tempfile.gettempdir()} has {free:,} bytes free",
            where=str(url),
            hint="set TMPDIR to a folder on a larger disk",
        )
