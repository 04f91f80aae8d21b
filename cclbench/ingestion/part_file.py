# SPDX-License-Identifier: Apache-2.0
"""Part files: facts about a part, kept on disk so that a process holds those of one rank at a time."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from cclbench.formats import Cut, DeviceStep, Payload, StatedPayloads
from cclbench.ground.errors import InputError
from cclbench.normalize.steps import Annotation
from cclbench.record.facts import TraceFacts

SUFFIX: Final = ".part"
_ENTRIES: Final = ("code", "row", "track", "start_ns", "end_ns", "seq")


@dataclass(slots=True, eq=False)
class PartRead:
    """Facts about a part whose rows are on disk."""

    facts: TraceFacts = field(default_factory=TraceFacts)
    stated_payloads: StatedPayloads = field(default_factory=StatedPayloads)
    dropped: Counter[str] = field(default_factory=Counter)
    cut: Cut | None = None
    device_rows_in_order: bool = True
    device_steps: list[DeviceStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    """Rows by kind."""
    annotations: list[Annotation] = field(default_factory=list)
    """Annotations that may be steps."""
    kernel_ns: Counter[str] = field(default_factory=Counter)
    """Time of unclassified kernels by name, and of all kernels under the empty name."""
    op_span: tuple[int, int] | None = None
    pending: list[Path] = field(default_factory=list)
    evidence: list[Path] = field(default_factory=list)


class _Written(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    facts: TraceFacts
    payloads: list[Payload]
    entries: list[bytes]
    dropped: dict[str, int]
    cut: Cut | None
    device_rows_in_order: bool
    device_steps: list[DeviceStep]
    notes: list[str]
    rows: dict[str, int]
    annotations: list[Annotation]
    kernel_ns: dict[str, int]
    op_span: tuple[int, int] | None
    pending: list[str]
    evidence: list[str]


_DECODER: Final = msgspec.msgpack.Decoder(_Written)


def write_part(path: Path, part: PartRead) -> None:
    """Write the facts about a part whose rows are in the same folder."""
    content = _Written(
        facts=part.facts,
        payloads=list(part.stated_payloads.payloads),
        entries=[getattr(part.stated_payloads, name).tobytes() for name in _ENTRIES],
        dropped=part.dropped,
        cut=part.cut,
        device_rows_in_order=part.device_rows_in_order,
        device_steps=part.device_steps,
        notes=part.notes,
        rows=part.rows,
        annotations=part.annotations,
        kernel_ns=part.kernel_ns,
        op_span=part.op_span,
        pending=[file.name for file in part.pending],
        evidence=[file.name for file in part.evidence],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.msgpack.encode(content))


def read_part_file(path: Path) -> PartRead:
    """What `write_part` wrote, with paths in the same folder; `InputError` if it is damaged."""
    try:
        written = _DECODER.decode(path.read_bytes())
        stated_payloads = StatedPayloads()
        stated_payloads.payloads = {payload: code for code, payload in enumerate(written.payloads)}
        for name, column in zip(_ENTRIES, written.entries, strict=True):
            setattr(stated_payloads, name, array("q", column))
        _check_columns(stated_payloads)
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise InputError(f"damaged: {error}", where=str(path), hint="read its source again") from None
    return PartRead(
        facts=written.facts,
        stated_payloads=stated_payloads,
        dropped=Counter(written.dropped),
        cut=written.cut,
        device_rows_in_order=written.device_rows_in_order,
        device_steps=written.device_steps,
        notes=written.notes,
        rows=Counter(written.rows),
        annotations=written.annotations,
        kernel_ns=Counter(written.kernel_ns),
        op_span=written.op_span,
        pending=[_sibling_path(path, name) for name in written.pending],
        evidence=[_sibling_path(path, name) for name in written.evidence],
    )


def _check_columns(entries: StatedPayloads) -> None:
    """`ValueError` if columns differ in length or an entry refers to no payload."""
    lengths = {len(getattr(entries, name)) for name in _ENTRIES}
    if len(lengths) > 1:
        raise ValueError("its columns differ in length")
    if entries.code and not 0 <= min(entries.code) <= max(entries.code) < len(entries.payloads):
        raise ValueError("an entry is about no payload")


def _sibling_path(path: Path, name: str) -> Path:
    if Path(name).name != name:
        raise InputError("damaged: names a file of another folder", where=str(path))
    return path.parent / name
