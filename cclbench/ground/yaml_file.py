# SPDX-License-Identifier: Apache-2.0
"""Strict YAML: one mapping, YAML 1.2 scalars, no duplicate keys, no references, with line numbers.

PyYAML's safe loader scans and parses; values are built here from its events, so that tags construct nothing
and references cannot expand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from cclbench.ground.diagnostics import Path, Problem, dotted_path
from cclbench.ground.errors import InputError
from cclbench.ground.text import printable, quoted_value

if TYPE_CHECKING:
    import yaml

LARGEST_BYTES = 1_000_000
DEEPEST = 16

_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(f"{sign}inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_INTEGER = re.compile(r"(?P<ten>[-+]?[0-9]+)|0o(?P<eight>[0-7]+)|0x(?P<sixteen>[0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASES = {"ten": 10, "eight": 8, "sixteen": 16}
_INTEGER_DIGITS = 24  # of any base; more cannot be a 64-bit integer
_NOWHERE = -1  # no list index: the place of keys and of repeated values, which have no path

_HINTS = {
    "mapping values are not allowed here": 'put a value that contains ": " in quotes',
    "could not find expected ':'": "every line of a mapping is `key: value`",
    "found character '\\t' that cannot start any token": "indent with spaces, not tabs",
}


@dataclass(frozen=True)
class Document:
    """A parsed YAML file: its mapping, the line of every key and item, the scalars as written.

    `problems` are recoverable ones: duplicate and non-text keys, control characters.
    """

    file: str
    value: Mapping[str, Any]
    lines: Mapping[Path, int]
    texts: Mapping[Path, str]
    problems: tuple[Problem, ...]

    def line(self, path: Path) -> int | None:
        """The line of `path`, or of its nearest enclosing key."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path)


def read(path: FilePath | str, noun: str) -> Document:
    """Read the YAML file at `path`; messages call it `noun` ("workload card").

    Raises `InputError` with file and line if it is missing, over 1 MB, not UTF-8, not YAML, empty, not one
    mapping, or uses anchors, aliases or tags.
    """
    path = FilePath(path)
    name = printable(str(path))
    try:
        if path.exists() and not path.is_file():
            raise InputError("is not a file", where=name)
        with path.open("rb") as stream:
            content = stream.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read: {reason}", where=name) from error
    if len(content) > LARGEST_BYTES:
        raise InputError("is over 1 MB", where=name, hint=f"a {noun} has a few kB; traces belong beside it")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"is not UTF-8 at byte {error.start:,}", where=f"{name}:{line}", hint="save it as UTF-8"
        ) from error
    return parse(text, name, noun)


_LOOSE = re.compile("[\t\ufeff]")


def parse(text: str, file: str, noun: str) -> Document:
    """Parse YAML; `file` is its name in messages.  Raises `InputError` as `read` does."""
    import yaml

    # libyaml takes a tenth of the time, but accepts misplaced tabs and byte order marks; what it refuses is
    # parsed again in Python, for the error message.
    if yaml.__with_libyaml__ and not _LOOSE.search(text):
        with suppress(yaml.YAMLError, ValueError, OverflowError):
            return _Composer(file, noun, yaml.parse(text, Loader=yaml.CSafeLoader)).document()
    try:
        return _Composer(file, noun, yaml.parse(text, Loader=yaml.SafeLoader)).document()
    except yaml.YAMLError as error:
        raise _not_yaml(error, text, file) from error
    except (ValueError, OverflowError) as error:  # escapes beyond Unicode, directives with absurd numbers
        raise InputError(f"is not valid YAML: {printable(str(error))}", where=file) from error


def _not_yaml(error: yaml.YAMLError, text: str, file: str) -> InputError:
    import yaml

    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return InputError(
            f"is not valid YAML: control character U+{error.character:04X}", where=f"{file}:{line}"
        )
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return InputError(f"is not valid YAML: {printable(str(error))}", where=file)
    context = ""
    if error.context and error.context_mark:
        context = f" ({error.context} that starts in line {error.context_mark.line + 1})"
    problem = error.problem or ""
    return InputError(
        printable(f"is not valid YAML: {problem}{context}"),
        where=f"{file}:{error.problem_mark.line + 1}:{error.problem_mark.column + 1}",
        hint=_HINTS.get(problem),
    )


def scalar(text: str) -> str | int | float | bool | None:
    """A plain scalar by the core schema of YAML 1.2 (section 10.3.2).

    Only true and false are booleans; `yes`, `on`, `1:30` and dates are text; `0o17` is 15; `1e9` a float.
    Raises `ValueError` for an integer beyond 64 bits.
    """
    if text in _WORDS:
        return _WORDS[text]
    if match := _INTEGER.fullmatch(text):
        base = match.lastgroup or "ten"
        number = int(match[base], _BASES[base]) if len(text) <= _INTEGER_DIGITS else 2**64
        if not -(2**63) <= number < 2**63:
            raise ValueError("a whole number beyond 64 bits")
        return number
    return float(text) if _FLOAT.fullmatch(text) else text


def _line_number(event: yaml.Event) -> int:
    mark: Any = event.start_mark  # the parser always sets it, whatever its stubs say
    return int(mark.line) + 1


@dataclass
class _Composer:
    """Builds the document from parser events."""

    file: str
    noun: str
    events: Iterator[Any]
    lines: dict[Path, int] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def document(self) -> Document:
        import yaml

        next(self.events)  # the stream's start
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise InputError("is empty", where=self.file, hint=f"a {self.noun} is a YAML mapping")
        value = self.node(next(self.events), ())
        if not isinstance(value, dict):
            what = (
                "is empty"
                if value is None
                else "is a list"
                if isinstance(value, list)
                else "is a single value"
            )
            raise InputError(
                what, where=self.file, hint=f"a {self.noun} is a YAML mapping of `key: value` lines"
            )
        next(self.events)  # the document's end
        if not isinstance(after := next(self.events), yaml.StreamEndEvent):
            raise self.refusal(
                after, "holds two YAML documents", f"put each {self.noun} into a file of its own"
            )
        return Document(self.file, value, self.lines, self.texts, tuple(self.problems))

    def refusal(self, event: yaml.Event, what: str, hint: str) -> InputError:
        return InputError(printable(what), where=f"{self.file}:{_line_number(event)}", hint=hint)

    def problem(self, event: yaml.Event, path: Path, message: str) -> None:
        line = _line_number(event)
        self.problems.append(Problem("error", self.file, line, printable(dotted_path(path)), message))

    def node(self, event: Any, path: Path) -> Any:
        import yaml

        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self.refusal(event, "uses a YAML anchor or alias", "write the value out")
        if event.tag is not None:
            raise self.refusal(event, f"uses the YAML tag {quoted_value(event.tag)}", "write the plain value")
        if len(path) > DEEPEST:
            raise self.refusal(event, f"is nested more than {DEEPEST} deep", f"no {self.noun} is that deep")
        self.lines.setdefault(path, _line_number(event))
        if isinstance(event, yaml.ScalarEvent):
            return self.value(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(path)
        return self.mapping(path)

    def value(self, event: yaml.ScalarEvent, path: Path) -> Any:
        text = event.value
        self.texts[path] = text
        if strange := sorted({c for c in text if c in _CONTROL or "\ud800" <= c <= "\udfff"}):
            self.problem(event, path, f"contains the control character U+{ord(strange[0]):04X}")
        if not event.implicit[0]:
            return text
        try:
            return scalar(text)
        except ValueError as error:
            raise self.refusal(
                event, f"{dotted_path(path)} is {error}", "put it in quotes if it is text"
            ) from None

    def sequence(self, path: Path) -> list[Any]:
        import yaml

        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, (*path, len(items))))
        return items

    def mapping(self, path: Path) -> dict[str, Any]:
        import yaml

        pairs: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.node(event, (*path, _NOWHERE))
            del self.lines[(*path, _NOWHERE)]
            if not isinstance(key, str):
                self.problem(
                    event, path, f"has the key {quoted_value(key)}, which is not text; put it in quotes"
                )
                key = str(key)
            key_path = (*path, key)
            if key in pairs:
                self.problem(event, key_path, f"is there twice, first in line {self.lines[key_path]}")
                key_path = (*key_path, _NOWHERE)
            else:
                self.lines[key_path] = _line_number(event)
            value = self.node(next(self.events), key_path)
            pairs.setdefault(key, value)
        return pairs


_CONTROL = frozenset(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) - frozenset("\n\t")
