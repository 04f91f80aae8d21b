# SPDX-License-Identifier: Apache-2.0
"""Redact texts (logs, tables, launch scripts, cards), otherwise unchanged.

In a card, `contributor` and the addresses of published evidence stay: they are meant to be published.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.documents import Language, LineChange, redact_document
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.ground.units import MIB

_MOST: Final = 64 * MIB
_KEY_BEGINS, _KEY_ENDS = b"-----BEGIN ", b"-----END "
PUBLISHED: Final = re.compile(
    r"^contributor:[^\n]*\n(?:[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)*|^[ \t-]*(?:source_)?url:[^\n]*", re.MULTILINE
)
"""Parts of a card that are meant to be published."""


def rewrite_text(
    blocks: Iterable[bytes],
    scrubber: Scrubber,
    write: Callable[[bytes], object],
    *,
    language: Language | None = None,
    card: bool = False,
) -> None:
    """Redact a file, a document of the `language` at once, any other text in blocks.

    A block ends with a line, outside of a private key.  `NotWellFormedError` if a document would not parse.
    """
    pending, line = b"", 1
    for block in blocks:
        # The text so far is cut only if more follows: the end of a text is processed as one block.
        if pending and (language is None or len(pending) >= _MOST):
            key_begin = pending.rfind(_KEY_BEGINS, 0, end := pending.rfind(b"\n") + 1)
            if key_begin >= 0 and pending.find(_KEY_ENDS, key_begin, end) < 0 and len(pending) < _MOST:
                end = pending.rfind(b"\n", 0, key_begin) + 1
            while pending.endswith(b"\\\n", 0, end):
                end = pending.rfind(b"\n", 0, end - 1) + 1
            if end == 0 and len(pending) >= _MOST:
                end = len(pending)  # a line without an end
            if end:
                line = _scrub_part(pending[:end], line, scrubber, write)
                pending = pending[end:]
        pending += block
    if language is not None and line == 1:
        write(_scrub_document(pending, language, scrubber, card=card))
    elif pending:
        _scrub_part(pending, line, scrubber, write)


def _scrub_part(raw: bytes, line: int, scrubber: Scrubber, write: Callable[[bytes], object]) -> int:
    """Scrub whole lines, the first of number `line`; returns the number of the line after them."""
    text = raw.decode(errors="surrogateescape")
    new, counts = scrubber.text(text, by_line=True)
    _count_changes(_line_changes(counts, scrubber, line), scrubber)
    write(raw if new == text else new.encode(errors="surrogateescape"))
    return line + raw.count(b"\n")


def _scrub_document(raw: bytes, language: Language, scrubber: Scrubber, *, card: bool) -> bytes:
    text = raw.decode(errors="surrogateescape")

    def scrub_text(text: str, kept: str) -> tuple[str, list[LineChange]]:
        new, counts = scrubber.text(text, by_line=language.lines, document=not language.lines, kept=kept)
        return new, _line_changes(counts, scrubber, 1)

    def scrub_card(text: str, kept: str) -> tuple[str, list[LineChange]]:
        """Scrub a card except its published parts, in which only credentials are hidden."""
        parts, changes, line = list[str](), list[LineChange](), 1
        for part, published in _card_parts(text):
            new, counts = scrubber.text(part, document=True, kept=kept)
            if not published or any(kinds.kind_of_rule(rule) in kinds.CREDENTIALS for rule in counts):
                changes += _line_changes(counts, scrubber, line)
                part, line = new, line + part.count("\n")
            else:
                line += part.count("\n")
            parts.append(part)
        return "".join(parts), changes

    new, changes = redact_document(
        text, language, scrubber, scrub_card if card else scrub_text, PUBLISHED if card else None
    )
    _count_changes(changes, scrubber)
    return raw if new == text else new.encode(errors="surrogateescape")


def _card_parts(card: str) -> Iterator[tuple[str, bool]]:
    """A card's text in parts, and whether each is meant to be published."""
    at = 0
    for published in PUBLISHED.finditer(card):
        yield card[at : published.start()], False
        yield published[0], True
        at = published.end()
    yield card[at:], False


def _line_changes(counts: Mapping[str, int], scrubber: Scrubber, line: int) -> list[LineChange]:
    return [LineChange(line + scrubber.first.get(rule, 0), rule, count) for rule, count in counts.items()]


def _count_changes(changes: Iterable[LineChange], scrubber: Scrubber) -> None:
    for line, rule, count in changes:
        scrubber.count(f"line {line:,}" if count == 1 else f"lines from {line:,}", {rule: count})
