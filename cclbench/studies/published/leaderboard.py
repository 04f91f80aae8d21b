# SPDX-License-Identifier: Apache-2.0
"""CCL-Bench's `benchmark_data.json`, read strictly: an invalid row is refused, with its number."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from cclbench.ground.errors import InputError
from cclbench.ground.text import printable, quoted_value
from cclbench.record.published import metadata_count, metadata_text

LARGEST_BYTES: Final = 32_000_000
_MOST_ROWS: Final = 10_000
_HINT: Final = "CCL-Bench's website publishes it as benchmark_data.json"


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row as in the file."""

    trace: str
    metadata: dict[str, Any]
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row: its workload card, flattened, and its numbers by column."""

    number: int
    """Position in the file, from 1."""
    metadata: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    sha256: str
    """SHA-256 of the row's JSON with sorted keys."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """What is to be known about the number of a column, or why it has none."""
    work_basis: str = ""
    """What batch size and sequence length follow from, where they are not published themselves."""

    @property
    def workload_name(self) -> str:
        """The workload's name."""
        return self.text("workload_name")

    def text(self, key: str) -> str:
        """A text in the metadata; empty if there is none."""
        return metadata_text(self.metadata, key)

    def whole_number(self, key: str) -> int | None:
        """An integer in the metadata; None if there is none."""
        return metadata_count(self.metadata, key)

    def number_in(self, column: str) -> float:
        """A published number; NaN if there is none, so that every comparison with it is false."""
        value = self.metrics.get(column)
        return math.nan if value is None else value

    @property
    def is_on_tpu(self) -> bool:
        """Whether it ran on TPUs."""
        return self.text("hardware_type").upper() == "TPU"

    def traced_by(self, kind: str) -> bool:
        """Whether its numbers come from traces of a kind: nsys, json, json_tpu."""
        kinds = self.metadata.get("trace_types")
        return isinstance(kinds, list) and kind in kinds


@dataclass(frozen=True, slots=True)
class Publication:
    """A published file, and its rows."""

    source: str
    """Who published it: the name in `cclbench import`."""
    path: Path
    sha256: str
    generated_at: str | None
    rows: tuple[PublishedRow, ...]
    remarks: tuple[str, ...] = ()
    """What is to be known about all rows, most important first."""


def read_leaderboard(path: Path) -> Publication:
    """Read the leaderboard at `path`.

    Raises `InputError` if it cannot be read, is over 32 MB, is not JSON, repeats a key, or if a row is
    anything but a trace, metadata, and metrics that are finite numbers or null.
    """
    where = printable(str(path))
    content = read_content(path, where)
    try:
        document = json.loads(content, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        problem = (
            "is nested too deeply" if isinstance(error, RecursionError) else f"is not valid JSON: {error}"
        )
        raise InputError(printable(problem), where=where, hint=_HINT) from None
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows:
        raise InputError("has no list of rows", where=where, hint=_HINT)
    if len(rows) > _MOST_ROWS:
        raise InputError(f"has {len(rows):,} rows, more than {_MOST_ROWS:,}", where=where, hint=_HINT)
    generated = document.get("generated_at")
    return Publication(
        source="ccl-bench",
        path=path,
        sha256=sha256(content).hexdigest(),
        generated_at=generated if isinstance(generated, str) else None,
        rows=tuple(_parse_row(row, number, where) for number, row in enumerate(rows, 1)),
    )


def read_content(path: Path, where: str, hint: str = _HINT) -> bytes:
    """The bytes of a published file; raises `InputError` if it cannot be read or is over 32 MB."""
    try:
        if path.exists() and not path.is_file():
            raise InputError("is not a file", where=where, hint=hint)
        with path.open("rb") as stream:
            content = stream.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read: {reason}", where=where) from None
    if len(content) > LARGEST_BYTES:
        raise InputError(f"is over {LARGEST_BYTES // 1_000_000} MB", where=where, hint=hint)
    return content


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {quoted_value(twice)} is repeated")
    return values


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def _parse_row(row: Any, number: int, where: str) -> PublishedRow:
    try:
        content = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        shape = msgspec.convert(row, _Shape)
        name = shape.metadata.get("workload_name")
        if not isinstance(name, str) or not name:
            raise ValueError("its metadata has no workload_name")
        endless = [column for column, value in shape.metrics.items() if not math.isfinite(value or 0)]
        if endless:
            raise ValueError(f"{quoted_value(endless[0])} is not a finite number")
    except (ValueError, OverflowError, RecursionError) as error:  # UnicodeEncodeError: half a surrogate pair
        reason = "contains text that is not Unicode" if isinstance(error, UnicodeError) else str(error)
        hint = "no row of the file was imported"
        raise InputError(f"row {number}: {printable(reason)}", where=where, hint=hint) from None
    return PublishedRow(number, shape.metadata, shape.metrics, sha256(content).hexdigest())
