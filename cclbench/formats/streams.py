# SPDX-License-Identifier: Apache-2.0
"""The bytes of a file, inflated if it is gzip."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any, Final

from zlib_ng import gzip_ng, zlib_ng

from cclbench.ground.errors import InputError

LARGEST_RATIO: Final = 400
"""Largest accepted compression ratio: Kineto JSON has 15 to 50; deflate's limit is 1,032."""
PIECE: Final = 128 << 10
"""Bytes of a gzip stream read at a time: if it is damaged, the last piece is lost."""
_GZIP: Final = b"\x1f\x8b"
_DAMAGE: Final[Any] = (zlib_ng.error, EOFError, gzip.BadGzipFile)


def is_compressed(path: Path) -> bool:
    """Whether the file is gzip, by its first bytes, whatever its name."""
    try:
        with path.open("rb") as file:
            return file.read(2) == _GZIP
    except OSError as error:
        raise unreadable_error(path, error) from None


class _Inflated(io.RawIOBase):
    """The inflated bytes of a gzip file.

    zlib-ng inflates the JSON of traces at 2 GB/s, zlib at 0.4: one process inflates for several that decode.
    In a damaged stream the standard library takes over, which returns more of the bytes before the damage.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._given = path, 0
        self._file: gzip.GzipFile = gzip_ng.GzipNGFile(path, "rb")  # type: ignore[no-untyped-call]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            size = self._file.readinto1(buffer)
        except _DAMAGE:
            if not isinstance(self._file, gzip_ng.GzipNGFile):
                raise
            self._file.close()
            self._file = gzip.GzipFile(self._path, "rb")
            self._file.seek(self._given)
            size = self._file.readinto1(buffer)
        self._given += size
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def open_bytes(path: Path) -> io.BufferedIOBase:
    """The file's (decompressed) bytes."""
    if is_compressed(path):
        return io.BufferedReader(_Inflated(path), PIECE)
    try:
        return path.open("rb")
    except OSError as error:
        raise unreadable_error(path, error) from None


def unreadable_error(path: Path, error: OSError) -> InputError:
    """The error for a file that cannot be opened."""
    return InputError(f"cannot be read: {error.strerror or error}", where=str(path))
