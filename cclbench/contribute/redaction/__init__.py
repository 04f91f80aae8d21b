# SPDX-License-Identifier: Apache-2.0
"""Redaction: what a data point's files tell of people, machines and secrets, replaced in copies.

`collect` learns names from all files together, `redact` writes a copy of one without them, `leftovers`
looks at a copy and finds nothing.  A name has the same pseudonym in every file: whether two ranks share a
host survives.  What metrics need (kernels, operators, collectives, groups, times) stays byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from cclbench import document
from cclbench.contribute.redaction import formats, kinds
from cclbench.contribute.redaction.files import blocks, check, copied, name_inside
from cclbench.contribute.redaction.names import Identities, Learner
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.contribute.redaction.tally import Redaction, Tally, by_kind
from cclbench.errors import InputError

__all__ = ["Identities", "Redaction", "by_kind", "collect", "leftovers", "redact", "redacted_name"]

_UNPUBLISHED: Final = ("contributor", "description", "evidence", "environment")
"""Of a card, what may hold a name that is not meant for everybody."""
_OF_A_HANDLER: Final = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]*?)_\d+\.\d{10,20}\.pt\.trace\.json(?:\.gz)?")
"""What torch's tensorboard_trace_handler calls a file: host, process, time."""
_OF_A_RANK: Final = re.compile(r"(?i)rank|worker|step|[tp]p-?\d")
"""In what a program calls its worker; a host is not called so."""
_OVERLAP: Final = 256


def collect(paths: Iterable[Path]) -> Identities:
    """The names that a data point's files hold, read from all of them before any is redacted.

    `InputError` for a file that cannot be redacted.
    """
    learner, published = Learner(), set[str]()
    for path in paths:
        check(path)
        formats.rewrite(path, None, Scrubber(learner), Tally(), annotations=True)
        _named(path.name, learner)
        if formats.is_card(path):
            published |= _published(path)
    return learner.identities(frozenset(published))


def redact(source: Path, target: Path, *, known: Identities, annotations: bool = False) -> list[Redaction]:
    """Write a redacted copy of a file; what was changed, by place and kind, without what it was.

    `annotations` numbers what people called ranges of their program, beyond the steps, phases and
    collectives that metrics know.  A file without anything to hide is copied byte for byte.  `InputError`
    for a link, a damaged file, or a format that cannot be redacted; then there is no target.
    """
    check(source)
    tally = Tally()
    formats.rewrite(source, target, Scrubber(known), tally, annotations=annotations)
    tally.add("gzip header", _in_header(source, known))
    found = tally.redactions(redacted_name(source.name, known))
    if not found:
        copied(source, target)
    return found


def leftovers(path: Path, known: Identities) -> list[Redaction]:
    """What a file still holds; nothing where `redact` has written it with the same names."""
    check(path)
    tally = Tally()
    formats.rewrite(path, None, Scrubber(known), tally, annotations=False)
    tally.add("gzip header", _in_header(path, known))
    found = tally.redactions(redacted_name(path.name, known))
    if not found and formats.is_binary(path):
        # What lies between texts, such as pages that a database no longer uses.
        tally.add("its bytes", _in_bytes(path, known))
        found = tally.redactions(redacted_name(path.name, known))
    return found


def redacted_name(name: str, known: Identities) -> str:
    """A file's name without the names it holds; what says its rank and format stays."""
    return Scrubber(known).text(_named(name, known))[0]


def _named(name: str, known: Identities) -> str:
    """A file's name with the host a profiler put into it replaced, and learnt by one who learns."""
    handler = _OF_A_HANDLER.fullmatch(name)
    if handler is None or _OF_A_RANK.search(handler["host"]):
        return name
    return known.pseudonym(kinds.HOST, handler["host"], learn=True) + name[handler.end("host") :]


def _in_header(path: Path, known: Identities) -> dict[str, int]:
    """Whether a gzip header tells more than the file's name may."""
    name = name_inside(path)
    return {} if name is None or redacted_name(name, known) == name != "*" else {kinds.FILE_NAME: 1}


def _in_bytes(path: Path, known: Identities) -> dict[str, int]:
    """Names anywhere in a file's bytes, by kind."""
    counts: dict[str, int] = {}
    before = ""
    for block in blocks(path) if known.anywhere else ():
        text = before + block.decode("latin-1")
        for match in known.anywhere.finditer(text) if known.anywhere and known.mentioned(text) else ():
            kind = known.by_name.get(match[0].casefold(), ("", ""))[0]
            if kind and not match[0].isdigit():
                counts[kind] = counts.get(kind, 0) + 1
        before = text[-_OVERLAP:]
    return counts


def _published(path: Path) -> set[str]:
    """Texts of a card's own fields: names of models and machines that everybody may know."""
    try:
        card = document.read(path, "workload card").value
    except InputError:
        return set()
    return set(_texts(card))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.casefold()
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in _UNPUBLISHED:
                yield from _texts(item)
