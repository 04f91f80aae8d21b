# SPDX-License-Identifier: Apache-2.0
"""A SOURCE behind a URL, brought here for as long as it is read."""

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
    """`path` is what a URL names, here; `folder` is here what `url` is there."""

    path: Path
    folder: Path
    url: Url

    def with_url(self, text: str) -> str:
        """A text with the URL in place of the folder here, which nobody knows."""
        return text.replace(str(self.folder), str(self.url))


@dataclass(frozen=True, slots=True)
class FileSelection:
    """Which files of a folder are read."""

    by_name: Callable[[str], bool]
    """Whether a file of that name is, whatever it holds."""
    by_beginning: Callable[[Path], bool | None]
    """Whether a file is of which there is the beginning, None where more of it may tell."""
    sizes: Sequence[int]
    """Bytes of beginnings, each tried where the one before did not tell."""


@contextmanager
def spooled_source(
    url: Url, selection: FileSelection, progress: Progress | None = None, *, public: bool = False
) -> Iterator[SpooledSource]:
    """Bring a folder, a trace, or a card with the traces it names, here; nothing is left at the end.

    Of a folder's files that the selection leaves out the beginning alone is brought.  Errors raised within,
    too, name places by their URLs.  `public` is that of `Objects`.
    """
    with temporary_folder() as folder:
        objects = Objects(url, public=public)
        own = objects.own_object()
        found = _spool_place(url, own, folder)
        try:
            if own is None:
                _download_folder(objects, selection, found.path, progress)
            else:
                _download_object(objects, own, found.path)
                if _is_card(url):
                    _download_named(found, progress, public)
            yield found
        except CclbenchError as error:
            where, hint = (
                None if text is None else found.with_url(text) for text in (error.where, error.hint)
            )
            raise type(error)([*map(found.with_url, error.lines)], where=where, hint=hint) from None


def _is_card(url: Url) -> bool:
    return url.name.lower().endswith(_CARDS)


def _spool_place(url: Url, own: Object | None, within: Path) -> SpooledSource:
    """Where a URL's files go: below the same names as there, which a run and a card's paths go by."""
    name = url.name
    check_names([name], url)
    if own is None:
        folder = within / name
        folder.mkdir()
        return SpooledSource(folder, folder, url)
    if _is_card(url) and url.parent.name == "workload_cards":
        path, root = within / "root" / "workload_cards" / name, url.parent.parent
        return SpooledSource(path, within / "root", root)
    return SpooledSource(within / "root" / name, within / "root", url.parent)


def _download_named(found: SpooledSource, progress: Progress | None, public: bool) -> None:
    """Bring what a card names; of what is not there its reader says so."""
    card = load_card(found.path)
    root = root_of(found.path)
    names = [(root, trace.path) for trace in card.evidence.traces]
    if card.hardware.calibration is not None:
        names.append((found.path.parent, card.hardware.calibration))
    for done, (folder, name) in enumerate(names, 1):
        check_names([name], found.url)
        target = folder / name
        objects = Objects(found.url.below(target.relative_to(found.folder).as_posix()), public=public)
        if not target.exists() and (own := _own_or_none(objects)) is not None:
            _download_object(objects, own, target)
        if progress:
            progress(f"reading {found.url}", done, len(names))


def _download_object(objects: Objects, own: Object, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    _require_room(own.size, target.parent, objects.url)
    objects.download(own, target)


def _own_or_none(objects: Objects) -> Object | None:
    try:
        return objects.own_object()
    except MissingError:
        return None


def _source_objects(objects: Objects) -> list[Object]:
    """The objects below a folder, but those of hidden folders and of runs, which are no traces."""
    found = objects.list_all()
    names = {one.name for one in found}
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    runs = {
        place
        for place in folders
        if {str(PurePosixPath(place, MANIFEST))} <= names
        and {str(PurePosixPath(place, kind)) for kind in ("events", "steps")} <= folders
    }

    def is_source(one: Object) -> bool:
        parents = [str(parent) for parent in PurePosixPath(one.name).parents]
        return not runs & set(parents) and not any(
            part.startswith(".") for part in PurePosixPath(one.name).parts[:-1]
        )

    if not found:
        raise InputError("no such file or folder", where=str(objects.url))
    return [one for one in found if is_source(one)]


def _download_folder(
    objects: Objects, selection: FileSelection, folder: Path, progress: Progress | None
) -> None:
    """Bring the folder's files that are read; of the others as much as it takes to see that they are not."""
    found = _source_objects(objects)
    read = [one for one in found if selection.by_name(one.name)]
    _download_missing(objects, read, folder, progress)
    rest = [one for one in found if not selection.by_name(one.name)]
    for size in selection.sizes:
        _download_missing(objects, rest, folder, progress, most=size)
        rest = [one for one in rest if one.size > size]
        told = [selection.by_beginning(folder / one.name) for one in rest]
        read += [one for one, is_read in zip(rest, told, strict=True) if is_read]
        rest = [one for one, is_read in zip(rest, told, strict=True) if is_read is None]
    _download_missing(objects, read, folder, progress)
    _download_missing(objects, _calibration_objects(found, folder), folder, progress)


def _calibration_objects(found: Sequence[Object], folder: Path) -> list[Object]:
    """What the folder's cards name besides traces."""
    named = set()
    for one in found:
        try:
            card = load_card(folder / one.name) if one.name.lower().endswith(_CARDS) else None
        except CclbenchError:
            continue  # no card, or one that its reader refuses
        if card is not None and card.hardware.calibration is not None:
            named.add(PurePosixPath(one.name).parent.joinpath(card.hardware.calibration))
    return [one for one in found if PurePosixPath(one.name) in named]


def _download_missing(
    objects: Objects,
    found: Sequence[Object],
    folder: Path,
    progress: Progress | None,
    *,
    most: int | None = None,
) -> None:
    missing = [one for one in found if _missing_bytes(one, folder, most) or not (folder / one.name).exists()]
    _require_room(sum(_missing_bytes(one, folder, most) for one in missing), folder, objects.url)
    objects.download_all(missing, folder, most=most, progress=progress)


def _missing_bytes(one: Object, folder: Path, most: int | None) -> int:
    """Bytes that are not here yet, of the object or of its beginning."""
    path = folder / one.name
    here = path.stat().st_size if path.exists() else 0
    return max((one.size if most is None else min(most, one.size)) - here, 0)


def _require_room(needed: int, folder: Path, url: Url) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"has {needed:,} bytes, and {tempfile.gettempdir()} has room for {free:,}",
            where=str(url),
            hint="name a larger disk by TMPDIR",
        )
