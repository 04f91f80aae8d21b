# SPDX-License-Identifier: Apache-2.0
"""Equal work by a standard workload that both cards name, and pass: a card that does not is no valid card."""

from __future__ import annotations

from cclbench.card.standard import STANDARD, standard_workloads
from cclbench.comparison.subject import ComparisonSubject


def common_standard(base: ComparisonSubject, other: ComparisonSubject) -> str | None:
    """The standard workload by which two subjects do equal work; None if there is none."""
    name = _name_in_both(base, other)
    return None if name is None or open_difference(base, other) else name


def open_difference(base: ComparisonSubject, other: ComparisonSubject) -> str | None:
    """A warning where both name one standard, and differ in, or do not state, a field that it leaves open."""
    name = _name_in_both(base, other)
    if name is None:
        return None
    cards = {subject.letter: subject.card or {} for subject in (base, other)}
    difference = standard_workloads()[name].open_difference(cards)
    return difference and f"{name} leaves open {difference}: equal work by it is not certain"


def _name_in_both(base: ComparisonSubject, other: ComparisonSubject) -> str | None:
    name = base.card_field(STANDARD)
    return name if name is not None and name == other.card_field(STANDARD) else None
