# SPDX-License-Identifier: Apache-2.0
"""The exceptions people meet: each says what is wrong, where, and what to do next.

Every message is one to three lines.  The command line turns them into exit codes:
`CheckFailed` 1, `UsageError` 2, `InputError` 3; anything else is a defect of ours, 4.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from cclbench.ground.text import printable

_LISTED = 12
"""How many known names a hint lists where none is near."""


class CclbenchError(Exception):
    """Base of all errors raised on purpose; `exit_code` is the command line's answer.

    `what` is a line or several; whatever names stand in them, no line holds a control character.
    """

    exit_code = 4

    def __init__(
        self, what: str | Sequence[str], *, where: str | None = None, hint: str | None = None
    ) -> None:
        # Names in it may hold line breaks, and bytes that no table or document takes.
        self.lines = tuple(map(printable, [what] if isinstance(what, str) else what))
        self.where, self.hint = (None if text is None else printable(text) for text in (where, hint))
        super().__init__(str(self))

    @property
    def what(self) -> str:
        """What is wrong: the lines."""
        return "\n".join(self.lines)

    def __str__(self) -> str:
        located = f"{self.where}: {self.what}" if self.where else self.what
        return f"{located}; {self.hint}" if self.hint else located

    def __reduce__(self) -> tuple[object, ...]:
        # Workers send errors back to the parent; keyword-only arguments need help to survive it.
        return _rebuild, (type(self), self.lines, self.where, self.hint)


class CheckFailed(CclbenchError):  # noqa: N818  (it is the check that failed, not the program)
    """Input was readable, and a check on it failed: an invalid card, a regression."""

    exit_code = 1


class UsageError(CclbenchError):
    """The call itself is wrong: an unknown metric, run or option value."""

    exit_code = 2


class InputError(CclbenchError):
    """A file is unreadable, corrupt, contradictory or in no format we read."""

    exit_code = 3


class ChangedRunError(InputError):
    """A file of a stored run is not what was written: who asks for one number of the run gets none."""


class PluginError(CclbenchError):
    """The code of a plug-in raised what it should not have; the message names its module."""


def install_hint(extra: str, *others: str) -> str:
    """How to install an extra, and other packages with it: from the repository, as no index has cclbench."""
    return " ".join(("in cclbench's repository: pip install", f"'.[{extra}]'", *others))


def _rebuild(
    kind: type[CclbenchError], lines: Sequence[str], where: str | None, hint: str | None
) -> CclbenchError:
    return kind(lines, where=where, hint=hint)


def _close(name: str, known: Sequence[str]) -> list[str]:
    """Names that begin with what was written, then those that are alike."""
    begun = [each for each in known if name and each.startswith(name)]
    return [*begun, *difflib.get_close_matches(name, known, n=3, cutoff=0.5)]


def near(name: str, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """A hint that lists the nearest known names, or the first of all where none is near.

    Names that begin with what was written are nearest; `others`, such as aliases, come after the known.
    """
    known = sorted(known)
    close = list(dict.fromkeys([*_close(name, known), *_close(name, sorted(others))]))[:3]
    if close:
        return "did you mean " + " or ".join(close) + "?"
    more = f", ... ({len(known) - _LISTED} more)" if len(known) > _LISTED else ""
    return "known: " + (", ".join(known[:_LISTED]) + more if known else "none")
