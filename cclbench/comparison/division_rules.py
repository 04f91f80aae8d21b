# SPDX-License-Identifier: Apache-2.0
"""Whether two results of MLPerf did equal work, by the rules of its divisions.

In the closed division all results of a benchmark, round and scenario train to, or keep, the same target with
the same model and data; batch sizes and parallel degrees are the submitter's.  In the open division model,
data and target may be changed (MLPerf Training rules, "Divisions"; MLPerf Inference rules, "Divisions").
"""

from __future__ import annotations

from typing import Final

from cclbench.comparison.subject import ComparisonSubject
from cclbench.record.published import metadata_text

_PUBLISHER: Final = "mlperf"
_SAME: Final = ("suite", "benchmark", "scenario", "round")
"""What results must have in common."""


def has_division(subject: ComparisonSubject) -> bool:
    """Whether a subject is a published result of MLPerf."""
    published = subject.stored.record.published
    return published is not None and published.source == _PUBLISHER


def rule_refusal(base: ComparisonSubject, other: ComparisonSubject) -> str | None:
    """Why MLPerf's rules do not make two of its results comparable; None where they do, or do not apply."""
    if not (has_division(base) and has_division(other)):
        return None
    for key in _SAME:
        a, b = (metadata_text(subject.metadata, key) for subject in (base, other))
        if a and b and a != b:
            return f"by MLPerf's rules results of one {key} are compared: {b} against {a}"
    for subject in (base, other):
        division = metadata_text(subject.metadata, "division")
        if division != "closed":
            stated = f"in the {division} division" if division else "of an unknown division"
            return f"{subject.letter} is {stated}: its model, data and target may be other ones"
    return None


def equal_by_rules(base: ComparisonSubject, other: ComparisonSubject) -> bool:
    """Whether both are closed results of one benchmark, so that their work is equal as a whole."""
    both = has_division(base) and has_division(other)
    stated = all(
        metadata_text(subject.metadata, key) for subject in (base, other) for key in ("benchmark", "round")
    )
    return both and stated and rule_refusal(base, other) is None


def unknown_rules(base: ComparisonSubject, other: ComparisonSubject) -> str | None:
    """A warning where a round or benchmark is not stated, so that the rules cannot be checked."""
    if not (has_division(base) and has_division(other)) or rule_refusal(base, other):
        return None
    lacking = [
        f"the {key} of {subject.letter}"
        for subject in (base, other)
        for key in ("benchmark", "round")
        if not metadata_text(subject.metadata, key)
    ]
    return f"equal work by MLPerf's rules is not certain: unknown {', '.join(lacking)}" if lacking else None
