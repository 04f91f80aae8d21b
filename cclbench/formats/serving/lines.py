# SPDX-License-Identifier: Apache-2.0
"""The result objects of a file, a single one or one a line, and the line where each begins.

They are written by Python's `json`, and may contain `Infinity` (SGLang's request rate) and `NaN`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, TypeGuard

from cclbench.formats.texts import read_whole
from cclbench.ground.errors import InputError

LARGEST: Final = 256 << 20
"""Most bytes of a (decompressed) file that are read."""
HALF_PAIR: Final = "has a text with half a surrogate pair, which is not Unicode"
MOST: Final = 1 << 50
"""Largest accepted count or rate of a benchmark."""


@dataclass(frozen=True, slots=True)
class WrittenResult:
    """A result as written by the client: fractions are Decimals, so a float is NaN or infinite."""

    entries: dict[str, Any]
    where: str

    def list_of(self, name: str) -> list[Any] | None:
        """The list with this name, None if absent; `InputError` if it is not a list."""
        value = self.entries.get(name)
        if value is not None and not isinstance(value, list):
            raise self.entry_error(f"{name} is not a list")
        return value

    def object_of(self, name: str) -> WrittenResult:
        """The object with this name, empty if absent; `InputError` if it is none."""
        entries = self.entries.get(name, {})
        if not isinstance(entries, dict):
            raise self.entry_error(f"{name} is not an object")
        return WrittenResult(entries, f"{self.where}: {name}")

    def objects_of(self, name: str) -> list[WrittenResult]:
        """The objects of the list with this name, none if absent; `InputError` if an entry is none."""
        entries = self.list_of(name) or []
        if not all(isinstance(entry, dict) for entry in entries):
            raise self.entry_error(f"{name} has an entry that is not an object")
        return [WrittenResult(entry, f"{self.where}: {name} {n:,}") for n, entry in enumerate(entries, 1)]

    def bounded_number(self, name: str, value: object, most: int = MOST) -> float:
        """A count, a rate or a time from 0 to `most`; `InputError` otherwise."""
        if not is_number(value) or not 0 <= value <= most:
            raise self.entry_error(f"{name} is not a number from 0 to {most:.3g}")
        return float(value)

    def entry_error(self, what: str) -> InputError:
        """The error for an invalid entry."""
        return InputError(what, where=self.where, hint="run the benchmark again, or remove this result")


def is_number(value: object) -> TypeGuard[int | Decimal]:
    """Whether a value is a finite number."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def written_results(path: Path) -> Iterator[WrittenResult]:
    """Each result of the file, a list or one a line; `InputError` with the place of the first invalid one."""
    text = _text(path)
    if text.lstrip().startswith("["):
        yield from listed_results(path)
        return
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and not (lines[0][1].rstrip().endswith("}") or lines[1][1].startswith("{")):
        lines = [(lines[0][0], "\n".join(line for _, line in lines))]
    for number, line in lines:
        yield _result(_parsed(line, path, number), f"{path}: line {number}")


def listed_results(path: Path) -> Iterator[WrittenResult]:
    """Each object of the file's JSON array, or its only object; `InputError` where it is none."""
    document = _parsed(_text(path), path, 1)
    for number, entry in enumerate(document if isinstance(document, list) else [document], 1):
        yield _result(entry, f"{path}: entry {number:,}")


def _text(path: Path) -> str:
    try:
        text = read_whole(path, LARGEST).decode()
    except UnicodeDecodeError as error:
        raise InputError("bytes that are not UTF-8", where=f"{path}: byte {error.start:,}") from None
    if not text.strip():
        raise InputError("the file is empty", where=str(path), hint="run the benchmark again")
    return text


def require_unicode(value: object, text: str) -> None:
    """`UnicodeEncodeError` for half a surrogate pair in a value of JSON `text`, which no text may contain."""
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False, default=str).encode()


def _parsed(text: str, path: Path, line: int) -> Any:
    message = "is nested too deeply, or has a number with too many digits"
    try:
        value = json.loads(text, parse_float=Decimal)
        require_unicode(value, text)
        return value
    except json.JSONDecodeError as error:
        message, line = f"is not JSON ({error.msg}, column {error.colno})", line + error.lineno - 1
    except UnicodeEncodeError:
        message = HALF_PAIR
    except (ValueError, InvalidOperation, RecursionError):
        pass
    raise InputError(
        message, where=f"{path}: line {line}", hint="run the benchmark again, or remove this line"
    )


def _result(entries: Any, where: str) -> WrittenResult:
    if not isinstance(entries, dict):
        raise InputError(
            "is not a JSON object", where=where, hint="run the benchmark again, or remove this line"
        )
    return WrittenResult(entries, where)
