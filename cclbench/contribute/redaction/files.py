# SPDX-License-Identifier: Apache-2.0
"""Files on their way through redaction: read in bounded blocks, written whole or not at all.

A gzip file stays one, without the name and comment its header may hold.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

from cclbench.errors import InputError
from cclbench.problem import printable
from cclbench.readers.json_events import LARGEST_RATIO, compressed, open_bytes

BLOCK: Final = 4 << 20
_LEAST_LIMIT: Final = 64 << 20
_FLAGS, _NAMED = 3, 0x1C
"""Of a gzip header: the byte of flags, and those for extra fields, a name and a comment (RFC 1952)."""
WHOLE: Final = "only a whole file can be redacted: copy or capture it again"


def check(path: Path) -> None:
    """`InputError` where a path is no plain file; links are not followed."""
    if path.is_symlink():
        raise InputError("is a link", where=shown(path), hint="name the file itself")
    if not path.is_file():
        raise InputError("no such file", where=shown(path))


def shown(path: Path) -> str:
    """A path as messages name it."""
    return printable(str(path))


def blocks(path: Path) -> Iterator[bytes]:
    """The file's (decompressed) bytes; `InputError` where it cannot be read whole or expands absurdly."""
    limit = max(LARGEST_RATIO * path.stat().st_size, _LEAST_LIMIT)
    try:
        with open_bytes(path) as file:
            while block := file.read1(BLOCK):
                limit -= len(block)
                if limit < 0:
                    what = f"expands more than {LARGEST_RATIO}-fold, like a decompression bomb"
                    raise InputError(what, where=shown(path))
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"gzip stream is damaged ({error})", where=shown(path), hint=WHOLE) from None
    except OSError as error:
        raise unreadable(path, error) from None


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The beginning of the file's (decompressed) bytes."""
    found = b""
    for block in blocks(path):
        found += block
        if len(found) >= size:
            break
    return found[:size]


def named_inside(path: Path) -> bool:
    """Whether a gzip header holds the file's name, a comment or more."""
    with path.open("rb") as file:
        return compressed(path) and bool(file.read(_FLAGS + 1)[_FLAGS] & _NAMED)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new file beside the target that takes its place when all of it is written."""
    try:
        with NamedTemporaryFile(dir=target.parent, prefix=".redacting-", delete=False) as file:
            scratch = Path(file.name)
    except OSError as error:
        raise unwritable(target, error) from None
    try:
        yield scratch
        scratch.chmod(0o644)
        scratch.replace(target)
    except OSError as error:
        raise unwritable(target, error) from None
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def written(target: Path, *, as_gzip: bool) -> Iterator[IO[bytes]]:
    """The target open to be written; the same bytes always make the same file."""
    with replacing(target) as scratch, scratch.open("wb") as raw:
        if as_gzip:
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                yield packed  # type: ignore[misc]  # it is written to, and nothing else
        else:
            yield raw
        raw.flush()
        os.fsync(raw.fileno())


def copied(source: Path, target: Path) -> None:
    """The file as it is."""
    with written(target, as_gzip=False) as file:
        try:
            with source.open("rb") as original:
                while block := original.read(BLOCK):
                    file.write(block)
        except OSError as error:
            raise unreadable(source, error) from None


def unreadable(path: Path, error: OSError) -> InputError:
    """The one line about a file that cannot be read."""
    return InputError(f"cannot be read: {error.strerror or error}", where=shown(path))


def unwritable(path: Path, error: OSError) -> InputError:
    """The one line about a file that cannot be written."""
    return InputError(f"cannot be written: {error.strerror or error}", where=shown(path))
