# SPDX-License-Identifier: Apache-2.0
"""Ingest a source into the store: its traces and other evidence, all of it or nothing.

`traces` ingests the traces of one kind: `part` streams a file, or one part of it, to Parquet; `rank` fills
in what needs the whole rank (the step of a kernel, the process group of a collective) in a second pass over
the device rows and their launches, with one rank's columns in memory; `entry` records what was found and
left out.  Traces of a second kind in the same folder become a run within the run: each kind has its own
clock, and their rows never mix.  `evidence` ingests everything that is not a trace.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cclbench import __version__
from cclbench.classify import TAXONOMY
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.formats import sort_by_precedence
from cclbench.ground.errors import InputError
from cclbench.ground.schema import LAYOUT, VERSION
from cclbench.ground.text import first_few
from cclbench.ingestion.source import Source, SourceFile
from cclbench.record.inventory import write_manifest
from cclbench.record.manifest import CardLine, Manifest, Options, StoredFile
from cclbench.record.run import Run
from cclbench.record.store import Store

if TYPE_CHECKING:
    from cclbench.hardware.calibration import Calibration
    from cclbench.ingestion.traces import Read


def code_versions() -> tuple[object, ...]:
    """Versions that, with the source, determine what a run holds."""
    return VERSION, LAYOUT, TAXONOMY, __version__


Reading = Callable[
    [Mapping[int, SourceFile], Path, Options, Engine, Progress | None],
    "Read",
]
"""Reads files of one kind, by index, into a folder: the signature of `traces.read_traces`."""


def ingest(
    source: Source,
    store: Store,
    options: Options,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
    reading: Reading | None = None,
) -> Run:
    """Bring a source into the store, unless an unchanged copy is there."""
    if options.step_annotation is not None:
        from cclbench.normalize.steps import step_patterns

        step_patterns(options.step_annotation)
    card = source.load_card()
    measured, calibration = None, None
    if source.card is not None and card is not None and card.hardware.calibration is not None:
        # Measurements of the machine: the calibration that the card names, relative to the card.
        measured = source.card.parent / card.hardware.calibration
        calibration = calibration_at(measured, card.hardware.system)
    of_run = (*code_versions(), options, *filter(None, [calibration]))
    fingerprint = source.fingerprint(*of_run)
    run = f"{source.name}-{fingerprint[:8]}"
    kept = store.find(run)
    if kept is not None and kept.is_current(fingerprint):
        return kept
    # Imported only if there is something to read: a stored run needs none of these.
    from cclbench.ingestion.evidence import ingest_evidence
    from cclbench.ingestion.groups import StatedGroups
    from cclbench.ingestion.traces import join_traces, read_traces

    line = None
    if source.card is not None and card is not None:
        line = CardLine(card.id, source.display_path(source.card), card.description)
    with store.new_run_folder(run) as folder:
        engine.require_shared(folder, source.path)
        common = Manifest(
            run=run,
            fingerprint=fingerprint,
            source=source.display_path(source.path),
            card=line,
            ingest=options,
        )

        evidence = ingest_evidence(source.evidence, folder, engine=engine, progress=progress)

        def traces(of_kind: Source, into: Path) -> Manifest:
            if not of_kind.files:
                StatedGroups(evidence.groups).write(into)
                return common
            files = dict(enumerate(of_kind.files))
            read = (reading or read_traces)(files, into, options, engine, progress)
            return join_traces(of_kind, card, into, common, read, evidence, engine=engine, progress=progress)

        first, *others = by_kind(source.files) or [()]
        stored: list[StoredFile] = []
        for files in others:
            place = place_of(files, first)
            of_kind = traces(replace(source, files=files, beside=()), folder / place)
            written = _write_manifest(folder / place, source, calibration, of_kind)
            stored += [msgspec.structs.replace(file, path=f"{place}/{file.path}") for file in written.files]
        first_manifest = traces(replace(source, files=first), folder)
        run_manifest = msgspec.structs.replace(
            first_manifest,
            sources=[files[0].reader for files in others],
            evidence=evidence.files,
            notes=[*_source_notes(source, first, others, measured), *evidence.notes, *first_manifest.notes],
            stored=stored,
        )
        _write_manifest(folder, source, calibration, run_manifest)
        source.require_unchanged()
        beside = [path for path in (source.card, *source.description_files) if path is not None]
        if beside and source.fingerprint(*of_run) != fingerprint:
            where = " or ".join(map(str, beside))
            raise InputError("changed while it was read", where=where, hint="wait for its writer")
    return store.get(run)


def by_kind(files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
    """Trace files grouped by reader, in order of precedence; the first kind is the run's own."""
    return [
        tuple(file for file in files if file.reader == reader)
        for reader in sort_by_precedence({file.reader for file in files})
    ]


def place_of(files: Sequence[SourceFile], first: Sequence[SourceFile]) -> str:
    """Folder of one kind's tables within the run's folder; empty for the `first` kind, the run's own."""
    return "" if files[0].reader == first[0].reader else f"sources/{files[0].reader}"


def _write_manifest(
    folder: Path, source: Source, calibration: Calibration | None, manifest: Manifest
) -> Manifest:
    """Write the card, the calibration and, last, the manifest."""
    if source.card is not None:
        shutil.copyfile(source.card, folder / "card.yaml")
    if calibration is not None:
        from cclbench.hardware.calibration import OF_RUN, write_calibration

        write_calibration(calibration, folder / OF_RUN)
    return write_manifest(manifest, folder)


def calibration_at(path: Path, system: str | None) -> Calibration:
    """The calibration that a card names; `InputError` if it is missing or not of `system`."""
    from cclbench.hardware.calibration import read_calibration

    if not path.is_file():
        raise InputError("the card names this calibration, and it is no file", where=str(path))
    calibration = read_calibration(path)
    if calibration.system != system:
        raise InputError(
            f"is a calibration of {calibration.system[:80]}, the card's hardware.system is {system}",
            where=str(path),
        )
    return calibration


def _source_notes(
    source: Source, first: Sequence[SourceFile], others: Sequence[Sequence[SourceFile]], measured: Path | None
) -> list[str]:
    notes = list(source.notes)
    ignored = [
        name for name in source.ignored if name not in source.unread and source.path / name != measured
    ]
    if ignored:
        files = f"{len(ignored)} file{'s'[: len(ignored) != 1]}"
        notes.append(f"{files} in the folder not recognised and not read: {first_few(ignored)}")
    for what in dict.fromkeys(source.unread.values()):
        names = [name for name, reason in source.unread.items() if reason == what]
        files = f"{len(names)} file{'s'[: len(names) != 1]}"
        notes.append(f"{files} in the folder not read: {first_few(names)}; each {what}")
    if others:
        also = " and ".join(files[0].reader for files in others)
        notes.append(
            f"figures are those of the {first[0].reader} traces; {also} traces are shown beside them"
        )
    return notes
