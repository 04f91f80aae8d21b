# SPDX-License-Identifier: Apache-2.0
"""Sweeps of collectives from benchmark files, folders of these, and the collectives of runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from cclbench.analyzers.swept import own_sweeps
from cclbench.formats import READERS
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware.matching import StatedMachine, must_fit, stated_machine
from cclbench.hardware.sweep import Sweep, sweeps_of
from cclbench.hardware.system import System
from cclbench.ingestion.source import SourceFile
from cclbench.record.run import Run
from cclbench.workspace import Workspace, WorkspaceOptions, source_at, takes_options, workspace


@dataclass(slots=True)
class SweepsRead:
    """Sweeps, counts of rows left out by reason, and caveats on a run's groups."""

    sweeps: list[Sweep] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)
    stated: list[StatedMachine] = field(default_factory=list)
    """The machine that each file states."""

    def add_sweeps(self, sweeps: Iterable[Sweep], left_out: Iterable[tuple[str, int]] = ()) -> None:
        """Add sweeps, and counts of rows left out."""
        self.sweeps += sweeps
        for reason, rows in left_out:
            self.left_out[reason] = self.left_out.get(reason, 0) + rows


@takes_options
def read_sweeps(
    sources: Iterable[str | Path], system: System | None = None, **options: Unpack[WorkspaceOptions]
) -> SweepsRead:
    """All sweeps of files and folders, or of the collectives of runs; `InputError` for a source without any.

    `UsageError` if a file states another machine than `system`.  For collectives of runs, `system` is
    required.
    """
    with workspace(**options) as work:
        return _read_places(map(str, sources), system, work)


def _read_places(places: Iterable[str], system: System | None, work: Workspace) -> SweepsRead:
    result = SweepsRead()
    for place in places:
        is_run = not Path(place).exists() and work.store.find(place) is not None
        part, has_traces = (SweepsRead(), True) if is_run else _sweeps_of_source(place)
        if system is not None:
            must_fit(part.stated, system)
        if not part.sweeps and has_traces:
            if system is None:
                raise UsageError("a run's collectives need the machine", hint="give --system ID")
            run = _sweeps_of_run(work.open_run(place), system)
            # Reasons may occur for a file's rows and the run's: those of the run count.
            part = SweepsRead(run.sweeps, part.left_out | run.left_out, run.caveats, part.stated)
        if not part.sweeps:
            why = "".join(f"; {rows:,} {reason}" for reason, rows in part.left_out.items())
            hint = "a sweep is output of nccl-tests (printed, JSON, CSV), or a run's matched collectives"
            raise InputError(f"contains no sweep of a collective{why}", where=place, hint=hint)
        result.add_sweeps(part.sweeps, part.left_out.items())
        result.caveats += part.caveats
        result.stated += part.stated
    return result


def _sweeps_of_source(place: str) -> tuple[SweepsRead, bool]:
    """The sweeps of benchmark files in a source, and whether it has traces too."""
    with source_at(place) as source:
        return _sweeps_of_files(source.evidence), bool(source.files)


def _sweeps_of_files(files: Iterable[SourceFile]) -> SweepsRead:
    """Sweeps in files of nccl-tests and similar benchmarks."""
    result = SweepsRead()
    for file in files:
        reader = READERS.get(file.reader)
        if reader.reads != "evidence" or (timings := (read := reader.read(file.path)).timings) is None:
            continue
        version = read.facts.get("library_version")
        try:
            sweeps, unused = sweeps_of(timings, None if version is None else str(version), source=file.name)
        except InputError as error:
            raise InputError(error.lines, where=str(file.path), hint=error.hint) from None
        result.add_sweeps(sweeps, (*read.left_out.items(), *unused.items()))
        result.stated.append(stated_machine(file.name, read.facts, sweeps))
    return result


def _sweeps_of_run(run: Run, system: System) -> SweepsRead:
    """A run's collectives as sweeps of the machine it ran on, with one rank per accelerator."""
    members = {row["group"]: tuple(row["ranks"]) for row in run.groups().to_pylist() if row["ranks"]}
    version = next((entry.facts.library_version for entry in run.record.ranks), None)
    sweeps, left_out = own_sweeps(run.collectives(), members, system, version, source=run.id)
    devices = {entry.facts.device_name: None for entry in run.record.ranks if entry.facts.device_name}
    if sweeps:
        must_fit([StatedMachine(run.id, tuple(devices))], system)
    return SweepsRead(sweeps, left_out, [f"{run.id}: {run.inference_note}"] if run.inference_note else [])
