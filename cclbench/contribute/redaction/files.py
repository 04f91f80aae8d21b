# SPDX-License-Identifier: Apache-2.0
"""Redacted copies of evidence, by the format recognised from its content, and of launch scripts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cclbench.contribute.redaction.public_names import PublicNames, split_torn_rows
from cclbench.contribute.redaction.publisher import UNLISTED, Publisher
from cclbench.contribute.redaction.redactions import Redaction
from cclbench.formats import READERS
from cclbench.formats.files import display_path, open_output, read_blocks, require_plain_file, strip_padding
from cclbench.formats.source_files import required_reader
from cclbench.ground.errors import InputError
from cclbench.ground.units import MIB

_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Bytes that no text has; an escape may begin a colour."""
_LONGEST_LINE: Final = 64 * MIB
_TABLES: Final = (".csv", ".csv.gz", ".tsv")
_OF_A_SCRIPT: Final = re.compile(
    r"^#! ?/(?:usr/)?bin/(?:env )?(?:ba|z|da|k)?sh\b"
    r"|(?<![\w.])--?[A-Za-z][\w-]{0,40}[= ]\d{1,6}(?:\.\d{1,4})?(?!\w)"
    r"|\b[A-Z][A-Z_]{1,40}=\d{1,6}\b|\b\d(?:\.\d{1,3})?e-?\d{1,2}\b",
    re.ASCII,
)
"""The shell of a script, and numbers that are values of options and variables."""


def redact_evidence(
    source: Path, target: Path, names: PublicNames | None = None, *, reader: str | None = None
) -> list[Redaction]:
    """Write a redacted copy of a file of evidence; returns the changes by place and kind.

    `reader` is that of a file that is read with another; by default the file is recognised.

    `InputError` for a link, a damaged file, or a format that cannot be redacted; then there is no target.
    """
    require_plain_file(source)
    names = names or PublicNames()
    reads = READERS.get(reader or required_reader(source))
    publisher = Publisher(names, reads.figures)
    if not reads.rewrite(source, target, publisher):
        publish = publisher.table_line if source.name.endswith(_TABLES) else publisher.line
        refusal = f"cannot be redacted: format {reads.name} cannot rewrite its texts"
        _rewrite_lines(source, target, publisher, publish, reads.withheld_line, refusal)
    return publisher.list_redactions(names.publish_file_name(source.name))


def redact_script(source: Path, target: Path, names: PublicNames) -> list[Redaction]:
    """Write a redacted copy of a launch script; `InputError` for one that is no text."""
    require_plain_file(source)
    publisher = Publisher(names, _OF_A_SCRIPT)
    _rewrite_lines(source, target, publisher, publisher.line, lambda _: None, "is no text")
    return publisher.list_redactions(names.publish_file_name(source.name))


def _rewrite_lines(
    source: Path,
    target: Path,
    publisher: Publisher,
    publish: Callable[[str], str],
    withheld_line: Callable[[str], str | None],
    refusal: str,
) -> None:
    """Write the lines as `publish` gives them; those that are withheld are empty."""
    number, withheld = 0, Counter[str]()
    with open_output(source, target) as write:
        for lines in _line_blocks(source, refusal):
            first, changed = 0, 0
            new_lines = list[str]()
            for line in lines:
                number += 1
                kind = withheld_line(line) if line.strip() else None
                torn = split_torn_rows(line)
                new = "" if kind else publish(torn)
                if kind:
                    withheld[kind] += 1
                elif new != line:
                    first, changed = first or number, changed + 1
                new_lines.append(new)
            publisher.count(f"lines from {first:,}", {UNLISTED: changed})
            write("\n".join(new_lines).encode(errors="surrogateescape"))
    publisher.count("lines", withheld)


def _line_blocks(path: Path, refusal: str) -> Iterator[list[str]]:
    """The file's lines in blocks; a block but the last ends with an empty text, so that joins are exact."""
    held = b""
    for block in strip_padding(read_blocks(path)):
        if _BINARY.search(block):
            hint = "leave it out, or export it as text, JSON or SQLite"
            raise InputError(refusal, where=display_path(path), hint=hint)
        data = held + block
        end = data.rfind(b"\n") + 1
        if not end and len(data) > _LONGEST_LINE:
            raise InputError(f"has a line of more than {_LONGEST_LINE >> 20} MiB", where=display_path(path))
        held = data[end:]
        if end:
            yield data[:end].decode(errors="surrogateescape").split("\n")
    if held:
        yield [held.decode(errors="surrogateescape")]
