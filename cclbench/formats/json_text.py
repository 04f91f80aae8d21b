# SPDX-License-Identifier: Apache-2.0
"""Redact JSON in bounded memory: texts are replaced in place, all other bytes are unchanged.

A block is split into texts and the bytes between them.  Each distinct text is redacted once, since a trace
repeats few texts often.  The name of a key decides how its value is treated: a host name, an environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from cclbench.formats.files import display_path, open_output, read_blocks, read_head, strip_padding
from cclbench.formats.rewriting import METADATA, UNREAD, Redactor
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.ground.units import MIB

_TEXT: Final = re.compile(rb'("(?:[^"\\]++|\\.)*+")', re.DOTALL)
_BETWEEN: Final = re.compile(
    rb"\A(?:\xef\xbb\xbf)?+(?:[\s\[\]{}:,]++|-?\d[\d.eE+-]*+|true|false|null|NaN|-?Infinity)*+\Z"
)
_NUMBER: Final = re.compile(rb'"\d{0,2}"')
_OBJECT: Final = re.compile(rb"[,\[}]\s*(?=\{)")
_AFTER_COLON: Final = re.compile(rb"\s*:\s*(-?\d[\d.]*)?([\[{])?")
_SCALAR: Final = re.compile(rb"(\s*:\s*)(-?\d[\d.eE+-]*|true|false|null|NaN|-?Infinity)")
_EMPTY: Final = re.compile(rb"\s*[\]}]")
_OPENS: Final = list(b"[{")
_CLOSES: Final = list(b"]}")
_BEGINS: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*[\"}]|\[\s*[\[{\"\]\d-])")
_LONGEST: Final = 64 * MIB
_MOST_KNOWN: Final = 1 << 19


class NotJsonError(ValueError):
    """The file is not JSON."""


class _Text(NamedTuple):
    """The replacement of a text."""

    raw: bytes
    counts: Mapping[str, int]


_PLAIN: Final = _Text(b"", {})


class JsonRewriter:
    """Rewrites one file: pass blocks to `feed_block` and write what it returns, then call `finish`.

    Values of the keys in `withheld` are emptied everywhere; with `outer`, so are the values of all other keys
    of the outermost object.
    """

    def __init__(
        self,
        redactor: Redactor,
        where: str,
        *,
        withheld: Mapping[str, str] | None = None,
        outer: Collection[str] | None = None,
    ) -> None:
        self._withheld, self._outer = withheld or {}, None if outer is None else frozenset(outer)
        self._level, self._emptied = 0, 0
        """Number of open lists and objects; that number where the one being emptied began, 0 if none is."""
        self._redactor, self._where = redactor, where
        self._left = b""
        self._read = 0
        self._known: dict[bytes, _Text] = {}
        self._unpublished: dict[bytes, bool] = {}

    def feed_block(self, block: bytes) -> bytes:
        """The rewritten bytes so far; a text or an object that is cut waits for the next block."""
        data = self._left + block
        pieces = _TEXT.split(data)
        at, cut = _cut_position(pieces)
        if at < 0:
            self._left = data
            if len(data) > _LONGEST:
                raise NotJsonError
            return b""
        last = pieces[at]
        self._left = b"".join([last[cut:], *pieces[at + 1 :]])
        return self._rewrite_pieces(data[: len(data) - len(self._left)], [*pieces[:at], last[:cut]])

    def finish(self) -> bytes:
        """The remaining bytes, without a text that is cut at the file's end."""
        data, self._left = self._left, b""
        *pieces, last = _TEXT.split(data)
        return self._rewrite_pieces(data, [*pieces, last.partition(b'"')[0]])

    def _rewrite_pieces(self, original: bytes, pieces: list[bytes]) -> bytes:
        if not _BETWEEN.match(b" ".join(pieces[0::2])):
            raise NotJsonError
        self._empty_withheld(pieces)
        special = {}
        for raw in set(pieces[1::2]) - {b""}:
            text = self._rewrite_text(raw)
            if text is not _PLAIN:
                special[raw] = text
        self._read += len(original)
        for i in [i for i in range(1, len(pieces), 2) if pieces[i] in special]:
            self._replace_text(pieces, i, special[pieces[i]])
        return b"".join(pieces)

    def _empty_withheld(self, pieces: list[bytes]) -> None:
        """Empty values that are not published, before any text is redacted."""
        texts = pieces[1::2]
        keys = {raw for raw in set(texts) - {b""} if self._is_unpublished(raw)}
        levels = _nesting_levels(pieces, self._level)
        is_withheld = np.array([raw in keys for raw in texts], np.bool_)
        if self._outer is not None:
            is_withheld |= levels[:-1] == 1
        next_piece = self._drop_contents(pieces, 0)
        for text in np.flatnonzero(is_withheld).tolist():
            if (at := 2 * text + 1) >= next_piece:
                self._level = int(levels[text])
                self._withhold_value(pieces, at)
                next_piece = self._drop_contents(pieces, at + 1)
        self._level = int(levels[-1])

    def _is_unpublished(self, raw: bytes) -> bool:
        """Whether a text, if it is a key, is one whose value is not published."""
        is_withheld = self._unpublished.get(raw)
        if is_withheld is None:
            name = self._decode_text(raw)
            is_withheld = name in self._withheld or not self._redactor.publishes(name)
            if len(self._unpublished) >= _MOST_KNOWN:
                self._unpublished.clear()
            self._unpublished[raw] = is_withheld
        return is_withheld

    def _withhold_value(self, pieces: list[bytes], i: int) -> None:
        """Empty the value of a key if it is not published."""
        if _AFTER_COLON.match(pieces[i + 1]) is None:
            return
        name = _decode_name(pieces[i])
        holds = self._withheld.get(name)
        if holds is None and self._outer is not None and self._level == 1 and name not in self._outer:
            holds = METADATA
        if holds is None and self._is_unpublished(pieces[i]):
            holds = UNREAD
        if holds is not None and not self._redactor.reveals(name):
            self._empty_value(pieces, i + 1, name, holds)

    def _drop_contents(self, pieces: list[bytes], i: int) -> int:
        """Drop the content of the list or object being emptied, from piece `i`; the index after it."""
        while self._emptied and i < len(pieces):
            pieces[i] = self._kept_between(pieces[i])
            if self._emptied and i + 1 < len(pieces):
                pieces[i + 1] = b""
            i += 2 if self._emptied else 1
        return i

    def _empty_value(self, pieces: list[bytes], i: int, name: str, holds: str) -> None:
        """Empty the value behind a key's colon; the content of a list or object is dropped as it comes."""
        scalar = _SCALAR.match(pieces[i])
        if scalar is not None:
            if scalar[2] != b"null":
                pieces[i] = scalar[1] + b"null" + pieces[i][scalar.end() :]
                self._redactor.count(name, {holds: 1})
        elif (began := _AFTER_COLON.match(pieces[i])) is not None and began[2] is not None:
            self._emptied = self._level + 1
            if _EMPTY.match(pieces[i], began.end()) is None:
                self._redactor.count(name, {holds: 1})
        elif i + 1 < len(pieces) and pieces[i + 1] != b'""':
            pieces[i + 1] = b'""'
            self._redactor.count(name, {holds: 1})

    def _kept_between(self, piece: bytes) -> bytes:
        """The bytes between texts, without the content of a list or object being emptied."""
        outside = bytearray()
        for part in re.split(rb"([\[\]{}])", piece):
            inside = self._emptied and self._level >= self._emptied
            if part in (b"[", b"{"):
                self._level += 1
            elif part in (b"]", b"}"):
                inside = inside and self._level > self._emptied
                self._emptied = 0 if self._level == self._emptied else self._emptied
                self._level -= 1
            if not inside:
                outside += part
        return bytes(outside)

    def _rewrite_text(self, raw: bytes) -> _Text:
        text = self._known.get(raw)
        if text is None:
            text = self._looked_at(raw)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[raw] = text
        return text

    def _looked_at(self, raw: bytes) -> _Text:
        if _NUMBER.fullmatch(raw):
            return _PLAIN
        text = self._decode_text(raw)
        new, counts = self._redactor.text(text)
        return _PLAIN if new == text else _Text(_encode_text(new, raw), dict(counts))

    def _decode_text(self, raw: bytes) -> str:
        try:
            return str(json.loads(raw, strict=False)) if b"\\" in raw else raw[1:-1].decode()
        except ValueError:
            raise InputError(
                "contains a text that is not valid JSON or UTF-8",
                where=f"{self._where}: at or after byte {self._read:,}",
                hint="what cannot be read cannot be redacted: write the file again",
            ) from None

    def _replace_text(self, pieces: list[bytes], i: int, text: _Text) -> None:
        """Replace a text, unless it is a figure of its field or revealed."""
        is_key = _AFTER_COLON.match(pieces[i + 1]) is not None
        field = "a key" if is_key else self._field_name(pieces, i)
        if not self._redactor.keeps(field, self._decode_text(pieces[i])):
            pieces[i] = text.raw
            self._redactor.count(field, text.counts)

    def _field_name(self, pieces: list[bytes], i: int) -> str:
        """The key whose value is, or contains, a text."""
        for at in range(i - 1, 0, -2):
            if pieces[at].strip()[:1] == b":":
                return _decode_name(pieces[at - 1])
        return "a list"


def rewrite_json(
    path: Path,
    target: Path | None,
    redactor: Redactor,
    *,
    withheld: Mapping[str, str] | None = None,
    outer: Collection[str] | None = None,
) -> bool:
    """Rewrite a JSON or JSON-lines file as `Format.rewrite` does; False if it is neither."""
    if not _BEGINS.match(read_head(path)):
        return False
    rewriter = JsonRewriter(redactor, display_path(path), withheld=withheld, outer=outer)
    try:
        with open_output(path, target) as write:
            for block in strip_padding(read_blocks(path)):
                write(rewriter.feed_block(block))
            write(rewriter.finish())
    except NotJsonError:  # a log may begin like JSON
        return False
    return True


def _nesting_levels(pieces: list[bytes], level: int) -> Int64:
    """Number of open lists and objects at each text and behind the last piece, shape (texts + 1,)."""
    between = np.frombuffer(b"\0".join(pieces[0::2]) + b"\0", np.uint8)
    steps = np.isin(between, _OPENS).astype(np.int64) - np.isin(between, _CLOSES)
    return np.asarray(level + np.cumsum(steps)[between == 0], np.int64)


def _cut_position(pieces: list[bytes]) -> tuple[int, int]:
    """Piece and offset where a block may end: before the last object of a list, else after the last comma."""
    last = pieces[-1].partition(b'"')[0]
    for i in range(len(pieces) - 1, -1, -2):
        begins = [match.end() for match in _OBJECT.finditer(last if i == len(pieces) - 1 else pieces[i])]
        if begins:
            return i, begins[-1]
    for i in range(len(pieces) - 1, -1, -2):
        at = (last if i == len(pieces) - 1 else pieces[i]).rfind(b",")
        if at >= 0:
            return i, at + 1
    return -1, 0


def _encode_text(text: str, like: bytes) -> bytes:
    """A text as JSON, in ASCII if the original was."""
    try:
        return json.dumps(text, ensure_ascii=like.isascii()).encode()
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def _decode_name(key: bytes) -> str:
    return str(json.loads(key, strict=False))
