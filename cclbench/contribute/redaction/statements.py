# SPDX-License-Identifier: Apache-2.0
"""What a contributor states: the card, and a calibration beside it.

Fields hold what the contributor chooses to publish, and stay.  Prose may tell more than meant: of it words
of letters, short numbers and public names stay, all else becomes tokens: hosts, paths, addresses, keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from cclbench.contribute.redaction.public_names import PublicNames
from cclbench.contribute.redaction.publisher import UNLISTED, VERSION
from cclbench.contribute.redaction.redactions import Redaction
from cclbench.ground.errors import UsageError

_PROSE: Final = frozenset({"description", "dataset", "price_source", "source"})
_NAMES: Final = frozenset({"library_version"})
"""Texts of a calibration, which are public names or tokens."""
_VARIABLES: Final = "environment"
_ADDRESSES: Final = frozenset({"url", "source_url"})
_UNSTATED: Final = frozenset({"contributor", "description", "evidence", _VARIABLES})
"""Fields whose texts do not make a name public."""
_WORD: Final = re.compile(r"\S+")
_PUNCTUATION: Final = ".,;:!?()[]{}\"'`*-"
_OF_LETTERS: Final = re.compile(
    r"[^\W\d_]+(?:[-'’/][^\W\d_]+)*|[$€]?\d{1,4}(?:[.,:]\d{1,3})?%?|[^\w@/\\]{1,3}"
)


def redact_statements(
    stated: Mapping[str, Any], names: PublicNames, file: str
) -> tuple[Any, list[Redaction]]:
    """The fields of a card or calibration as they are published, and what was replaced.

    `UsageError` for an address with a login or a query, which may give access.
    """
    counts = Counter[str]()

    def publish(value: Any, field: str, within: str) -> Any:
        if isinstance(value, Mapping):
            return {_key(key, field): publish(item, key, field) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [publish(item, field, within) for item in value]
        if not isinstance(value, str):
            return value
        new = value
        if field in _ADDRESSES:
            _require_plain_address(value, field)
        elif names.is_revealed(field):
            pass
        elif within == _VARIABLES or (field in _NAMES and not VERSION.fullmatch(value)):
            new = names.publish(value)
        elif field in _PROSE:
            new = _WORD.sub(lambda word: _prose_word(word[0], names), value)
        counts[field] += new != value
        return new

    def _key(key: str, field: str) -> str:
        return names.publish(key) if field == _VARIABLES and not names.is_revealed(key) else key

    new = publish(stated, "", "")
    return new, [Redaction(file, field, UNLISTED, count) for field, count in counts.items() if count]


def card_texts(card: Mapping[str, Any]) -> frozenset[str]:
    """Texts of a card's fields, without case: names, such as the model's, that evidence may state, too."""
    return frozenset(text.casefold() for text in _texts(card))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if name not in _UNSTATED:
                yield from _texts(item)


def _prose_word(word: str, names: PublicNames) -> str:
    core = word.strip(_PUNCTUATION)
    if not core or _OF_LETTERS.fullmatch(core) or names.is_public(core):
        return word
    return word.replace(core, names.token(core))


def _require_plain_address(address: str, field: str) -> None:
    parts = urlsplit(address)
    if parts.username is not None or parts.password is not None or parts.query:
        raise UsageError(
            "the address has a login or a query, which may give access",
            where=field,
            hint="state the address without them",
        )
