# SPDX-License-Identifier: Apache-2.0
"""A store of runs below a URL: runs are made locally, uploaded with the manifest last, and read from copies.

<url>/<run>/...   as in a folder; a run exists once its manifest does
<cache>/<hash of URL and run>-<whole or top>/<hash of names, sizes and versions>/<run>/...
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.scratch import cache_folder, scratch, stamp_of, sweep
from cclbench.record.files import UNFINISHED, unwritable_store_error
from cclbench.record.inventory import RESULTS_FILE
from cclbench.record.manifest import MANIFEST
from cclbench.record.run import Origin, Run
from cclbench.record.store import Store, is_name
from cclbench.remote.url import WEB, Url, check_names

if TYPE_CHECKING:
    from cclbench.remote.objects import Object

_WHOLE: Final = "whole.json"
"""The stamps of a copy's files when it was complete."""
_RESULTS_KEPT: Final = "results.json"
"""The version of the copy's results."""


class RemoteStore(Store):
    """Runs below a URL.  An opened run is a local folder with copies of its files."""

    def __init__(self, url: Url) -> None:
        if url.scheme in WEB:
            raise UsageError(
                f"{url}: a web server cannot be a store", hint="name a folder or s3://bucket/folder"
            )
        from cclbench.remote.objects import Objects

        super().__init__(cache_folder())
        self._url, self._objects = url, Objects(url)

    @property
    def place(self) -> str:
        """The URL."""
        return str(self._url)

    def ids(self) -> list[str]:
        """The runs' names."""
        return [run for run, _ in self._finished_runs(self._objects.list_top)]

    def runs(self) -> list[Run]:
        """All finished runs, by name, each with the files directly in its folder: manifest, card, results."""
        return [
            self._open_copy(run, objects, "top")
            for run, objects in self._finished_runs(self._objects.list_all)
        ]

    def _finished_runs(self, listed: Callable[[str], list[Object]]) -> Iterator[tuple[str, list[Object]]]:
        """The runs that have a manifest, by name, with the objects that `listed` returns for each."""
        for run in self._objects.list_folders():
            objects = [] if run.startswith(".") else listed(run)
            if any(entry.name == MANIFEST for entry in objects):
                yield run, objects

    def find(self, run: str) -> Run | None:
        """The run of that id with copies of all its files, None if there is none."""
        if not is_name(run):
            return None
        check_names([run], self._url)
        objects = self._objects.list_all(run)
        return self._open_copy(run, objects, "whole") if any(o.name == MANIFEST for o in objects) else None

    def finished_at(self, run: Run) -> datetime | None:  # noqa: ARG002 - a copy's time is another one
        """None: object stores do not state when a run was written."""
        return None

    def label(self, run: Run, labels: Mapping[str, str]) -> Run:
        """The run with further labels; its manifest is uploaded again."""
        labelled = super().label(run, labels)
        self._objects.upload_all([(labelled.path / MANIFEST, f"{run.path.name}/{MANIFEST}")])
        return self.get(run.path.name)

    def remove(self, run: str) -> None:
        """Remove a run, its manifest first, and its local copies; `UsageError` if there is none."""
        self.require_run(run)
        names = [entry.name for entry in self._objects.list_all(run)]
        self._objects.remove_all([f"{run}/{MANIFEST}"])
        self._objects.remove_all([f"{run}/{name}" for name in names if name != MANIFEST])
        for extent in ("top", "whole"):
            shutil.rmtree(self._copy_folder(run, [], extent).parent, ignore_errors=True)

    @contextmanager
    def new_run_folder(self, run: str) -> Iterator[Path]:
        """A local folder to write a run into; on success it is uploaded, its manifest last."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sweep(self.folder, UNFINISHED)
            with scratch(self.folder, UNFINISHED) as unfinished:
                folder = unfinished / run
                folder.mkdir()
                yield folder
                self._upload_run(run, folder)
                self._keep_copy(unfinished, run, self._objects.list_all(run))
        except OSError as error:
            failure = unwritable_store_error(self.folder, error)
            hint = failure.hint and "set CCLBENCH_CACHE to another folder for copies, or free some space"
            raise InputError(failure.lines, where=failure.where, hint=hint) from None

    def _upload_run(self, run: str, folder: Path) -> None:
        """Upload a run's files, and then its manifest."""
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        remote_names = {entry.name for entry in self._objects.list_all(run)}
        # Without a manifest, what is left of an earlier run of that name is not a run.
        self._objects.remove_all([f"{run}/{MANIFEST}"] if MANIFEST in remote_names else [])
        self._objects.remove_all([f"{run}/{name}" for name in remote_names - files.keys()])
        manifest = files.pop(MANIFEST)
        self._objects.upload_all([(path, f"{run}/{name}") for name, path in files.items()])
        self._objects.upload_all([(manifest, f"{run}/{MANIFEST}")])

    # --------------------------------------------------------------------------------- copies here

    def _open_copy(self, run: str, objects: Sequence[Object], extent: str) -> Run:
        """The local copy of a run, downloaded if needed, with the current results.

        `extent`: `whole` for all its files, `top` for those directly in its folder.
        """
        sizes = {entry.name: entry.size for entry in objects}
        if extent == "top":
            objects = [entry for entry in objects if "/" not in entry.name]
        place = self._copy_folder(run, objects, extent)
        if not _is_complete(place, run):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            sweep(self.folder, UNFINISHED)
            with scratch(self.folder, UNFINISHED) as unfinished:
                self._objects.download_all(_without_results(objects), unfinished / run, below=run)
                self._replace_copy(unfinished, run, place)
        self._bring_results(place, run, objects)
        where = str(self._url.below(run))
        return Run(place / run, origin=Origin(where, sizes, partial(self._put_results, run)))

    def _keep_copy(self, unfinished: Path, run: str, objects: Sequence[Object]) -> None:
        """Keep what was just uploaded as a copy, if it equals what is there now."""
        sizes = {entry.name: entry.size for entry in objects}
        local_files = [path for path in (unfinished / run).rglob("*") if path.is_file()]
        if sizes == {
            path.relative_to(unfinished / run).as_posix(): path.stat().st_size for path in local_files
        }:
            self._replace_copy(unfinished, run, self._copy_folder(run, objects, "whole"))

    def _replace_copy(self, unfinished: Path, run: str, place: Path) -> None:
        """Make `unfinished` the only copy of the run, with the stamps of a complete one."""
        if _is_complete(place, run):
            return  # another process was faster, and may be reading it
        folder = unfinished / run
        stamps = {
            path.relative_to(folder).as_posix(): _stamp_list(path) for path in _files_without_results(folder)
        }
        (unfinished / _WHOLE).write_text(json.dumps(stamps), "utf-8")
        shutil.rmtree(place.parent, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished.rename(place)

    def _copy_folder(self, run: str, objects: Sequence[Object], extent: str) -> Path:
        """The folder of a copy, unique for each version of its files; always new if versions are unknown."""
        key = sha256(f"{self._url}\0{run}".encode()).hexdigest()[:32]
        fixed = sorted(
            (entry.name, entry.size, entry.version or token_hex()) for entry in _without_results(objects)
        )
        return self.folder / f"{key}-{extent}" / sha256(repr(fixed).encode()).hexdigest()[:32]

    def _bring_results(self, place: Path, run: str, objects: Sequence[Object]) -> None:
        """Download the current results, if the copy has others."""
        stamp_file, target = place / _RESULTS_KEPT, place / run / RESULTS_FILE
        remote = next((entry for entry in objects if entry.name == RESULTS_FILE), None)
        if remote is None:
            target.unlink(missing_ok=True)
            return
        with suppress(OSError, ValueError):
            if json.loads(stamp_file.read_text("utf-8")) == [
                remote.size,
                remote.version,
                _stamp_list(target),
            ]:
                return
        with scratch(place, UNFINISHED) as unfinished:
            self._objects.download_all([remote], unfinished, below=run)
            (unfinished / RESULTS_FILE).replace(target)
            (unfinished / _RESULTS_KEPT).write_text(
                json.dumps([remote.size, remote.version, _stamp_list(target)]), "utf-8"
            )
            (unfinished / _RESULTS_KEPT).replace(stamp_file)

    def _put_results(self, run: str, path: Path) -> None:
        """Upload new results, unless the store is read-only."""
        from cclbench.remote.objects import ForbiddenError

        with suppress(ForbiddenError):
            self._objects.upload_all([(path, f"{run}/{RESULTS_FILE}")])


def _without_results(objects: Sequence[Object]) -> list[Object]:
    """Objects that do not change during the life of a run."""
    return [entry for entry in objects if entry.name != RESULTS_FILE]


def _files_without_results(folder: Path) -> list[Path]:
    """The files of a copy that do not change."""
    return [path for path in folder.rglob("*") if path.is_file() and path != folder / RESULTS_FILE]


def _is_complete(place: Path, run: str) -> bool:
    """Whether a copy is unchanged since it was complete."""
    try:
        stamps = json.loads((place / _WHOLE).read_text("utf-8"))
        return all(_stamp_list(place / run / name) == stamp for name, stamp in stamps.items())
    except (OSError, ValueError, AttributeError):
        return False


def _stamp_list(path: Path) -> list[int]:
    return list(stamp_of(path.stat()))
