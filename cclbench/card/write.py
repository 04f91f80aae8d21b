# SPDX-License-Identifier: Apache-2.0
"""Write a card as YAML in the schema's order, with comments in place of missing fields."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from cclbench.card.json_schema import card_schema
from cclbench.card.read import scalar
from cclbench.ground.text import printable, quoted_value

_WIDTH = 100
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+- ")
_BOOLEANS_ELSEWHERE = {"y", "n", "yes", "no", "on", "off"}  # for YAML 1.1 readers


def render_card(card: Mapping[str, Any], notes: Mapping[str, str] | None = None, *, gaps: bool = True) -> str:
    """The YAML of `card`; with `gaps`, each missing field is a comment with an example.

    A gap becomes YAML when its first `# ` is removed: `# layers: 32  # to fill in: number of layers`.
    `notes` maps dotted paths to notes on a gap or a value; a note on a value is written above it.
    """
    lines = _mapping_lines(card, card_schema(), "", 0, notes or {}, gaps)
    return "\n".join(lines) + "\n"


def _mapping_lines(
    values: Mapping[str, Any],
    part: Mapping[str, Any],
    prefix: str,
    depth: int,
    notes: Mapping[str, str],
    gaps: bool,
) -> Iterator[str]:
    indent = "  " * depth
    for key, below in part["properties"].items():
        path, value = prefix + key, values.get(key)
        if value is None or value in ({}, []):
            yield from (f"{indent}{line}" for line in _gap_lines(key, path, below, notes) if gaps)
            continue
        if path in notes:
            yield f"{indent}# to fill in: {printable(notes[path])}"
        if "properties" in below:
            yield f"{indent}{key}:"
            yield from _mapping_lines(value, below, f"{path}.", depth + 1, notes, gaps)
        else:
            yield from (f"{indent}{line}" for line in _leaf_lines(key, value))


def _gap_lines(key: str, path: str, part: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    """Comment lines of a missing entry, with its meaning at the end of the first line."""
    if "properties" in part:
        yield f"# {key}:" + (f"  # to fill in: {printable(notes[path])}" if path in notes else "")
        for name, below in part["properties"].items():
            yield from (f"#   {line[2:]}" for line in _gap_lines(name, f"{path}.{name}", below, notes))
        return
    note = f"; {printable(notes[path])}" if path in notes else ""
    first, *more = _leaf_lines(key, part["examples"][0])
    yield f"# {first}  # to fill in: {part['title']}{note}"
    yield from (f"# {line}" for line in more)


def _leaf_lines(key: str, value: Any) -> Iterator[str]:
    """Lines of one entry: a scalar, a list of scalars, a list of flat mappings, or a free mapping."""
    if isinstance(value, Mapping):
        yield f"{key}:"
        yield from (f"  {_scalar_text(name)}: {_scalar_text(text)}" for name, text in value.items())
    elif isinstance(value, list) and isinstance(value[0], Mapping):
        yield f"{key}:"
        for item in value:
            lines = [line for name, text in item.items() for line in _leaf_lines(name, text)]
            yield from (f"{'  - ' if i == 0 else '    '}{line}" for i, line in enumerate(lines))
    elif isinstance(value, list):
        yield f"{key}: [{', '.join(map(_scalar_text, value))}]"
    elif isinstance(value, str) and len(value) > _WIDTH and _is_foldable(value):
        lines = textwrap.wrap(value, _WIDTH, break_long_words=False, break_on_hyphens=False)
        yield f"{key}: >-"
        yield from (f"  {line}" for line in lines)
    else:
        yield f"{key}: {_scalar_text(value)}"


def _is_foldable(text: str) -> bool:
    """Whether a folded block preserves `text`: only single spaces, and nothing that needs an escape."""
    return " " in text and text.isprintable() and text == " ".join(text.split())


def _scalar_text(value: Any) -> str:
    """A scalar that every reader reads back unchanged: plain if unambiguous, else in double quotes."""
    if not isinstance(value, str):
        return quoted_value(value)
    plain = (
        _PLAIN.issuperset(value.replace("://", ""))
        and value == " ".join(value.split())
        and value[:1] not in {"", "-", ".", ":"}
        and any(c.isalpha() for c in value)
        and value.lower() not in _BOOLEANS_ELSEWHERE
        and scalar(value) == value
    )
    return value if plain else '"' + "".join(map(_escape_character, value)) + '"'


def _escape_character(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    return c if c.isprintable() else f"\\U{ord(c):08X}"
