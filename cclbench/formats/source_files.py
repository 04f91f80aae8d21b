# SPDX-License-Identifier: Apache-2.0
"""Which files of a source are read, and with which reader."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, confidence
from cclbench.formats.recognition import CARD_SUFFIXES, head_of, is_card, recognise_head
from cclbench.formats.unread import UnreadFormatError, content_words, refuse_unread
from cclbench.ground.errors import InputError

CAPTURES: Final = "execution_details.json"
"""A file that marks a folder of graph captures, written by the profiling scripts of serving engines."""
_JOURNALS: Final = ("-wal", "-journal")
"""Suffixes of the files that SQLite keeps next to a database."""
LIST_READERS: Final = "`cclbench list readers` shows what is read"
_LIKELY: Final = 0.3
"""Confidence from which a reader is accepted whatever the file's name."""


def read_by_name(name: str) -> bool:
    """Whether a file of a folder is read whatever its content: it describes others, or is read with one."""
    readers = [READERS.get(reader) for reader in READERS]
    described = {reader.described_by for reader in readers}
    endings = (*_JOURNALS, *(ending for reader in readers for ending in reader.read_with))
    return Path(name).name in {CAPTURES, *described} or name.endswith(endings)


def read_by_beginning(path: Path) -> bool | None:
    """Whether a file of a folder is read, by the bytes there are; None if more of them may decide."""
    if path.suffix.lower() in CARD_SUFFIXES:
        return is_card(path)
    try:
        if reader_of(path, lenient=not looks_like_a_trace(path)) is not None:
            return True
    except UnreadFormatError:
        pass
    except InputError:
        return True  # invalid so far; the complete file may have another error
    try:
        return False if b"\0" in head_of(path) else None
    except zlib.error:
        return False


def looks_like_a_trace(path: Path) -> bool:
    """Whether a file has the name of a trace, so that damage is reported rather than ignored."""
    readers = [r for r in map(READERS.get, READERS) if r.reads == "trace" and r.described_by is None]
    return any(path.name.endswith(ending) for reader in readers for ending in reader.extensions)


def required_reader(path: Path) -> str:
    """The name of the reader for a file; `InputError` if no reader recognises it."""
    reader = reader_of(path)
    if reader is None:
        words, hint = content_words(head_of(path))
        raise InputError(
            f"is no trace of a known format: it is {words}",
            where=str(path),
            hint=hint or LIST_READERS,
        )
    return reader


def reader_of(path: Path, *, lenient: bool = False) -> str | None:
    """The name of the reader for a file, None if no reader recognises it.

    An empty file and a gzip stream damaged at its beginning are errors; with `lenient` the answer is None for
    them and for a file recognised with low confidence.  `UnreadFormatError` if the format is known but not
    supported.
    """
    for name in READERS:
        READERS.get(name).refuse(path)
    try:
        head = head_of(path)
    except zlib.error as error:
        if lenient:
            return None
        where = f"{path}: byte 0"
        raise InputError(f"gzip stream is damaged at its beginning ({error})", where=where) from None
    if not head.strip() and not lenient:
        raise InputError("the file is empty", where=str(path), hint="capture the trace again")
    reader, head = recognise_head(path, head)
    if reader is None:
        refuse_unread(path, head)
    if reader is None or (lenient and reader.described_by is None and confidence(reader, head) < _LIKELY):
        return None
    return reader.name
