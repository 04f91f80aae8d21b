# SPDX-License-Identifier: Apache-2.0
"""`timeline.yaml`: the columns of a table of operators, and what each operator does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from cclbench.formats.recognition import head_of
from cclbench.ground import yaml_file
from cclbench.ground.diagnostics import Path as Place
from cclbench.ground.diagnostics import Problem, dotted_path
from cclbench.ground.errors import InputError
from cclbench.ground.json_schema import packaged_schema, schema_problems
from cclbench.ground.scratch import stamp_of
from cclbench.ground.text import listed
from cclbench.ground.yaml_file import Document

FILE: Final = "timeline.yaml"
ENDINGS: Final = (".parquet", ".csv", ".jsonl")
COMPUTE, COPY, IGNORE = "compute", "copy", "ignore"
PAIRS: Final = ("send", "recv")
_MOST_SHOWN: Final = 2
_KEY: Final = re.compile(rb"""^["']?(?:columns|operators)["']?[ \t]*:""", re.MULTILINE)


class TimelineOperator(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator does (a kind of collective, COMPUTE, COPY or IGNORE), and with which ranks."""

    does: str
    category: str = "compute"
    over: tuple[str, ...] | None = None
    peer: dict[str, int] | None = None

    @property
    def communicates(self) -> bool:
        """Whether it is a collective or a transfer."""
        return self.does not in (COMPUTE, COPY, IGNORE)


class TimelineColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the table's columns."""

    rank: str
    operator: str
    start: str
    duration: str
    step: str | None = None
    stream: str | None = None
    sequence: str | None = None
    group: str | None = None
    peer: str | None = None
    bytes: str | None = None


class Time(msgspec.Struct, frozen=True, kw_only=True, rename={"origin": "from"}):
    """Unit of times, and whether they are relative to one origin or to the beginning of each step."""

    unit: Literal["s", "ms", "us", "ns"]
    origin: Literal["file", "step"] = "file"


class TimelineMapping(msgspec.Struct, frozen=True, kw_only=True):
    """The file; `place` is the column of each parallel dimension, `ranks` the number of ranks of the job."""

    version: int
    files: str
    columns: TimelineColumns
    time: Time
    operators: dict[str, TimelineOperator]
    place: dict[str, str] = {}
    ranks: int | None = None

    def operator_named(self, name: str) -> TimelineOperator | None:
        """The entry for an operator's name, None if there is none."""
        patterns = (pattern for pattern in self.operators if fnmatchcase(name, pattern))
        return next((self.operators[pattern] for pattern in patterns), None)


def is_mapped(path: Path) -> bool:
    """Whether the `timeline.yaml` in the file's folder names the file.

    A `timeline.yaml` with neither `columns` nor `operators` is another tool's.  `InputError` if it is
    invalid.
    """
    mapping = path.with_name(FILE)
    if path.name == FILE or not mapping.is_file() or not _KEY.search(head_of(mapping)):
        return False
    return fnmatchcase(path.name, mapping_at(mapping).files)


def mapping_at(path: Path) -> TimelineMapping:
    """The mapping in a YAML file, read again when it changes; `InputError` as `_read_mapping`."""
    return _read_mapping(path, stamp_of(path.stat()))


@lru_cache(maxsize=8)
def _read_mapping(path: Path, stamp: tuple[int, ...]) -> TimelineMapping:
    """Read a mapping; `InputError` with file and line if it is invalid."""
    del stamp
    document = yaml_file.read(path, "timeline mapping")
    problems = list(document.problems) or schema_problems(document, packaged_schema("timeline"))
    problems = problems or [
        Problem("error", document.file, document.line(place), dotted_path(place), message)
        for place, message in _mapping_contradictions(document)
    ]
    if problems:
        raise InputError(listed([str(problem) for problem in problems], _MOST_SHOWN))
    return msgspec.convert(document.value, TimelineMapping)


def _mapping_contradictions(document: Document) -> Iterator[tuple[Place, str]]:
    columns, place = document.value["columns"], document.value.get("place", {})
    if document.value["time"].get("from") == "step" and "step" not in columns:
        yield ("columns",), "has no step, to which times are relative"
    for name, operator in document.value["operators"].items():
        for key, message in _operator_contradictions(operator, columns, place):
            yield ("operators", name, key), message


def _operator_contradictions(
    operator: Mapping[str, Any], columns: Mapping[str, str], place: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    does = operator["does"]
    collective = does not in (COMPUTE, COPY, IGNORE, *PAIRS)
    if "category" in operator and does != COMPUTE:
        yield "category", f"is only for compute, and it does {does}"
    for key, fits in (("over", collective), ("peer", does in PAIRS)):
        if key not in operator:
            continue
        if not fits:
            yield key, f"does not apply to {does}"
        elif unplaced := [dimension for dimension in operator[key] if dimension not in place]:
            yield key, f"names {unplaced[0]}, for which `place` has no column"
        elif (column := "group" if key == "over" else "peer") in columns:
            yield key, f"and columns.{column} both state it"
