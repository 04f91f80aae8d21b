# SPDX-License-Identifier: Apache-2.0
"""Who rewrites a file: the format that it is of by its content; a text of no format goes line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cclbench.contribute.redaction import plain_text
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.errors import InputError
from cclbench.formats.files import blocks, head, output, shown, unpadded
from cclbench.formats.json_text import rewrite_json
from cclbench.formats.recognition import recognised

_CARD_KEY: Final = re.compile(rb"""^["']?workload["']?[ \t]*:""", re.MULTILINE)
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""What no text holds; an escape may begin a colour."""


def rewrite(path: Path, target: Path | None, scrubber: Scrubber, *, annotations: bool) -> None:
    """Write the redacted file to `target`, whole or not at all; without one, only count what would change."""
    begin = head(path)
    found, _ = recognised(path, begin)
    attempt = Scrubber(scrubber.known, scrubber.present.values())  # of which nothing counts where it fails
    if (
        rewrite_json(path, target, attempt)
        if found is None
        else found.rewrite(path, target, attempt, annotations=annotations)
    ):
        scrubber.count_all(attempt)
        return
    what = "is in no format that can be redacted"
    if found is not None:
        what = f"cannot be redacted: format {found.name} cannot rewrite its texts"
    with output(path, target) as write:
        plain_text.rewrite(_of_text(path, what), scrubber, write, card=is_card(path))


def _of_text(path: Path, otherwise: str) -> Iterator[bytes]:
    """The file's blocks, without padding; `InputError` where one holds what no text does."""
    for block in unpadded(blocks(path)):
        if _BINARY.search(block):
            hint = "leave it out, or export it as text, JSON or SQLite"
            raise InputError(otherwise, where=shown(path), hint=hint)
        yield block


def is_card(path: Path) -> bool:
    """Whether a file is a workload card."""
    return path.suffix.lower() in (".yaml", ".yml") and _CARD_KEY.search(head(path)) is not None
