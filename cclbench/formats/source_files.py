# SPDX-License-Identifier: Apache-2.0
"""Which files of a source are read, and by which reader."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from cclbench.formats import READERS
from cclbench.formats.recognition import CARD_SUFFIXES, head_of, is_card, recognise_head
from cclbench.formats.unread import UnreadFormatError, refuse_unread
from cclbench.ground.errors import InputError

CAPTURES: Final = "execution_details.json"
"""What marks a folder of captures of graphs, as serving engines' profiling scripts write it."""
_JOURNALS: Final = ("-wal", "-journal")
"""Ends of names of what SQLite keeps beside a database."""
_LIKELY: Final = 0.3
"""Confidence from which a reader's word counts whatever the file is called."""


def read_by_name(name: str) -> bool:
    """Whether a file of a folder is read whatever it holds: it belongs to others, which it describes."""
    described = {READERS.get(reader).described_by for reader in READERS}
    return Path(name).name in {CAPTURES, *described} or name.endswith(_JOURNALS)


def read_by_beginning(path: Path) -> bool | None:
    """Whether a file of a folder is read, by what there is of it; None where more of it may tell."""
    if path.suffix.lower() in CARD_SUFFIXES:
        return is_card(path)
    try:
        if reader_of(path, lenient=not looks_like_a_trace(path)) is not None:
            return True
    except UnreadFormatError:
        pass
    except InputError:
        return True  # refused as it is; whole it may be refused for something else
    try:
        return False if b"\0" in head_of(path) else None
    except zlib.error:
        return False


def looks_like_a_trace(path: Path) -> bool:
    """Whether a file calls itself a trace, so that it must not be passed over where it is damaged."""
    readers = [r for r in map(READERS.get, READERS) if r.reads == "trace" and r.described_by is None]
    return any(path.name.endswith(ending) for reader in readers for ending in reader.extensions)


def required_reader(path: Path) -> str:
    """The name of the reader for a file; `InputError` where no reader knows it."""
    reader = reader_of(path)
    if reader is None:
        raise InputError(
            "is no trace of a known format", where=str(path), hint=f"readers: {', '.join(READERS)}"
        )
    return reader


def reader_of(path: Path, *, lenient: bool = False) -> str | None:
    """The name of the reader for a file, None where no reader knows it.

    An empty file and a gzip stream without a beginning are errors, or unknown where `lenient`; then so is
    a file that is recognised weakly.  `UnreadFormatError` where the file is known and no reader reads it.
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
    if reader is None or (lenient and reader.described_by is None and reader.sniff(head) < _LIKELY):
        return None
    return reader.name
