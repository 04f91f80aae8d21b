# SPDX-License-Identifier: Apache-2.0
"""The SQL standard library: views over a run's tables, one file each.

A file `NAME.sql` is the view NAME: a header of comments (what its rows are, `Columns:`, `Example:`), then one
SELECT over tables (`schema.TABLES`, `machine_tables.TABLES`), functions (`functions.FUNCTIONS`) and other
views.  A package adds its own by an entry point of the group `cclbench.views`, whose module calls
`add_views(__name__)` for the files beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from cclbench.ground.errors import UsageError
from cclbench.ground.registry import Registry
from cclbench.ground.schema import TABLES as STORED_TABLES
from cclbench.sql.functions import FUNCTIONS
from cclbench.sql.machine_tables import TABLES as MACHINE_TABLES

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_COLUMN: Final = re.compile(r"(?P<name>\w+) (?P<type>[A-Z]+)(?: \[(?P<unit>[^\]]+)\])?: (?P<meaning>.+)")
_WORD: Final = re.compile(r"\w+")

VIEWS: Registry[View] = Registry("view", home="cclbench.sql", group="cclbench.views")


@dataclass(frozen=True, slots=True)
class Column:
    """A view's column: its name, DuckDB's type, what it means; `unit` is None where it has none."""

    name: str
    type: str
    unit: str | None
    meaning: str


@dataclass(frozen=True, slots=True)
class View:
    """A named query: what its rows are, its columns in order, a query that uses it, its SELECT."""

    name: str
    definition: str
    columns: tuple[Column, ...]
    example: str
    query: str

    @property
    def reads(self) -> frozenset[str]:
        """The tables, functions and other views that its SELECT names."""
        return names_in(re.sub(r"--[^\n]*", "", self.query)) - {self.name}


def add_views(package: str) -> None:
    """Register the views whose files (`*.sql`) lie in a package; `UsageError` for a bad header, or no file.

    add_views(__name__)  # in my_views/__init__.py, beside my_views/kernel_spread.sql
    """
    texts = {file.name: file for file in files(package).iterdir() if file.name.endswith(".sql")}
    if not texts:
        hint = "name them as package data: [tool.setuptools.package-data]"
        raise UsageError("no file NAME.sql is installed beside its modules", where=package, hint=hint)
    for name in sorted(texts):
        view = parse_view(name.removesuffix(".sql"), texts[name].read_text(encoding="utf-8"))
        VIEWS.add(view.name, view, origin=package)


def parse_view(name: str, text: str) -> View:
    """The view that a file's text defines; `UsageError` that names what its header lacks."""
    where = f"{name}.sql"
    if not _NAME.fullmatch(name) or name in STORED_TABLES or name in MACHINE_TABLES or name in FUNCTIONS:
        hint = "lower-case letters, digits and _, and no name of a table"
        raise UsageError(f"{name!r} is no name for a view", where=where, hint=hint)
    lines = text.splitlines()
    length = next((number for number, line in enumerate(lines) if not line.startswith("--")), len(lines))
    header = "\n".join(line.removeprefix("--").removeprefix(" ") for line in lines[:length])
    parts = re.fullmatch(r"(.+?)\n\nColumns:\n(.+?)\n\nExample:\n(.+)", header, re.DOTALL)
    if parts is None:
        hint = "comments: what the rows are, then 'Columns:' and 'Example:', with empty ones between"
        raise UsageError("has no complete header", where=where, hint=hint)
    definition, listed, example = parts.groups()
    return View(
        name=name,
        definition=" ".join(line for line in definition.splitlines() if not line.startswith("SPDX-")),
        columns=tuple(_column(entry, where) for entry in _entries(listed)),
        example="\n".join(line.strip() for line in example.strip().splitlines()),
        query="\n".join(lines[length:]).strip().removesuffix(";"),
    )


def _entries(listed: str) -> list[str]:
    """Entries of the header's columns: one begins at two spaces, its further lines at four."""
    return [
        " ".join(entry.split())
        for entry in re.split(r"^  (?! )", listed, flags=re.MULTILINE)
        if entry.strip()
    ]


def _column(entry: str, where: str) -> Column:
    column = _COLUMN.fullmatch(entry)
    if column is None:
        hint = "write: name TYPE [unit]: meaning"
        raise UsageError(f"{entry!r} describes no column", where=where, hint=hint)
    return Column(column["name"], column["type"], column["unit"], column["meaning"])


def names_in(query: str) -> frozenset[str]:
    """The tables, functions and views whose names stand in a query as words."""
    words = {word.casefold() for word in _WORD.findall(query)}
    return frozenset(words & {*STORED_TABLES, *MACHINE_TABLES, *FUNCTIONS, *VIEWS})


def dependency_closure(names: Iterable[str]) -> list[str]:
    """Those tables, functions and views and all that they read, each after what it reads."""
    ordered: dict[str, None] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise UsageError(f"the view {name!r} reads itself: {' <- '.join((*above, name))}")
        if name in ordered:
            return
        for read in sorted(VIEWS.get(name).reads) if name in VIEWS else ():
            add(read, (*above, name))
        ordered[name] = None

    for name in sorted(names):
        add(name, ())
    return list(ordered)
