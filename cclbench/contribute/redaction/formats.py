# SPDX-License-Identifier: Apache-2.0
"""Which way a file goes: by what it begins with, not by its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cclbench.contribute.redaction import json_text, plain_text
from cclbench.contribute.redaction.files import blocks, head, replacing, shown, written
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.contribute.redaction.tally import Tally
from cclbench.errors import InputError
from cclbench.formats import READERS
from cclbench.formats.json_events import compressed
from cclbench.formats.nsys.database import MAGIC
from cclbench.formats.xplane.proto import begins_space

_JSON: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*[\"}]|\[\s*[\[{\"\]\d-])")
_PICKLE: Final = b"\x80"
_CARD_KEY: Final = re.compile(rb"""^["']?workload["']?[ \t]*:""", re.MULTILINE)
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")

Write = Callable[[bytes], object]


def rewrite(path: Path, target: Path | None, scrubber: Scrubber, tally: Tally, *, annotations: bool) -> None:
    """Write the redacted file to `target`, whole or not at all; without one, only count what would change."""
    begin = head(path)
    if begin.startswith(MAGIC):
        from cclbench.contribute.redaction.database import DatabaseRewriter

        database = DatabaseRewriter(_uncompressed(path), scrubber, tally, annotations=annotations)
        if target is None:
            database.rewrite(None)
        else:
            with replacing(path, target) as scratch:
                database.rewrite(scratch)
    elif begins_space(begin):
        from cclbench.contribute.redaction.protobuf import ProtobufRewriter

        profile = ProtobufRewriter(_uncompressed(path), scrubber, tally, annotations=annotations)
        _to(path, target, profile.rewrite)
    elif begin.startswith(_PICKLE):
        what, hint = (
            "is a pickle, which cannot be redacted",
            "dump it as JSON: _dump_nccl_trace_json of PyTorch",
        )
        raise InputError(what, where=shown(path), hint=hint)
    elif _BINARY.search(begin):
        hint = "leave it out, or export it as text, JSON or SQLite"
        raise InputError("is in no format that can be redacted", where=shown(path), hint=hint)
    else:
        _texts(path, begin, target, scrubber, tally, annotations=annotations)


def is_binary(path: Path) -> bool:
    """Whether a file is of a format that has bytes between its texts."""
    begin = head(path)
    return begin.startswith(MAGIC) or begins_space(begin)


def is_card(path: Path) -> bool:
    """Whether a file is a workload card."""
    return path.suffix.lower() in (".yaml", ".yml") and _CARD_KEY.search(head(path)) is not None


def _texts(
    path: Path, begin: bytes, target: Path | None, scrubber: Scrubber, tally: Tally, *, annotations: bool
) -> None:
    if _JSON.match(begin):
        named = _named(path, begin, scrubber) if annotations else {}
        own = Tally()
        rewriter = json_text.JsonRewriter(
            scrubber, own, annotations=annotations, where=shown(path), named=named
        )
        try:
            _to(path, target, lambda write: json_text.rewrite(blocks(path), rewriter, write))
        except json_text.NotJsonError:
            pass  # a log may begin like JSON
        else:
            tally.join(own)
            return
    card = is_card(path)
    _to(path, target, lambda write: plain_text.rewrite(blocks(path), scrubber, tally, write, card=card))


def _named(path: Path, begin: bytes, scrubber: Scrubber) -> dict[str, str]:
    """Annotations of an XLA profile's Chrome JSON and what they become."""
    if not READERS.get("xla_json").sniff(begin):
        return {}
    from cclbench.contribute.redaction.protobuf import ranges_of_people
    from cclbench.formats.xplane.chrome import HOST, chrome

    plane = chrome(path).planes.get(HOST)
    texts = ranges_of_people(plane) if plane is not None else ()
    return {text: new for text in sorted(texts) if (new := scrubber.annotation(text)[0]) != text}


def _to(path: Path, target: Path | None, rewritten: Callable[[Write], None]) -> None:
    if target is None:
        rewritten(lambda _: None)
        return
    with written(path, target, as_gzip=compressed(path)) as file:
        rewritten(file.write)


def _uncompressed(path: Path) -> Path:
    if compressed(path):
        raise InputError("is compressed", where=shown(path), hint="gunzip it first")
    return path
