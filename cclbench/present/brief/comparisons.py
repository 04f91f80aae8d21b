# SPDX-License-Identifier: Apache-2.0
"""Brief answers of `compare` and `history`."""

from __future__ import annotations

from collections.abc import Iterable

from cclbench.comparison.comparison import PARTS
from cclbench.ground.units import humanise
from cclbench.present.brief.quantities import Brief, Document, quantity


def brief_comparison(document: Document) -> Brief:
    """The verdicts with the parts and operators that changed most."""
    return {
        "verdicts": [
            {
                "words": versus["words"],
                "outcome": versus["outcome"],
                "ratio": quantity(versus["ratio"], "ratio"),
                "interval": [quantity(versus[end], "ratio") for end in ("low", "high")],
                "parts": _changes(
                    (PARTS[part["part"]], part["before_s"], part["after_s"], part["change_ns"])
                    for part in versus["changes"]
                ),
                "work": versus["work"],
            }
            for versus in document["versus"]
        ],
        "checks": [
            f"{check['outcome']}: {check['expression']}: {check['reason']}" for check in document["checks"]
        ],
        "warnings": document["warnings"],
        "operators": [
            words
            for difference in document["operators"]
            for words in _changes(
                (
                    row["other_name"] or row["name"],
                    _time_of(row["before"]),
                    _time_of(row["after"]),
                    row["change_ns"],
                )
                for row in difference["operators"]
            )
        ],
        "tables": [
            f"{table['kind']} of {table['subject']}: {len(table['rows'])} rows"
            for table in document["tables"]
        ],
        "subjects": {subject["letter"]: subject["captures"] for subject in document["subjects"]},
    }


def _time_of(work: Document | None) -> float:
    return 0.0 if work is None else float(work["time_s"])


def _changes(rows: Iterable[tuple[str, float, float, int]]) -> list[str]:
    """`gemm: 312 ms to 298 ms (-14.0 ms)`, the largest change first; what does not change is left out."""

    def words(name: str, before: float, after: float, ns: int) -> str:
        change = f"{'+' * (ns > 0)}{humanise(ns / 1e9, 's')}"
        return f"{name}: {humanise(before, 's')} to {humanise(after, 's')} ({change})"

    return [words(*row) for row in sorted(rows, key=lambda row: -abs(row[3])) if row[3]]


def brief_history(document: Document) -> Brief:
    """Each figure with its changes of level, the newest first."""
    return {
        "checks": [
            f"{check['outcome']}: {check['expression']}: {check['reason']}" for check in document["checks"]
        ],
        "histories": [_history_brief(history) for history in document["histories"]],
    }


def _history_brief(history: Document) -> Brief:
    unit, valued = history["unit"], [row for row in history["runs"] if row["value"] is not None]
    return {
        "figure": history["figure"],
        "changes": [
            {
                "verdict": change["verdict"],
                "run": change["run"],
                "date": change["date"][:10],
                "from": humanise(change["before"], unit),
                "to": humanise(change["after"], unit),
                "beside": [f"{row['name']}: {row['before']} to {row['after']}" for row in change["beside"]],
                "work": change["work"],
            }
            for change in reversed(history["changes"])
        ],
        "newest": valued[-1:] and f"{humanise(valued[-1]['value'], unit)} ({valued[-1]['run']})",
        "levels": [humanise(level, unit) for level in reversed(history["levels"])],
        "drift": history["drift"] and " to ".join(humanise(value, unit) for value in history["drift"]),
        "drift_from": history["drift_from"],
        "runs": len(history["runs"]),
        "without_value": len(history["runs"]) - len(valued),
        "outliers": [row["run"] for row in history["runs"] if row["outlier"]],
    }
