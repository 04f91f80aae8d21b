# SPDX-License-Identifier: Apache-2.0
"""Texts: logs, tables, launch scripts, cards; line by line as they are, but for what is replaced in a line.

Of a card, `contributor` and the addresses of published evidence stay: they are there to be published.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.units import MIB

_MOST: Final = 64 * MIB
_KEY_BEGINS, _KEY_ENDS = b"-----BEGIN ", b"-----END "
PUBLISHED: Final = re.compile(
    r"^contributor:[^\n]*\n(?:[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)*|^[ \t-]*(?:source_)?url:[^\n]*", re.MULTILINE
)
"""Of a card, what is there to be published."""


def rewrite(
    blocks: Iterable[bytes], scrubber: Scrubber, write: Callable[[bytes], object], *, card: bool = False
) -> None:
    """All of a file in blocks that end where a line and no private key does."""
    left, line = b"", 1
    for block in blocks:
        left += block
        end = left.rfind(b"\n") + 1
        begun = left.rfind(_KEY_BEGINS, 0, end)
        if begun >= 0 and left.find(_KEY_ENDS, begun, end) < 0 and len(left) < _MOST:
            end = left.rfind(b"\n", 0, begun) + 1
        if end == 0 and len(left) >= _MOST:
            end = len(left)  # a line without an end
        if end and not card:
            line = _part(left[:end], line, scrubber, write)
            left = left[end:]
    if card:
        write(_card(left, scrubber))
    elif left:
        _part(left, line, scrubber, write)


def _part(raw: bytes, line: int, scrubber: Scrubber, write: Callable[[bytes], object]) -> int:
    """Scrub whole lines, the first of which has that number; the number of the line after them."""
    text = raw.decode(errors="surrogateescape")
    new, counts = scrubber.text(text, by_line=True)
    for rule, count in counts.items():
        first = line + scrubber.first.get(rule, 0)
        scrubber.count(f"line {first:,}" if count == 1 else f"lines from {first:,}", {rule: count})
    write(raw if new == text else new.encode(errors="surrogateescape"))
    return line + raw.count(b"\n")


def _card(raw: bytes, scrubber: Scrubber) -> bytes:
    """A card but for what it publishes on purpose; credentials are nowhere on purpose."""
    parts: list[bytes] = []
    at, line, text = 0, 1, raw.decode(errors="surrogateescape")
    for published in PUBLISHED.finditer(text):
        line = _part(_raw(text[at : published.start()]), line, scrubber, parts.append)
        _, counts = scrubber.text(published[0])
        if any(kinds.of_rule(rule) in kinds.CREDENTIALS for rule in counts):
            line = _part(_raw(published[0]), line, scrubber, parts.append)
        else:
            parts.append(_raw(published[0]))
            line += published[0].count("\n")
        at = published.end()
    _part(_raw(text[at:]), line, scrubber, parts.append)
    return b"".join(parts)


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
