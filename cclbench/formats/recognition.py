# SPDX-License-Identifier: Apache-2.0
"""Recognise a file's format by its beginning, and a text by as much of it as needed; recognise cards."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import Final

from cclbench.formats import FURTHER_BYTES, HEAD_BYTES, READERS, SURE, AnyReader, confidence, recognise_format
from cclbench.formats.streams import open_bytes
from cclbench.ground.errors import InputError

CARD_SUFFIXES: Final = (".yaml", ".yml")
_CARD_KEY: Final = re.compile(rb"""^["']?workload["']?[ \t]*:""", re.MULTILINE)
"""A key that every card has, of either version, and configurations of launchers and trainers have not."""
_DLIO_KEY: Final = re.compile(rb"^[ \t]+workflow[ \t]*:", re.MULTILINE)
"""Of DLIO's configuration, whose other keys are in a `workload` as well."""
_PIECE = 1024
"""Bytes read at a time from a damaged stream."""


def recognise_head(path: Path, head: bytes) -> tuple[AnyReader | None, bytes]:
    """The format of a file that begins with `head`, and the bytes of its beginning that were searched.

    A file next to it that describes it (`Format.described_by`) takes precedence over its content.
    """
    for candidate in map(READERS.get, READERS):
        if candidate.described_by is not None and candidate.is_described(path):
            return candidate, head
    reader = recognise_format(path, head)
    size = HEAD_BYTES
    # Only these: a job's log may contain the marks by which other readers recognise their files.
    searching = [name for name in READERS if READERS.get(name).after_other_text]
    for limit in FURTHER_BYTES:
        if len(head) < size or b"\0" in head or (reader is not None and confidence(reader, head) >= SURE):
            break
        try:
            head, size = head_of(path, limit), limit
        except zlib.error:  # a damaged stream has no more bytes
            return reader, head
        reader = recognise_format(path, head, searching) or reader
    return reader, head


def is_card(path: Path) -> bool:
    """Whether a file is a card, by its name and beginning."""
    if path.suffix.lower() not in CARD_SUFFIXES or not path.is_file():
        return False
    head = head_of(path)
    return _CARD_KEY.search(head) is not None and _DLIO_KEY.search(head) is None


def head_of(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The (decompressed) beginning of a file; of a damaged gzip stream the bytes before the damage."""
    try:
        with open_bytes(path) as file:
            return file.read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return _before_damage(path, size)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)[:200]) from None


def _before_damage(path: Path, size: int) -> bytes:
    """The first bytes of a damaged gzip stream's first member; `zlib.error` if there are none."""
    decoder, head = zlib.decompressobj(31), bytearray()
    with path.open("rb") as file:
        # After its first member the decoder returns nothing more, and may keep a tail for ever.
        while (
            len(head) < size and not decoder.eof and (piece := decoder.unconsumed_tail or file.read(_PIECE))
        ):
            try:
                # Few bytes a call: the call that reaches the damage returns none.
                head += decoder.decompress(piece, _PIECE)
            except zlib.error:
                if not head:
                    raise
                break
    return bytes(head[:size])
