# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers that wait on disk: memory holds of them what is being read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from itertools import pairwise
from tempfile import TemporaryFile
from typing import IO, Any, Final, Generic, Protocol, TypeVar
from weakref import finalize

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", bound=np.generic)

PIECE: Final = 1 << 14
"""How many rows are worked on at a time."""
_IN_MEMORY: Final = 1 << 17
"""Bytes up to which a column has no file."""
_ZEROS: Final = bytes(1 << 20)
_SAMPLES: Final = 1 << 10
"""How many values of a sorted piece are looked at to find stretches of about as many values."""


class DiskColumn(Generic[Number]):
    """A column of numbers, appended to, then read, among the temporary files; it ends with this object."""

    def __init__(self, dtype: type[Number]) -> None:
        self.dtype = np.dtype(dtype)
        self._held = bytearray()
        self._file: IO[bytes] | None = None
        self._length = 0
        self._map: mmap.mmap | bytes = b""

    def __len__(self) -> int:
        return self._length

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add values, of the column's type or one that it holds, at the end."""
        self._map = b""
        self._length += len(values)
        data = np.ascontiguousarray(values, self.dtype).view(np.uint8).data
        if self._file is None:
            self._held += data
            if len(self._held) <= _IN_MEMORY:
                return
            self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - it is closed with this object
            finalize(self, self._file.close)
            data, self._held = memoryview(self._held), bytearray()
        while len(data):
            data = data[self._file.write(data) :]

    def values(self) -> npt.NDArray[Number]:
        """All values, read-only, mapped from disk: pages that are read count as memory until `release`."""
        if not self._length:
            return np.empty(0, self.dtype)
        if not self._map:
            file = self._file
            self._map = (
                bytes(self._held) if file is None else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            )
        return np.frombuffer(self._map, self.dtype)

    def release(self) -> None:
        """Let go of the pages that were read: values stay valid, and are read again where they are used."""
        if isinstance(self._map, mmap.mmap) and hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)


def disk_array(length: int, dtype: type[Number]) -> npt.NDArray[Number]:
    """An array of zeros that can be written, on disk where it is large; see `release`."""
    size = length * np.dtype(dtype).itemsize
    if size <= _IN_MEMORY:
        return np.zeros(length, dtype)
    with TemporaryFile(buffering=0) as file:
        # A page that is written without its place on disk ends the process where the disk is full.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            while size > file.tell():
                file.write(_ZEROS[: size - file.tell()])
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype)


def release(*arrays: npt.NDArray[Any]) -> None:
    """Let go of the pages of such arrays that were read or written: values stay, and are read again."""
    for array in arrays:
        buffer = getattr(array.base, "obj", None)
        if isinstance(buffer, mmap.mmap) and hasattr(buffer, "madvise"):
            buffer.madvise(mmap.MADV_DONTNEED)


class Released(Protocol):
    """What holds pages of columns until it is told to let go of them."""

    def release(self) -> None:
        """Let go of the pages that were read."""
        ...


def pieces(rows: int, *held: Released) -> Iterator[slice]:
    """Stretches of rows, one after another; what `held` has read of columns is released after each."""
    for first in range(0, rows, PIECE):
        yield slice(first, min(first + PIECE, rows))
        for columns in held:
            columns.release()


def in_order(column: DiskColumn[Number]) -> Iterator[tuple[npt.NDArray[Number], npt.NDArray[np.int64]]]:
    """The values sorted, and the place of each in the column: a stretch of values at a time.

    Equal values are of one stretch, in the column's order.  Pieces of the column are sorted by themselves, on
    disk, and then merged.
    """
    by_piece, places = DiskColumn(column.dtype.type), DiskColumn(np.int64)
    values, firsts, sample = column.values(), [0], [column.values()[:0]]
    apart = max(PIECE // _SAMPLES, 1)
    for here in pieces(len(column), column):
        own = values[here]
        order = np.argsort(own, kind="stable")
        own = own[order]
        by_piece.append(own)
        places.append(here.start + order)
        firsts.append(here.stop)
        sample.append(own[::apart])
    whole, place = by_piece.values(), places.values()
    steps = np.unique(np.sort(np.concatenate(sample))[PIECE // apart :: PIECE // apart])
    bounds = [
        first + np.array([0, *np.searchsorted(whole[first:end], steps), end - first])
        for first, end in pairwise(firsts)
    ]
    by_piece.release()
    for stretch in range(len(steps) + 1 if bounds else 0):
        parts = [slice(own[stretch], own[stretch + 1]) for own in bounds]
        merged = np.concatenate([whole[part] for part in parts])
        order = np.argsort(merged, kind="stable")
        yield merged[order], np.concatenate([place[part] for part in parts])[order]
        by_piece.release()
        places.release()
