# SPDX-License-Identifier: Apache-2.0
"""Score of an exam: by cause, overall, for equal and healthy jobs, and for metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from cclbench.ground.destination import atomic_replacement
from cclbench.selftest.exam import ExamOutcome

COLUMNS: Final = (
    "cause",
    "jobs",
    "first",
    "first_three",
    "gains",
    "within",
    "width",
    "true_gain",
    "expected",
)
HEALTHY_SHARE: Final = 0.02
"""Largest gain, as a share of the step, that a finding may state in a healthy job."""


@dataclass(frozen=True, slots=True)
class Score:
    """Summary of an exam's outcomes."""

    seed: int
    outcomes: list[ExamOutcome]

    def cause_rows(self) -> list[dict[str, Any]]:
        """One row per cause, and one for all causes."""
        planted = [outcome for outcome in self.outcomes if outcome.item.cause is not None]
        names = sorted({outcome.item.cause for outcome in planted if outcome.item.cause is not None})
        rows = [
            _cause_row(name, [outcome for outcome in planted if outcome.item.cause == name]) for name in names
        ]
        return [*rows, {**_cause_row("all", planted), "expected": None}] if planted else rows

    def unplanted_scores(self) -> dict[str, Any]:
        """Number of equal-rank jobs in which a rank is named, and largest gain stated for healthy jobs."""
        equal = [outcome for outcome in self.outcomes if outcome.item.kind == "equal"]
        healthy = [outcome for outcome in self.outcomes if outcome.item.kind == "healthy"]
        return {
            "equal_jobs": len(equal),
            "equal_accused": sum(1 for outcome in equal if outcome.accused),
            "healthy_jobs": len(healthy),
            "healthy_above_limit": sum(1 for outcome in healthy if outcome.largest_gain > HEALTHY_SHARE),
            "healthy_largest_gain": max((outcome.largest_gain for outcome in healthy), default=None),
        }

    def metric_errors(self) -> list[dict[str, Any]]:
        """Largest error of each metric, as a share of the step."""
        names = dict.fromkeys(
            name for outcome in self.outcomes for name in (*outcome.errors, *outcome.absent)
        )
        rows = []
        for name in names:
            errors = sorted(abs(outcome.errors[name]) for outcome in self.outcomes if name in outcome.errors)
            absent = sum(1 for outcome in self.outcomes if name in outcome.absent)
            rows.append(
                {
                    "metric": name,
                    "jobs": len(errors) + absent,
                    "absent": absent,
                    "median_error": median(errors) if errors else None,
                    "largest_error": errors[-1] if errors else None,
                }
            )
        return rows

    def as_document(self) -> dict[str, Any]:
        """The selftest.v1 document."""
        return {
            "schema": "selftest.v1",
            "seed": self.seed,
            "causes": self.cause_rows(),
            "unplanted": self.unplanted_scores(),
            "metrics": self.metric_errors(),
            "jobs": [msgspec.to_builtins(outcome) for outcome in self.outcomes],
        }


def _cause_row(name: str, outcomes: Sequence[ExamOutcome]) -> dict[str, Any]:
    widths = [
        stated[1] / stated[0] if stated[0] > 0 else float("inf")
        for outcome in outcomes
        if (stated := outcome.stated_share) is not None
    ]
    width = median(widths) if widths else None
    gains = [outcome.true_gain_share for outcome in outcomes if outcome.true_gain_share is not None]
    return {
        "cause": name,
        "jobs": len(outcomes),
        "first": sum(1 for outcome in outcomes if outcome.place == 1),
        "first_three": sum(1 for outcome in outcomes if outcome.place is not None and outcome.place <= 3),
        "gains": sum(1 for outcome in outcomes if outcome.within is not None),
        "within": sum(1 for outcome in outcomes if outcome.within),
        "width": None if width is None or width == float("inf") else round(width, 3),
        "true_gain": round(median(gains), 3) if gains else None,
        "expected": ", ".join(outcomes[0].expected) or None,
    }


def write_score(score: Score, path: Path) -> None:
    """Write the selftest.v1 document."""
    with atomic_replacement(path) as file:
        file.write_text(json.dumps(score.as_document(), indent=1) + "\n", encoding="utf-8")
