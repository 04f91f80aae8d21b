# SPDX-License-Identifier: Apache-2.0
"""Access to a card's fields by path, also in incomplete or invalid cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cclbench.ground.diagnostics import Path


def card_field(card: Mapping[str, Any], *path: str | int, kind: type | tuple[type, ...] = int) -> Any:
    """The card's value at `path` if it exists and is of `kind`, else None."""
    value: Any = card
    for key in path:
        if isinstance(value, Mapping) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int):
            value = value[key]
        else:
            return None
    return value if isinstance(value, kind) and not (kind is int and isinstance(value, bool)) else None


def put_field(card: dict[str, Any], path: str, value: Any) -> None:
    """Set the field at a dotted path."""
    *parents, name = path.split(".")
    for key in parents:
        card = card.setdefault(key, {})
    card[name] = value


def card_leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Path and value of every leaf; an empty mapping is a leaf."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from card_leaves(below, (*path, key))
    else:
        yield path, value


def drop_empty(**values: Any) -> dict[str, Any]:
    """The values that are neither None nor empty."""
    return {key: value for key, value in values.items() if value not in (None, {}, [])}
