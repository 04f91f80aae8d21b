# SPDX-License-Identifier: Apache-2.0
"""Search for values in bytes, in the encodings in which programs write them.

A search is linear in the size of the data, whatever the number of values: the first eight (or four) bytes
of every form are entered in a table by hash, all positions of a block are looked up at once, and forms are
compared only at hits.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

import numpy as np

from cclbench.contribute.redaction import kinds

PLAIN: Final = "as it is"
_TABLE_BITS: Final = 20
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_WIDTHS: Final = (8, 4)
"""Leading bytes of a form that are hashed: eight if it is that long."""
_LEAST_ENCODED: Final = 6
"""Least length of a value to search for its encoded forms: shorter ones occur by chance."""
_ALNUM: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789")


class NeedleForm(NamedTuple):
    """A value in one encoding, as lower-case bytes; `words`: it matches only as a whole word."""

    data: bytes
    encoding: str
    value: str
    kind: str
    words: bool


class NeedleFound(NamedTuple):
    """A form and the offset at which it was found."""

    at: int
    form: NeedleForm


def encoded_forms(value: str, kind: str) -> Iterator[NeedleForm]:
    """The value as it is and in every encoding; a number only encoded, since it may be any number."""
    credential = kind in kinds.CREDENTIALS
    if not value.isdigit():
        yield NeedleForm(_lower_bytes(value), PLAIN, value, kind, not credential)
    if len(value) >= _LEAST_ENCODED:
        seen = {_lower_bytes(value)}
        for encoding, data in _encodings(value):
            if data.lower() not in seen:
                seen.add(data.lower())
                yield NeedleForm(data.lower(), encoding, value, kind, False)


def _lower_bytes(value: str) -> bytes:
    return value.encode(errors="surrogateescape").lower()


def _encodings(value: str) -> Iterator[tuple[str, bytes]]:
    raw = value.encode(errors="surrogateescape")
    for encoding in ("utf-16-le", "utf-16-be"):
        yield encoding.upper(), value.encode(encoding, errors="surrogatepass")
    once = json.dumps(value)[1:-1]
    units = value.encode("utf-16-be", errors="surrogatepass")
    yield "JSON", once.encode()
    yield "JSON", once.replace("/", "\\/").encode()
    yield "JSON", json.dumps(once)[1:-1].encode()
    yield "JSON", "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)).encode()
    yield "percent", quote(raw, safe="").encode()
    yield "percent", quote(raw).encode()
    yield "percent", "".join(f"%{byte:02x}" for byte in raw).encode()
    yield "hex", raw.hex().encode()
    for shift, first in ((0, 0), (1, 2), (2, 3)):
        # The characters that depend on the value alone, not on the bytes before and after it.
        encoded = base64.b64encode(bytes(shift) + raw)[first : (shift + len(raw)) * 8 // 6]
        yield "base64", encoded
        yield "base64", encoded.translate(bytes.maketrans(b"+/", b"-_"))
    if not value.isdigit():
        yield "reversed", value[::-1].encode(errors="surrogateescape")


class Needles:
    """Values, by kind, to search for in bytes."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.forms: Mapping[bytes, NeedleForm] = {
            form.data: form for value, kind in sorted(values.items()) for form in encoded_forms(value, kind)
        }
        self._longest = max(map(len, self.forms), default=0)
        self._tables: list[tuple[int, np.ndarray, dict[bytes, list[NeedleForm]]]] = []
        for width in _WIDTHS:
            by_prefix: dict[bytes, list[NeedleForm]] = {}
            for form in self.forms.values():
                if len(form.data) >= width and (width == _WIDTHS[0] or len(form.data) < _WIDTHS[0]):
                    by_prefix.setdefault(form.data[:width], []).append(form)
            if by_prefix:
                table = np.zeros(1 << _TABLE_BITS, dtype=bool)
                table[_word_hashes(b"".join(by_prefix), width, 0)] = True
                self._tables.append((width, table, by_prefix))

    def find_in_blocks(self, blocks: Iterable[bytes]) -> Iterator[NeedleFound]:
        """Find every form in the data, given in blocks."""
        if not self.forms:
            return
        at, held = 0, b""
        for block in blocks:
            data = held + block.lower()
            # Hold the last bytes for the next block, and the one before them, which may end a word.
            end = len(data) - self._longest
            if end > 1:
                yield from self._find_between(data, at, end)
                held = data[end - 1 :]
                at += end - 1
            else:
                held = data
        yield from self._find_between(held, at, len(held))

    def _find_between(self, data: bytes, offset: int, end: int) -> Iterator[NeedleFound]:
        for width, table, by_prefix in self._tables:
            for shift in range(width):
                if len(data) - shift < width:
                    break
                for position in np.flatnonzero(table[_word_hashes(data, width, shift)]):
                    begin = int(position) * width + shift
                    if begin >= end or (offset and not begin):
                        continue
                    for form in by_prefix.get(data[begin : begin + width], ()):
                        if data.startswith(form.data, begin) and _is_whole(data, begin, form):
                            yield NeedleFound(offset + begin, form)


def _word_hashes(data: bytes, width: int, shift: int) -> np.ndarray:
    """Table index of each word of `width` bytes."""
    words = np.frombuffer(data, f"<u{width}", (len(data) - shift) // width, shift)
    return (words.astype(np.uint64) * _MULTIPLIER) >> np.uint64(64 - _TABLE_BITS)


def _is_whole(data: bytes, begin: int, form: NeedleForm) -> bool:
    """Whether a hit counts: next to a form that is a whole word there is no letter or digit."""
    neighbours = data[max(0, begin - 1) : begin] + data[begin + len(form.data) : begin + len(form.data) + 1]
    return not (form.words and _ALNUM.intersection(neighbours))


def forms_pattern(forms: Iterable[NeedleForm]) -> re.Pattern[str] | None:
    """Pattern of the forms, in upper or lower case."""
    texts = {form.data.decode(errors="surrogateescape") for form in forms}
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    flags = re.IGNORECASE | re.ASCII
    return re.compile("|".join(map(re.escape, longest_first)), flags) if texts else None


def lines_with(marks: Iterable[str], text: str) -> list[tuple[int, int]]:
    """Ranges of the lines that contain one of the marks, in order."""
    ranges = set[tuple[int, int]]()
    for mark in marks:
        at = text.find(mark)
        while at >= 0:
            end = text.find("\n", at + len(mark))
            end = len(text) if end < 0 else end
            ranges.add((text.rfind("\n", 0, at) + 1, end))
            at = text.find(mark, end)
    return sorted(ranges)
