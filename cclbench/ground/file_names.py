# SPDX-License-Identifier: Apache-2.0
"""File names as text: names may contain bytes that are not UTF-8.

Such a byte is stored and shown as `\\xHH`. Python represents it as a lone surrogate.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import Final

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPE: Final = re.compile(rb"\\x([89a-f][0-9a-f]|5c)")
_AMBIGUOUS: Final = re.compile(rb"\\(?=x(?:[89a-f][0-9a-f]|5c))")


def stored_name(path: str | PurePath) -> str:
    r"""A path as text for JSON, Parquet and YAML; `path_of` is the inverse.

    A byte that is not UTF-8 is `\xHH`; a backslash that would read as such an escape is `\x5c`.
    """
    name = _AMBIGUOUS.sub(rb"\\x5c", os.fsencode(path))
    return name.decode("utf-8", "backslashreplace")


def path_of(name: str) -> str:
    r"""The path of a name from `stored_name`; the only escaped byte below 0x80 is the backslash."""
    raw = name.encode(errors="surrogateescape")
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), raw))


def utf8_text(text: str) -> str:
    r"""`text` as valid UTF-8: a byte that is not UTF-8 becomes `\xHH`, another lone surrogate `\uHHHH`."""
    return _SURROGATE.sub(lambda match: escape_character(match[0]), text)


def escape_character(character: str) -> str:
    r"""The escape of a character: `\xHH` for a byte that is not UTF-8, else as in Python source."""
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else ascii(character)[1:-1]
