# SPDX-License-Identifier: Apache-2.0
"""Find texts within a text: encoded (base64, hexadecimal, escapes, gzip) or split by line breaks."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

_LONGEST: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_AROUND: Final = 400
"""Characters to join on both sides of a break; tokens are shorter."""
_BEGINS: Final = re.compile(
    rb"\x1f\x8b\x08|(?:[\t\n\r\x20-\x7e]|[\xc2-\xf4][\x80-\xbf])+.?\Z|(?:[\t\n\r\x20-\x7e]\0){5}", re.DOTALL
)
"""First bytes of a gzip stream, or of a text in UTF-8 or UTF-16."""
_PRINTABLE: Final = 0.95
"""Least share of printable characters in an encoded text; a plain name has few after decoding."""


class EncodedText(NamedTuple):
    """A range of a text that encodes another text, and that text."""

    begin: int
    end: int
    text: str


class RejoinedText(NamedTuple):
    """A joined or reversed text, and the index of each of its characters in the original."""

    text: str
    at: Sequence[int]


def encoded_texts(text: str) -> Iterator[EncodedText]:
    """Every run of characters that decodes to a printable text, from left to right for each encoding."""
    for mark, run, decode in _ENCODINGS:
        if mark not in text:
            continue
        for match in run.finditer(text):
            decoded = decode(match[0])
            if decoded is not None and decoded != match[0]:
                yield EncodedText(match.start(), match.end(), decoded)


def joined_texts(text: str) -> Iterator[RejoinedText]:
    """The text around shell continuations, folds, wrapped lines and adjacent strings, joined.

    Breaks near one another are joined both together and each alone: text next to a token may look like a
    part of it.
    """
    for breaks in _BREAKS:
        run = list[re.Match[str]]()
        for match in breaks.finditer(text):
            if run and match.start() - run[-1].end() > _AROUND:
                yield _join_text(text, run)
                run.clear()
            run.append(match)
            yield _join_text(text, [match])
        if len(run) > 1:
            yield _join_text(text, run)


def _join_text(text: str, breaks: Sequence[re.Match[str]]) -> RejoinedText:
    at, end = list[int](), max(0, breaks[0].start() - _AROUND)
    for match in breaks:
        at += range(end, match.start())
        end = match.end()
    at += range(end, min(len(text), end + _AROUND))
    return RejoinedText("".join(map(text.__getitem__, at)), at)


def reversed_text(text: str) -> RejoinedText:
    """The text from its end to its beginning."""
    return RejoinedText(text[::-1], range(len(text) - 1, -1, -1))


def _readable_text(data: bytes) -> str | None:
    """Bytes decoded as UTF-8 or UTF-16, inflated first if they are gzip; None if they are not a text."""
    if data.startswith(_GZIP):
        try:
            data = zlib.decompressobj(31).decompress(data, _LONGEST)
        except zlib.error:
            return None
    wide = len(data) >= 8 and len(data) % 2 == 0 and data[1::2].count(0) * 2 > len(data[1::2])
    try:
        text = data.decode("utf-16-le" if wide else "utf-8")
    except UnicodeDecodeError:
        return None
    shown = sum(letter.isprintable() or letter in "\t\r\n" for letter in text)
    return text if text and shown >= _PRINTABLE * len(text) else None


def _decode_base64(run: str) -> str | None:
    letters = re.sub(r"[\s=]", "", run).translate(str.maketrans("-_", "+/"))
    letters = letters[: len(letters) - (len(letters) % 4 == 1)]
    try:
        if not _BEGINS.match(base64.b64decode(letters[:16])):
            return None
        return _readable_text(base64.b64decode(letters + "=" * (-len(letters) % 4)))
    except binascii.Error:
        return None


def _decode_hex(run: str) -> str | None:
    return _readable_text(bytes.fromhex(re.sub(r"(?i)\\x|[\s:]", "", run)))


def _decode_escapes(run: str) -> str | None:
    units = bytes.fromhex(run.replace("\\", "").replace("u", ""))
    return units.decode("utf-16-be", errors="replace")


_ENCODINGS: Final[tuple[tuple[str, re.Pattern[str], Callable[[str], str | None]], ...]] = (
    # Alone, or in lines of one width, as `base64` and mail write it.
    (
        "\n",
        re.compile(r"(?<![\w+/-])(?:[A-Za-z0-9+/]{48,76}\r?\n[ \t]*)+[A-Za-z0-9+/]{1,76}={0,2}(?![\w+/=-])"),
        _decode_base64,
    ),
    ("", re.compile(r"(?<![\w+/-])[\w+/-]{20,}+={0,2}", re.ASCII), _decode_base64),
    ("", re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{2}){12,}+(?![0-9A-Za-z])"), _decode_hex),
    ("\\x", re.compile(r"(?:\\x[0-9A-Fa-f]{2}){6,}"), _decode_hex),
    (
        "",
        re.compile(r"(?<![0-9A-Za-z:])[0-9A-Fa-f]{2}(?:[ :][0-9A-Fa-f]{2}){11,}+(?![0-9A-Za-z:])"),
        _decode_hex,
    ),
    ("\\u", re.compile(r"(?:\\u[0-9A-Fa-f]{4}){6,}"), _decode_escapes),
    (
        "%",
        re.compile(r"(?<![\w.~:/?&=+-])[\w.~:/?&=+-]*+(?:%[0-9A-Fa-f]{2}[\w.~:/?&=+-]*+){3,}", re.ASCII),
        unquote,
    ),
)
"""For each encoding: a substring that it always has, its pattern and its decoder."""
_BREAKS: Final = (
    # A backslash ends the line: a shell's continuation, a folded scalar in quotes.
    re.compile(r"\\\r?\n[ \t]*"),
    # A line of one word that looks random continues the word before it.
    re.compile(
        r"(?<=[\w+/-]{4})\r?\n[ \t]*(?=[\w+/.=-]{6,}[\"']?[ \t]*(?:\r?\n|$))"
        r"(?=[\w+/.=-]*\d)(?=[\w+/.=-]*[A-Za-z])",
        re.ASCII,
    ),
    # Adjacent strings of a program.
    re.compile(r"(?<=[\w-])([\"'])[ \t]*(?:\+[ \t]*(?:\r?\n)?|\\?\r?\n)?[ \t]*\1(?=[\w-])", re.ASCII),
)
