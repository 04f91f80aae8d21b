# SPDX-License-Identifier: Apache-2.0
"""Make a data point from a card, traces and scripts: complete, redact, prove, record, put in place."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from cclbench.card import CardFacts, validate_card
from cclbench.card.fields import drop_empty, put_field
from cclbench.card.write import render_card
from cclbench.card_facts import card_facts
from cclbench.contribute import redaction
from cclbench.contribute.archive import is_archive, unpack_archive
from cclbench.contribute.completion import (
    LAUNCH,
    Ask,
    CardGap,
    Value,
    complete_model_sizes,
    learn_from_traces,
)
from cclbench.contribute.evidence import evidence_elsewhere
from cclbench.contribute.place import DataPointPlace, file_digest, file_names, place_of
from cclbench.contribute.record import row_changes
from cclbench.contribute.redacted import Originals, redact_copies
from cclbench.contribute.redaction import by_kind
from cclbench.contribute.settling import begin_card, configured_sizes, settle_card
from cclbench.contribute.sizes import TraceSizes, trace_sizes
from cclbench.contribute.staging import put_in_place, scratch_in
from cclbench.contribute.verify import record_data_point, source_rows
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.diagnostics import check
from cclbench.ground.errors import CheckFailed, InputError, UsageError
from cclbench.ground.file_names import path_of
from cclbench.ground.text import listed as first_lines
from cclbench.ground.units import humanise
from cclbench.hardware.calibration import read_calibration
from cclbench.ingestion import calibration_at, ingest
from cclbench.ingestion.source import Source, SourceFile, find_source
from cclbench.record.card_agreement import card_contradiction
from cclbench.record.manifest import Options
from cclbench.record.results import Results
from cclbench.record.rows import Row
from cclbench.record.store import Store

if TYPE_CHECKING:
    from cclbench.contribute.redaction import Redaction

EXTERNAL_BYTES: Final = 50_000_000
"""Size above which a file stays outside of the collection: git hosts warn above it."""
_SCRIPT_BYTES: Final = 10_000_000
_LISTED: Final = 20


@dataclass(frozen=True)
class PackageOptions:
    """Options of a contributor.

    `licence` is that of the traces (SPDX); `model_config` a Hugging Face configuration (else the one in the
    traces' folder); `reveal` names fields and environment
    variables whose values stay, `kept_names` patterns of names in traces that stay; `allow_gaps` accepts a
    card without what metrics need; `replace` an existing data point.  Files of more than `external` bytes
    go to `outside`, to be uploaded below `url`.
    """

    licence: str | None = None
    model_config: Path | None = None
    reveal: tuple[str, ...] = ()
    kept_names: tuple[str, ...] = ()
    allow_gaps: bool = False
    replace: bool = False
    external: int = EXTERNAL_BYTES
    outside: Path | None = None
    url: str | None = None
    reading: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Contribution:
    """A data point that was put in place.

    `files` have name and bytes; `calibrated`: it includes a calibration; `uploads` have path and URL;
    `configured` are fields by the model's configuration; `revealed` names that stay, `left_out` files that
    are no evidence or hidden; `sizes` are those of the traces; `rows` counts the result rows that redaction
    left unchanged, `recorded` the metrics recorded.
    """

    place: DataPointPlace
    files: tuple[tuple[str, int], ...]
    scripts: tuple[str, ...]
    calibrated: bool
    uploads: tuple[tuple[Path, str], ...]
    left_out: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    inferred: tuple[str, ...]
    configured: tuple[str, ...]
    contradictions: tuple[str, ...]
    gaps: tuple[CardGap, ...]
    redactions: tuple[Redaction, ...]
    revealed: tuple[str, ...]
    sizes: TraceSizes
    rows: int
    recorded: int


def make_data_point(
    card: Path | None,
    traces: Path,
    scripts: Path | None,
    collection: Path,
    options: PackageOptions,
    *,
    ask: Ask | None = None,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> Contribution:
    """Make a data point of the collection, whole or not at all; the originals are only read.

    `traces` is a folder, a trace or an archive; `ask` supplies fields that neither card nor traces state, its
    id without a card.
    `CheckFailed` if the card is wrong or incomplete, or a result would change;
    `UsageError` if the data point exists already.
    """
    value = begin_card(card, ask)
    target = place_of(collection, value["id"])
    calibration = _calibration_beside(value, card)
    inputs = [path for path in (traces, scripts) if path is not None]
    _require_vacant(target, (card, calibration), inputs, replaced=options.replace)
    programs = {} if scripts is None else _launch_scripts(scripts)
    if options.url is not None and not re.fullmatch(r"https://[^\s/]+(/\S*)?", options.url):
        raise UsageError("the URL prefix is not an https address", where=options.url)
    with scratch_in(collection) as scratch:
        store = scratch / "store"
        source = find_source(_unpack_traces(traces, scratch))
        if source.captures:
            raise InputError(
                "is the trace of a graph's capture, which a data point cannot contain",
                where=source.captures[0].name,
                hint="contribute the replay alone: the kernels of its graphs then have no operators",
            )
        for file in _all_files(source):
            if file.bytes > options.external:
                _file_url(target.id, file.name, options)  # raises early, before the expensive work
        facts = _facts_of_traces(source, store, options.reading, engine, progress)
        learned = learn_from_traces(value, facts)
        sized, configured = complete_model_sizes(learned.card, configured_sizes(source, options.model_config))
        run = ingest(source, Store(store), options.reading, engine=engine, progress=progress)
        settled = settle_card(
            sized,
            run,
            facts,
            list(programs),
            options.licence,
            "the card" if card is None else str(card),
            ask,
            allow_gaps=options.allow_gaps,
            engine=engine,
        )
        staged = DataPointPlace(scratch / "new", target.id)
        files = {file.name: (file.path, file.reader) for file in _all_files(source)}
        originals = Originals(files, programs, settled.card, calibration)
        copies = redact_copies(
            originals,
            staged,
            reveal=options.reveal,
            kept_names=options.kept_names,
            engine=engine,
            progress=progress,
        )
        if settled.launch is not None:
            put_field(copies.card, LAUNCH, f"scripts/{target.id}/{copies.scripts[settled.launch]}")
        entries = _evidence_entries(source, facts, copies.traces, staged, settled.licence, options)
        put_field(copies.card, "evidence.traces", entries)
        if calibration is not None:
            put_field(copies.card, "hardware.calibration", _copied_calibration(calibration, staged))
        staged.card_path.parent.mkdir(parents=True, exist_ok=True)
        staged.card_path.write_text(render_card(copies.card, gaps=False), encoding="utf-8")
        check(validate_card(staged.card_path))
        proven = _prove_results(source, staged, store, options.reading, engine, progress)
        with evidence_elsewhere([]) as nowhere:
            manifest = record_data_point(
                staged,
                nowhere,
                options.reading,
                redactions=by_kind(copies.redactions),
                revealed=sorted({*options.reveal, *options.kept_names}),
                store=store,
                engine=engine,
                progress=progress,
            )
        sizes = trace_sizes([file.path for file in source.files], run)
        uploads = _move_into_place(staged, target, entries, options)
    return Contribution(
        place=target,
        files=tuple((file.path, file.bytes) for file in manifest.files),
        scripts=tuple(sorted(copies.scripts.values())),
        calibrated=calibration is not None,
        uploads=uploads,
        left_out=(*source.ignored, *_hidden_files(scripts, programs)),
        renamed=tuple((a, b) for a, b in (*copies.traces.items(), *copies.scripts.items()) if a != b),
        inferred=learned.inferred,
        configured=configured,
        contradictions=(
            *learned.contradictions,
            *filter(None, [card_contradiction(Results.from_rows(proven))]),
        ),
        gaps=settled.gaps,
        redactions=copies.redactions,
        revealed=tuple(sorted({*options.reveal, *options.kept_names})),
        sizes=sizes,
        rows=len(proven),
        recorded=len(manifest.results.metrics),
    )


def _calibration_beside(card: Value, file: Path | None) -> Path | None:
    """The calibration that the card names, None without one; `InputError` if it is of another machine."""
    hardware = card.get("hardware", {})
    if file is None or "calibration" not in hardware:
        return None
    path = file.parent / str(hardware["calibration"])
    calibration_at(path, hardware.get("system"))
    return path


def _copied_calibration(calibration: Path, staged: DataPointPlace) -> str:
    """The name of the redacted copy; `CheckFailed` if its content differs from the original's."""
    if read_calibration(staged.calibration_path) != read_calibration(calibration):
        hint = "remove from it what looks like a name or a secret"
        raise CheckFailed("redaction would change the calibration", where=str(calibration), hint=hint)
    return staged.calibration_path.name


def _require_vacant(
    target: DataPointPlace, own_files: Sequence[Path | None], originals: Sequence[Path], *, replaced: bool
) -> None:
    """Refuse to overwrite a data point, except the contributor's `own_files` in it, or any originals."""
    for path in originals:
        for folder in (target.traces_folder, target.scripts_folder):
            if path.resolve().is_relative_to(folder.resolve()):
                hint = "move the original elsewhere: the redacted copy goes there"
                raise UsageError("is where the data point would be written", where=str(path), hint=hint)
    existing = [
        path
        for path in (target.traces_folder, target.scripts_folder, target.card_path, target.calibration_path)
        if path.exists() and not any(file is not None and path.samefile(file) for file in own_files)
    ]
    if existing and not replaced:
        hint = "choose another id, or give --replace"
        raise UsageError(f"the data point {target.id} exists already", where=str(existing[0]), hint=hint)


def _launch_scripts(scripts: Path) -> dict[str, Path]:
    """The scripts by name, without hidden files; `UsageError` if they are too large for launch scripts."""
    if not scripts.is_dir():
        raise InputError("is not a folder", where=str(scripts), hint="give the folder of the launch scripts")
    programs = {name: scripts / path_of(name) for name in file_names(scripts) if not _is_hidden(name)}
    if not programs:
        raise UsageError(
            "contains no script", where=str(scripts), hint="give the folder of the launch scripts"
        )
    size = sum(path.stat().st_size for path in programs.values())
    if size > _SCRIPT_BYTES:
        what = f"contains {humanise(size, 'B')}, too much for launch scripts"
        raise UsageError(what, where=str(scripts), hint="give a folder that contains only them")
    return programs


def _hidden_files(scripts: Path | None, programs: Mapping[str, Path]) -> list[str]:
    return [] if scripts is None else [name for name in file_names(scripts) if name not in programs]


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in name.split("/"))


def _unpack_traces(traces: Path, scratch: Path) -> Path:
    if not is_archive(traces):
        return traces
    unpack_archive(traces, scratch / "unpacked")
    return scratch / "unpacked"


def _facts_of_traces(
    source: Source, store: Path, reading: Options, engine: Engine, progress: Progress | None
) -> CardFacts:
    if not source.files:
        return CardFacts(traces=())
    return card_facts(source.path, reading, store=store, engine=engine, progress=progress)


def _all_files(source: Source) -> tuple[SourceFile, ...]:
    return (*source.files, *source.beside, *source.evidence)


def _evidence_entries(
    source: Source,
    facts: CardFacts,
    names: Mapping[str, str],
    staged: DataPointPlace,
    licence: str,
    options: PackageOptions,
) -> list[dict[str, Any]]:
    """The card's evidence entries, one per file; large files have the URL for their upload."""
    ranks = {Path(trace.path): list(trace.ranks) for trace in facts.traces}
    entries = []
    for file in _all_files(source):
        name = names[file.name]
        sha256, size = file_digest(staged.traces_folder / name)
        entries.append(
            drop_empty(
                path=f"traces/{staged.id}/{name}",
                format=file.reader,
                ranks=ranks.get(file.path) or None,
                sha256=sha256,
                bytes=size,
                licence=licence,
                url=_file_url(staged.id, name, options) if size > options.external else None,
            )
        )
    return sorted(entries, key=lambda entry: str(entry["path"]))


def _file_url(identity: str, name: str, options: PackageOptions) -> str:
    if options.url is None or options.outside is None:
        hint = f"give --outside DIR --url PREFIX (or --external with more than {options.external:,} bytes)"
        raise UsageError("is too large for the collection", where=name, hint=hint)
    return f"{options.url.rstrip('/')}/{identity}/{quote(name)}"


def _prove_results(
    source: Source,
    staged: DataPointPlace,
    store: Path,
    reading: Options,
    engine: Engine,
    progress: Progress | None,
) -> list[Row]:
    """The result rows; `CheckFailed` unless redacted copies and originals give the same ones.

    A row about a file names it by its place in the collection, or by a token.
    """
    rows = partial(source_rows, store=store, options=reading, model=True, engine=engine, progress=progress)
    before = rows(replace(source, card=staged.card_path))
    after = rows(find_source(staged.card_path))
    place = f"traces/{staged.id}/"
    if changed := row_changes(before, after, lambda name: place in name or redaction.has_token(name)):
        lines = [f"{c.figure_name}: {c.recorded} became {c.computed}" for c in changed]
        message = "redaction, or the files' new names, would change results; nothing was contributed:"
        hint = "--keep-names PATTERN keeps names of kernels and ranges, --reveal KEY values of a field"
        raise CheckFailed([message, *first_lines(lines, _LISTED, "  ")], hint=hint)
    return after


def _move_into_place(
    staged: DataPointPlace,
    target: DataPointPlace,
    entries: Sequence[Mapping[str, Any]],
    options: PackageOptions,
) -> tuple[tuple[Path, str], ...]:
    """Move all files to their places; returns the paths to upload and their URLs."""
    urls = {entry["path"]: entry["url"] for entry in entries if "url" in entry}
    large = [(path.removeprefix(f"traces/{staged.id}/"), url) for path, url in urls.items()]
    moves = [(staged.traces_folder, target.traces_folder), (staged.card_path, target.card_path)]
    for new, former in (
        (staged.scripts_folder, target.scripts_folder),
        (staged.calibration_path, target.calibration_path),
    ):
        if new.exists():
            moves.append((new, former))
        elif former.exists():  # it belongs to the data point that is replaced
            moves.append((former, new))
    with ExitStack() as stack:
        if large and options.outside:
            upload = options.outside / staged.id
            if upload.exists() and not options.replace:
                raise UsageError("exists already", where=str(upload), hint="choose another, or --replace")
            waiting = stack.enter_context(scratch_in(options.outside))
            for name, _ in large:
                (waiting / "new" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(staged.traces_folder / name, waiting / "new" / name)
            moves.insert(0, (waiting / "new", upload))
        put_in_place(moves)
    return tuple((options.outside / staged.id / name, url) for name, url in large if options.outside)
