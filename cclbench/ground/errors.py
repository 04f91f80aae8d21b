# SPDX-License-Identifier: Apache-2.0
"""Exceptions for users: each states what is wrong, where, and what to do.

Every message has one to three lines.  Exit codes of the command line: `CheckFailed` 1, `UsageError` 2,
`InputError` 3, `UndecidedError` 5; any other exception is a defect of cclbench, 4.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from cclbench.ground.text import printable

_LISTED = 12
"""How many known names a hint lists if none is similar."""


class CclbenchError(Exception):
    """Base class of all errors raised on purpose; `exit_code` is that of the command line.

    `what` is one or several lines, in which control characters of quoted names are escaped.
    """

    exit_code = 4

    def __init__(
        self, what: str | Sequence[str], *, where: str | None = None, hint: str | None = None
    ) -> None:
        # Quoted names may contain line breaks and invalid bytes.
        self.lines = tuple(map(printable, [what] if isinstance(what, str) else what))
        self.where, self.hint = (None if text is None else printable(text) for text in (where, hint))
        super().__init__(str(self))

    @property
    def what(self) -> str:
        """What is wrong, as one text."""
        return "\n".join(self.lines)

    def __str__(self) -> str:
        located = f"{self.where}: {self.what}" if self.where else self.what
        return f"{located}; {self.hint}" if self.hint else located

    def __reduce__(self) -> tuple[object, ...]:
        # Workers send errors to the parent; pickling needs help with keyword-only arguments.
        return _rebuild_error, (type(self), self.lines, self.where, self.hint)


class CheckFailed(CclbenchError):  # noqa: N818  (it is the check that failed, not the program)
    """Readable input failed a check: an invalid card, a regression."""

    exit_code = 1


class UndecidedError(CclbenchError):
    """A check that could not be made: what it compares is not comparable."""

    exit_code = 5


class UsageError(CclbenchError):
    """The call itself is wrong: an unknown metric, run or option value."""

    exit_code = 2


class InputError(CclbenchError):
    """A file is unreadable, corrupt, contradictory or in an unsupported format."""

    exit_code = 3


class ChangedRunError(InputError):
    """A file of a stored run differs from what was written; no results of the run are returned."""


class PluginError(CclbenchError):
    """The code of a plug-in raised what it should not have; the message names its module."""


def install_hint(extra: str, *others: str) -> str:
    """How to install an extra and other packages, from the repository: no index has cclbench."""
    return " ".join(("in cclbench's repository: pip install", f"'.[{extra}]'", *others))


def _rebuild_error(
    kind: type[CclbenchError], lines: Sequence[str], where: str | None, hint: str | None
) -> CclbenchError:
    return kind(lines, where=where, hint=hint)


def _close_names(name: str, names: Sequence[str]) -> list[str]:
    """Names that begin with `name`, then similar ones."""
    begun = [each for each in names if name and each.startswith(name)]
    return [*begun, *difflib.get_close_matches(name, names, n=3, cutoff=0.5)]


def near(name: str, names: Iterable[str], others: Iterable[str] = ()) -> str:
    """A hint that lists the known names most similar to `name`, or else the first ones.

    Names that begin with `name` come first; `others`, such as aliases, come after the known names.
    """
    names = sorted(names)
    close = list(dict.fromkeys([*_close_names(name, names), *_close_names(name, sorted(others))]))[:3]
    if close:
        return "did you mean " + " or ".join(close) + "?"
    more = f", ... ({len(names) - _LISTED} more)" if len(names) > _LISTED else ""
    return "known: " + (", ".join(names[:_LISTED]) + more if names else "none")
