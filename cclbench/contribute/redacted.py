# SPDX-License-Identifier: Apache-2.0
"""Redacted copies of a data point's files, under redacted names."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cclbench.card.read import read_card
from cclbench.card.write import render_card
from cclbench.contribute import redaction
from cclbench.contribute.completion import Value
from cclbench.contribute.place import DataPointPlace, safe_names
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.errors import CheckFailed
from cclbench.ground.text import listed

if TYPE_CHECKING:
    from cclbench.contribute.redaction import Identities, Redaction

_LISTED = 20


@dataclass(frozen=True)
class Originals:
    """Traces and scripts by the contributor's own names, the card's file if there is one, its fields so far,
    and the calibration that it names."""

    traces: Mapping[str, Path]
    scripts: Mapping[str, Path]
    card_file: Path | None
    card: Value
    calibration: Path | None


@dataclass(frozen=True)
class RedactedCopies:
    """The redacted card, the files' new names by their old ones, and what was changed."""

    card: Value
    traces: Mapping[str, str]
    scripts: Mapping[str, str]
    redactions: tuple[Redaction, ...]
    identities: Identities


def redact_copies(
    originals: Originals,
    staged: DataPointPlace,
    scratch: Path,
    *,
    reveal: Sequence[str] = (),
    kept_names: Sequence[str] = (),
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> RedactedCopies:
    """Write redacted files to their places in `staged`; the card is returned as its fields.

    `reveal` names fields and variables whose values stay, `kept_names` patterns of names in traces that stay.
    """
    plain = scratch / "plain" / f"{staged.id}.yaml"
    hidden = scratch / "redacted" / plain.name
    plain.parent.mkdir()
    plain.write_text(render_card(originals.card, gaps=False), encoding="utf-8")
    calibrations = [path for path in (originals.calibration,) if path is not None]
    cards = [path for path in (originals.card_file, plain) if path is not None]
    files = [*originals.traces.values(), *originals.scripts.values(), *cards, *calibrations]
    identities = redaction.collect_identities(files, reveal, kept_names)
    traces = safe_names(originals.traces, partial(redaction.evidence_name, identities=identities))
    scripts = safe_names(originals.scripts, partial(redaction.redacted_name, identities=identities))
    tasks = [
        *((path, staged.traces_folder / traces[name]) for name, path in originals.traces.items()),
        *((path, staged.scripts_folder / scripts[name]) for name, path in originals.scripts.items()),
        *((path, staged.calibration_path) for path in calibrations),
        (plain, hidden),
    ]
    redactions: list[Redaction] = []
    work = partial(_redact_file, identities=identities)
    for file_redactions in engine.map(work, tasks, progress=progress, what="redacting"):
        redactions += file_redactions
    card: Value = dict(read_card(hidden).value)
    return RedactedCopies(card, traces, scripts, tuple(redactions), identities)


def require_clean(staged: DataPointPlace, identities: Identities) -> None:
    """`CheckFailed`, with the places, if any staged file holds something that redaction should remove."""
    lines = []
    for path in sorted(path for path in staged.collection.rglob("*") if path.is_file()):
        name = path.relative_to(staged.collection).as_posix()
        shown = redaction.redacted_name(path.name, identities)
        lines += [f"{shown}: its name: {kind}" for kind in redaction.leftovers_in(name, identities)]
        if path == staged.manifest_path:  # its numbers and hashes may look like secrets by chance
            text = path.read_text(encoding="utf-8")
            lines += [f"{path.name}: {kind}" for kind in redaction.leftovers_in(text, identities)]
            continue
        leftovers = redaction.find_leftovers(path, identities)
        lines += [f"{name}: {leftover.place}: {leftover.kind} ({leftover.count})" for leftover in leftovers]
    if lines:
        raise CheckFailed(
            [
                "redaction leaves what looks like a secret or an identity; remove it from the originals:",
                *listed(lines, _LISTED, "  "),
            ]
        )


def _redact_file(task: tuple[Path, Path], *, identities: Identities) -> list[Redaction]:
    source, target = task
    target.parent.mkdir(parents=True, exist_ok=True)
    redactions = redaction.redact_file(source, target, identities=identities)
    if source.stat().st_mode & 0o100 and target.suffix != ".yaml":
        shutil.copymode(source, target)
    return redactions
