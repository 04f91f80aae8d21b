# SPDX-License-Identifier: Apache-2.0
"""Unpack archives of traces without writing outside of the folder or growing without bound."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from cclbench.formats.streams import LARGEST_RATIO
from cclbench.ground.destination import why_outside
from cclbench.ground.errors import InputError
from cclbench.ground.text import quoted_value
from cclbench.ground.units import KIB, MIB, TIB

Member = TypeVar("Member")

MOST_FILES: Final = 10_000
MOST_BYTES: Final = TIB
ALWAYS_BYTES: Final = 64 * MIB
"""Size that an archive may unpack to at any ratio: small ones have much padding."""
_LONGEST_HEADER = MIB
_LONGEST_PADDING = 4 * MIB
_CHUNK = 256 * KIB
_ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, NotImplementedError)


def is_archive(path: Path) -> bool:
    """Whether a file is an archive, by its name: .zip, .tar, .tar.gz or .tgz."""
    return path.name.lower().endswith(_ENDINGS) and path.is_file()


def unpack_archive(archive: Path, folder: Path) -> list[Path]:
    """Write the files of `archive` below `folder`, a new one, and return their paths, sorted.

    Only plain files are taken, under relative names without `..`; links, devices, sparse and encrypted
    members, names that occur twice, more than `MOST_FILES` files, `MOST_BYTES` bytes or `LARGEST_RATIO`
    times the archive's size raise `InputError`, as damage does.  Permissions are not carried over.
    """
    members = _zip_members(archive) if archive.name.lower().endswith(".zip") else _tar_members(archive)
    allowed = min(MOST_BYTES, max(ALWAYS_BYTES, LARGEST_RATIO * archive.stat().st_size))
    written: list[Path] = []
    folder.mkdir(parents=True)
    try:
        for name, content in members:
            target = folder / _path_inside(name, archive)
            allowed -= _write_member(content, target, allowed, archive)
            written.append(target)
    except (*_BROKEN, ValueError, OverflowError, RecursionError) as error:  # of headers beyond reason
        raise InputError(f"is damaged: {quoted_value(str(error))}", where=str(archive)) from None
    except OSError as error:
        if error.errno is None:
            raise InputError(f"is damaged: {quoted_value(str(error))}", where=str(archive)) from None
        raise InputError(f"cannot be unpacked: {error.strerror}", where=str(archive)) from None
    if not written:
        raise InputError("contains no file", where=str(archive))
    return sorted(written)


def _path_inside(name: str, archive: Path) -> Path:
    """The member's path below the folder; `InputError` if it would be outside."""
    if why := why_outside(name):
        raise _refusal_error(archive, name, why)
    return Path(name)


def _refusal_error(archive: Path, name: str, why: str) -> InputError:
    hint = "pack regular files with relative names"
    return InputError(f"contains {quoted_value(name)}: {why}", where=str(archive), hint=hint)


def _write_member(content: IO[bytes], target: Path, allowed: int, archive: Path) -> int:
    """Copy a member, never over another, and return its bytes; the declared size is not trusted."""
    total = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with content, target.open("xb") as file:
            while chunk := content.read(_CHUNK):
                total += len(chunk)
                if total > allowed:
                    raise InputError(
                        f"unpacks to more than {LARGEST_RATIO} times its size",
                        where=str(archive),
                        hint="unpack it yourself if you trust it, and give the folder",
                    )
                file.write(chunk)
    except FileExistsError:
        raise _refusal_error(archive, target.name, "the name occurs twice") from None
    return total


def _bounded_members(members: Iterable[Member], archive: Path) -> Iterator[Member]:
    for number, member in enumerate(members):
        if number == MOST_FILES:
            raise InputError(f"contains more than {MOST_FILES:,} files and folders", where=str(archive))
        yield member


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as file:
        for member in _bounded_members(file.infolist(), archive):
            if not member.filename:
                raise _refusal_error(archive, "", "it has no name")
            if member.is_dir():
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise _refusal_error(archive, member.filename, "it is a link or a device")
            if member.flag_bits & 0x1:
                raise _refusal_error(archive, member.filename, "it is encrypted")
            yield member.filename, file.open(member)


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    opened: Callable[..., Any] = gzip.open if archive.name.lower().endswith("gz") else open
    with (
        opened(archive, "rb") as stream,
        tarfile.open(fileobj=(blocks := _Blocks(stream, archive)), mode="r:") as file,
    ):
        for member in _bounded_members(file, archive):
            if member.isdir():
                continue
            content = file.extractfile(member) if member.isreg() and not member.issparse() else None
            if content is None:
                raise _refusal_error(archive, member.name, "it is a link, a device or a sparse file")
            yield member.name, content
        end = blocks.last  # tarfile takes any oddity for the end
        if not end or (end + stream.read(_LONGEST_PADDING)).strip(b"\0") or stream.read(1):
            raise InputError("is damaged: truncated, or not a tar file throughout", where=str(archive))


class _Blocks(io.RawIOBase):
    """A tar file's bytes.  Members are read in chunks; a longer read is that of a header and is refused.

    The header of an extended name states its own length, and tarfile would hold all of it in memory.
    `last` is the result of the last read: in a complete file the zeros that end it.
    """

    def __init__(self, stream: IO[bytes], archive: Path) -> None:
        self._stream, self._archive = stream, archive
        self.last = b""

    def seek(self, offset: int, whence: int = 0) -> int:
        """As the stream's."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """As the stream's."""
        return self._stream.tell()

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes."""
        if not 0 <= size <= _LONGEST_HEADER:
            raise InputError("is damaged: a header of more than 1 MB", where=str(self._archive))
        self.last = self._stream.read(size)
        return self.last
