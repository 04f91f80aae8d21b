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

from cclbench import yaml_file
from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Identities, Learner
from cclbench.contribute.redaction.rewriting import is_binary, is_card, rewrite
from cclbench.contribute.redaction.scrub import Redaction, Scrubber, by_kind
from cclbench.errors import InputError
from cclbench.formats import READERS
from cclbench.formats.files import blocks, check, name_inside

__all__ = ["Identities", "Redaction", "by_kind", "collect", "leftovers", "redact", "redacted_name"]

_UNPUBLISHED: Final = ("contributor", "description", "evidence", "environment")
"""Of a card, what may hold a name that is not meant for everybody."""
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
        rewrite(path, None, Scrubber(learner), annotations=True)
        _named(path.name, learner)
        if is_card(path):
            published |= _published(path)
    return learner.identities(frozenset(published))


def redact(source: Path, target: Path, *, known: Identities, annotations: bool = False) -> list[Redaction]:
    """Write a redacted copy of a file; what was changed, by place and kind, without what it was.

    `annotations` numbers what people called ranges of their program, beyond the steps, phases and
    collectives that metrics know.  What is written is built anew from what the file means, also where it
    has nothing to hide: no unused page, padding or header comes along.  `InputError` for a link, a damaged
    file, or a format that cannot be redacted; then there is no target.
    """
    scrubber = _scrubbed(source, target, known, annotations=annotations)
    return scrubber.redactions(redacted_name(source.name, known))


def leftovers(path: Path, known: Identities) -> list[Redaction]:
    """What a file still holds; nothing where `redact` has written it with the same names."""
    scrubber, name = _scrubbed(path, None, known, annotations=False), redacted_name(path.name, known)
    if not scrubber.redactions(name) and is_binary(path):
        # What lies between texts, such as pages that a database no longer uses.
        scrubber.count("its bytes", _in_bytes(path, known))
    return scrubber.redactions(name)


def redacted_name(name: str, known: Identities) -> str:
    """A file's name without the names it holds; what says its rank and format stays."""
    return Scrubber(known).text(_named(name, known))[0]


def _scrubbed(source: Path, target: Path | None, known: Identities, *, annotations: bool) -> Scrubber:
    check(source)
    scrubber = Scrubber(known)
    rewrite(source, target, scrubber, annotations=annotations)
    name = name_inside(source)
    if name is not None and not redacted_name(name, known) == name != "*":
        scrubber.count("gzip header", {kinds.FILE_NAME: 1})
    return scrubber


def _named(name: str, known: Identities) -> str:
    """A file's name with the host a profiler put into it replaced, and learnt by one who learns."""
    for pattern in filter(None, (READERS.get(reader).host_in_name for reader in READERS)):
        found = pattern.fullmatch(name)
        if found is not None and not _OF_A_RANK.search(found["host"]):
            host = known.pseudonym(kinds.HOST, found["host"], learn=True)
            return name[: found.start("host")] + host + name[found.end("host") :]
    return name


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
        card = yaml_file.read(path, "workload card").value
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
