# SPDX-License-Identifier: Apache-2.0
"""Rewrite a file by the format recognised from its content; other texts line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from cclbench.contribute.redaction import plain_text
from cclbench.contribute.redaction.documents import LANGUAGES, Language, NotWellFormedError
from cclbench.contribute.redaction.evidence import EvidenceScrubber
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.formats import AnyReader
from cclbench.formats.files import display_path, open_output, read_blocks, read_head, strip_padding
from cclbench.formats.json_text import rewrite_json
from cclbench.formats.recognition import recognise_head
from cclbench.ground.errors import InputError

_CARD_KEY: Final = re.compile(rb"""^["']?workload["']?[ \t]*:""", re.MULTILINE)
_SCRIPT: Final = re.compile(rb"#![^\n]*\b(?:ba|da|k|z)?sh\b")
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Bytes that no text has; an escape may begin a colour."""


def rewrite_file(path: Path, target: Path | None, scrubber: Scrubber) -> None:
    """Write the redacted file to `target`, completely or not at all; without one, only count changes."""
    begin = read_head(path)
    reader, _ = recognise_head(path, begin)
    card, language = is_card(path), language_of(path)
    evidence = reader is not None and language in (None, LANGUAGES[".csv"]) and not (card or scrubber.learns)

    def empty_scrubber() -> Scrubber:
        known = scrubber.identities, scrubber.present.values()
        return EvidenceScrubber(*known, reader.figures) if reader and evidence else Scrubber(*known)

    attempt = empty_scrubber()  # its counts are dropped if it fails
    if rewrite_json(path, target, attempt) if reader is None else reader.rewrite(path, target, attempt):
        scrubber.count_all(attempt)
        return
    refusal = "has no format that can be redacted"
    if reader is not None:
        refusal = f"cannot be redacted: format {reader.name} cannot rewrite its texts"
    attempt = empty_scrubber()
    try:
        with open_output(path, target) as write:
            text = _text_blocks(path, refusal)
            if reader is not None and isinstance(attempt, EvidenceScrubber):
                attempt.is_table, language = language is not None, None
                text = _published_lines(text, reader, attempt)
            plain_text.rewrite_text(text, attempt, write, language=language, card=card)
    except NotWellFormedError:
        hint = "remove from it what looks like a name or a secret"
        raise InputError(
            "would no longer parse after redaction", where=display_path(path), hint=hint
        ) from None
    scrubber.count_all(attempt)


def _text_blocks(path: Path, otherwise: str) -> Iterator[bytes]:
    """The file's blocks, without padding; `InputError` if one holds bytes that no text has."""
    for block in strip_padding(read_blocks(path)):
        if _BINARY.search(block):
            hint = "leave it out, or export it as text, JSON or SQLite"
            raise InputError(otherwise, where=display_path(path), hint=hint)
        yield block


def _published_lines(blocks: Iterable[bytes], reader: AnyReader, scrubber: Scrubber) -> Iterator[bytes]:
    """A text in whole lines; lines that its format withholds are empty."""
    incomplete, number = b"", 0
    for block in chain(blocks, (b"",)):
        lines = (incomplete + block).split(b"\n")
        incomplete = lines.pop() if block else b""
        for i, line in enumerate(lines):
            number += 1
            withheld = reader.withheld_line(line.decode(errors="surrogateescape")) if line.strip() else None
            if withheld is not None:
                lines[i] = b""
                scrubber.count(f"line {number:,}", {withheld: 1})
        yield b"\n".join([*lines, b""]) if block else b"\n".join(lines)


def language_of(path: Path) -> Language | None:
    """The language of a document, by its file extension or the first line of a script."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    language = LANGUAGES.get(suffixes[-1]) if suffixes else None
    return LANGUAGES[".sh"] if language is None and _SCRIPT.match(read_head(path)) else language


def is_card(path: Path) -> bool:
    """Whether a file is a workload card."""
    return path.suffix.lower() in (".yaml", ".yml") and _CARD_KEY.search(read_head(path)) is not None
