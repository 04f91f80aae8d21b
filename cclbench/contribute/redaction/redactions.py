# SPDX-License-Identifier: Apache-2.0
"""Records of redactions: rule, count, place and file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Redaction:
    """`count` values of a `kind` replaced at a `place` of a file: a key, a table's column, a line.

    `rule` is what found them: the name of a pattern, with the field or variable of the value in
    parentheses, a field's kind, or the same name or value in another place.
    """

    file: str
    place: str
    kind: str
    count: int
    rule: str


def by_kind(redactions: Iterable[Redaction]) -> dict[str, int]:
    """Number of replaced values of each kind, sorted by kind."""
    counts: Counter[str] = Counter()
    for redaction in redactions:
        counts[redaction.kind] += redaction.count
    return dict(sorted(counts.items()))
