# SPDX-License-Identifier: Apache-2.0
"""What was changed where, as data that holds nothing of what was there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cclbench.text import printable

_LONGEST = 60


@dataclass(frozen=True, slots=True, order=True)
class Redaction:
    """`count` things of a `kind` replaced at a `place` of a file: a key, a table's column, a line."""

    file: str
    place: str
    kind: str
    count: int


def by_kind(redactions: Iterable[Redaction]) -> dict[str, int]:
    """How many things of each kind were replaced, sorted by kind."""
    counts: Counter[str] = Counter()
    for one in redactions:
        counts[one.kind] += one.count
    return dict(sorted(counts.items()))


class Tally:
    """Counts by place and kind, in the order they were met."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, place: str, counts: Mapping[str, int]) -> None:
        """Count what was replaced at a place."""
        shown = printable(place)
        for kind, count in counts.items():
            self._counts[shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…", kind] += count

    def redactions(self, file: str) -> list[Redaction]:
        """All of them; `file` is what the file may be called."""
        name = printable(file)
        return [Redaction(name, place, kind, count) for (place, kind), count in self._counts.items() if count]

    def join(self, other: Tally) -> None:
        """Count all that another one counted."""
        self._counts.update(other._counts)
