# SPDX-License-Identifier: Apache-2.0
"""Text files of tools and jobs: gzip or not, any line ends, byte order mark, colours; sizes are bounded."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

import msgspec

from cclbench.formats.streams import LARGEST_RATIO, open_bytes
from cclbench.ground.errors import InputError

LONGEST_LINE: Final = 1 << 16
_LEAST_LIMIT: Final = 64 << 20
_BLOCK: Final = 1 << 21
_ORDER_MARK: Final = b"\xef\xbb\xbf"
_COLOUR = re.compile(rb"\x1b\[[\d;]*[mK]")
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,2})?", re.ASCII)


def damaged_error(path: Path, what: str, *, line: int | None = None, hint: str | None = None) -> InputError:
    """The error for a damaged file."""
    where = str(path) if line is None else f"{path}: line {line:,}"
    return InputError(what, where=where, hint=hint or "write it again, or remove it to do without")


def reason_of(error: msgspec.DecodeError | UnicodeDecodeError | RecursionError) -> str:
    """A decoder's error in one line."""
    return str(error).replace("`", "'")


def exact_number(text: str) -> Decimal:
    """A number of JSON as it is written: a `float_hook`, whose `ValueError` is a decoder's error."""
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number whose exponent is too large") from None


def strip_decoration(text: bytes) -> bytes:
    """A line, or a file's beginning, without terminal colours and byte order mark."""
    text = text.removeprefix(_ORDER_MARK)
    return _COLOUR.sub(b"", text) if b"\x1b" in text else text


def read_whole(path: Path, most: int, *, hint: str | None = None) -> bytes:
    """All (decompressed) bytes of a file of at most `most` bytes, without a byte order mark.

    `hint` is shown if it is damaged.
    """
    limit = _decompressed_limit(path, most)
    text = _read_bytes(path, limit + 1, hint)
    if len(text) > limit:
        raise _too_large(path, limit, hint)
    return text.removeprefix(_ORDER_MARK)


def read_beginning(path: Path, size: int) -> bytes:
    """The first `size` (decompressed) bytes of a file, without decoration (`strip_decoration`)."""
    return strip_decoration(_read_bytes(path, size))


def raw_lines(path: Path, most: int) -> Iterator[tuple[int, bytes]]:
    """Numbered lines with their ends, undecorated; lines are cut after `LONGEST_LINE` bytes."""
    limit = left = _decompressed_limit(path, most)
    number, inside = 0, False
    try:
        with open_bytes(path) as file:
            while piece := file.readline(LONGEST_LINE):
                left -= len(piece)
                if left < 0:
                    raise _too_large(path, limit)
                if not inside:
                    number += 1
                    yield number, strip_decoration(piece)
                inside = not piece.endswith(b"\n")
    except (EOFError, zlib.error, OSError) as error:
        raise _unreadable_error(path, error) from None


def line_blocks(path: Path, most: int) -> Iterator[bytes]:
    """Blocks of complete lines, undecorated, with line feeds only; a carriage return ends a line as well.

    A line of more than `_BLOCK` bytes is cut.
    """
    limit = left = _decompressed_limit(path, most)
    rest = b""
    try:
        with open_bytes(path) as file:
            while piece := file.read(_BLOCK):
                left -= len(piece)
                if left < 0:
                    raise _too_large(path, limit)
                lines, end, rest = (rest + piece.replace(b"\r", b"\n")).rpartition(b"\n")
                if not end and len(rest) > _BLOCK:
                    lines, rest = rest, b""
                if lines:
                    yield strip_decoration(lines)
    except (EOFError, zlib.error, OSError) as error:
        raise _unreadable_error(path, error) from None
    if rest:
        yield strip_decoration(rest)


def numbered_lines(path: Path, most: int) -> Iterator[tuple[int, str]]:
    """`raw_lines` decoded, without line ends; invalid bytes are replaced."""
    return ((number, raw.decode(errors="replace").rstrip()) for number, raw in raw_lines(path, most))


def parse_decimal(text: str) -> Decimal | None:
    """The number in a text, exactly as printed; None if it is not a number."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _decompressed_limit(path: Path, most: int) -> int:
    """Most decompressed bytes read of a file: `most`, or `LARGEST_RATIO` times its size."""
    try:
        return min(max(LARGEST_RATIO * path.stat().st_size, _LEAST_LIMIT), most)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def _read_bytes(path: Path, size: int, hint: str | None = None) -> bytes:
    try:
        with open_bytes(path) as file:
            return file.read(size)
    except (EOFError, zlib.error, OSError) as error:
        raise _unreadable_error(path, error, hint) from None


def _too_large(path: Path, limit: int, hint: str | None = None) -> InputError:
    return damaged_error(path, f"is larger than {limit >> 20:,} MiB", hint=hint)


def _unreadable_error(
    path: Path, error: EOFError | zlib.error | OSError, hint: str | None = None
) -> InputError:
    if isinstance(error, OSError) and error.strerror:
        return InputError(f"cannot be read: {error.strerror}", where=str(path))
    return damaged_error(path, f"gzip stream is damaged ({error})", hint=hint)
