# SPDX-License-Identifier: Apache-2.0
"""Rules of what gives something away, by itself or by what stands beside it: the files of `rules/`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any, AnyStr, Final

import msgspec

_RULES: Final = ("tokens", "secrets", "people", "jobs", "machines")
"""Files of rules, in the order they are looked for."""


_LINE_BEGINS: Final = re.compile(r"(?<![\[\\])\^")


class Issued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer's tokens: an expression, texts of which each match holds one, an example, and who says so."""

    issuer: str
    marks: tuple[str, ...]
    core: str
    example: str
    source: str


class SecretPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One rule: `core` is looked for between `before` and `after`.

    Of what it matches, the group `hide` is replaced (also `quoted`, `single` or `hide2` to `hide9` where a
    rule has alternatives; all of it where there is none).  `marks`: one of them is in every text that the
    core matches, so many `times`; with `ignore_case` in any case of letters.  Instead of both, `issued` lists
    issuers' tokens and `variables` those of an environment that hold a name.  A `role` makes the hidden name
    a numbered one of that kind, which `learn` replaces everywhere else too.  `unless` is what the hidden text
    must not be, `not_behind` what may not stand before it; `entropy` is the least of it in bits a character,
    and where it is `doubtful`, common words stay.  `repeat` applies the rule until nothing changes, where one
    line shows that several are secrets; `across_lines`: a match may hold line breaks.

    `source` says who defines the form; `found` is an example and `becomes` what is left of it; `stays` are
    texts that look alike and stay.
    """

    name: str
    kind: str
    source: str
    found: str
    becomes: str
    stays: tuple[str, ...]
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
    ignore_case: bool = False
    repeat: bool = False
    across_lines: bool = False

    def __post_init__(self) -> None:
        """Make core and marks of what stands in their place."""
        core, marks = self.core, self.marks
        if self.variables:
            names = self.variables.split()
            core = f"(?:{'|'.join(names)})={{QUOTE}}(?P<hide>{{WORD}})"
            marks = tuple(f"{name}=" for name in names)
        elif self.issued:
            core = "|".join(form.core for form in self.issued)
            marks = tuple(mark for form in self.issued for mark in form.marks)
        msgspec.structs.force_setattr(self, "core", core)
        msgspec.structs.force_setattr(self, "marks", marks)

    @cached_property
    def _regex_flags(self) -> re.RegexFlag:
        return re.MULTILINE | (re.IGNORECASE if self.ignore_case else re.NOFLAG)

    @cached_property
    def text_pattern(self) -> re.Pattern[str]:
        """The rule as it is looked for in a text."""
        return re.compile(
            expand_expression(f"(?:{self.before})(?:{self.core})(?:{self.after})"), self._regex_flags
        )

    @cached_property
    def core_pattern(self) -> re.Pattern[bytes]:
        """The core alone, for bytes, where anything may stand beside a text and before a line."""
        return re.compile(_LINE_BEGINS.sub("", expand_expression(self.core)).encode(), self._regex_flags)

    @cached_property
    def byte_marks(self) -> tuple[bytes, ...]:
        """The marks, for bytes."""
        return tuple(mark.encode() for mark in self.marks)

    @cached_property
    def exempt_pattern(self) -> re.Pattern[str]:
        """What is no secret though it has the form; among it what redaction itself writes."""
        return re.compile(expand_expression(f"(?:{{CLEAN}}|{self.unless})"))

    @cached_property
    def behind_pattern(self) -> re.Pattern[str] | None:
        """What stands before no secret of this form."""
        return None if self.not_behind is None else re.compile(expand_expression(f"(?:{self.not_behind})$"))

    def may_match(self, text: str, folded: str) -> bool:
        """Whether the rule can match in a text at all; `folded` is the text in lower case."""
        text = folded if self.ignore_case else text
        for mark in self.marks:  # asked of every text: a generator would take twice as long
            if mark in text and (self.times == 1 or text.count(mark) >= self.times):
                return True
        return False

    def is_varied_enough(self, hidden: str) -> bool:
        """Whether the hidden text varies as much as the form's do."""
        return self.entropy == 0 or _shannon_entropy(hidden) >= self.entropy

    def hidden_span(self, match: re.Match[AnyStr]) -> tuple[int, int]:
        """Where in the text that lies which is to be replaced."""
        return next(
            (match.span(name) for name in self._hiding_groups if match[name] is not None), match.span()
        )

    @cached_property
    def _hiding_groups(self) -> tuple[str, ...]:
        return tuple(
            name for name in self.text_pattern.groupindex if name.startswith(("hide", "quoted", "single"))
        )


def _read_rules(name: str, kind: Any) -> Any:
    path = files(__package__).joinpath("rules", f"{name}.yaml")
    return msgspec.yaml.decode(path.read_bytes(), type=kind)


_PARTS: Final[Mapping[str, str]] = _read_rules("parts", dict[str, str])
PATTERNS: Final[tuple[SecretPattern, ...]] = tuple(
    pattern for name in _RULES for pattern in _read_rules(name, tuple[SecretPattern, ...])
)
"""All rules, in the order they are looked for."""
ISSUED: Final = tuple(pattern for pattern in PATTERNS if pattern.issued)
"""Rules of tokens that their issuers mark."""


def _shannon_entropy(text: str) -> float:
    """Of a text's characters by their counts (Shannon), in bits each."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def expand_expression(text: str) -> str:
    """A regular expression as `re` takes it: no line breaks, `{NAME}` replaced by the part of that name."""
    return re.sub(r"\{([A-Z_]+)\}", lambda part: expand_expression(_PARTS[part[1]]), text.replace("\n", ""))


BEGINS, ENDS = expand_expression("{BEGINS}"), expand_expression("{ENDS}")
"""Before and after what no letter or digit adjoins."""
CLEAN: Final = re.compile(expand_expression("{CLEAN}"))
"""What redaction itself writes."""
NOTHING: Final = re.compile(expand_expression("{NOTHING}"))
"""Values that are no secret and no name, whatever the field is called."""
LOOPBACK: Final = re.compile(expand_expression("(?i:{LOOPBACK}|)"))
"""What every machine calls itself, and addresses that mean any or no machine; nothing at all."""
