# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers that wait on disk: memory holds of them what is being read."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, Generic, TypeVar
from weakref import finalize

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", bound=np.generic)

SMALL_BYTES: Final = 1 << 18
"""Bytes of a column up to which it stays in memory."""
_SAMPLE: Final = 16
"""One value of so many tells where columns are parted."""


class DiskColumn(Generic[Number]):
    """A column of numbers, appended to, then read, among the temporary files; it ends with this object.

    One of up to `SMALL_BYTES` needs no file.
    """

    def __init__(self, dtype: type[Number]) -> None:
        self.dtype = np.dtype(dtype)
        self._parts: list[npt.NDArray[Number]] = []
        self._file: BinaryIO | None = None
        self._length = 0
        self._map: mmap.mmap | None = None

    def __len__(self) -> int:
        return self._length

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add values, of the column's type or one that it holds, at the end."""
        self._map = None
        self._length += len(values)
        if self._file is None and self._length * self.dtype.itemsize <= SMALL_BYTES:
            self._parts.append(np.array(values, self.dtype))
            return
        if self._file is None:
            self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - it is closed with this object
            finalize(self, self._file.close)
        for part in (*self._parts, np.ascontiguousarray(values, self.dtype)):
            data = part.view(np.uint8)
            while len(data):
                data = data[self._file.write(data.data) :]
        self._parts.clear()

    def values(self) -> npt.NDArray[Number]:
        """All values, read-only, mapped from disk: pages that are read count as memory until `release`."""
        if self._file is None:
            if len(self._parts) != 1:
                self._parts = [np.concatenate([np.empty(0, self.dtype), *self._parts])]
            self._parts[0].flags.writeable = False
            return self._parts[0]
        if self._map is None:
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(self._map, self.dtype)

    def changeable(self) -> npt.NDArray[Number]:
        """All values, to be changed in place."""
        if self._file is None:
            return self.values().copy()
        return np.frombuffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_WRITE), self.dtype)

    def release(self) -> None:
        """Let go of the pages that were read: values stay valid, and are read again where they are used."""
        if self._map is not None:
            _release(self._map)


class DiskTable:
    """Columns of numbers by name, which wait on disk."""

    def __init__(self, **columns: type[np.generic]) -> None:
        self._columns: dict[str, DiskColumn[Any]] = {name: DiskColumn(of) for name, of in columns.items()}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def append(self, **columns: npt.NDArray[Any]) -> None:
        """Add rows at the end."""
        for name, values in columns.items():
            self._columns[name].append(values)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """All values of a column: see `DiskColumn.values`."""
        return self._columns[column].values()

    def release(self) -> None:
        """Let go of the pages that were read."""
        for column in self._columns.values():
            column.release()


def filled(length: int, value: int) -> npt.NDArray[np.int64]:
    """That number so often, to be changed; on disk where that is much."""
    column = DiskColumn(np.int64)
    for rows in stretches(length, SMALL_BYTES):
        column.append(np.full(rows.stop - rows.start, value))
    return column.changeable()


def on_disk(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The same values, which wait on disk where they are many: see `release`."""
    if values.nbytes <= SMALL_BYTES:
        return values
    column = DiskColumn(values.dtype.type)
    column.append(values)
    return column.values()


def taken(values: npt.NDArray[Number], chosen: npt.NDArray[Any]) -> npt.NDArray[Number]:
    """`values[chosen]`, by indices or a mask, which wait on disk where they are many."""
    if chosen.dtype == np.bool_:
        chosen = np.flatnonzero(chosen)
    column: DiskColumn[Number] = DiskColumn(values.dtype.type)
    for rows in stretches(len(chosen), SMALL_BYTES):
        column.append(values[chosen[rows]])
    return column.values()


def release(*values: object) -> None:
    """Let go of the pages that were read of columns, also of those in tuples and dataclasses."""
    for one in values:
        if isinstance(one, np.ndarray):
            _release(_mapped(one))
        elif isinstance(one, tuple):
            release(*one)
        elif is_dataclass(one) and not isinstance(one, type):
            release(*(getattr(one, field.name) for field in fields(one)))


def cuts(values: npt.NDArray[Any], most: int) -> list[int]:
    """Numbers between which about `most` of the values lie, ascending."""
    most = max(most // _SAMPLE, 1)
    found: list[int] = np.unique(np.sort(values[::_SAMPLE])[most::most]).tolist()
    release(values)
    return found


def parted(values: npt.NDArray[Any], cuts: Sequence[int]) -> Iterator[npt.NDArray[np.int64]]:
    """The indices, in order, of the values below the first cut, of those from it to the next, and so on."""
    every = np.iinfo(values.dtype)
    extremes = [
        (rows, values[rows].min(), values[rows].max()) for rows in stretches(len(values), SMALL_BYTES)
    ]
    release(values)
    for since, until in pairwise([every.min, *cuts, every.max + 1]):
        found = [np.empty(0, np.int64)]
        for rows, least, most in extremes:
            if least < until and most >= since:
                found.append(
                    rows.start + np.flatnonzero((values[rows] >= since) & (values[rows] <= until - 1))
                )
        release(values)
        yield np.concatenate(found)


def stretches(length: int, most: int) -> Iterator[slice]:
    """The rows of a column, at most so many at a time."""
    for begin in range(0, length, most):
        yield slice(begin, min(begin + most, length))


def _mapped(values: npt.NDArray[Any]) -> object:
    """What an array is a view of."""
    base: object = values
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


def _release(mapped: object) -> None:
    if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)
