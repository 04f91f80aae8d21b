# SPDX-License-Identifier: Apache-2.0
"""A problem of a YAML file: an error as located data, and the safe printing of what a stranger wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Final, Literal

from cclbench.errors import CheckFailed

Path = tuple[str | int, ...]

_LONGEST_SHOWN = 80
_MOST_LISTED = 200
_LONGEST_TOLD: Final = 2000
# An underscore within a word formats nothing.
_FORMATS: Final = re.compile(r"([\\`*\[\]|~#$]|(?<![^\W_])_|_(?![^\W_]))")


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a file.

    `line` counts from 1 and is None where the problem is about the file as a whole; `path` is the
    key's place in the file (`hardware.scale_out.bandwidth`), empty for the whole of it.  An error
    makes the file invalid; a warning names what is missing or doubtful.
    """

    severity: Literal["error", "warning"]
    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line is not None else self.file
        return printable(f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}")

    def row(self) -> dict[str, str | int | None]:
        """The problem as a JSON object."""
        return asdict(self)


def check(problems: Sequence[Problem]) -> None:
    """Raise one `CheckFailed` that lists the errors (at most 200) among `problems`, if there is any."""
    errors = [str(problem) for problem in problems if problem.severity == "error"]
    if errors:
        more = [f"and {len(errors) - _MOST_LISTED} more"] if len(errors) > _MOST_LISTED else []
        raise CheckFailed("\n".join(errors[:_MOST_LISTED] + more))


def dotted(path: Path) -> str:
    """`("evidence", "traces", 0, "path")` → `evidence.traces[0].path`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_cut(part)}"
    return text.removeprefix(".")


def printable(text: str) -> str:
    """`text` without anything that steers a terminal: such characters, line breaks too, become escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def bounded(text: str) -> str:
    """As `printable`; what is longer than 2,000 characters is cut, and says so."""
    more = len(text) - _LONGEST_TOLD
    return printable(text) if more <= 0 else f"{printable(text[:_LONGEST_TOLD])}… ({more:,} more characters)"


def shortened(text: str, most: int) -> str:
    """`text` in at most `most` characters: of a longer one its head and its tail.

    Names of kernels begin alike and differ in the middle and at the end.
    """
    if len(text) <= most:
        return text
    tail = (most - 3) // 2
    return f"{text[: most - 3 - tail]}...{text[-tail:]}"


def as_markdown(text: str) -> str:
    """`text` as Markdown that shows it as it is: nothing in it formats, links, mentions or is HTML."""
    plain = _FORMATS.sub(r"\\\1", escape(printable(text), quote=False))
    return plain.replace("@", "&#64;").replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


def shown(value: object) -> str:
    """A value as messages quote it: JSON on one line, cut after 80 characters."""
    text = printable(json.dumps(value, ensure_ascii=False, default=str))
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
