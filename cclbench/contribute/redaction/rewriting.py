# SPDX-License-Identifier: Apache-2.0
"""Who rewrites a file: the format that it is of by its content; a text of no format goes line by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cclbench.contribute.redaction import plain_text
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.errors import InputError
from cclbench.formats.files import blocks, head, output, shown
from cclbench.formats.json_text import rewrite_json
from cclbench.formats.recognition import recognised

_CARD_KEY: Final = re.compile(rb"""^["']?workload["']?[ \t]*:""", re.MULTILINE)
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def rewrite(path: Path, target: Path | None, scrubber: Scrubber, *, annotations: bool) -> None:
    """Write the redacted file to `target`, whole or not at all; without one, only count what would change."""
    begin = head(path)
    found, _ = recognised(path, begin)
    attempt = Scrubber(scrubber.known)  # of which nothing counts where it fails
    if (
        rewrite_json(path, target, attempt)
        if found is None
        else found.rewrite(path, target, attempt, annotations=annotations)
    ):
        scrubber.count_all(attempt)
        return
    if _BINARY.search(begin):
        what = "is in no format that can be redacted"
        raise InputError(
            what if found is None else f"cannot be redacted: format {found.name} cannot rewrite its texts",
            where=shown(path),
            hint="leave it out, or export it as text, JSON or SQLite",
        )
    with output(path, target) as write:
        plain_text.rewrite(blocks(path), scrubber, write, card=is_card(path))


def is_binary(path: Path) -> bool:
    """Whether a file is of a format that has bytes between its texts."""
    return _BINARY.search(head(path)) is not None


def is_card(path: Path) -> bool:
    """Whether a file is a workload card."""
    return path.suffix.lower() in (".yaml", ".yml") and _CARD_KEY.search(head(path)) is not None
