# SPDX-License-Identifier: Apache-2.0
"""Errors and warnings about YAML files, with their locations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from cclbench.ground.errors import CheckFailed
from cclbench.ground.text import listed, printable, quoted, shorten_middle

Path = tuple[str | int, ...]

_MOST_LISTED = 200
_LONGEST = 500
"""Maximum characters of a message, which may quote a value of any length."""


@dataclass(frozen=True)
class Problem:
    """One error or warning about a file.

    `line` counts from 1 and is None if the problem concerns the whole file; `path` is the dotted path of the
    key (`hardware.scale_out.bandwidth`), empty for the whole file.  An error makes the file invalid; a
    warning reports what is missing or doubtful.
    """

    severity: Literal["error", "warning"]
    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line is not None else self.file
        message = shorten_middle(self.message, _LONGEST)
        return printable(f"{where}: {self.path}: {message}" if self.path else f"{where}: {message}")

    def as_row(self) -> dict[str, str | int | None]:
        """The problem as a JSON object."""
        return asdict(self)


def check(problems: Sequence[Problem]) -> None:
    """Raise `CheckFailed` with the errors among `problems` (at most 200), if there are any."""
    errors = [str(problem) for problem in problems if problem.severity == "error"]
    if errors:
        raise CheckFailed(listed(errors, _MOST_LISTED))


def dotted_path(path: Path) -> str:
    """`("evidence", "traces", 0, "path")` → `evidence.traces[0].path`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{quoted(part)}"
    return text.removeprefix(".")
