# SPDX-License-Identifier: Apache-2.0
"""Rules that recognise secrets and identities by their form or context: the files of `rules/`."""

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
"""Files of rules, in the order in which they are applied."""


_LINE_BEGINS: Final = re.compile(r"(?<![\[\\])\^")


class Issued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer's tokens: their expression, marks of which each match has one, an example and its source."""

    issuer: str
    marks: tuple[str, ...]
    core: str
    example: str
    source: str


class SecretPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One rule: matches `core` between `before` and `after`.

    The group `hide` of the match is replaced (or `quoted`, `single`, `hide2` to `hide9` if a rule has
    alternatives; the whole match if there is no such group).  Every match contains one of `marks`, at least
    `times` times; with `ignore_case` in upper or lower case.  Instead of both, `issued` lists issuers' tokens
    and `variables` environment variables that hold a name.  With a `role` the hidden name becomes a numbered
    one of that kind; `learn` replaces it everywhere else, too.  The hidden text must not match `unless`, nor
    the text before it `not_behind`; `entropy` is its least entropy, bits per character; if `doubtful`, common
    words stay.  `repeat` applies the rule until nothing changes, for lines with several secrets;
    `across_lines`: a match may contain line breaks.

    `source` defines the form; `found` is an example and `becomes` its redacted text; `stays` are similar
    texts that stay.
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
        """Set core and marks from `variables` or `issued`."""
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
        """The rule's pattern for texts."""
        return re.compile(
            expand_expression(f"(?:{self.before})(?:{self.core})(?:{self.after})"), self._regex_flags
        )

    @cached_property
    def core_pattern(self) -> re.Pattern[bytes]:
        """The core alone, for bytes, in which anything may be next to a text or before a line."""
        return re.compile(_LINE_BEGINS.sub("", expand_expression(self.core)).encode(), self._regex_flags)

    @cached_property
    def byte_marks(self) -> tuple[bytes, ...]:
        """The marks, for bytes."""
        return tuple(mark.encode() for mark in self.marks)

    @cached_property
    def exempt_pattern(self) -> re.Pattern[str]:
        """Texts of the form that are not secrets, including those that redaction writes."""
        return re.compile(expand_expression(f"(?:{{CLEAN}}|{self.unless})"))

    @cached_property
    def behind_pattern(self) -> re.Pattern[str] | None:
        """Text that does not precede a secret of this form."""
        return None if self.not_behind is None else re.compile(expand_expression(f"(?:{self.not_behind})$"))

    def may_match(self, text: str, folded: str) -> bool:
        """Whether the rule can match in a text at all; `folded` is the text in lower case."""
        text = folded if self.ignore_case else text
        for mark in self.marks:  # called for every text: a generator would take twice as long
            if mark in text and (self.times == 1 or text.count(mark) >= self.times):
                return True
        return False

    def is_varied_enough(self, hidden: str) -> bool:
        """Whether the hidden text has at least the rule's entropy."""
        return self.entropy == 0 or _shannon_entropy(hidden) >= self.entropy

    def hidden_span(self, match: re.Match[AnyStr]) -> tuple[int, int]:
        """The range of the text to replace."""
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
"""All rules, in the order in which they are applied."""
ISSUED: Final = tuple(pattern for pattern in PATTERNS if pattern.issued)
"""Rules of tokens with an issuer's mark."""


def _shannon_entropy(text: str) -> float:
    """Shannon entropy of a text's characters, in bits per character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def expand_expression(text: str) -> str:
    """A regular expression for `re`: without line breaks, `{NAME}` replaced by the part of that name."""
    return re.sub(r"\{([A-Z_]+)\}", lambda part: expand_expression(_PARTS[part[1]]), text.replace("\n", ""))


BEGINS, ENDS = expand_expression("{BEGINS}"), expand_expression("{ENDS}")
"""Boundaries without an adjoining letter or digit."""
CLEAN: Final = re.compile(expand_expression("{CLEAN}"))
"""Texts that redaction itself writes."""
NOTHING: Final = re.compile(expand_expression("{NOTHING}"))
"""Values that are neither a secret nor a name in any field."""
LOOPBACK: Final = re.compile(expand_expression("(?i:{LOOPBACK}|)"))
"""Names that every machine has for itself, addresses of any or no machine, and the empty text."""
