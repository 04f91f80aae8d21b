# SPDX-License-Identifier: Apache-2.0
"""Figures in the catalog: a number, its unit and the key of its source, like `200 Gb/s (sheet)`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cclbench.ground.units import Dimension, parse_quantity
from cclbench.ground.yaml_file import scalar

UNVERIFIED: Final = "unverified"
"""The key of figures without a source."""

_CITED: Final = re.compile(r"(.+) \(([a-z0-9][a-z0-9-]*)\)")
_WORDS: Final = ("id", "kind", "names", "sources", "disagreements", "notes")
_DIMENSIONS: Final[tuple[tuple[str, Dimension], ...]] = (
    ("flops_per_s", "work rate"),
    ("bytes_per_s", "bandwidth"),
    ("bytes", "size"),
    ("_s", "time"),
)
"""Dimension of a field by the end of its name."""


class FigureSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source of figures; `date` is when it was published or read (`2026-06` or `2026-06-30`)."""

    title: str
    date: str
    url: str | None = None


class Disagreement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another source's statement (`says`, verbatim) about a figure (`field`, dotted)."""

    field: str
    says: str
    source: str


def parse_figures(entry: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """An entry with its figures as numbers in base SI, and the source of each by its dotted field."""
    cited: dict[str, str] = {}

    def convert_numbers(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Mapping):
            return {key: convert_numbers(below, (*path, key)) for key, below in value.items()}
        match = _CITED.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            return value
        cited[".".join(path)] = match[2]
        return _parse_number(match[1], path)

    figures = {
        key: value if key in _WORDS else convert_numbers(value, (key,)) for key, value in entry.items()
    }
    return figures, cited


def _parse_number(text: str, path: tuple[str, ...]) -> object:
    if path[-1] == "dims":
        return tuple(int(side) for side in text.split(" x "))
    for name in reversed(path):
        for end, dimension in _DIMENSIONS:
            if name.endswith(end):
                value = parse_quantity(text, dimension)
                return round(value) if dimension == "size" else value
    return scalar(text)


def written_leaves(
    entry: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path and text of every field as written that may be a figure."""
    for key, value in entry.items():
        if path or key not in _WORDS:
            if isinstance(value, Mapping):
                yield from written_leaves(value, (*path, key))
            elif isinstance(value, str):
                yield (*path, key), value
