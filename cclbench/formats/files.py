# SPDX-License-Identifier: Apache-2.0
"""Rewriting files: read in bounded blocks, written atomically.

A gzip file stays gzip, without the name and comment that its header may contain.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from cclbench.formats.streams import LARGEST_RATIO, is_compressed, open_bytes
from cclbench.ground.errors import InputError
from cclbench.ground.text import printable
from cclbench.ground.units import KIB, MIB

BLOCK: Final = 4 * MIB
_LEAST_LIMIT: Final = 64 * MIB
_HEADER, _FIXED, _FLAGS, _NAMED, _NAME = 4096, 10, 3, 0x1C, 0x08
"""A gzip header (RFC 1952): offsets of flags and name; flags of extra fields, name and comment."""
WHOLE: Final = "only a whole file can be redacted: copy or capture it again"


def require_plain_file(path: Path) -> None:
    """`InputError` if a path is not a regular file; links are not followed."""
    if path.is_symlink():
        raise InputError("is a link", where=display_path(path), hint="name the file itself")
    if not path.is_file():
        raise InputError("no such file", where=display_path(path))


def display_path(path: Path) -> str:
    """A path as messages print it."""
    return printable(str(path))


def read_blocks(path: Path) -> Iterator[bytes]:
    """The file's (decompressed) bytes; `InputError` if it is damaged or expands more than `LARGEST_RATIO`."""
    limit = max(LARGEST_RATIO * path.stat().st_size, _LEAST_LIMIT)
    pieces: list[bytes] = []
    size = 0
    try:
        with open_bytes(path) as file:
            while piece := file.read1(BLOCK):  # small pieces if the file is gzip
                pieces.append(piece)
                size += len(piece)
                limit -= len(piece)
                if limit < 0:
                    message = f"expands more than {LARGEST_RATIO}-fold, like a decompression bomb"
                    raise InputError(message, where=display_path(path))
                if size >= BLOCK:
                    yield b"".join(pieces)
                    pieces, size = [], 0
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"gzip stream is damaged ({error})", where=display_path(path), hint=WHOLE) from None
    except OSError as error:
        raise unreadable_error(path, error) from None
    if pieces:
        yield b"".join(pieces)


def strip_padding(data: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks without NUL padding at the end."""
    padding = 0
    for block in data:
        text = block.rstrip(b"\0")
        if text:
            yield b"\0" * padding + text
            padding = 0
        padding += len(block) - len(text)


def read_head(path: Path, size: int = 64 * KIB) -> bytes:
    """The beginning of the file's (decompressed) bytes."""
    beginning = b""
    for block in read_blocks(path):
        beginning += block
        if len(beginning) >= size:
            break
    return beginning[:size]


def name_inside(path: Path) -> str | None:
    """The name in a gzip header, `*` if the header has other optional fields; None without a name."""
    if not is_compressed(path):
        return None
    with path.open("rb") as file:
        header = file.read(_HEADER)
    flags = header[_FLAGS] if len(header) > _FLAGS else 0
    if flags & _NAMED == _NAME:
        return header[_FIXED:].partition(b"\0")[0].decode("latin-1")
    return "*" if flags & _NAMED else None


@contextmanager
def replace_atomically(original: Path, target: Path) -> Iterator[Path]:
    """A temporary file that replaces the target once it is written; an executable stays executable."""
    try:
        with NamedTemporaryFile(dir=target.parent, prefix=".redacting-", delete=False) as file:
            scratch = Path(file.name)
    except OSError as error:
        raise unwritable_error(target, error) from None
    try:
        yield scratch
        scratch.chmod(0o755 if original.stat().st_mode & 0o100 else 0o644)
        scratch.replace(target)
    except OSError as error:
        raise unwritable_error(target, error) from None
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def open_target(original: Path, target: Path, *, as_gzip: bool) -> Iterator[IO[bytes]]:
    """The target opened for writing; equal content always gives equal files."""
    with replace_atomically(original, target) as scratch, scratch.open("wb") as raw:
        if as_gzip:
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                yield packed  # type: ignore[misc]  # it is written to, and nothing else
        else:
            yield raw
        raw.flush()
        os.fsync(raw.fileno())


@contextmanager
def open_output(original: Path, target: Path | None) -> Iterator[Callable[[bytes], object]]:
    """A function that writes to the target, compressed if the original is; without a target it discards."""
    if target is None:
        yield lambda _: None
    else:
        with open_target(original, target, as_gzip=is_compressed(original)) as file:
            yield file.write


def require_uncompressed(path: Path) -> Path:
    """The path; `InputError` if the file is compressed."""
    if is_compressed(path):
        raise InputError("is compressed", where=display_path(path), hint="gunzip it first")
    return path


def copy_file(original: Path, target: Path) -> None:
    """Copy the file unchanged."""
    with open_target(original, target, as_gzip=False) as file:
        try:
            with original.open("rb") as content:
                shutil.copyfileobj(content, file)
        except OSError as error:
            raise unreadable_error(original, error) from None


def unreadable_error(path: Path, error: OSError) -> InputError:
    """The error for a file that cannot be read."""
    return InputError(f"cannot be read: {error.strerror or error}", where=display_path(path))


def unwritable_error(path: Path, error: OSError) -> InputError:
    """The error for a file that cannot be written."""
    return InputError(f"cannot be written: {error.strerror or error}", where=display_path(path))
