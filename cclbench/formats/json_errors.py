# SPDX-License-Identifier: Apache-2.0
"""What decoding errors of msgspec say about a JSON text: where it is damaged, and how."""

from __future__ import annotations

import re

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BYTE = re.compile(r"\(byte (\d+)\)")
_INDEX = re.compile(r"\$\[\d+\]")


def is_truncation(error: Exception) -> bool:
    """Whether the text ends inside a value."""
    return "truncated" in str(error)


def states_byte(error: Exception) -> bool:
    """Whether the error states an offset."""
    return _BYTE.search(str(error)) is not None


def value_end(error: Exception) -> int | None:
    """Offset of the end of a JSON value followed by other text; None for any other error."""
    byte = _BYTE.search(str(error)) if "trailing characters" in str(error) else None
    return None if byte is None else int(byte[1]) - 1


def error_location(error: Exception, length: int) -> tuple[int, str]:
    """Offset and reason of a decoding error in a text of this length."""
    if isinstance(error, UnicodeDecodeError):
        return length, "bytes that are not UTF-8"
    if isinstance(error, RecursionError):
        return length, "too deep nesting"
    message = str(error)
    if (end := value_end(error)) is not None:
        return end, "other text"
    if (byte := _BYTE.search(message)) is not None:
        return min(int(byte[1]), length), message[: byte.start()].removeprefix("JSON is malformed: ").strip()
    return length, "truncated" if is_truncation(error) else _INDEX.sub("event", message).replace("`", "'")
