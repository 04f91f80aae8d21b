# SPDX-License-Identifier: Apache-2.0
"""Histories as data: `history.v1`, and a flat row for each run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cclbench.comparison.comparison import GateCheck
from cclbench.comparison.history import FigureHistory

COLUMNS: Final = (
    "figure",
    "run",
    "date",
    "dated_by",
    "value",
    "unit",
    "outlier",
    "change",
    "ratio",
    "reason",
)


def history_document(histories: Sequence[FigureHistory], checks: Sequence[GateCheck]) -> dict[str, Any]:
    """The histories and checks as the document that `--json` prints; values are in base units."""
    return {
        "schema": "history.v1",
        "histories": [
            {
                "figure": history.figure,
                "unit": history.unit,
                "better": history.better,
                "noise": history.levels.noise,
                "noise_of": "logarithm" if history.levels.logarithmic else "value",
                "levels": list(history.levels.means),
                "drift": drift and [drift.begin, drift.end],
                "drift_from": drift and history.valued[drift.first].run.id,
                "runs": [
                    {key: row[key] for key in COLUMNS[1:] if key not in ("unit", "change", "ratio")}
                    for row in history_rows(history)
                ],
                "changes": _change_rows(history),
            }
            for history in histories
            for drift in (history.levels.drift,)
        ],
        "checks": [
            {
                "expression": check.expression,
                "run": check.other,
                "outcome": check.outcome,
                "reason": check.reason,
            }
            for check in checks
        ],
    }


def _change_rows(history: FigureHistory) -> list[dict[str, Any]]:
    valued = history.valued
    return [
        {
            "run": valued[change.first].run.id,
            "date": valued[change.first].date.isoformat(),
            "verdict": change.verdict,
            "before": change.before,
            "after": change.after,
            "ratio" if history.levels.logarithmic else "difference": [change.low, change.high],
            "work": list(change.work),
            "beside": [{"name": name, "before": old, "after": new} for name, old, new in change.beside],
        }
        for change in history.changes
    ]


def history_rows(history: FigureHistory) -> Iterator[dict[str, Any]]:
    """A row for each run, in order of time; `change` and `ratio` are of the first run of a new level."""
    changes = {change.first: change for change in history.changes}
    number = 0
    for point in history.points:
        row: dict[str, Any] = {
            "figure": history.figure,
            "run": point.run.id,
            "date": point.date.isoformat(),
            "dated_by": point.dated_by,
            "value": point.value,
            "unit": history.unit,
            "outlier": False,
            "change": None,
            "ratio": None,
            "reason": point.reason,
        }
        if point.value is not None:
            row["outlier"] = number in history.levels.outliers
            if (change := changes.get(number)) is not None:
                row["change"] = change.verdict
                row["ratio"] = change.after / change.before if change.before else None
            number += 1
        yield row
