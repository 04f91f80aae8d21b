# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers that wait on disk: memory holds of them what is being read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO, Final, Generic, Protocol, TypeVar
from weakref import finalize

import numpy as np
import numpy.typing as npt

from cclbench.errors import InputError

Number = TypeVar("Number", bound=np.generic)

SMALL_BYTES: Final = 1 << 18
"""Bytes of a column up to which it stays in memory."""
PIECE: Final = 1 << 14
"""How many rows are worked on at a time, where nothing says otherwise."""
_ZEROS: Final = bytes(1 << 20)


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
        """Add values, of the column's type or one that it holds, at the end; `InputError` without room."""
        self._map = None
        self._length += len(values)
        if self._file is None and self._length * self.dtype.itemsize <= SMALL_BYTES:
            self._parts.append(np.array(values, self.dtype))
            return
        with making_room():
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


class Released(Protocol):
    """What holds pages of columns until it has to let go of them."""

    def release(self) -> None:
        """Let go of the pages that were read."""
        ...


def pieces(rows: int, *held: Released, most: int | None = None) -> Iterator[slice]:
    """Rows one after another, `most` (default: `PIECE`) at a time.

    What `held` has read of columns is released after each.
    """
    step = most or PIECE
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))
        for columns in held:
            columns.release()


def disk_array(length: int, dtype: type[Number], value: int = 0) -> npt.NDArray[Number]:
    """An array of that value which can be written, on disk where it is large; `InputError` without room."""
    size = length * np.dtype(dtype).itemsize
    if size <= SMALL_BYTES:
        return np.full(length, value, dtype)
    with making_room(), TemporaryFile(buffering=0) as file:
        # A page that is written without its place on disk ends the process where the disk is full.
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except (AttributeError, OSError):  # a system or a file system without it, or without room
            while size > file.tell():
                file.write(_ZEROS[: size - file.tell()])
        array = np.frombuffer(mmap.mmap(file.fileno(), size), dtype)
    for rows in pieces(length if value else 0, most=SMALL_BYTES):
        array[rows] = value
        release(array)
    return array


def on_disk(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The same values, which wait on disk where they are many: see `release`."""
    if values.nbytes <= SMALL_BYTES:
        return values
    column = DiskColumn(values.dtype.type)
    column.append(values)
    return column.values()


def taken(values: npt.NDArray[Number], chosen: npt.NDArray[Any]) -> npt.NDArray[Number]:
    """`values[chosen]`, by indices or a mask, which wait on disk where they are many."""
    column: DiskColumn[Number] = DiskColumn(values.dtype.type)
    for rows in pieces(len(chosen), most=SMALL_BYTES):
        own = chosen[rows]
        column.append(values[rows][own] if own.dtype == np.bool_ else values[own])
        release(values, chosen)
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


@contextmanager
def making_room() -> Iterator[None]:
    """`InputError` where temporary files find no room."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"temporary files cannot be written: {error.strerror or error}",
            where=gettempdir(),
            hint="make room there, or name a folder on a larger disk with TMPDIR",
        ) from None


def _mapped(values: npt.NDArray[Any]) -> object:
    """What an array is a view of."""
    base: object = values
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base


def _release(mapped: object) -> None:
    if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)
