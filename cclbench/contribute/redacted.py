# SPDX-License-Identifier: Apache-2.0
"""Redacted copies of a data point's files, under redacted names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cclbench.contribute import redaction
from cclbench.contribute.completion import Value
from cclbench.contribute.place import DataPointPlace, safe_names
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground import yaml_file

if TYPE_CHECKING:
    from cclbench.contribute.redaction import PublicNames, Redaction


@dataclass(frozen=True)
class Originals:
    """Traces, with their readers, and scripts by the contributor's own names, the card's fields so far, and
    the calibration that it names."""

    traces: Mapping[str, tuple[Path, str]]
    scripts: Mapping[str, Path]
    card: Value
    calibration: Path | None


@dataclass(frozen=True)
class RedactedCopies:
    """The redacted card, the files' new names by their old ones, and what was changed."""

    card: Value
    traces: Mapping[str, str]
    scripts: Mapping[str, str]
    redactions: tuple[Redaction, ...]


def redact_copies(
    originals: Originals,
    staged: DataPointPlace,
    *,
    reveal: Sequence[str] = (),
    kept_names: Sequence[str] = (),
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> RedactedCopies:
    """Write redacted files to their places in `staged`; the card is returned as its fields.

    `reveal` names fields and variables whose values stay, `kept_names` patterns of names in traces and
    scripts that stay.
    """
    stated = redaction.card_texts(originals.card)
    names = redaction.PublicNames(kept=kept_names, revealed=reveal, stated=stated)
    traces = safe_names(originals.traces, names.publish_file_name)
    scripts = safe_names(originals.scripts, names.publish_file_name)
    tasks: list[_Task] = [
        (path, staged.traces_folder / traces[name], reader)
        for name, (path, reader) in originals.traces.items()
    ]
    tasks += [(path, staged.scripts_folder / scripts[name], None) for name, path in originals.scripts.items()]
    card, redactions = redaction.redact_statements(originals.card, names, f"{staged.id}.yaml")
    if originals.calibration is not None:
        redactions += _redact_calibration(originals.calibration, staged.calibration_path, names)
    for file_redactions in engine.map(
        partial(_redact_file, names=names), tasks, progress=progress, what="redacting"
    ):
        redactions += file_redactions
    return RedactedCopies(card, traces, scripts, tuple(redactions))


_Task = tuple[Path, Path, str | None]
"""A file, where its copy goes, and its reader; None for a script."""


def _redact_file(task: _Task, *, names: PublicNames) -> list[Redaction]:
    source, target, reader = task
    target.parent.mkdir(parents=True, exist_ok=True)
    if reader is None:
        return redaction.redact_script(source, target, names)
    return redaction.redact_evidence(source, target, names, reader=reader)


def _redact_calibration(source: Path, target: Path, names: PublicNames) -> list[Redaction]:
    """Write the calibration's fields anew, without comments."""
    new, redactions = redaction.redact_statements(
        yaml_file.read(source, "calibration").value, names, target.name
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(msgspec.yaml.encode(new))
    return redactions
