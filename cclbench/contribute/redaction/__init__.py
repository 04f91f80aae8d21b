# SPDX-License-Identifier: Apache-2.0
"""Redaction: replace names of people and machines, and secrets, in copies of a data point's files.

`collect_identities` learns names from all files together, `redact_file` writes a copy of one without them,
`find_leftovers` checks that a copy holds none.  A name has the same pseudonym in every file, so it stays
visible whether two ranks share a host.  Data that metrics need (kernels, operators, collectives, groups,
times) is not changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Identities, Learner
from cclbench.contribute.redaction.needles import PLAIN, NeedleForm
from cclbench.contribute.redaction.plain_text import PUBLISHED
from cclbench.contribute.redaction.public_names import TOKEN
from cclbench.contribute.redaction.redactions import Redaction, by_kind
from cclbench.contribute.redaction.rewriting import is_card, rewrite_file
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.formats import READERS
from cclbench.formats.files import BLOCK, name_inside, read_blocks, require_plain_file
from cclbench.formats.streams import is_compressed
from cclbench.ground import yaml_file
from cclbench.ground.errors import InputError, UsageError

__all__ = [
    "Identities",
    "Redaction",
    "by_kind",
    "collect_identities",
    "evidence_name",
    "find_leftovers",
    "has_token",
    "leftovers_in",
    "redact_file",
    "redacted_name",
]

_UNPUBLISHED: Final = ("contributor", "description", "evidence", "environment")
"""Fields of a card that may hold a name that is not public."""
_OF_A_RANK: Final = re.compile(r"(?i)rank|worker|step|[tp]p-?\d")
"""Found in names of a program's workers, not of hosts."""
_NOT_BY_CHANCE: Final = 8


def collect_identities(
    paths: Iterable[Path], reveal: Sequence[str] = (), kept_names: Sequence[str] = ()
) -> Identities:
    """The names and values that a data point's files hold, read from all of them before any is redacted.

    `reveal` names fields and variables whose values stay in all files; names in evidence that match a pattern
    of `kept_names` stay.  `InputError` for a file that cannot be redacted, `UsageError` for a field that does
    not occur.
    """
    learner, published = Learner(reveal, kept_names), set[str]()
    for path in paths:
        require_plain_file(path)
        rewrite_file(path, None, Scrubber(learner))
        _pseudonymous_name(path.name, learner)
        if is_card(path):
            published |= _published_texts(path)
    if unused := [name for name in reveal if name.casefold() not in learner.used]:
        hint = "the list of what was found names the field or variable in parentheses"
        raise UsageError("there is no field or variable of that name", where=unused[0], hint=hint)
    return learner.learnt_identities(frozenset(published))


def redact_file(source: Path, target: Path, *, identities: Identities) -> list[Redaction]:
    """Write a redacted copy of a file; returns the changes by place and kind, without the original text.

    The copy is always written anew from the parsed content, without unused pages, padding or headers.
    `InputError` for a link, a damaged file, or a format that cannot be redacted; then there is no target.
    """
    scrubber = _scrub_file(source, target, identities)
    return scrubber.list_redactions(redacted_name(source.name, identities))


def find_leftovers(path: Path, identities: Identities) -> list[Redaction]:
    """Names and secrets left in a file; none if `redact_file` wrote it with the same `identities`."""
    scrubber, name = _scrub_file(path, None, identities), redacted_name(path.name, identities)
    if not scrubber.list_redactions(name):
        # Bytes between texts, such as pages that a database no longer uses.
        counts = Counter((form.encoding, form.kind) for form in _names_in_bytes(path, identities))
        for (encoding, kind), count in counts.items():
            place = "its bytes" if encoding == PLAIN else f"its bytes, as {encoding}"
            scrubber.count(place, {kinds.ELSEWHERE.format(kind): count})
    return scrubber.list_redactions(name)


def leftovers_in(text: str, identities: Identities) -> list[str]:
    """Kinds of names and values in a text that is written unchanged, such as a file's name."""
    return sorted(
        {
            found.form.kind
            for found in identities.secret_needles.find_in_blocks([text.encode(errors="surrogateescape")])
        }
    )


def redacted_name(name: str, identities: Identities) -> str:
    """A file's name with names in it replaced; its rank and format stay."""
    return Scrubber(identities).text(_pseudonymous_name(name, identities))[0]


def has_token(name: str) -> bool:
    """Whether a name in the copies, or a part of it, is a token."""
    return TOKEN.search(name) is not None


def evidence_name(name: str, identities: Identities) -> str:
    """The published name of a file of evidence: without names, and of public words."""
    return identities.public_names.publish_file_name(redacted_name(name, identities))


def _scrub_file(source: Path, target: Path | None, identities: Identities) -> Scrubber:
    require_plain_file(source)
    scrubber = Scrubber(
        identities, {found.form for found in identities.secret_needles.find_in_blocks(read_blocks(source))}
    )
    rewrite_file(source, target, scrubber)
    name = name_inside(source)
    if name is not None and not redacted_name(name, identities) == name != "*":
        scrubber.count("gzip header", {kinds.FILE_NAME: 1})
    return scrubber


def _pseudonymous_name(name: str, identities: Identities) -> str:
    """A file's name with the host that a profiler put into it replaced, and learnt by a `Learner`."""
    for pattern in filter(None, (READERS.get(reader).host_in_name for reader in READERS)):
        match = pattern.fullmatch(name)
        if match is not None and not _OF_A_RANK.search(match["host"]):
            host = identities.pseudonym_of(kinds.HOST, match["host"], learn=True)
            return name[: match.start("host")] + host + name[match.end("host") :]
    return name


def _names_in_bytes(path: Path, identities: Identities) -> Iterator[NeedleForm]:
    """Names and values anywhere in a file's bytes, compressed or not, in any encoding."""
    if is_card(path):
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        published = PUBLISHED.sub("", text).encode(errors="surrogateescape")
        yield from (found.form for found in identities.secret_needles.find_in_blocks([published]))
        everywhere = identities.secret_needles.find_in_blocks([text.encode(errors="surrogateescape")])
        yield from (found.form for found in everywhere if found.form.kind in kinds.CREDENTIALS)
        return
    with path.open("rb") as file:
        for found in identities.secret_needles.find_in_blocks(iter(partial(file.read, BLOCK), b"")):
            # In compressed bytes short ones occur by chance.
            if not is_compressed(path) or len(found.form.data) >= _NOT_BY_CHANCE:
                yield found.form
    if is_compressed(path):
        yield from (found.form for found in identities.secret_needles.find_in_blocks(read_blocks(path)))


def _published_texts(path: Path) -> set[str]:
    """Texts of a card's public fields, such as names of models and machines."""
    try:
        card = yaml_file.read(path, "workload card").value
    except InputError:
        return set()
    return set(_card_texts(card))


def _card_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.casefold()
    elif isinstance(value, list):
        for item in value:
            yield from _card_texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in _UNPUBLISHED:
                yield from _card_texts(item)
