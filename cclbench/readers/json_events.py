# SPDX-License-Identifier: Apache-2.0
"""Chrome-trace JSON in bounded memory: the array of events, a chunk at a time, cut between events.

A chunk is cut where an event ends and the next begins; because only a cut at the array's own level
leaves balanced brackets and closed strings, a chunk that decodes was cut right.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from cclbench.errors import InputError
from cclbench.readers import Cut

E = TypeVar("E")

CHUNK: Final = 4 << 20
LONGEST_EVENT: Final = 64 << 20
LARGEST_RATIO: Final = 400
"""Kineto JSON compresses 15 to 50 times; deflate's own limit is 1,032."""

_GZIP = b"\x1f\x8b"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}\s*,\s*(?=\{\s*(?:\}|"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:))')
_ARRAY_END = re.compile(rb"(?:\A|\})\s*(\])\s*(?=[,}]|\Z)")
_BYTE = re.compile(r"\(byte (\d+)\)")
_EVENT = re.compile(r"\$\[(\d+)\]")


def open_bytes(path: Path) -> io.BufferedIOBase:
    """The file's (decompressed) bytes; gzip is known by its first bytes, not by the name."""
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP
        return gzip.GzipFile(path, "rb") if compressed else path.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None


class JsonEvents(Generic[E]):
    """Iterates (chunk, events): the chunk's bytes as a JSON array, and that array decoded.

    With `part`, a range of bytes of an uncompressed file, only the events between the first boundary
    at or after its begin and the first at or after its end; the first part begins with the file.
    """

    def __init__(
        self,
        path: Path,
        decoder: msgspec.json.Decoder[list[E]],
        *,
        part: tuple[int, int] | None = None,
        allow_truncated: bool = False,
    ) -> None:
        self.path, self.decoder, self.allow_truncated = path, decoder, allow_truncated
        self.part = part
        self.outer: dict[str, Any] = {}
        """The other top-level keys: those before the events once iteration begins, all at its end."""
        self.cut: Cut | None = None
        self._file = open_bytes(path)
        self._size = path.stat().st_size
        self._read = 0
        self._offset = 0
        self._count = 0
        self._bare = False

    def __iter__(self) -> Iterator[tuple[bytes, list[E]]]:
        with self._file:
            buffer = self._inside() if self.part and self.part[0] else self._head()
            while True:
                block = b"" if self.cut else self._block()
                buffer += block
                if (chunk := self._last_of_part(buffer)) is not None:
                    yield chunk, self.decoder.decode(chunk)
                    return
                if block and (end := _last_boundary(buffer)) is not None:
                    chunk = b"[" + buffer[: end.start() + 1] + b"]"
                    try:
                        events = self.decoder.decode(chunk)
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                        yield from self._rest(buffer, error)
                        return
                    yield chunk, events
                    self._count += len(events)
                    self._offset += end.end()
                    buffer = buffer[end.end() :]
                elif not block:
                    yield from self._rest(buffer, None)
                    return
                elif len(buffer) > LONGEST_EVENT:
                    raise self._broken(0, f"an event is longer than {LONGEST_EVENT >> 20} MiB")

    def _block(self) -> bytes:
        """The next block, empty at the end of the file or of what gzip can still give."""
        pieces: list[bytes] = []
        try:
            while sum(map(len, pieces)) < CHUNK and (piece := self._file.read1(CHUNK)):
                pieces.append(piece)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = (
                "gzip stream is cut" if isinstance(error, EOFError) else f"gzip stream is damaged ({error})"
            )
            if not self.allow_truncated:
                raise self._broken(self._read - self._offset, reason) from None
            self.cut = Cut(str(self.path), self._read + sum(map(len, pieces)), reason)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", where=str(self.path)) from None
        block = b"".join(pieces)
        self._read += len(block)
        if self._read > max(LARGEST_RATIO * self._size, LONGEST_EVENT):
            raise self._broken(
                self._read - self._offset,
                f"expands more than {LARGEST_RATIO}-fold, like a decompression bomb",
            )
        return block

    def _inside(self) -> bytes:
        """Move to the first event that begins at or after the part's begin."""
        assert self.part is not None
        self._file.seek(self.part[0])
        buffer = self._block()
        boundary = _BETWEEN.search(buffer)
        if boundary is None:
            raise self._broken(0, "no event begins in this part")
        self._offset = self.part[0] + boundary.end()
        return buffer[boundary.end() :]

    def _last_of_part(self, buffer: bytes) -> bytes | None:
        """The rest of the part as a JSON array, once its end is in sight."""
        if (
            self.part is None
            or (end := self.part[1] - self._offset) > len(buffer)
            or self.part[1] >= self._size
        ):
            return None
        boundary = _BETWEEN.search(buffer, max(end, 0))
        return b"[" + buffer[: boundary.start() + 1] + b"]" if boundary else None

    def _head(self) -> bytes:
        """Read up to the first event; keep what stands before as `outer`."""
        buffer = self._block()
        text = buffer.lstrip()
        if not text:
            raise InputError("the file is empty", where=str(self.path), hint="capture the trace again")
        if text[:1] == b"[":
            self._bare = True
            self._offset = len(buffer) - len(text) + 1
            return text[1:]
        while (start := _EVENTS.search(buffer)) is None:
            block = self._block()
            buffer += block
            if not block or len(buffer) > LONGEST_EVENT:
                raise InputError(
                    "has no traceEvents", where=str(self.path), hint="is this a Chrome-JSON trace?"
                )
        head = buffer[: start.start()].rstrip().removesuffix(b",")
        self.outer = self._object(head.lstrip().removeprefix(b"{"))
        self._offset = start.end()
        return buffer[start.end() :]

    def _object(self, body: bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(b"{" + body + b"}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(
                f"what stands around the events is not valid JSON: {error}", where=str(self.path)
            ) from None

    def _rest(self, buffer: bytes, error: Exception | None) -> Iterator[tuple[bytes, list[E]]]:
        """The last events and what follows the array, or the error that explains why there is none."""
        for end in _ARRAY_END.finditer(buffer):
            chunk = b"[" + buffer[: end.end(1)]
            try:
                events = self.decoder.decode(chunk)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self._tail(buffer[end.end(1) :])
            self._count += len(events)
            yield chunk, events
            return
        yield from self._salvage(buffer, error)

    def _tail(self, tail: bytes) -> None:
        while len(tail) <= LONGEST_EVENT and not self.cut and (block := self._block()):
            tail += block
        text = tail.strip()
        if self._bare:
            if text:
                raise self._broken(0, "text follows the array of events")
            return
        if not text.endswith(b"}"):
            if not self.allow_truncated:
                raise self._broken(self._read - self._offset, "truncated after the events")
            reason = self.cut.reason if self.cut else "truncated after the events"
            self.cut = Cut(str(self.path), self._read, reason, rows_whole=True)
            return
        after = self._object(text[:-1].strip().removeprefix(b","))
        self.outer = {**self.outer, **after}

    def _salvage(self, buffer: bytes, error: Exception | None) -> Iterator[tuple[bytes, list[E]]]:
        if error is None:
            _, error = self._try(b"[" + buffer)
        at, reason = self._diagnose(buffer, error)
        if not self.allow_truncated:
            raise self._broken(at, reason) from None
        good = buffer[:at]
        while (end := _last_boundary(good)) is not None:
            events, _ = self._try(b"[" + good[: end.start() + 1] + b"]")
            if events is not None:
                self._count += len(events)
                yield b"[" + good[: end.start() + 1] + b"]", events
                break
            good = good[: end.start()]
        self.cut = self.cut or Cut(str(self.path), self._offset + at, reason)

    def _try(self, chunk: bytes) -> tuple[list[E] | None, Exception]:
        try:
            return self.decoder.decode(chunk), ValueError()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return None, error

    def _diagnose(self, buffer: bytes, error: Exception) -> tuple[int, str]:
        """Byte within the buffer, and reason, of what made it undecodable."""
        message = str(error)
        if (byte := _BYTE.search(message)) is not None:
            reason = message[: byte.start()].removeprefix("JSON is malformed: ").strip()
            return min(max(int(byte[1]) - 1, 0), len(buffer)), f"{reason} in an event"
        if isinstance(error, UnicodeDecodeError):
            return self._not_utf8(buffer), "bytes that are not UTF-8"
        if isinstance(error, RecursionError):
            return 0, "nested too deeply"
        if (event := _EVENT.search(message)) is not None:
            return self._start_of(buffer, int(event[1])), message.replace("`", "'")
        return len(buffer), "truncated"

    @staticmethod
    def _not_utf8(buffer: bytes) -> int:
        try:
            buffer.decode()
        except UnicodeDecodeError as error:
            return error.start
        return 0

    @staticmethod
    def _start_of(buffer: bytes, event: int) -> int:
        """Byte at which the event of that index begins in the buffer."""
        position = 0
        for index, boundary in enumerate(_BETWEEN.finditer(buffer), start=1):
            if index > event:
                break
            position = boundary.end()
        return position

    def _broken(self, at: int, reason: str) -> InputError:
        where = f"{self.path}: byte {self._offset + at:,}"
        return InputError(
            f"{reason} (about {self._count:,} whole events before it)",
            where=where,
            hint="re-run with --allow-truncated to use the part before it",
        )


def _last_boundary(buffer: bytes) -> re.Match[bytes] | None:
    """The last place where one event ends and another begins."""
    reach = 1 << 15
    while True:
        last = None
        for match in _BETWEEN.finditer(buffer, max(len(buffer) - reach, 0)):
            last = match
        if last is not None or reach >= len(buffer):
            return last
        reach *= 8
