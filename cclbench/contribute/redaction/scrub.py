# SPDX-License-Identifier: Apache-2.0
"""One text, scrubbed: what has the form of a secret or an identity, and every name learnt elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cclbench.analyzers.data_loading import LOADER
from cclbench.classify import collective
from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Identities, replaced
from cclbench.contribute.redaction.pattern import CLEAN, NOTHING, PATTERNS, Pattern
from cclbench.normalize.steps import FAMILIES
from cclbench.text import printable

_ASSIGNED: Final = re.compile(r"(?:^|(?<=[\s;\0]))([A-Z_][A-Z0-9_]*)=(\"[^\"]*\"|[^\s;\0]*)")
_VARIABLE: Final = re.compile(r"([A-Za-z_]\w*)=")
_SHELL: Final = "PATH HOME USER SHELL PWD OLDPWD LOGNAME HOSTNAME TERM LANG SHLVL LD_LIBRARY_PATH"
_OF_A_SHELL: Final = frozenset(_SHELL.split())
_FEW, _MANY = 5, 12
"""Assignments in a row that are an environment: among them one of a shell's own, or none."""
_SHORT: Final = 12
_LONGEST_PLACE: Final = 60
_RUN: Final = re.compile(rb"(?:[\t\n\r\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]{1,3}){4,}")
_BEHIND: Final = 32
_VERSION: Final = re.compile(r"(?i)version")
_MARKERS: Final = re.compile(
    "|".join(f"(?:{family})" for family in FAMILIES)
    + r"|(?:enumerate\(|Optimizer\.|DistributedDataParallel\.|FullyShardedDataParallel\.|FSDP::|nccl:|gloo:"
    r"|## Call CompiledFxGraph|Torch-Compiled Region|CompiledFunction|ThreadpoolListener|PjitFunction\("
    r"|ParseArguments|TfrtCpu|PjRt|\$|end: |[A-Za-z_]\w*::).*"
)
"""Annotations that are a framework's own: steps, phases, its data loader and optimizer, its runtime."""


@dataclass(frozen=True, slots=True, order=True)
class Redaction:
    """`count` things of a `kind` replaced at a `place` of a file: a key, a table's column, a line."""

    file: str
    place: str
    kind: str
    count: int


def by_kind(redactions: Iterable[Redaction]) -> dict[str, int]:
    """How many things of each kind were replaced, sorted by kind."""
    counts: Counter[str] = Counter()
    for one in redactions:
        counts[one.kind] += one.count
    return dict(sorted(counts.items()))


class Scrubber:
    """The `Redactor` of one file: scrubs its texts by what is `known` of all of a data point's files.

    Methods return the text as it may be published and how many things were replaced, by kind; what was
    replaced where, `redactions` tells.
    """

    def __init__(self, known: Identities) -> None:
        self.known = known
        self._counts: Counter[tuple[str, str]] = Counter()
        self.first: dict[str, int] = {}
        """Where in the last text each kind was first replaced."""

    def text(self, text: str, field: str = "", *, by_line: bool = False) -> tuple[str, Counter[str]]:
        """Any text; `field` is what it is called, where something does; `by_line` where it has many lines."""
        self.first.clear()
        counts: Counter[str] = Counter()
        if not (len(text) < _SHORT and text.isidentifier()):
            for pattern in PATTERNS:
                if not pattern.marked(text):
                    continue
                if pattern.kind == kinds.ADDRESS and _VERSION.search(field):
                    continue
                text = self._replace(pattern, text, counts)
        text = self._names(text, counts)
        if text.count("=") >= _FEW:
            text = self._lines(text, counts) if by_line else self._environment(text, counts)
        return text, counts

    def kind_of_field(self, name: str) -> str | None:
        """The kind that a field of this name holds."""
        return kinds.kind_of_field(name)

    def is_marker(self, annotation: str) -> bool:
        """Whether an annotation is a framework's: a step, a phase, a data loader, a collective."""
        return (
            _MARKERS.fullmatch(annotation) is not None
            or re.search(LOADER, annotation) is not None
            or collective(annotation) is not None
        )

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        """Note what was replaced at a place of the file."""
        shown = printable(place)
        for kind, count in counts.items():
            at = shown if len(shown) <= _LONGEST_PLACE else f"{shown[:_LONGEST_PLACE]}…"
            self._counts[at, kind] += count

    def count_all(self, other: Scrubber) -> None:
        """Note what another one replaced."""
        self._counts.update(other._counts)

    def redactions(self, file: str) -> list[Redaction]:
        """What was replaced, by place and kind in the order they were met; the file may be called `file`."""
        name = printable(file)
        return [Redaction(name, place, kind, count) for (place, kind), count in self._counts.items() if count]

    def field(self, kind: str, text: str, *, name: str = "") -> tuple[str, Counter[str]]:
        """The value of a field that holds that kind, called `name` in an environment."""
        if kind in kinds.NUMBERED:
            new, counts = replaced(self.known, kind, text, learn=True), Counter[str]()
        elif kind == kinds.ENVIRONMENT:
            return self._variable(name, text)
        elif CLEAN.fullmatch(text) or NOTHING.fullmatch(text):
            return text, Counter()
        else:
            if kind == kinds.COMMAND:
                self.text(text)  # a command line tells of users, hosts and folders
            new, counts = kinds.HIDDEN[kind], Counter()
        if new != text:
            counts[kind] += 1
        return new, counts

    def annotation(self, text: str) -> tuple[str, Counter[str]]:
        """A person's annotation numbered, a framework's own scrubbed as any text."""
        if CLEAN.fullmatch(text) or self.is_marker(text):
            return self.text(text)
        return self.known.pseudonym(kinds.ANNOTATION, text), Counter({kinds.ANNOTATION: 1})

    def suspicious(self, data: bytes) -> bool:
        """Whether bytes may hold something; what they hold for sure, only the texts in them tell."""
        for pattern in PATTERNS:
            if any(mark in data for mark in pattern.byte_marks) and pattern.loose.search(data):
                return True
        if data.count(b"=") >= _FEW and len(_ASSIGNED.findall(data.decode("latin-1"))) >= _FEW:
            return True
        return self.known.mentioned(data.decode(errors="replace"))

    def masked(self, data: bytes) -> tuple[bytes, Counter[str]]:
        """Bytes in no known format: the texts in them are scrubbed and filled up to their own length."""
        counts: Counter[str] = Counter()

        def one(match: re.Match[bytes]) -> bytes:
            new, told = self.text(match[0].decode(errors="surrogateescape"), by_line=True)
            counts.update(told)
            raw = new.encode(errors="surrogateescape")
            size = len(match[0])
            return match[0] if not told else raw.ljust(size) if len(raw) <= size else b" " * size

        return _RUN.sub(one, data), counts

    def _replace(self, pattern: Pattern, text: str, counts: Counter[str]) -> str:
        def one(match: re.Match[str]) -> str:
            begin, end = pattern.hidden(match)
            hidden = match.string[begin:end]
            if pattern.exempt.fullmatch(hidden):
                return match[0]
            if pattern.behind and pattern.behind.search(
                match.string, max(0, match.start() - _BEHIND), match.start()
            ):
                return match[0]
            if pattern.role is None:
                new = kinds.HIDDEN[pattern.kind]
            else:
                new = replaced(self.known, pattern.role, hidden, learn=pattern.learn)
            if new == hidden:
                return match[0]
            counts[pattern.kind] += 1
            self.first.setdefault(pattern.kind, match.start())
            return match.string[match.start() : begin] + new + match.string[end : match.end()]

        return pattern.text.sub(one, text)

    def _names(self, text: str, counts: Counter[str]) -> str:
        def one(match: re.Match[str]) -> str:
            kind, new = self._replace_known(match[0])
            counts[kind] += 1
            self.first.setdefault(kind, match.start())
            return new

        if self.known.anywhere is None or not self.known.mentioned(text):
            return text
        return self.known.anywhere.sub(one, text)

    def _replace_known(self, text: str) -> tuple[str, str]:
        """Kind and pseudonym of a name that was found, a host's with or without its domain."""
        folded = text.casefold()
        known = self.known.by_name.get(folded) or self.known.by_name.get(folded.partition(".")[0])
        if known is None:  # letters whose case is more than a letter's
            return kinds.USER, self.known.pseudonym(kinds.USER, text)
        return known[0], self.known.pseudonyms[known]

    def _lines(self, text: str, counts: Counter[str]) -> str:
        lines = text.splitlines(keepends=True)
        at, new = 0, list[str]()
        for line in lines:
            before = counts[kinds.ENVIRONMENT]
            new.append(self._environment(line, counts, line=True) if line.count("=") >= _FEW else line)
            if counts[kinds.ENVIRONMENT] > before:
                self.first.setdefault(kinds.ENVIRONMENT, at)
            at += len(line)
        return "".join(new)

    def _environment(self, text: str, counts: Counter[str], *, line: bool = False) -> str:
        """A whole environment in a text: of its variables those stay that tell of the run's shape.

        A line of a script may set some variables for the command behind them, and is none.
        """
        assigned = _ASSIGNED.findall(text)
        hidden = sum(not kinds.kept(name) for name, _ in assigned)
        shell = any(name in _OF_A_SHELL for name, _ in assigned)
        command = line and _ASSIGNED.sub("", text).rpartition(":")[2].strip(" \t\r\n;")
        if not hidden or len(assigned) < (_FEW if shell and not command else _MANY):
            return text
        counts[kinds.ENVIRONMENT] += hidden
        stay = [f"{name}={value}" for name, value in assigned if kinds.kept(name)]
        return " ".join([*stay, kinds.HIDDEN[kinds.ENVIRONMENT]]) + ("\n" if text.endswith("\n") else "")

    def _variable(self, name: str, text: str) -> tuple[str, Counter[str]]:
        """One variable: `text` is its value where it has a `name`, else `NAME=value` or an environment."""
        new, counts = self.text(f"{name}={text}" if name else text)
        assigned = _VARIABLE.match(new)
        if counts[kinds.ENVIRONMENT] or CLEAN.fullmatch(text) or not text.strip():
            pass
        elif assigned is None:
            new, counts = kinds.HIDDEN[kinds.ENVIRONMENT], Counter({kinds.ENVIRONMENT: 1})
        elif not kinds.kept(assigned[1]):
            value = new[assigned.end() :].strip("\"'")
            if value and not CLEAN.fullmatch(value):
                new = assigned[0] + kinds.HIDDEN[kinds.ENVIRONMENT]
                counts = Counter({kinds.ENVIRONMENT: 1})
        return (new.removeprefix(f"{name}=") if name else new), counts
