# SPDX-License-Identifier: Apache-2.0
"""The store of runs: `manifest.json` and Parquet tables per run, written whole or not at all.

<store>/<run>/manifest.json
<store>/<run>/events/rank=<R>/<kind>-<part>.parquet
<store>/<run>/collectives/rank=<R>.parquet
<store>/<run>/steps/rank=<R>.parquet
<store>/<run>/groups.parquet            process groups
<store>/<run>/{counters,timings,requests,serving,...}/*.parquet   tables of `EVIDENCE`
<store>/<run>/sources/<reader>/         the same of traces of a second kind
<store>/<run>/results.parquet           the last full computation
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace

from cclbench.ground.errors import UsageError, near
from cclbench.ground.file_names import path_of, stored_name
from cclbench.ground.scratch import scratch, sweep
from cclbench.ground.units import parse_date
from cclbench.record import manifest
from cclbench.record.files import UNFINISHED, unwritable_store_error
from cclbench.record.manifest import MANIFEST, Manifest
from cclbench.record.run import Run

LAST: Final = "@last"
"""The run that was written last, in place of an id."""
Dated = Literal["label", "capture", "ingestion"]
_FIRST_WALL_NS: Final = 10**18
"""September 2001: earlier times of a trace are not of a wall clock."""
_IN_THE_WAY: Final = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def default_store() -> str:
    """The default store: $CCLBENCH_STORE, else `runs`."""
    return os.environ.get("CCLBENCH_STORE") or "runs"


def is_name(run: str) -> bool:
    """Whether `run` is a valid name of a run: the name of a single folder."""
    return bool(run) and run not in (".", "..") and Path(run).name == run


def stated_date(record: Manifest) -> tuple[datetime, Dated] | None:
    """When a run took place by its label `date`, else by its traces' wall clock; None without either."""
    stated = record.labels.get("date")
    if stated is not None:
        return parse_date(stated), "label"
    begins = [entry.span_ns[0] for entry in record.ranks if entry.span_ns is not None]
    if begins and min(begins) >= _FIRST_WALL_NS:
        return datetime.fromtimestamp(min(begins) / 1e9, UTC), "capture"
    return None


class Store:
    """A folder of runs."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder or default_store()).expanduser()

    @property
    def place(self) -> str:
        """The folder, as shown to users."""
        return stored_name(self.folder)

    def ids(self) -> list[str]:
        """The names of all finished runs."""
        return [run.id for run in self.runs()]

    def runs(self) -> list[Run]:
        """All finished runs, by name."""
        manifests = sorted(self.folder.glob(f"*/{MANIFEST}")) if self.folder.is_dir() else []
        return [Run(path.parent) for path in manifests if not path.parent.name.startswith(".")]

    def find(self, run: str) -> Run | None:
        """The run of that id, None if there is none."""
        if not is_name(run):
            return None
        # The name as in `ids`, or as of the folder.
        places = (self.folder / name for name in (path_of(run), run))
        return next((Run(path) for path in places if (path / MANIFEST).is_file()), None)

    def get(self, run: str) -> Run:
        """The run of that id, the only one whose id begins so, or with `@last` the one written last.

        `UsageError` with near names of runs and files if there is none.
        """
        match = self.find(run)
        if match is not None:
            return match
        ids = self.ids()
        begun = [run_id for run_id in ids if run and run_id.startswith(run)]
        if run == LAST and ids:
            return self._last_run()
        if len(begun) == 1:
            return self.get(begun[0])
        if begun:
            raise UsageError(f"{len(begun)} runs in {self.place} begin with {run!r}", hint=near(run, begun))
        hint = near(run, [*ids, *(name for name in os.listdir() if not name.startswith("."))])
        hint = hint if hint.startswith("did you mean") else near(run, ids)
        raise UsageError(f"no run {run!r} in {self.place}, and no such file or folder", hint=hint)

    def _last_run(self) -> Run:
        times = {run.id: self.finished_at(run) for run in self.runs()}
        finish_times = {run: time for run, time in times.items() if time is not None}
        if len(finish_times) < len(times):
            raise UsageError(f"{self.place} does not state when runs were written", hint="name the run")
        return self.get(max(finish_times, key=finish_times.__getitem__))

    def require_run(self, run: str) -> None:
        """`UsageError` with near names if there is no run of that id."""
        ids = self.ids()
        if not {run, stored_name(run)} & {*ids}:
            raise UsageError(f"no run {run!r} in {self.place}", hint=near(run, ids))

    def runs_by_time(self) -> list[Run]:
        """All runs, the one written last first; those whose time is unknown last, by id."""

        def age(run: Run) -> float:
            finished = self.finished_at(run)
            return math.inf if finished is None else -finished.timestamp()

        return sorted(self.runs(), key=age)

    def finished_at(self, run: Run) -> datetime | None:
        """When a run was written to the store, UTC."""
        return datetime.fromtimestamp((run.path / MANIFEST).stat().st_mtime, UTC)

    def date_of(self, run: Run) -> tuple[datetime, Dated]:
        """When a run took place, and by what: its label `date`, its traces' wall clock, or its ingestion.

        `UsageError` if nothing states it, as where a store at a URL does not state the last.
        """
        if stated := stated_date(run.record):
            return stated
        finished = self.finished_at(run)
        if finished is None:
            hint = "neither its traces nor its store state one: add it, as --label date=2026-01-31"
            raise UsageError(f"run {run.id} has no date", hint=hint)
        return finished, "ingestion"

    def label(self, run: Run, labels: Mapping[str, str]) -> Run:
        """The run with further labels, which replace those of the same name."""
        changed = replace(run.record, labels={**run.record.labels, **labels})
        path = run.path / MANIFEST
        written = path.stat()
        try:
            with scratch(run.path, UNFINISHED) as unfinished:
                manifest.write(changed, unfinished)
                os.utime(unfinished / MANIFEST, ns=(written.st_atime_ns, written.st_mtime_ns))
                (unfinished / MANIFEST).replace(path)
        except OSError as error:
            raise unwritable_store_error(self.folder, error) from None
        return Run(run.path, origin=run.origin)

    def remove(self, run: str) -> None:
        """Remove a run atomically; `UsageError` if there is none of that id."""
        self.require_run(run)
        path = self.get(run).path
        try:
            with scratch(self.folder, UNFINISHED) as gone:
                path.rename(gone / "run")
        except OSError as error:
            raise unwritable_store_error(self.folder, error) from None

    @contextmanager
    def new_run_folder(self, run: str) -> Iterator[Path]:
        """A folder to write a run into; it gets the run's name on success and is removed on failure."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            sweep(self.folder, UNFINISHED)
            with scratch(self.folder, UNFINISHED) as unfinished:
                yield unfinished
                self._move_into_place(unfinished, self.folder / run)
        except OSError as error:
            if error.errno is None:  # Arrow's, of a table that it cannot read
                raise
            raise unwritable_store_error(self.folder, error) from None

    def _move_into_place(self, unfinished: Path, final: Path) -> None:
        """Give a finished folder its name; one that has it already makes way, whole."""
        try:
            unfinished.rename(final)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            with scratch(self.folder, UNFINISHED) as former:
                final.rename(former / "former")
                unfinished.rename(final)
