# SPDX-License-Identifier: Apache-2.0
"""A form that gives something away, by itself or by what stands beside it; the forms themselves are data.

`core` is looked for between `before` and `after`; of what it matches, the group `hide` is replaced (also
called `quoted` or `single` where a form has alternatives; all of it where there is none).  `marks`: one of
them is in every text that the core matches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import AnyStr, Final

from cclbench.contribute.redaction import kinds

NOTHING: Final = (
    r"(?i:-?[\d.]+[kmg]?|true|false|none|null|nil|yes|no|on|off|auto|required|optional|undefined|\W*)"
)
"""Values that are no secret and no name, whatever the field is called."""
LOOPBACK: Final = r"localhost(?:\.localdomain)?|local(?: \(cli\))?|(?:127|0|255)\.[\d.]+|::1?"
"""What every machine calls itself, and addresses that mean any or no machine; in any case of letters."""
LOCAL: Final = rf"(?i:{LOOPBACK}|\*)(?::\d+)?"
"""The same as a value, with or without a port."""
NOT_CALLED: Final = r"(?![\w.]*[(\[])"
"""Ahead of a value: it is no call or index of a program."""
QUOTE: Final = r"\\?[\"']?"
"""Ahead of a value: its quote, escaped or not, where it has one."""
BEGINS, ENDS = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
"""Before and after what no letter or digit adjoins."""


@dataclass(frozen=True)
class Pattern:
    """One form.

    A `role` makes the hidden name a numbered one of that kind, which `learn` replaces everywhere else too.
    `unless` is what the hidden text must not be, `not_behind` what may not stand before it.
    """

    name: str
    kind: str
    core: str
    marks: tuple[str, ...] = ()
    times: int = 1
    """How often one of the marks is there."""
    before: str = ""
    after: str = ""
    role: str | None = None
    learn: bool = False
    unless: str = r"(?!)"
    not_behind: str | None = None

    @cached_property
    def text(self) -> re.Pattern[str]:
        """The form as it is looked for in a text."""
        return re.compile(f"{self.before}(?:{self.core}){self.after}", re.MULTILINE)

    @cached_property
    def loose(self) -> re.Pattern[bytes]:
        """The core alone, for bytes, where anything may stand beside a text."""
        return re.compile(self.core.encode(), re.MULTILINE)

    @cached_property
    def byte_marks(self) -> tuple[bytes, ...]:
        """The marks, for bytes."""
        return tuple(mark.encode() for mark in self.marks)

    @cached_property
    def exempt(self) -> re.Pattern[str]:
        """What is no secret though it has the form; among it what redaction itself writes."""
        return re.compile(f"(?:{kinds.CLEAN}|{self.unless})")

    @cached_property
    def behind(self) -> re.Pattern[str] | None:
        """What stands before no secret of this form."""
        return None if self.not_behind is None else re.compile(f"(?:{self.not_behind})$")

    def marked(self, text: str) -> bool:
        """Whether the form can be in a text at all."""
        for mark in self.marks:  # asked of every text: a generator would take twice as long
            if mark in text and (self.times == 1 or text.count(mark) >= self.times):
                return True
        return False

    def hidden(self, match: re.Match[AnyStr]) -> tuple[int, int]:
        """Where in the text that lies which is to be replaced."""
        groups = [name for name in ("hide", "quoted", "single") if name in self.text.groupindex]
        return next((match.span(name) for name in groups if match[name] is not None), match.span())
