# SPDX-License-Identifier: Apache-2.0
"""Measured sweeps for `cclbench hardware`: read, merged, and compared with the model row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from cclbench.hardware.calibration import Calibration
    from cclbench.hardware.collectives import Refusal
    from cclbench.hardware.collectives.sweeps import Deviation, Sweep
    from cclbench.hardware.system import System
    from cclbench.source import SourceFile

VALIDATED: Final = (
    *("sweep", "collective", "ranks", "nodes", "library_version", "sizes", "count", "median_error"),
    *("p90_error", "within_band", "measured_over_model", "suspect", "basis", "reason"),
)
ALL_SIZES: Final = "all sizes"


@dataclass(frozen=True, slots=True)
class Swept:
    """A sweep and the file it is from."""

    file: str
    sweep: Sweep


@dataclass(frozen=True, slots=True)
class Checked:
    """A sweep beside the model, or why the model has no price."""

    swept: Swept
    found: list[Deviation] | Refusal

    @property
    def deviations(self) -> list[Deviation]:
        """Empty where the model has no price."""
        return self.found if isinstance(self.found, list) else []


def swept_in(paths: Iterable[str], system: System, store: Path | None, inference: bool) -> list[Swept]:
    """All sweeps of files, folders or else runs' own collectives; what is in none is counted on stderr."""
    from cclbench.errors import InputError
    from cclbench.record.store import Store
    from cclbench.source import find

    found: list[Swept] = []
    left_out: dict[str, int] = {}
    for path in paths:
        is_run = not Path(path).exists() and Store(store).find(path) is not None
        source = None if is_run else find(path)
        own, unused = _of_files(source.evidence) if source else ([], {})
        if not own and (source is None or source.files):
            own, more = _of_run(path, system, store, inference)
            unused |= more
        if not own:
            why = "".join(f"; {rows:,} {reason}" for reason, rows in unused.items())
            hint = "a sweep is what nccl-tests prints, its JSON or CSV, or a run's matched collectives"
            raise InputError(f"holds no sweep of a collective{why}", where=path, hint=hint)
        found += own
        for reason, rows in unused.items():
            left_out[reason] = left_out.get(reason, 0) + rows
    for reason, rows in left_out.items():
        click.echo(f"note: not compared: {rows:,} rows {reason}", err=True)
    return found


def _of_files(files: Iterable[SourceFile]) -> tuple[list[Swept], dict[str, int]]:
    """What nccl-tests and the like wrote."""
    from cclbench.errors import InputError
    from cclbench.hardware.collectives.sweeps import sweeps
    from cclbench.readers import READERS

    found: list[Swept] = []
    left_out: dict[str, int] = {}
    for file in files:
        reader = READERS.get(file.reader)
        if reader.reads != "evidence" or (timings := (read := reader.read(file.path)).timings) is None:
            continue
        version = read.facts.get("library_version")
        try:
            own, unused = sweeps(timings, None if version is None else str(version))
        except InputError as error:
            raise InputError(error.what, where=str(file.path), hint=error.hint) from None
        found += [Swept(file.name, sweep) for sweep in own]
        for reason, rows in [*read.left_out.items(), *unused.items()]:
            left_out[reason] = left_out.get(reason, 0) + rows
    return found, left_out


def _of_run(
    run: str, system: System, store: Path | None, inference: bool
) -> tuple[list[Swept], dict[str, int]]:
    """A run's own collectives as sweeps of the machine: it ran there, one rank an accelerator."""
    from cclbench.analyzers.swept import own_sweeps
    from cclbench.pipeline import open_run

    opened = open_run(run, store=store, inference=inference)
    if opened.inferred:
        click.echo(f"note: {opened.id}: {opened.inferred}", err=True)
    members = {row["group"]: tuple(row["ranks"]) for row in opened.groups().to_pylist() if row["ranks"]}
    version = next((entry.facts.library_version for entry in opened.record.ranks), None)
    own, left_out = own_sweeps(opened.collectives(), members, system, version)
    return [Swept(opened.id, sweep) for sweep in own], left_out


def merged(swept: Sequence[Swept]) -> list[Sweep]:
    """One sweep a group: medians by size where a group was swept again; `UsageError` across releases."""
    from statistics import median

    import msgspec

    from cclbench.errors import UsageError

    groups: dict[tuple[str, int, int], list[Swept]] = {}
    for each in swept:
        groups.setdefault((each.sweep.kind, each.sweep.ranks, each.sweep.nodes), []).append(each)
    found = []
    for own in groups.values():
        first = own[0]
        for other in own:
            if other.sweep.library_version != first.sweep.library_version:
                releases = [each.sweep.library_version or "unknown" for each in (first, other)]
                raise UsageError(
                    f"{first.file} and {other.file} hold {group_text(first.sweep)},"
                    f" of releases {' and '.join(releases)}",
                    hint="a calibration is of one: give one of them",
                )
        times: dict[int, list[float]] = {}
        for each in own:
            for size, seconds in zip(each.sweep.bytes, each.sweep.seconds, strict=True):
                times.setdefault(size, []).append(seconds)
        sizes = tuple(sorted(times))
        middle = tuple(median(times[size]) for size in sizes)
        found.append(msgspec.structs.replace(first.sweep, bytes=sizes, seconds=middle))
    return found


def calibration_for(
    system: System,
    swept: Sequence[Swept],
    *,
    others: tuple[str, ...],
    calibration: Path | None,
    store: Path | None,
    inference: bool,
) -> Calibration | None:
    """The calibration asked for, by none of the sweeps that it is to be compared with."""
    from cclbench.errors import CheckFailed, UsageError
    from cclbench.hardware.calibration import calibrate as fit
    from cclbench.hardware.calibration import read_calibration
    from cclbench.hardware.collectives import Refusal

    if others and calibration is not None:
        raise UsageError("--calibrate and --calibration exclude one another")
    if not others and calibration is None:
        return None
    if calibration is not None:
        found: Calibration | Refusal = read_calibration(calibration)
        given = () if isinstance(found, Refusal) else found.sweeps
    else:
        by = swept_in(others, system, store, inference)
        given = tuple(each.sweep for each in by)
        found = fit(merged(by), system)
    if isinstance(found, Refusal):
        raise CheckFailed(found.reason)
    if found.system != system.id:
        raise UsageError(f"the calibration is of {found.system}, not of {system.id}")
    for each in swept:
        if each.sweep in given:
            hint = "compare other sweeps; `cclbench hardware calibrate` prints what it misses when left out"
            raise UsageError(f"{each.file} is among what the model is calibrated by", hint=hint)
    return found


def validated(checked: Sequence[Checked], calibration: Calibration | None) -> list[dict[str, Any]]:
    """Rows by sweep and size band, then of all sweeps that are not suspect together."""
    from cclbench.hardware.collectives import Refusal
    from cclbench.hardware.collectives.sweeps import BANDS, summary

    blank = dict.fromkeys(VALIDATED)
    blank["basis"] = "calibrated" if calibration else "spec"
    rows: list[dict[str, Any]] = []

    def add(shared: dict[str, Any], found: Sequence[Deviation], *, of_one: bool) -> bool:
        every = summary(found)
        suspect = every is not None and every.suspect
        for band in (*BANDS, ALL_SIZES):
            own = summary([each for each in found if band in (ALL_SIZES, each.band)])
            if own is not None:
                rows.append(
                    shared
                    | {
                        "sizes": band,
                        "count": own.count,
                        "median_error": own.median,
                        "p90_error": own.p90,
                        "within_band": own.within,
                        "measured_over_model": own.slower,
                        "suspect": suspect if of_one else None,
                    }
                )
        return suspect

    sound: list[Deviation] = []
    counted = 0
    for each in checked:
        sweep = each.swept.sweep
        shared = blank | {
            "sweep": each.swept.file,
            "collective": sweep.kind,
            "ranks": sweep.ranks,
            "nodes": sweep.nodes,
            "library_version": sweep.library_version,
        }
        if isinstance(each.found, Refusal):
            rows.append(shared | {"reason": each.found.reason})
            continue
        if calibration is not None and sweep.kind not in {own.kind for own in calibration.sweeps}:
            shared["reason"] = f"no sweep of {sweep.kind} calibrates it: only fitted parameters count"
        if not add(shared, each.found, of_one=True):
            sound += each.found
            counted += 1
    if len(checked) > 1:
        left_out = None if counted == len(checked) else "without sweeps that are suspect or have no price"
        add(blank | {"reason": left_out}, sound, of_one=False)
    return rows


def group_text(sweep: Sweep) -> str:
    """The sweep's group, as people say it."""
    return among(sweep.kind, sweep.ranks, sweep.nodes)


def among(kind: str, ranks: int, nodes: int) -> str:
    """A collective among so many ranks and nodes."""
    return f"{kind}, {ranks:,} ranks on {nodes:,} node{'s' * (nodes > 1)}"


def suspicion(slower: float) -> str:
    """What makes a sweep suspect."""
    return f"the measured times are {slower:.0f} times the model's: is the network configured?"
