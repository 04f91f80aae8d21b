# SPDX-License-Identifier: Apache-2.0
"""Redaction: what a data point's files tell of people, machines and secrets, replaced in copies.

`collect` learns names from all files together, `redact` writes a copy of one without them, `leftovers`
looks at a copy and finds nothing.  A name has the same pseudonym in every file: whether two ranks share a
host survives.  What metrics need (kernels, operators, collectives, groups, times) stays byte for byte.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from cclbench import yaml_file
from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Identities, Learner
from cclbench.contribute.redaction.needles import PLAIN, Form
from cclbench.contribute.redaction.plain_text import PUBLISHED
from cclbench.contribute.redaction.redactions import Redaction, by_kind
from cclbench.contribute.redaction.rewriting import is_card, rewrite
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.errors import InputError, UsageError
from cclbench.formats import READERS
from cclbench.formats.files import BLOCK, blocks, check, name_inside
from cclbench.formats.streams import compressed

__all__ = [
    "Identities",
    "Redaction",
    "by_kind",
    "collect",
    "leftovers",
    "leftovers_in",
    "redact",
    "redacted_name",
]

_UNPUBLISHED: Final = ("contributor", "description", "evidence", "environment")
"""Of a card, what may hold a name that is not meant for everybody."""
_OF_A_RANK: Final = re.compile(r"(?i)rank|worker|step|[tp]p-?\d")
"""In what a program calls its worker; a host is not called so."""
_NOT_BY_CHANCE: Final = 8


def collect(paths: Iterable[Path], reveal: Sequence[str] = ()) -> Identities:
    """The names and values that a data point's files hold, read from all of them before any is redacted.

    `reveal` names fields and variables whose values stay, wherever they are.  `InputError` for a file that
    cannot be redacted, `UsageError` for a field that is nowhere.
    """
    learner, published = Learner(reveal), set[str]()
    for path in paths:
        check(path)
        rewrite(path, None, Scrubber(learner), annotations=True)
        _named(path.name, learner)
        if is_card(path):
            published |= _published(path)
    if unused := [name for name in reveal if name.casefold() not in learner.used]:
        hint = "the list of what was found names the field or variable in parentheses"
        raise UsageError("there is no field or variable of that name", where=unused[0], hint=hint)
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
    if not scrubber.redactions(name):
        # What lies between texts, such as pages that a database no longer uses.
        told = Counter((form.encoding, form.kind) for form in _in_bytes(path, known))
        for (encoding, kind), count in told.items():
            place = "its bytes" if encoding == PLAIN else f"its bytes, as {encoding}"
            scrubber.count(place, {kinds.ELSEWHERE.format(kind): count})
    return scrubber.redactions(name)


def leftovers_in(text: str, known: Identities) -> list[str]:
    """Kinds of names and values in a text that is written as it is, such as a file's name."""
    return sorted({found.form.kind for found in known.needles.find([text.encode(errors="surrogateescape")])})


def redacted_name(name: str, known: Identities) -> str:
    """A file's name without the names it holds; what says its rank and format stays."""
    return Scrubber(known).text(_named(name, known))[0]


def _scrubbed(source: Path, target: Path | None, known: Identities, *, annotations: bool) -> Scrubber:
    check(source)
    scrubber = Scrubber(known, {found.form for found in known.needles.find(blocks(source))})
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


def _in_bytes(path: Path, known: Identities) -> Iterator[Form]:
    """Names and values anywhere in a file's bytes, and in what is compressed in them, in any encoding."""
    if is_card(path):
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        published = PUBLISHED.sub("", text).encode(errors="surrogateescape")
        yield from (found.form for found in known.needles.find([published]))
        everywhere = known.needles.find([text.encode(errors="surrogateescape")])
        yield from (found.form for found in everywhere if found.form.kind in kinds.CREDENTIALS)
        return
    with path.open("rb") as file:
        for found in known.needles.find(iter(partial(file.read, BLOCK), b"")):
            # In compressed bytes short ones are there by chance.
            if not compressed(path) or len(found.form.data) >= _NOT_BY_CHANCE:
                yield found.form
    if compressed(path):
        yield from (found.form for found in known.needles.find(blocks(path)))


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
