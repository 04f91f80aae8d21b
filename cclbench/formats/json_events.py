# SPDX-License-Identifier: Apache-2.0
"""Chrome-trace JSON in bounded memory: the array of events in chunks, cut between events.

A chunk is cut where a pattern matches the end of one event and the beginning of the next.  If the match was
inside an event, the chunk does not decode; it is then cut again at an end found by counting brackets.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from cclbench.formats.json_errors import UNDECODABLE, error_location, is_truncation, states_byte, value_end
from cclbench.formats.streams import LARGEST_RATIO, PIECE, is_compressed, open_bytes, unreadable_error
from cclbench.formats.trace import Cut, Part
from cclbench.ground.errors import InputError

E = TypeVar("E")
_WHOLE: Final = Part()

CHUNK: Final = 1 << 20
LONGEST_EVENT: Final = 64 << 20
_SALVAGE: Final = "re-run with --allow-truncated to use the part before it"
END: Final = 64 << 10
"""Bytes at a file's end that are read separately."""
_NEAR: Final = (4 << 10, 32 << 10)
"""Bytes at a chunk's end that usually contain the beginning of its last event, fewer first."""
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}\s*,\s*(?=\{\s*(?:\}|"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:))')
_ARRAY_END = re.compile(rb"\}\s*\](?=\s*(?:[,}]|$))")
_COMMA = re.compile(rb"\s*,\s*")
_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)
_INSTEAD = b'{"traceEvents":0'
"""Replaces a file up to the end of its events, so that the rest completes a JSON object."""


class _JsonEvent(msgspec.Struct):
    ph: str


_FIRST = msgspec.json.Decoder(_JsonEvent)


def first_event(path: Path, at: int) -> int | None:
    """Offset of the first event that begins within `CHUNK` bytes from `at`; None if none does."""
    with open_bytes(path) as file:
        file.seek(at)
        begin = _event_begin(file.read(CHUNK))
    return None if begin is None else at + begin


def _event_begin(buffer: bytes) -> int | None:
    """Offset of the first complete event in a buffer that begins anywhere in a file; None without one."""
    for boundary in _BETWEEN.finditer(buffer):
        begin = boundary.end()
        try:
            _FIRST.decode(buffer[begin : next(_event_ends(buffer, begin), begin)])
        except UNDECODABLE:
            continue
        return begin
    return None


class JsonEvents(Generic[E]):
    """Iterates (chunk, events): the chunk's bytes as a JSON array, and that array decoded.

    `part` selects a range of bytes, in an uncompressed file or in a file of inflated bytes; both its ends
    are `first_event`s or the ends of the file.
    """

    def __init__(
        self,
        path: Path,
        decoder: msgspec.json.Decoder[list[E]],
        *,
        part: Part = _WHOLE,
        allow_truncated: bool = False,
    ) -> None:
        self.path, self.decoder, self.allow_truncated = path, decoder, allow_truncated
        self.outer: dict[str, Any] = {}
        """The other top-level keys: those before the events once iteration begins, all at its end."""
        self.cut: Cut | None = None
        self.forward = part.inflated is not None or is_compressed(path)
        """Whether the file's end can only be read after everything before it."""
        self.end = b""
        """The last bytes read; after iteration over a compressed file, its last readable bytes."""
        self._file: io.BufferedIOBase
        self._source = path if part.inflated is None else Path(part.inflated)
        try:
            self._size = self._source.stat().st_size
        except OSError as error:
            raise unreadable_error(path, error) from None
        self._begin = 0 if part.inflated else part.begin or 0
        self._end = self._size if part.inflated or part.end is None else part.end
        self.last = part.end is None if part.inflated else self._end >= self._size
        """Whether the part ends where the file does."""
        self._read = 0
        self._offset = 0
        self._count = 0
        self._bare = False
        self._before = b""
        self._spent = False
        self._piece = min(PIECE, CHUNK) if self.forward else CHUNK

    def __iter__(self) -> Iterator[tuple[bytes, list[E]]]:
        with open_bytes(self._source) as self._file:
            yield from self._decode_chunks()
            if self.cut and self.forward and not self._spent:
                self._skip_to_end()

    def inflated_parts(self, folder: Path, size: int) -> Iterator[Part]:
        """Write parts of about `size` bytes to `folder`, cut where an event begins; yield each when written.

        Each file begins with the text before the events.  Nothing is decoded.
        """
        with open_bytes(self._source) as self._file:
            block = self._read_head()
            begin, position, last = 0, self._offset, False
            for number in count():
                path = folder / f"inflated-{number:03d}.json"
                with path.open("wb") as out:
                    out.write(self._before)
                    at = None
                    while at is None and not last:
                        out.write(block)
                        position += len(block)
                        block = self._next_block()
                        last = not block
                        at = _event_begin(block) if position - begin >= size else None
                    out.write(block[:at])
                if at is None:
                    yield Part(begin=begin, inflated=str(path))
                    return
                position += at
                yield Part(begin=begin, end=position, inflated=str(path))
                begin, block = position, block[at:]

    def _skip_to_end(self) -> None:
        """Read the rest of the file after the damage."""
        with suppress(OSError, EOFError, zlib.error):
            while block := self._file.read1(PIECE):
                self.end = (self.end + block)[-END:]

    def _decode_chunks(self) -> Iterator[tuple[bytes, list[E]]]:
        buffer = self._read_head()
        if self._begin:
            self._file.seek(self._begin)
            self._read = self._offset = self._begin
            buffer = b""
        while True:
            block = b"" if self.cut else self._next_block()
            buffer += block
            if self._read >= self._end and not self.last:
                events_left = buffer[: self._end - self._offset]
                yield from self._last_chunks(events_left.rstrip().removesuffix(b",") + b"]")
                return
            try:
                complete = self._whole_events(buffer) if block else None
            except UNDECODABLE as error:
                yield from (
                    self._salvage_events(buffer, error)
                    if value_end(error) is None
                    else self._last_chunks(buffer)
                )
                return
            if complete is not None:
                end, chunk, events = complete
                yield chunk, events
                self._count += len(events)
                self._offset += end
                buffer = buffer[end:]
            elif not block:
                yield from self._last_chunks(buffer)
                return
            elif len(buffer) > LONGEST_EVENT:
                raise self._damage_error(0, f"an event is longer than {LONGEST_EVENT >> 20} MiB")

    @property
    def position(self) -> int:
        """The (decompressed) byte at which the chunk at hand begins."""
        return self._offset

    def _next_block(self) -> bytes:
        """The next block, empty at the end of the file or of the readable gzip stream."""
        pieces: list[bytes] = []
        damage = None
        try:
            while sum(map(len, pieces)) < CHUNK and (piece := self._file.read1(self._piece)):
                pieces.append(piece)
        except EOFError:
            damage = "gzip stream is cut"
        except (zlib.error, gzip.BadGzipFile) as error:
            damage = f"gzip stream is damaged ({error})"
        except OSError as error:
            raise unreadable_error(self.path, error) from None
        block = b"".join(pieces)
        self._read += len(block)
        self.end = (self.end + block[-END:])[-END:]
        at = self._read - self._offset
        if damage and not self.allow_truncated:  # events before it are not yet decoded, nor counted
            raise InputError(damage, where=f"{self.path}: decompressed byte {self._read:,}", hint=_SALVAGE)
        if damage:
            self._spent = True
            self.cut = Cut(str(self.path), self._read, damage)
        if self._read > max(LARGEST_RATIO * self._size, LONGEST_EVENT):
            raise self._damage_error(at, f"expands more than {LARGEST_RATIO}-fold, like a decompression bomb")
        return block

    def _read_head(self) -> bytes:
        """Read up to the first event; decode the text before it into `outer`."""
        buffer = self._next_block()
        text = buffer.lstrip()
        if not text:
            raise InputError(
                self.cut.reason if self.cut else "the file is empty",
                where=f"{self.path}: byte 0",
                hint="capture the trace again",
            )
        if text[:1] == b"[":
            self._bare = True
            self._before = b"["
            self._offset = len(buffer) - len(text) + 1
            return text[1:]
        while (start := _EVENTS.search(buffer)) is None:
            block = self._next_block()
            buffer += block
            if not block or len(buffer) > LONGEST_EVENT:
                raise InputError(
                    "no traceEvents before it",
                    where=f"{self.path}: byte {len(buffer):,}",
                    hint="is this a Chrome-JSON trace, and all of it?",
                )
        head = buffer[: start.end()]
        try:
            self.outer = msgspec.json.decode(head + b"]}", type=dict[str, Any])
        except UNDECODABLE as error:
            at, reason = error_location(error, len(head))
            raise self._damage_error(at, f"{reason} before the events") from None
        del self.outer["traceEvents"]
        self._before = head
        self._offset = len(head)
        return buffer[len(head) :]

    def _whole_events(self, buffer: bytes) -> tuple[int, bytes, list[E]] | None:
        """Offset of the last event; the events before it as chunk and decoded.  None if none is complete."""
        boundary = _last_boundary(buffer)
        if boundary is None:
            return None
        chunk = _as_array(buffer, boundary.start() + 1)
        try:
            return boundary.end(), chunk, self.decoder.decode(chunk)
        except msgspec.DecodeError as error:
            if not is_truncation(error):
                raise
        ends = [end for end in _event_ends(buffer) if _COMMA.match(buffer, end)]
        if not ends:
            return None
        chunk = _as_array(buffer, ends[-1])
        return _after_comma(buffer, ends[-1]), chunk, self.decoder.decode(chunk)

    def _last_chunks(self, buffer: bytes) -> Iterator[tuple[bytes, list[E]]]:
        """The last events; then read what follows them."""
        array = b"[" + buffer
        try:
            events, end = self._decode_array(array)
        except UNDECODABLE as error:
            yield from self._salvage_events(buffer, error)
            return
        if end < len(array) and not self.last:
            raise self._damage_error(end - 1, "the events end before their part of the file")
        self._count += len(events)
        if self.last:
            self._read_tail(array[end:], end - 1)
        yield array[:end], events

    def _decode_array(self, buffer: bytes) -> tuple[list[E], int]:
        """The array that a buffer begins with, and the offset of its end."""
        with suppress(*UNDECODABLE):
            end = _likely_end(buffer)
            return self.decoder.decode(buffer[:end]), end
        try:
            return self.decoder.decode(buffer), len(buffer)
        except UNDECODABLE as error:
            if (stated_end := value_end(error)) is None:
                raise
            return self.decoder.decode(buffer[:stated_end]), stated_end

    def _read_tail(self, tail: bytes, at: int) -> None:
        """Decode the top-level keys behind the array, which ends at offset `at` of the buffer."""
        while len(tail) <= LONGEST_EVENT and not self.cut and (block := self._next_block()):
            tail += block
        if self._bare:
            fault = None if not tail.strip() else (at, "text follows the array of events")
        else:
            try:
                keys = msgspec.json.decode(_INSTEAD + tail, type=dict[str, Any])
                fault = None if keys.pop("traceEvents") == 0 else (at, "a second traceEvents")
                self.outer = {**self.outer, **keys}
            except UNDECODABLE as error:
                byte, reason = error_location(error, len(_INSTEAD + tail))
                fault = at + max(byte - len(_INSTEAD), 0), f"{reason} after the events"
        if fault is None:
            return
        if not self.allow_truncated:
            raise self._damage_error(*fault)
        self.cut = Cut(
            str(self.path),
            self._offset + fault[0],
            self.cut.reason if self.cut else fault[1],
            rows_whole=True,
        )

    def _salvage_events(self, buffer: bytes, error: Exception) -> Iterator[tuple[bytes, list[E]]]:
        """The events before the first that does not decode, or the error with its offset."""
        ends = list(_event_ends(buffer))
        good = bisect_left(ends, True, key=lambda end: not self._is_decodable(b"[" + buffer[:end] + b"]"))
        last_end = ends[good - 1] if good else 0
        self._count += good
        at, reason = error_location(error, len(buffer) + 1)
        reason = reason if "event" in reason else f"{reason} in an event"
        if not states_byte(error) and not (is_truncation(error) and good == len(ends)):
            at = _after_comma(buffer, last_end) + 1
        if not self.allow_truncated:
            raise self._damage_error(at - 1, reason) from None
        if good:
            chunk = _as_array(buffer, last_end)
            yield chunk, self.decoder.decode(chunk)
        self.cut = self.cut or Cut(str(self.path), self._offset + at - 1, reason)

    def _is_decodable(self, chunk: bytes) -> bool:
        try:
            self.decoder.decode(chunk)
        except UNDECODABLE:
            return False
        return True

    def _damage_error(self, at: int, reason: str) -> InputError:
        return InputError(
            f"{reason} (after {self._count:,} whole events)",
            where=f"{self.path}: byte {self._offset + at:,}",
            hint=_SALVAGE,
        )


def _as_array(buffer: bytes, end: int) -> bytes:
    """The events in a buffer up to `end` as a JSON array, copied once."""
    return b"".join((b"[", memoryview(buffer)[:end], b"]"))


def _likely_end(buffer: bytes) -> int:
    """End of the last array of objects in a buffer's last `END` bytes; the buffer's end without one."""
    begin = max(len(buffer) - END, 0)
    return max((match.end() for match in _ARRAY_END.finditer(buffer, begin)), default=len(buffer))


def _after_comma(buffer: bytes, end: int) -> int:
    comma = _COMMA.match(buffer, end)
    return comma.end() if comma else end


def _event_ends(buffer: bytes, begin: int = 0) -> Iterator[int]:
    """Offset of each complete event's end, by counting brackets outside strings, up to the array's end."""
    depth = 0
    for token in _BRACKET.finditer(buffer, begin):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                yield token.end()
            elif depth < 0:
                return
        elif mark == b'"':
            return  # an unterminated string


def _last_boundary(buffer: bytes) -> re.Match[bytes] | None:
    """The last match of an event's end followed by an event's beginning."""
    for begin in (*(len(buffer) - near for near in _NEAR), 0):
        last = None
        for match in _BETWEEN.finditer(buffer, begin):
            last = match
        if last is not None:
            return last
    return None
