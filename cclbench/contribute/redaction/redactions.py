# SPDX-License-Identifier: Apache-2.0
"""Records of redactions: kind, count, place and file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Redaction:
    """`count` texts of a `kind` replaced or left out at a `place` of a file: a key, a column, lines."""

    file: str
    place: str
    kind: str
    count: int


def by_kind(redactions: Iterable[Redaction]) -> dict[str, int]:
    """Number of texts of each kind, sorted by kind."""
    counts: Counter[str] = Counter()
    for redaction in redactions:
        counts[redaction.kind] += redaction.count
    return dict(sorted(counts.items()))
