# SPDX-License-Identifier: Apache-2.0
"""Scrub one text of everything in the form of a secret or identity, and of all names learnt elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from cclbench.contribute.redaction import environment, kinds
from cclbench.contribute.redaction.encoded import encoded_texts, joined_texts, reversed_text
from cclbench.contribute.redaction.names import Identities, replace_names
from cclbench.contribute.redaction.needles import PLAIN, NeedleForm, lines_with
from cclbench.contribute.redaction.needles import forms_pattern as encoded_pattern
from cclbench.contribute.redaction.pattern import CLEAN, ISSUED, NOTHING, PATTERNS, SecretPattern
from cclbench.contribute.redaction.redactions import Redaction
from cclbench.ground.text import printable

_SHORT: Final = 12
_LONG_TEXT: Final = 1000
"""Length from which a text is searched by lines."""
_LONG_WORD: Final = re.compile(r"[\w+/=.-]{6}", re.ASCII)
_MARKS: Final = tuple(mark for pattern in ISSUED for mark in pattern.marks)
_REVERSED_MARKS: Final = tuple(mark[::-1] for mark in _MARKS)
_MOST_PASSES: Final = 4
"""A replacement may reveal another match: a text is searched until nothing is found."""
_MOST_ENCODINGS: Final = 2
"""Most levels of nested encodings."""
_LONGEST_PLACE: Final = 60
_BEHIND: Final = 32
_BARE_KEY: Final = re.compile(
    r"[0-9a-f]{32,64}|(?=[A-Za-z+/]*\d)(?=[\w+/]*[A-Z])(?=[\w+/]*[a-z])[A-Za-z0-9+/]{12,}={0,2}"
    r"|(?=[\w-]*?(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{20})[\w-]{24,64}",
    re.ASCII,
)
"""Form of a key without a prefix, and of a name and password in base64."""
_KEY_PARAMETER: Final = re.compile(r"(?=[\w-]*\d)(?=[\w-]*[A-Z])(?=[\w-]*[a-z])[\w-]{32,}", re.ASCII)
_FORMS_OF_KEYS: Final = {kinds.BARE_KEY: _BARE_KEY, kinds.KEY_PARAMETER: _KEY_PARAMETER}
_ESCAPED_QUOTE: Final = re.compile(r"(?<!\\)\\[\"']")
_VERSION: Final = re.compile(r"(?i)version")
_LIKE_A_VERSION: Final = "IPv4 address"
"""The form that a version number may have."""
_KEY: Final = re.compile(r"([A-Za-z_][\w.-]{0,60})[\"'\]\\ ]{0,4}(?:[=:]|[ \t])[\"'\\ \t]{0,5}\Z")


class Scrubber:
    """The `Redactor` of one file: scrubs its texts by the `identities` in all files of the data point.

    Methods return the publishable text and the number of replacements by rule; `list_redactions` lists
    them by place.  `present` are the encoded forms of names and values that occur in the file.
    """

    def __init__(self, identities: Identities, present: Iterable[NeedleForm] = ()) -> None:
        self.identities = identities
        self.present: Mapping[bytes, NeedleForm] = {
            form.data: form for form in present if form.encoding != PLAIN
        }
        self._encoded = encoded_pattern(self.present.values())
        self._counts: Counter[tuple[str, str]] = Counter()
        self._kept = ""
        self.first: dict[str, int] = {}
        """Line of the last text, counted from 0, in which each rule first replaced something."""

    @property
    def learns(self) -> bool:
        """Whether names are collected."""
        return self.identities.learns

    def text(
        self,
        text: str,
        field: str = "",
        *,
        by_line: bool = False,
        document: bool = False,
        kept: str = "",
        depth: int = 0,
    ) -> tuple[str, Counter[str]]:
        """Scrub any text; `field` is its name, if it has one.

        `by_line`: each of its lines may be an environment; `document`: its values are also scrubbed one by
        one.  Characters that are `kept` stay in replaced texts.  `depth` is the number of encodings that
        enclosed the text.
        """
        self._kept = kept
        self.first.clear()
        counts, original = Counter[str](), text
        for _ in range(_MOST_PASSES):
            text, replaced = self._scrub_once(text, by_line=by_line, document=document, depth=depth)
            counts.update(replaced)
            if not replaced:
                break
        if field and counts and self.keeps(field, counts, original):
            return original, Counter()
        return text, counts

    def _scrub_once(
        self, text: str, *, by_line: bool, document: bool, depth: int
    ) -> tuple[str, Counter[str]]:
        counts: Counter[str] = Counter()
        if not (len(text) < _SHORT and text.replace("_", "").isalpha()):
            text = self._replace_split_tokens(text, counts)
            folded = text.lower()
            for pattern in PATTERNS:
                if pattern.may_match(text, folded):
                    new = self._replace_in_lines(pattern, text, folded, counts)
                    if new is not text:
                        text, folded = new, new.lower()
            text = self._replace_encoded_texts(text, counts, depth)
        text = self._replace_names(text, counts)
        if text.count("=") >= environment.FEW and not document:
            text = self._hide_environments(text, counts) if by_line else self._hide_environment(text, counts)
        return text, counts

    def keeps(self, field: str, counts: Mapping[str, int], text: str) -> bool:
        """Whether a field's text stays despite a match: its owner reveals it, or it is a version."""
        version = set(counts) == {_LIKE_A_VERSION} and _VERSION.search(field) is not None
        return version or self.identities.keeps(field, text)

    def kind_of_field(self, name: str) -> str | None:
        """The kind that a field of this name holds."""
        return kinds.REVEALED if self.identities.is_revealed(name) else kinds.kind_of_field(name)

    def listed_text(self, text: str) -> tuple[str, Counter[str]]:
        """Scrub a text by the rules alone."""
        return Scrubber.text(self, text)

    def publishes(self, key: str) -> bool:
        """Whether a field of that name is published with its value: all are, in what people write."""
        del key
        return True

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        """Add the replacements at a place of the file, by rule."""
        shown = printable(place)
        for rule, count in counts.items():
            at = shown if len(shown) <= _LONGEST_PLACE else f"{shown[:_LONGEST_PLACE]}…"
            self._counts[at, rule] += count

    def count_all(self, other: Scrubber) -> None:
        """Add another scrubber's replacements."""
        self._counts.update(other._counts)

    def list_redactions(self, file: str) -> list[Redaction]:
        """Replacements by place and rule, in order of occurrence; `file` is the publishable file name."""
        name = printable(file)
        return [
            Redaction(
                name, place, kinds.kind_of_rule(rule), count, printable(self._replace_names(rule, Counter()))
            )
            for (place, rule), count in self._counts.items()
            if count
        ]

    def field(self, kind: str, text: str, *, name: str = "") -> tuple[str, Counter[str]]:
        """Scrub the value of a field of that kind, named `name` in an environment."""
        if kind == kinds.REVEALED:
            self.identities.keep_value(text)
            return text, Counter()
        form = _FORMS_OF_KEYS.get(kind)
        if form is not None:
            if not form.fullmatch(text):
                return self.text(text, name)
            kind = kinds.SECRET
        if kind in kinds.NUMBERED:
            new, counts = replace_names(self.identities, kind, text, learn=True), Counter[str]()
        elif kind == kinds.ENVIRONMENT:
            return environment.hide_variable(name, text, self.identities, self.text)
        elif CLEAN.fullmatch(text) or NOTHING.fullmatch(text):
            return text, Counter()
        else:
            if kind == kinds.COMMAND:
                self.text(text)  # learn the users, hosts and folders in a command line
            new, counts = self.identities.stand_in_for_value(kind, text), Counter()
        if new != text:
            counts[kind] += 1
        return new, counts

    def _kept_signs(self, hidden: str) -> str:
        """The characters of a hidden text that are kept."""
        return "".join(sign for sign in hidden if sign in self._kept) if self._kept else ""

    def _note_first(self, rule: str, match: re.Match[str], counts: Counter[str]) -> None:
        counts[rule] += 1
        if rule not in self.first:
            self.first[rule] = match.string.count("\n", 0, match.start())

    def _replace_in_lines(self, pattern: SecretPattern, text: str, folded: str, counts: Counter[str]) -> str:
        """Replace the rule's matches; in a long text only lines with one of its marks are searched."""
        if pattern.across_lines or len(text) < _LONG_TEXT or len(folded) != len(text):
            return self._replace_pattern(pattern, text, counts)
        parts, at = list[str](), 0
        for begin, end in lines_with(pattern.marks, folded if pattern.ignore_case else text):
            old = text[begin:end]
            before = dict(self.first)
            new = self._replace_pattern(pattern, old, counts)
            if new != old:
                line = text.count("\n", 0, begin)
                self.first.update({rule: n + line for rule, n in self.first.items() if rule not in before})
                parts += text[at:begin], new
                at = end
        return "".join([*parts, text[at:]]) if at else text

    def _replace_pattern(self, pattern: SecretPattern, text: str, counts: Counter[str]) -> str:
        def replace_match(match: re.Match[str]) -> str:
            begin, end = pattern.hidden_span(match)
            if _ESCAPED_QUOTE.match(match.string, end - 1):
                end -= 1
            hidden = match.string[begin:end]
            escaped = match.string[begin - 1 : begin] == "\\"  # `\nuser-1`: n is the line break's
            if pattern.exempt_pattern.fullmatch(hidden.strip()) or (escaped and CLEAN.fullmatch(hidden[1:])):
                return match[0]
            if pattern.behind_pattern and pattern.behind_pattern.search(
                match.string, max(0, match.start() - _BEHIND), match.start()
            ):
                return match[0]
            if not pattern.is_varied_enough(hidden) or (
                pattern.doubtful and kinds.is_common_word(kinds.USER, hidden)
            ):
                return match[0]
            name = _key_before(match.string, begin)
            if name and self.identities.keeps(name, hidden):
                return match[0]
            if pattern.role is None:
                new = self.identities.stand_in_for_value(pattern.kind, hidden)
            else:
                new = replace_names(self.identities, pattern.role, hidden, learn=pattern.learn)
            new += self._kept_signs(hidden)
            if new == hidden:
                return match[0]
            rule = f"{pattern.name} ({name})" if name else pattern.name
            self._note_first(rule, match, counts)
            return match.string[match.start() : begin] + new + match.string[end : match.end()]

        new = pattern.text_pattern.sub(replace_match, text)
        while pattern.repeat and new != text:
            text, new = new, pattern.text_pattern.sub(replace_match, new)
        return new

    def _replace_split_tokens(self, text: str, counts: Counter[str]) -> str:
        """Hide issuers' tokens that are split by a break or reversed."""
        if _LONG_WORD.search(text) is None:
            return text
        views = [*joined_texts(text)]
        if any(mark in text for mark in _REVERSED_MARKS):
            views.append(reversed_text(text))
        tokens = list[tuple[int, int, str, str]]()
        for view in views:
            for pattern in ISSUED:
                if pattern.may_match(view.text, view.text):
                    for match in pattern.text_pattern.finditer(view.text):
                        span = view.at[match.start()], view.at[match.end() - 1]
                        tokens.append((min(span), max(span) + 1, pattern.kind, match[0]))
        # Tokens that are not split are left to their own rules.
        hidden = [token for token in tokens if text[token[0] : token[1]] != token[3]]
        for _, _, kind, value in hidden:
            self.identities.stand_in_for_value(kind, value)
        return self._cut_ranges(
            text, [(begin, end, kind) for begin, end, kind, _ in hidden], kinds.SPLIT, counts
        )

    def _replace_encoded_texts(self, text: str, counts: Counter[str], depth: int) -> str:
        """Hide the runs that decode to a text with something to redact."""
        if depth >= _MOST_ENCODINGS:
            return text
        ranges = []
        for begin, end, decoded in encoded_texts(text):
            new, inside = Scrubber(self.identities).text(decoded, depth=depth + 1)
            if inside and new != decoded:
                ranges.append((begin, end, kinds.SECRET))
        return self._cut_ranges(text, ranges, kinds.ENCODED, counts)

    def _cut_ranges(
        self, text: str, ranges: Iterable[tuple[int, int, str]], rule: str, counts: Counter[str]
    ) -> str:
        """Replace each range by the replacement of its kind; of overlapping ranges only the first."""
        parts, at = list[str](), 0
        for begin, end, kind in sorted(ranges, key=lambda span: (span[0], -span[1])):
            if begin >= at:
                counts[rule.format(kind)] += 1
                self.first.setdefault(rule.format(kind), text.count("\n", 0, begin))
                parts += text[at:begin], kinds.HIDDEN[kind], self._kept_signs(text[begin:end])
                at = end
        return "".join([*parts, text[at:]])

    def _replace_names(self, text: str, counts: Counter[str]) -> str:
        def replace_name(match: re.Match[str]) -> str:
            kind, new = self._replace_known(match[0])
            rule = kinds.ELSEWHERE.format(kind)
            self._note_first(rule, match, counts)
            return new

        def replace_encoded(match: re.Match[str]) -> str:
            form = self.present[match[0].encode(errors="surrogateescape").lower()]
            rule = kinds.ENCODED.format(form.kind)
            self._note_first(rule, match, counts)
            return self.identities.stand_in_for(form.kind, form.value)

        if self._encoded is not None:
            text = self._encoded.sub(replace_encoded, text)
        if self.identities.name_pattern is None or not self.identities.may_be_mentioned(text):
            return text
        return self.identities.name_pattern.sub(replace_name, text)

    def _replace_known(self, text: str) -> tuple[str, str]:
        """Kind and replacement of a name or value that was found, a host's with or without its domain."""
        folded = text.casefold()
        if value := self.identities.by_value.get(folded):
            return value, kinds.HIDDEN[value]
        if (
            folded.endswith(tuple(self.identities.domains))
            and folded.partition(".")[0] not in self.identities.by_name
        ):
            return kinds.HOST, self.identities.pseudonym_of(kinds.HOST, text)
        key = self.identities.by_name.get(folded) or self.identities.by_name.get(folded.partition(".")[0])
        if key is None:  # letters that casefold to several
            return kinds.USER, self.identities.pseudonym_of(kinds.USER, text)
        return key[0], self.identities.pseudonyms[key]

    def _hide_environments(self, text: str, counts: Counter[str]) -> str:
        """Hide single lines that are environments."""
        at, lines = 0, list[str]()
        for line in text.splitlines(keepends=True):
            found: Counter[str] = Counter()
            lines.append(self._hide_environment(line, found, line=True))
            for rule in found:
                self.first.setdefault(rule, at)
            counts.update(found)
            at += line.count("\n")
        return "".join(lines)

    def _hide_environment(self, text: str, counts: Counter[str], *, line: bool = False) -> str:
        new, found = environment.hide_environment(text, self.identities, line=line)
        counts.update(found)
        return new


def _key_before(text: str, at: int) -> str:
    """The field, variable or option whose value begins at `at`; empty if none."""
    found = _KEY.search(text, max(0, at - _LONGEST_PLACE - 20), at)
    return found[1] if found else ""
