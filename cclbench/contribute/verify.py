# SPDX-License-Identifier: Apache-2.0
"""Recompute a data point from its evidence, and compare the results with those in its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from cclbench import __version__
from cclbench.api import metrics
from cclbench.card import Card, load_card
from cclbench.contribute.evidence import EvidenceElsewhere, FileState, file_states, paths_by_card_name
from cclbench.contribute.manifest import DataPointFile, DataPointManifest, read_manifest
from cclbench.contribute.place import MANIFEST, DataPointPlace, file_digest, file_names
from cclbench.contribute.record import RecordComparison, compare_record, record_results
from cclbench.contribute.signature import Signature, read_signature
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import CheckFailed, InputError
from cclbench.ground.scratch import temporary_folder
from cclbench.ground.text import quoted_value
from cclbench.ingestion import ingest
from cclbench.ingestion.source import Source, find_source
from cclbench.record.manifest import Options
from cclbench.record.rows import Row
from cclbench.record.store import Store

Status = Literal["verified", "changed", "re-record", "not here", "unrecorded", "invalid", "unreadable"]
MEANING: Final[Mapping[Status, str]] = {
    "verified": "every recorded value was reproduced",
    "changed": "a file, the card or a value differs from the record",
    "re-record": "definitions of metrics have changed: cclbench verify --record",
    "not here": "evidence is stored elsewhere: --fetch, or --evidence DIR",
    "unrecorded": "there is no manifest: cclbench contribute, or cclbench verify --record",
    "invalid": "the card is invalid",
    "unreadable": "a file cannot be read",
}


@dataclass(frozen=True)
class Verdict:
    """Result of verifying one data point.

    `reasons` state why it is not verified; `files`, `comparison` and `signature` are set as far as
    verification got.
    """

    id: str
    status: Status
    reasons: tuple[str, ...] = ()
    files: tuple[FileState, ...] = ()
    comparison: RecordComparison | None = None
    notes: tuple[str, ...] = field(default=())
    signature: Signature | None = None


def source_rows(
    source: Source,
    store: Path,
    options: Options,
    *,
    model: bool,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> list[Row]:
    """All result rows of a source, which is ingested into `store` unless it is already there."""
    run = ingest(source, Store(store), options, engine=engine, progress=progress)
    return list(metrics(run, model=model, engine=engine, progress=progress).figures)


def verify_data_point(
    place: DataPointPlace,
    elsewhere: EvidenceElsewhere,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> Verdict:
    """Check the files' hashes, compute the results again and compare them with the recorded ones."""
    try:
        return _verify_manifest(place, elsewhere, engine, progress)
    except CheckFailed as error:
        return Verdict(place.id, "invalid", (str(error),))
    except InputError as error:
        return Verdict(place.id, "unreadable", (str(error),))


def record_data_point(
    place: DataPointPlace,
    elsewhere: EvidenceElsewhere,
    options: Options | None = None,
    *,
    redactions: Mapping[str, int] | None = None,
    revealed: Sequence[str] | None = None,
    store: Path | None = None,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> DataPointManifest:
    """Compute the results and write them into the data point's manifest, which need not be there yet.

    The files of an earlier manifest must be unchanged; its options, redactions and revealed names are kept
    if none are given, its signature only if the manifest stays the same.  `store` may already have the
    evidence ingested.  Raises `CheckFailed` if a file is changed or not available, or the card is invalid.
    """
    former = read_manifest(place.manifest_path) if place.manifest_path.exists() else None
    files = former.files if former else _evidence_files(place)
    states = file_states(place, files, elsewhere, progress)
    if wrong := [f"{state.path}: {state.reason}" for state in states if state.state != "ok"]:
        raise CheckFailed(["evidence has changed:", *wrong[:20]], where=place.id)
    options = options or (former.ingest if former else Options())
    rows = _compute_rows(place, states, options, store, engine, progress)
    counts = former.redactions if former and redactions is None else redactions
    manifest = DataPointManifest(
        id=place.id,
        cclbench=__version__,
        card=file_digest(place.card_path)[0],
        calibration=_calibration_digest(place, load_card(place.card_path)),
        ingest=options,
        files=files,
        redactions=None if counts is None else dict(counts),
        revealed=list(revealed) if revealed is not None else former.revealed if former else [],
        results=record_results(rows),
    )
    draft = place.manifest_path.with_name(f".{MANIFEST}.draft")
    try:
        draft.write_text(manifest.as_text(), encoding="utf-8")
        if former is None or former.as_text() != manifest.as_text():
            place.signature_path.unlink(missing_ok=True)
        draft.replace(place.manifest_path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InputError(f"cannot be written: {error.strerror}", where=str(place.manifest_path)) from None
    return manifest


def _evidence_files(place: DataPointPlace) -> list[DataPointFile]:
    """Evidence of a data point without a manifest: files in its folder and those with a URL in its card."""
    local = [
        DataPointFile(name, *file_digest(place.traces_folder / name))
        for name in file_names(place.traces_folder)
    ]
    external = [
        DataPointFile(trace.path.removeprefix(f"traces/{place.id}/"), trace.sha256, trace.bytes, trace.url)
        for trace in load_card(place.card_path).evidence.traces
        if trace.url is not None and trace.sha256 is not None and trace.bytes is not None
    ]
    names = {file.path for file in external}
    return sorted([*external, *(f for f in local if f.path not in names)], key=lambda file: file.path)


def _verify_manifest(
    place: DataPointPlace, elsewhere: EvidenceElsewhere, engine: Engine, progress: Progress | None
) -> Verdict:
    if not place.card_path.is_file():
        return Verdict(place.id, "unrecorded", (f"there is no {place.card_path}",))
    if not place.manifest_path.is_file():
        return Verdict(place.id, "unrecorded", (f"there is no {place.manifest_path}",))
    manifest = read_manifest(place.manifest_path)
    states = file_states(place, manifest.files, elsewhere, progress)
    verdict, unsigned = _with_signature(Verdict(place.id, "verified", files=tuple(states)), place)
    if reasons := [
        *unsigned,
        *_manifest_disagreements(place, manifest),
        *_wrong_files(states, "changed", "missing", "not listed"),
    ]:
        return replace(verdict, status="changed", reasons=tuple(reasons))
    if absent := _wrong_files(states, "not here"):
        return replace(verdict, status="not here", reasons=tuple(absent))
    rows = _compute_rows(place, states, manifest.ingest, None, engine, progress)
    return _judge_comparison(verdict, manifest, compare_record(manifest.results, rows))


def _with_signature(verdict: Verdict, place: DataPointPlace) -> tuple[Verdict, list[str]]:
    """The verdict with the manifest's signature, and why it does not hold."""
    try:
        return replace(verdict, signature=read_signature(place)), []
    except CheckFailed as error:
        return verdict, [str(error)]


def _compute_rows(
    place: DataPointPlace,
    states: Sequence[FileState],
    options: Options,
    store: Path | None,
    engine: Engine,
    progress: Progress | None,
) -> list[Row]:
    """The result rows of the evidence that was found, without modelled ones."""
    with temporary_folder() as folder:
        source = find_source(place.card_path, elsewhere=paths_by_card_name(place, states))
        return source_rows(source, store or folder, options, model=False, engine=engine, progress=progress)


def _wrong_files(states: Sequence[FileState], *kinds: str) -> list[str]:
    return [f"{state.path}: {state.reason}" for state in states if state.state in kinds]


def _manifest_disagreements(place: DataPointPlace, manifest: DataPointManifest) -> list[str]:
    """Contradictions between manifest, card and folders."""
    card = load_card(place.card_path)
    problems = [
        f"the {document} belongs to {quoted_value(identity)}"
        for document, identity in (("card", card.id), ("manifest", manifest.id))
        if identity != place.id
    ]
    if file_digest(place.card_path)[0] != manifest.card:
        problems.append("the card differs from the one of the recorded results")
    if _calibration_digest(place, card) != manifest.calibration:
        problems.append("the calibration differs from the one of the recorded results")
    files = {f"traces/{place.id}/{file.path}": file for file in manifest.files}
    for trace in card.evidence.traces:
        file = files.get(trace.path)
        if file is None:
            problems.append(f"the card names {trace.path}, which the manifest does not list")
        elif (trace.sha256, trace.bytes, trace.url) != (file.sha256, file.bytes, file.url):
            problems.append(f"card and manifest differ in {trace.path}")
    return problems


def _calibration_digest(place: DataPointPlace, card: Card) -> str | None:
    """SHA-256 of the calibration that the card names, None without one; `InputError` for a link."""
    if card.hardware.calibration is None:
        return None
    path = place.card_path.with_name(card.hardware.calibration)
    if path.is_symlink():
        raise InputError("is a link", where=str(path), hint="put the file itself there")
    return file_digest(path)[0]


def _judge_comparison(verdict: Verdict, manifest: DataPointManifest, comparison: RecordComparison) -> Verdict:
    """Verdict of the comparison: differing values are a change, unless the cclbench version differs."""
    notes = []
    if comparison.newer:
        notes.append(f"newer than the record: {', '.join(comparison.newer)}")
    verdict = replace(verdict, comparison=comparison, notes=tuple(notes))
    same_version = _minor_version(manifest.cclbench) == _minor_version(__version__)
    if comparison.changes and same_version:
        return replace(verdict, status="changed", reasons=tuple(map(str, comparison.changes)))
    if comparison.changes or comparison.outdated:
        outdated = [f"definition changed: {', '.join(comparison.outdated)}"] if comparison.outdated else []
        versions = (
            [] if same_version else [f"recorded with cclbench {manifest.cclbench}, this is {__version__}"]
        )
        return replace(
            verdict, status="re-record", reasons=(*outdated, *versions, *map(str, comparison.changes))
        )
    return verdict


def _minor_version(version: str) -> list[str]:
    return version.split(".")[:2]
