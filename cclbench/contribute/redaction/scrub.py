# SPDX-License-Identifier: Apache-2.0
"""One text, scrubbed: what has the form of a secret or an identity, and every name learnt elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cclbench.classify import collective
from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Identities, replaced
from cclbench.contribute.redaction.needles import PLAIN, Form
from cclbench.contribute.redaction.needles import pattern as encoded_pattern
from cclbench.contribute.redaction.pattern import CLEAN, NOTHING, PATTERNS, Pattern
from cclbench.normalize.phases import LOADER, phase_told
from cclbench.normalize.steps import FAMILIES
from cclbench.text import printable

_ASSIGNED: Final = re.compile(r"(?:^|(?<=[\s;\0]))([A-Z_][A-Z0-9_]*)=(\"[^\"]*\"|[^\s;\0]*)")
_VARIABLE: Final = re.compile(r"([A-Za-z_]\w*)=")
_SHELL: Final = "PATH HOME USER SHELL PWD OLDPWD LOGNAME HOSTNAME TERM LANG SHLVL LD_LIBRARY_PATH"
_OF_A_SHELL: Final = frozenset(_SHELL.split())
_SOME, _FEW, _MANY = 2, 5, 12
"""Assignments in a row that are an environment: in a field of that name; among them one of a shell's own;
or none."""
_SHORT: Final = 12
_LONGEST_PLACE: Final = 60
_RUN: Final = re.compile(rb"(?:[\t\n\r\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]{1,3}){4,}")
_BEHIND: Final = 32
_BARE_KEY: Final = re.compile(
    r"[0-9a-f]{32,64}|(?=[A-Za-z+/]*\d)(?=[\w+/]*[A-Z])(?=[\w+/]*[a-z])[A-Za-z0-9+/]{12,}={0,2}", re.ASCII
)
"""What a key without a prefix looks like, and a name and password in base64."""
_VERSION: Final = re.compile(r"(?i)version")
_LIKE_A_VERSION: Final = "IPv4 address"
"""The form that a version may have."""
_KEY: Final = re.compile(r"([A-Za-z_][\w.-]{0,60})[\"'\]\\ ]{0,4}(?:[=:]|[ \t])[\"'\\ \t]{0,5}\Z")
_MARKERS: Final = re.compile(
    "|".join(f"(?:{family})" for family in FAMILIES)
    + r"|(?:enumerate\(|Optimizer\.|DistributedDataParallel\.|FullyShardedDataParallel\.|FSDP::|nccl:|gloo:"
    r"|## Call CompiledFxGraph|Torch-Compiled Region|CompiledFunction|ThreadpoolListener|PjitFunction\("
    r"|ParseArguments|TfrtCpu|PjRt|\$|end: |[A-Za-z_]\w*::).*"
)
"""Annotations that are a framework's own: steps, phases, its data loader and optimizer, its runtime."""


@dataclass(frozen=True, slots=True, order=True)
class Redaction:
    """`count` things of a `kind` replaced at a `place` of a file: a key, a table's column, a line.

    `rule` is what found them: a form by its name, with the field or variable that holds the value in
    parentheses, a field's kind, or that another place tells the same.
    """

    file: str
    place: str
    kind: str
    count: int
    rule: str


def by_kind(redactions: Iterable[Redaction]) -> dict[str, int]:
    """How many things of each kind were replaced, sorted by kind."""
    counts: Counter[str] = Counter()
    for one in redactions:
        counts[one.kind] += one.count
    return dict(sorted(counts.items()))


class Scrubber:
    """The `Redactor` of one file: scrubs its texts by what is `known` of all of a data point's files.

    Methods return the text as it may be published and how many things were replaced, by rule; what was
    replaced where, `redactions` tells.  `present` are the encoded forms of names and values that the file
    holds.
    """

    def __init__(self, known: Identities, present: Iterable[Form] = ()) -> None:
        self.known = known
        self.present: Mapping[bytes, Form] = {form.data: form for form in present if form.encoding != PLAIN}
        self._encoded = encoded_pattern(self.present.values())
        self._counts: Counter[tuple[str, str]] = Counter()
        self.first: dict[str, int] = {}
        """In which line of the last text, counted from 0, each rule first replaced something."""

    def text(self, text: str, field: str = "", *, by_line: bool = False) -> tuple[str, Counter[str]]:
        """Any text; `field` is what it is called, where something does; `by_line` where it has many lines."""
        self.first.clear()
        counts: Counter[str] = Counter()
        original = text
        if not (len(text) < _SHORT and text.replace("_", "").isalpha()):
            for pattern in PATTERNS:
                if pattern.marked(text):
                    text = self._replace(pattern, text, counts)
        text = self._names(text, counts)
        if text.count("=") >= _FEW:
            text = self._lines(text, counts) if by_line else self._environment(text, counts)
        if field and counts and self.keeps(field, counts, original):
            return original, Counter()
        return text, counts

    def keeps(self, field: str, counts: Mapping[str, int], text: str) -> bool:
        """Whether a field's text stays though something was found: its owner says so, or it is a version."""
        version = set(counts) == {_LIKE_A_VERSION} and _VERSION.search(field) is not None
        return version or self.known.keeps(field, text)

    def kind_of_field(self, name: str) -> str | None:
        """The kind that a field of this name holds."""
        return kinds.REVEALED if self.known.reveals(name) else kinds.kind_of_field(name)

    def is_marker(self, annotation: str) -> bool:
        """Whether an annotation is a framework's: a step, a phase, a data loader, a collective."""
        return (
            _MARKERS.fullmatch(annotation) is not None
            or re.search(LOADER, annotation) is not None
            or collective(annotation) is not None
        )

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        """Note what was replaced at a place of the file, by rule."""
        shown = printable(place)
        for rule, count in counts.items():
            at = shown if len(shown) <= _LONGEST_PLACE else f"{shown[:_LONGEST_PLACE]}…"
            self._counts[at, rule] += count

    def count_all(self, other: Scrubber) -> None:
        """Note what another one replaced."""
        self._counts.update(other._counts)

    def redactions(self, file: str) -> list[Redaction]:
        """What was replaced, by place and rule in the order they were met; the file may be called `file`."""
        name = printable(file)
        return [
            Redaction(name, place, kinds.of_rule(rule), count, printable(self._names(rule, Counter())))
            for (place, rule), count in self._counts.items()
            if count
        ]

    def field(self, kind: str, text: str, *, name: str = "") -> tuple[str, Counter[str]]:
        """The value of a field that holds that kind, called `name` in an environment."""
        if kind == kinds.REVEALED:
            self.known.keep(text)
            return text, Counter()
        if kind == kinds.BARE_KEY and not _BARE_KEY.fullmatch(text):
            return self.text(text, name)
        kind = kinds.SECRET if kind == kinds.BARE_KEY else kind
        if kind in kinds.NUMBERED:
            new, counts = replaced(self.known, kind, text, learn=True), Counter[str]()
        elif kind == kinds.ENVIRONMENT:
            return self._variable(name, text)
        elif CLEAN.fullmatch(text) or NOTHING.fullmatch(text):
            return text, Counter()
        else:
            if kind == kinds.COMMAND:
                self.text(text)  # a command line tells of users, hosts and folders
            new, counts = self.known.hidden(kind, text), Counter()
        if new != text:
            counts[kind] += 1
        return new, counts

    def annotation(self, text: str) -> tuple[str, Counter[str]]:
        """A person's annotation numbered, a framework's own scrubbed as any text.

        The number of one that tells a phase is followed by the phase.
        """
        phase = phase_told(text)
        bare = text.removesuffix(f" {phase}") if phase else text
        if CLEAN.fullmatch(bare) or self.is_marker(text):
            return self.text(text)
        number = self.known.pseudonym(kinds.ANNOTATION, text)
        return f"{number} {phase}" if phase else number, Counter({kinds.ANNOTATION: 1})

    def suspicious(self, data: bytes) -> bool:
        """Whether bytes may hold something; what they hold for sure, only the texts in them tell."""
        for pattern in PATTERNS:
            if any(mark in data for mark in pattern.byte_marks) and pattern.loose.search(data):
                return True
        lower = data.lower() if self.present else b""
        if any(form in lower for form in self.present):
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

        new = _RUN.sub(one, data)
        for form in self.present.values():
            blank = b" " * len(form.data)
            new, found = re.subn(re.escape(form.data), blank, new, flags=re.IGNORECASE)
            if found:
                counts[kinds.ENCODED.format(form.kind)] += found
        return new, counts

    def _met(self, rule: str, match: re.Match[str], counts: Counter[str]) -> None:
        counts[rule] += 1
        if rule not in self.first:
            self.first[rule] = match.string.count("\n", 0, match.start())

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
            if not pattern.fits(hidden) or (pattern.doubtful and kinds.common(kinds.USER, hidden)):
                return match[0]
            name = _key_before(match.string, begin)
            if name and self.known.keeps(name, hidden):
                return match[0]
            if pattern.role is None:
                new = self.known.hidden(pattern.kind, hidden)
            else:
                new = replaced(self.known, pattern.role, hidden, learn=pattern.learn)
            if new == hidden:
                return match[0]
            rule = f"{pattern.name} ({name})" if name else pattern.name
            self._met(rule, match, counts)
            return match.string[match.start() : begin] + new + match.string[end : match.end()]

        return pattern.text.sub(one, text)

    def _names(self, text: str, counts: Counter[str]) -> str:
        def one(match: re.Match[str]) -> str:
            kind, new = self._replace_known(match[0])
            rule = kinds.ELSEWHERE.format(kind)
            self._met(rule, match, counts)
            return new

        def decoded(match: re.Match[str]) -> str:
            form = self.present[match[0].encode(errors="surrogateescape").lower()]
            rule = kinds.ENCODED.format(form.kind)
            self._met(rule, match, counts)
            return self.known.instead(form.kind, form.value)

        if self._encoded is not None:
            text = self._encoded.sub(decoded, text)
        if self.known.anywhere is None or not self.known.mentioned(text):
            return text
        return self.known.anywhere.sub(one, text)

    def _replace_known(self, text: str) -> tuple[str, str]:
        """Kind and stand-in of a name or value that was found, a host's with or without its domain."""
        folded = text.casefold()
        if value := self.known.by_value.get(folded):
            return value, kinds.HIDDEN[value]
        if folded.endswith(tuple(self.known.domains)) and folded.partition(".")[0] not in self.known.by_name:
            return kinds.HOST, self.known.pseudonym(kinds.HOST, text)
        known = self.known.by_name.get(folded) or self.known.by_name.get(folded.partition(".")[0])
        if known is None:  # letters whose case is more than a letter's
            return kinds.USER, self.known.pseudonym(kinds.USER, text)
        return known[0], self.known.pseudonyms[known]

    def _lines(self, text: str, counts: Counter[str]) -> str:
        lines = text.splitlines(keepends=True)
        at, new = 0, list[str]()
        for line in lines:
            own: Counter[str] = Counter()
            new.append(self._environment(line, own, line=True) if line.count("=") >= _FEW else line)
            for rule in own:
                self.first.setdefault(rule, at)
            counts.update(own)
            at += line.count("\n")
        return "".join(new)

    def _environment(self, text: str, counts: Counter[str], *, line: bool = False, sure: bool = False) -> str:
        """A whole environment in a text: of its variables those stay that tell of the run's shape.

        A line of a script may set some variables for the command behind them, and is none; `sure` is who
        knows that the text is one.
        """
        assigned = _ASSIGNED.findall(text)
        hidden = [(n, v) for n, v in assigned if not kinds.kept(n) and not self.known.keeps(n, v)]
        shell = any(name in _OF_A_SHELL for name, _ in assigned)
        command = line and _ASSIGNED.sub("", text).rpartition(":")[2].strip(" \t\r\n;")
        least = _SOME if sure else _FEW if shell and not command else _MANY
        if not hidden or len(assigned) < least:
            return text
        for name, value in hidden:
            self.known.hidden(kinds.ENVIRONMENT, value)
            counts[f"{kinds.ENVIRONMENT} ({name[:_LONGEST_PLACE]})"] += 1
        stay = [f"{n}={v}" for n, v in assigned if (n, v) not in hidden]
        return " ".join([*stay, kinds.HIDDEN[kinds.ENVIRONMENT]]) + ("\n" if text.endswith("\n") else "")

    def _variable(self, name: str, text: str) -> tuple[str, Counter[str]]:
        """One variable: `text` is its value where it has a `name`, else `NAME=value` or an environment."""
        new, counts = self.text(f"{name}={text}" if name else text)
        if not name:
            new = self._environment(new, counts, sure=True)
        assigned = _VARIABLE.match(new)
        variable = assigned[1] if assigned else name
        rule = f"{kinds.ENVIRONMENT} ({variable[:_LONGEST_PLACE]})" if variable else kinds.ENVIRONMENT
        if variable and self.known.keeps(variable, text.removeprefix(f"{variable}=").strip("\"'")):
            return text, Counter()
        whole = any(of.startswith(f"{kinds.ENVIRONMENT} (") for of in counts)
        if whole or CLEAN.fullmatch(text) or not text.strip():
            pass
        elif assigned is None:
            new, counts = self.known.hidden(kinds.ENVIRONMENT, text), Counter({rule: 1})
        elif not kinds.kept(assigned[1]):
            value = new[assigned.end() :].strip("\"'")
            if value and not CLEAN.fullmatch(value):
                self.known.hidden(kinds.ENVIRONMENT, text.removeprefix(assigned[0]))
                new = assigned[0] + kinds.HIDDEN[kinds.ENVIRONMENT]
                counts = Counter({rule: 1})
        return (new.removeprefix(f"{name}=") if name else new), counts


def _key_before(text: str, at: int) -> str:
    """The field, variable or option whose value begins there; empty where none does."""
    found = _KEY.search(text, max(0, at - _LONGEST_PLACE - 20), at)
    return found[1] if found else ""
