# SPDX-License-Identifier: Apache-2.0
"""Files of records, as TensorFlow frames them (tensorflow/core/lib/io/record_writer.h).

A record is the length of its content (uint64), a checksum of the length, the content, and a checksum of that,
all little-endian.  The checksum is CRC-32C (RFC 3720), rotated right by 15 bits, plus a constant.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.formats.streams import open_bytes
from cclbench.formats.texts import damaged_error
from cclbench.ground.errors import InputError

LONGEST: Final = 1 << 16
"""Bytes of the longest record that is read; images and graphs are longer."""
_HEADER: Final = struct.Struct("<QI")
_CHECKSUM: Final = struct.Struct("<I")
_BATCH: Final = 1 << 12
_MOST_BYTES: Final = 1 << 36
_AGAIN: Final = "copy the file again, or remove it to do without"
_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final = np.uint32(0xA282EAD8)
Checksums = npt.NDArray[np.uint32]


def _checksum_table() -> Checksums:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


_TABLE: Final = _checksum_table()


def checksums(contents: Sequence[bytes]) -> Checksums:
    """The masked CRC-32C of each content, shape (contents,)."""
    lengths = np.array([len(content) for content in contents], np.int64)
    order = np.argsort(-lengths, kind="stable")
    text = np.frombuffer(b"".join(contents), np.uint8)
    begins, lengths = (np.cumsum(lengths) - lengths)[order], lengths[order]
    crc = np.full(len(contents), 0xFFFFFFFF, np.uint32)
    for at in range(int(lengths[0]) if len(lengths) else 0):
        longer = int(np.searchsorted(-lengths, -at))
        active_crc = crc[:longer]
        crc[:longer] = _TABLE[(active_crc ^ text[begins[:longer] + at]) & np.uint32(0xFF)] ^ (
            active_crc >> np.uint32(8)
        )
    crc = ~crc
    masked = np.empty_like(crc)
    masked[order] = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + _MASK
    return masked


def framed_records(contents: Sequence[bytes]) -> bytes:
    """Contents as records."""
    sizes = checksums([struct.pack("<Q", len(content)) for content in contents])
    framed = [
        _HEADER.pack(len(content), size) + content + _CHECKSUM.pack(checksum)
        for content, size, checksum in zip(
            contents, sizes.tolist(), checksums(contents).tolist(), strict=True
        )
    ]
    return b"".join(framed)


class EventRecords:
    """A file of records, read in batches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.long = 0
        """Records that are too long to be read."""
        self.incomplete = False
        """Whether the last record is cut, as of a job that was ended while it wrote."""

    def batches(self) -> Iterator[list[bytes]]:
        """Contents of up to `_BATCH` records at a time; `InputError` where a checksum is wrong."""
        try:
            with open_bytes(self.path) as file:
                records = self._records(file)
                while batch := list(islice(records, _BATCH)):
                    places, heads, contents, ends = zip(*batch, strict=True)
                    self._verify(places, [head[:8] for head in heads], [head[8:] for head in heads])
                    self._verify(places, contents, ends)
                    yield list(contents)
        except (EOFError, zlib.error, OSError) as error:
            raise damaged_error(self.path, f"cannot be read ({error})") from None

    def _records(self, file: BufferedIOBase) -> Iterator[tuple[int, bytes, bytes, bytes]]:
        """Position, header, content and checksum of each record that is not too long."""
        at = 0
        while header := file.read(_HEADER.size):
            if len(header) < _HEADER.size:
                self.incomplete = True
                return
            length, _ = _HEADER.unpack(header)
            size = length + _CHECKSUM.size
            if length <= LONGEST:
                content = file.read(size)
                self.incomplete = len(content) < size
            if length > LONGEST or self.incomplete:
                self._verify([at], [header[:8]], [header[8:]])
            if length > LONGEST:
                self.long += 1
                self.incomplete = at + size > _MOST_BYTES or not _skip(file, size)
            if self.incomplete:
                return
            if length <= LONGEST:
                yield at, header, content[:length], content[length:]
            at += _HEADER.size + size

    def _verify(self, places: Sequence[int], texts: Sequence[bytes], stated: Sequence[bytes]) -> None:
        wrong = checksums(texts) != np.frombuffer(b"".join(stated), "<u4")
        if wrong.any():
            place = places[int(np.argmax(wrong))]
            raise InputError("has a wrong checksum", where=f"{self.path}: byte {place:,}", hint=_AGAIN)


def _skip(file: BufferedIOBase, size: int) -> bool:
    """Read past so many bytes; False if the file ends before."""
    while size > 0 and (piece := file.read(min(size, LONGEST))):
        size -= len(piece)
    return size == 0
