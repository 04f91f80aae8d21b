# SPDX-License-Identifier: Apache-2.0
"""Files `run-*.wandb`: records in LevelDB's log format after a header.

Blocks have 32 KiB; a piece of a record is a CRC-32 of type and content, the content's length (uint16) and the
type (whole, first, middle, last), little-endian.  A block's last bytes are unused if they are fewer than a
piece's header.  Sources: LevelDB's doc/log_format.md; header and checksum: wandb's core/pkg/leveldb.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cclbench.formats.streams import open_bytes
from cclbench.formats.texts import damaged_error
from cclbench.ground.errors import InputError

HEADER: Final = b":W&B\xe1\xbe\x00"
_PIECE: Final = struct.Struct("<IHB")
_BLOCK: Final = 1 << 15
_LONGEST: Final = 1 << 20
"""Bytes of the longest record that is read."""
_MOST_BYTES: Final = 1 << 36
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class OfflineRecords:
    """A file of records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.long = 0
        """Records that are too long to be read."""
        self.incomplete = False
        """Whether the last record is cut, as of a job that was ended while it wrote."""

    def contents(self) -> Iterator[bytes]:
        """The content of each record; `InputError` where a checksum is wrong."""
        parts, size = list[bytes](), 0
        for at, kind, content in self._pieces():
            if kind in (_WHOLE, _FIRST):
                parts, size = [], 0
            elif not size:
                raise InputError("continues no record", where=f"{self.path}: byte {at:,}")
            size += len(content) + 1
            if size <= _LONGEST:
                parts.append(content)
            if kind in (_WHOLE, _LAST):
                self.long += size > _LONGEST
                if size <= _LONGEST:
                    yield b"".join(parts)
                size = 0
        self.incomplete = self.incomplete or size > 0

    def _pieces(self) -> Iterator[tuple[int, int, bytes]]:
        """Position, type and content of each piece."""
        try:
            with open_bytes(self.path) as file:
                block, begin = file.read(_BLOCK), 0
                if not block.startswith(HEADER):
                    raise damaged_error(self.path, "does not begin as a file of W&B")
                at = len(HEADER)
                while block and begin < _MOST_BYTES:
                    while at + _PIECE.size <= len(block):
                        checksum, length, kind = _PIECE.unpack_from(block, at)
                        content = block[at + _PIECE.size : at + _PIECE.size + length]
                        if len(content) < length:
                            self.incomplete = len(block) < _BLOCK
                            if not self.incomplete:
                                raise self._damaged(begin + at)
                            return
                        if zlib.crc32(content, zlib.crc32(bytes([kind]))) != checksum or not 0 < kind < 5:
                            raise self._damaged(begin + at)
                        yield begin + at, kind, content
                        at += _PIECE.size + length
                    self.incomplete = at < len(block) < _BLOCK
                    begin, at = begin + len(block), 0
                    block = file.read(_BLOCK)
        except (EOFError, zlib.error, OSError) as error:
            raise damaged_error(self.path, f"cannot be read ({error})") from None

    def _damaged(self, at: int) -> InputError:
        return damaged_error(self.path, f"byte {at:,}: a record's checksum or length is wrong")


def framed_records(contents: Iterator[bytes]) -> Iterator[bytes]:
    """A file of these records."""
    yield HEADER
    at = len(HEADER)
    for content in contents:
        rest, first = content, True
        while first or rest:
            if (room := _BLOCK - at % _BLOCK) < _PIECE.size:
                yield b"\0" * room
                at, room = at + room, _BLOCK
            part, rest = rest[: room - _PIECE.size], rest[room - _PIECE.size :]
            kind = (_FIRST if rest else _WHOLE) if first else (_MIDDLE if rest else _LAST)
            checksum = zlib.crc32(part, zlib.crc32(bytes([kind])))
            yield _PIECE.pack(checksum, len(part), kind) + part
            at, first = at + _PIECE.size + len(part), False
