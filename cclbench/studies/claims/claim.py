# SPDX-License-Identifier: Apache-2.0
"""A re-examined claim as data, from which every rendering is made (terminal, Markdown, JSON, picture)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from cclbench.comparison.subject import ComparisonSubject
from cclbench.record.metric_name import MetricName

Line = Mapping[str, Any]
T = TypeVar("T")

UNITS: Final = {
    "step_s": "s",
    "higher_step_s": "s",
    "lower_step_s": "s",
    "higher_overlap": "1",
    "lower_overlap": "1",
    "step_ratio": "ratio",
    "behind": "ratio",
    "tokens_per_s_per_device": "1/s",
    "gain": "1",
    "gain_low": "1",
    "gain_high": "1",
    "low": "1",
    "median": "1",
    "high": "1",
}
"""Units by column; other columns are text and counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The paper's statement, what the runs of a store show about it, and caveats."""

    key: Literal["overlap", "bandwidth", "frameworks", "figures"]
    statement: str
    outcome: Literal["holds", "not shown", "cannot be examined"]
    verdict: str
    counts: Mapping[str, float | None]
    """The figures in the verdict, by name."""
    summary: Sequence[Line]
    """The table shown by default."""
    rows: Sequence[Line]
    """All rows behind it."""
    caveats: tuple[str, ...]


def group_items(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Group items by key, in order of first occurrence; items whose key is None are left out."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        if (alike := key(item)) is not None:
            groups.setdefault(alike, []).append(item)
    return groups


def equal_work(run: ComparisonSubject) -> tuple[Any, ...] | None:
    """A key equal for runs of equal work on equal hardware; None if part of it is not known."""
    return run.hardware_key and run.workload.work_key and (*run.hardware_key, *run.workload.work_key)


def workload_fields(run: ComparisonSubject, *fields: str) -> dict[str, Any]:
    """Selected fields of the run's `Workload`."""
    return {field: getattr(run.workload, field) for field in fields}


def complete_value(run: ComparisonSubject, metric: MetricName, **keys: str) -> float | None:
    """A run's value of a metric; None if there is none, or only a partial one."""
    row = run.results.row(metric, **keys)
    return row.value if row and row.status == "ok" else None


def value_remark(run: ComparisonSubject, metric: MetricName) -> str | None:
    """The remark on a run's value, or why there is none."""
    row = run.results.row(metric)
    return row.reason if row else "not computed"


def count_words(number: int, noun: str) -> str:
    """`1 pair`, `57 pairs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
