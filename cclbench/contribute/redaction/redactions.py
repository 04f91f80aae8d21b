# SPDX-License-Identifier: Apache-2.0
"""What was replaced: by which rule, how often, at which place of which file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Redaction:
    """`count` things of a `kind` replaced at a `place` of a file: a key, a table's column, a line.

    `rule` is what found them: a form by its name, with the field or variable that holds the value in
    parentheses, a field's kind, or that another place tells the same.
    """

    file: str
    place: str
    kind: str
    count: int
    rule: str


def by_kind(redactions: Iterable[Redaction]) -> dict[str, int]:
    """How many things of each kind were replaced, sorted by kind."""
    counts: Counter[str] = Counter()
    for redaction in redactions:
        counts[redaction.kind] += redaction.count
    return dict(sorted(counts.items()))
