# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers that wait on disk: memory holds of them what is being read."""

from __future__ import annotations

import mmap
import os
from tempfile import TemporaryFile
from typing import Any, Final, Generic, TypeVar
from weakref import finalize

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", bound=np.generic)

SMALL_BYTES: Final = 1 << 20
"""Size up to which an array is held in memory."""
_ZEROS: Final = bytes(1 << 20)


class DiskColumn(Generic[Number]):
    """A column of numbers, appended to, then read, among the temporary files; it ends with this object."""

    def __init__(self, dtype: type[Number]) -> None:
        self.dtype = np.dtype(dtype)
        self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - it is closed with this object
        finalize(self, self._file.close)
        self._length = 0
        self._map: mmap.mmap | None = None

    def __len__(self) -> int:
        return self._length

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add values, of the column's type or one that it holds, at the end."""
        self._map = None
        data = np.ascontiguousarray(values, self.dtype).view(np.uint8)
        while len(data):
            data = data[self._file.write(data.data) :]
        self._length += len(values)

    def values(self) -> npt.NDArray[Number]:
        """All values, read-only, mapped from disk: pages that are read count as memory until `release`."""
        if not self._length:
            return np.empty(0, self.dtype)
        if self._map is None:
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(self._map, self.dtype)

    def release(self) -> None:
        """Let go of the pages that were read: values stay valid, and are read again where they are used."""
        if self._map is not None and hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)


def disk_array(length: int, dtype: type[Number]) -> npt.NDArray[Number]:
    """An array of zeros that can be written, on disk where it is large; see `release`."""
    size = length * np.dtype(dtype).itemsize
    if size <= SMALL_BYTES:
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
