# SPDX-License-Identifier: Apache-2.0
"""CCL-Bench's `benchmark_data.json`, read strictly: every row whole, or refused by its number."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from cclbench.ground.errors import InputError
from cclbench.ground.text import printable, shown
from cclbench.record.published import metadata_count, metadata_text

LARGEST_BYTES: Final = 32_000_000
_MOST_ROWS: Final = 10_000
_HINT: Final = "CCL-Bench's website publishes it as benchmark_data.json"


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row as the file has it."""

    trace: str
    metadata: dict[str, Any]
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row: what its workload card says, flattened, and its numbers by column."""

    number: int
    """Of the file, from 1."""
    metadata: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    sha256: str
    """Of the row's JSON with sorted keys."""

    @property
    def name(self) -> str:
        """The workload's name."""
        return self.text("workload_name")

    def text(self, key: str) -> str:
        """A text of the metadata; empty where there is none."""
        return metadata_text(self.metadata, key)

    def count(self, key: str) -> int | None:
        """A whole number of the metadata; None where there is none."""
        return metadata_count(self.metadata, key)

    def number_of(self, column: str) -> float:
        """A published number; not a number where there is none, so that no comparison with it holds."""
        value = self.metrics.get(column)
        return math.nan if value is None else value

    @property
    def tpu(self) -> bool:
        """Whether it ran on TPUs."""
        return self.text("hardware_type").upper() == "TPU"

    def traced_by(self, kind: str) -> bool:
        """Whether its numbers come from traces of that kind: nsys, json, json_tpu."""
        kinds = self.metadata.get("trace_types")
        return isinstance(kinds, list) and kind in kinds


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The file."""

    path: Path
    sha256: str
    generated_at: str | None
    rows: tuple[PublishedRow, ...]


def read_leaderboard(path: Path) -> Leaderboard:
    """The leaderboard at `path`.

    Raises `InputError` where it is unreadable, over 32 MB, no JSON, names a key twice, or where a row is not
    a trace, metadata and metrics that are finite numbers or null.
    """
    where = printable(str(path))
    content = _content(path, where)
    try:
        document = json.loads(content, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        what = "is nested too deep" if isinstance(error, RecursionError) else f"is no valid JSON: {error}"
        raise InputError(printable(what), where=where, hint=_HINT) from None
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows:
        raise InputError("has no list of rows", where=where, hint=_HINT)
    if len(rows) > _MOST_ROWS:
        raise InputError(f"has {len(rows):,} rows, more than {_MOST_ROWS:,}", where=where, hint=_HINT)
    generated = document.get("generated_at")
    return Leaderboard(
        path=path,
        sha256=sha256(content).hexdigest(),
        generated_at=generated if isinstance(generated, str) else None,
        rows=tuple(_row(row, number, where) for number, row in enumerate(rows, 1)),
    )


def _content(path: Path, where: str) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise InputError("is not a file", where=where, hint=_HINT)
        with path.open("rb") as stream:
            content = stream.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read: {reason}", where=where) from None
    if len(content) > LARGEST_BYTES:
        raise InputError(f"is over {LARGEST_BYTES // 1_000_000} MB", where=where, hint=_HINT)
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {shown(twice)} is there twice")
    return found


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _row(row: Any, number: int, where: str) -> PublishedRow:
    try:
        content = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        shape = msgspec.convert(row, _Shape)
        told = shape.metadata.get("workload_name")
        if not isinstance(told, str) or not told:
            raise ValueError("its metadata has no workload_name")
        endless = [column for column, value in shape.metrics.items() if not math.isfinite(value or 0)]
        if endless:
            raise ValueError(f"{shown(endless[0])} is no finite number")
    except (ValueError, OverflowError, RecursionError) as error:  # UnicodeEncodeError: half a surrogate pair
        reason = "holds text that is no Unicode" if isinstance(error, UnicodeError) else str(error)
        hint = "the file's other rows were not imported either"
        raise InputError(f"row {number}: {printable(reason)}", where=where, hint=hint) from None
    return PublishedRow(number, shape.metadata, shape.metrics, sha256(content).hexdigest())
