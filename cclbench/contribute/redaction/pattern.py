# SPDX-License-Identifier: Apache-2.0
"""Forms that give something away, by themselves or by what stands beside them: entries of `forms.yaml`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from typing import AnyStr, Final

import msgspec


class Issued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A form of an issuer's secrets: an expression, what its matches begin with, and who says so."""

    issuer: str
    begins: tuple[str, ...]
    core: str
    source: str


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One form: `core` is looked for between `before` and `after`.

    Of what it matches, the group `hide` is replaced (also called `quoted` or `single` where a form has
    alternatives; all of it where there is none).  `marks`: one of them is in every text that the core
    matches, so many `times`.  Instead of both, `issued` lists issuers' secrets and `variables` those of an
    environment that hold a name.  A `role` makes the hidden name a numbered one of that kind, which `learn`
    replaces everywhere else too.  `unless` is what the hidden text must not be, `not_behind` what may not
    stand before it; `entropy` is the least of it in bits a character, and where it is `doubtful`, common
    words stay; `source` says who defines the form.
    """

    name: str
    kind: str
    core: str = ""
    marks: tuple[str, ...] = ()
    issued: tuple[Issued, ...] = ()
    variables: str = ""
    times: int = 1
    before: str = ""
    after: str = ""
    role: str | None = None
    learn: bool = False
    unless: str = r"(?!)"
    not_behind: str | None = None
    doubtful: bool = False
    entropy: float = 0.0
    source: str | None = None

    def __post_init__(self) -> None:
        """Make core and marks of what stands in their place."""
        core, marks = self.core, self.marks
        if self.variables:
            names = self.variables.split()
            core = f"(?:{'|'.join(names)})={{QUOTE}}(?P<hide>{{WORD}})"
            marks = tuple(f"{name}=" for name in names)
        elif self.issued:
            core = "|".join(form.core for form in self.issued)
            marks = tuple(begin for form in self.issued for begin in form.begins)
        msgspec.structs.force_setattr(self, "core", core)
        msgspec.structs.force_setattr(self, "marks", marks)

    @cached_property
    def text(self) -> re.Pattern[str]:
        """The form as it is looked for in a text."""
        return re.compile(expression(f"{self.before}(?:{self.core}){self.after}"), re.MULTILINE)

    @cached_property
    def loose(self) -> re.Pattern[bytes]:
        """The core alone, for bytes, where anything may stand beside a text."""
        return re.compile(expression(self.core).encode(), re.MULTILINE)

    @cached_property
    def byte_marks(self) -> tuple[bytes, ...]:
        """The marks, for bytes."""
        return tuple(mark.encode() for mark in self.marks)

    @cached_property
    def exempt(self) -> re.Pattern[str]:
        """What is no secret though it has the form; among it what redaction itself writes."""
        return re.compile(expression(f"(?:{{CLEAN}}|{self.unless})"))

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

    def fits(self, hidden: str) -> bool:
        """Whether the hidden text varies as much as the form's do."""
        return self.entropy == 0 or _entropy(hidden) >= self.entropy

    def hidden(self, match: re.Match[AnyStr]) -> tuple[int, int]:
        """Where in the text that lies which is to be replaced."""
        groups = [name for name in ("hide", "quoted", "single") if name in self.text.groupindex]
        return next((match.span(name) for name in groups if match[name] is not None), match.span())


class _Forms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: Mapping[str, str]
    forms: tuple[Pattern, ...]


_FORMS: Final = msgspec.yaml.decode(files(__package__).joinpath("forms.yaml").read_bytes(), type=_Forms)
PATTERNS: Final = _FORMS.forms
"""All forms, in the order they are looked for."""


def _entropy(text: str) -> float:
    """Of a text's characters by their counts (Shannon), in bits each."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def expression(text: str) -> str:
    """A regular expression as `re` takes it: no line breaks, `{NAME}` replaced by the part of that name."""
    return re.sub(r"\{([A-Z_]+)\}", lambda part: expression(_FORMS.parts[part[1]]), text.replace("\n", ""))


BEGINS, ENDS = expression("{BEGINS}"), expression("{ENDS}")
"""Before and after what no letter or digit adjoins."""
CLEAN: Final = re.compile(expression("{CLEAN}"))
"""What redaction itself writes."""
NOTHING: Final = re.compile(expression("{NOTHING}"))
"""Values that are no secret and no name, whatever the field is called."""
LOOPBACK: Final = re.compile(expression("(?i:{LOOPBACK}|)"))
"""What every machine calls itself, and addresses that mean any or no machine; nothing at all."""
