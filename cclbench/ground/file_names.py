# SPDX-License-Identifier: Apache-2.0
"""Names of files as text: a name may hold any byte, UTF-8 may not.

Stored and shown, a byte that is not UTF-8 is `\\xHH`. Python holds such a byte as a lone surrogate.
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
    r"""A path as text for JSON, Parquet and YAML, in which `path_of` finds the path again.

    A byte that is not UTF-8 is `\xHH`; a backslash that would read as such an escape is `\x5c`.
    """
    name = _AMBIGUOUS.sub(rb"\\x5c", os.fsencode(path))
    return name.decode("utf-8", "backslashreplace")


def path_of(name: str) -> str:
    r"""The path that `stored_name` gave that name; its escapes hold no byte below 0x80 but the backslash."""
    raw = name.encode(errors="surrogateescape")
    return os.fsdecode(_ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), raw))


def utf8_text(text: str) -> str:
    r"""`text` as UTF-8 holds it: a byte that is not UTF-8 is `\xHH`, another lone surrogate `\uHHHH`."""
    return _SURROGATE.sub(lambda found: escape_character(found[0]), text)


def escape_character(character: str) -> str:
    r"""A character's escape: `\xHH` of a byte that is not UTF-8, else as Python's source has it."""
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else ascii(character)[1:-1]
