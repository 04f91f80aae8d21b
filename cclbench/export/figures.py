# SPDX-License-Identifier: Apache-2.0
"""Figures of a run for tools that record metrics: names with units, labels, and why a number is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from cclbench.analyzers.metric import METRICS
from cclbench.ground.text import printable, shorten_middle
from cclbench.record.rows import Row

SUFFIXES: Final = {
    "s": "seconds",
    "1": "ratio",
    "ratio": "ratio",
    "count": "",
    "1/s": "per_second",
    "B": "bytes",
    "B/s": "bytes_per_second",
    "s/B": "seconds_per_byte",
    "FLOP/s": "flops_per_second",
    "J": "joules",
    "USD": "usd",
    "USD/token": "usd_per_token",
}
"""Unit as the end of a name, by the unit of result rows: base units, as Prometheus names them."""
_LONGEST_KEY: Final = 200
_PARTS: Final = ("rank", "group", "collective", "category", "stat")


@dataclass(frozen=True, slots=True)
class Figure:
    """All rows of a metric, but those of single steps."""

    metric: str
    unit: str
    definition: str
    rows: tuple[Row, ...]

    @property
    def valued(self) -> list[Row]:
        """The rows that have a value."""
        return [row for row in self.rows if row.has_value]

    @property
    def missing(self) -> Row | None:
        """The run's own row where it has no value."""
        run_rows = (row for row in self.rows if row.rank is None and not row.narrowed and not row.has_value)
        return next(run_rows, None)

    @property
    def name(self) -> str:
        """The metric's name with the unit as its end: `time.step_seconds`."""
        suffix = SUFFIXES.get(self.unit, re.sub(r"\W+", "_", self.unit).strip("_").lower())
        repeated = not suffix or re.search(rf"[._]{re.escape(suffix)}$", self.metric)
        return self.metric if repeated else f"{self.metric}_{suffix}"


def figures_of(rows: Iterable[Row]) -> Iterator[Figure]:
    """The metrics of result rows by name."""
    by_metric: dict[str, list[Row]] = {}
    for row in rows:
        if row.step is None:
            by_metric.setdefault(row.metric, []).append(row)
    for metric, metric_rows in sorted(by_metric.items()):
        definition = METRICS.get(metric).definition.partition(". ")[0] if metric in METRICS else ""
        yield Figure(metric, metric_rows[0].unit, definition, tuple(metric_rows))


def labels_of(row: Row) -> dict[str, str]:
    """What tells a row from others of its metric: rank and part, window and provenance, status if partial."""
    labels = {name: value for name in _PARTS if (value := getattr(row, name)) is not None}
    labels |= {"window": row.window, "provenance": row.provenance or ""}
    labels |= {"status": row.status} if row.status != "ok" else {}
    return {name: printable(str(value)) for name, value in labels.items() if value != ""}


def missing_words(row: Row) -> str:
    """`not_applicable: the run has no sweep of nccl-tests`, on one line."""
    return printable(f"{row.status}: {row.reason}" if row.reason else row.status)


def step_values(rows: Iterable[Row]) -> dict[str, dict[int, float]]:
    """The run's own value of each step, by metric."""
    by_metric: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.step is not None and row.rank is None and row.has_value and not _is_part(row):
            by_metric.setdefault(row.metric, {})[row.step] = row.number
    return by_metric


def _is_part(row: Row) -> bool:
    return any(getattr(row, name) is not None for name in _PARTS)


def keyed_values(figures: Iterable[Figure], separator: str) -> dict[str, float]:
    """Each value by one key, for tools without labels: `comm.busbw_bytes_per_second/collective/all_reduce`.

    Characters other than ASCII letters, digits, `_`, `-` and `.` become `_`; keys that are then equal are
    numbered.
    """
    values: dict[str, float] = {}
    for figure in figures:
        for row in figure.valued:
            parts = [
                word
                for name in _PARTS
                if (value := getattr(row, name)) is not None
                for word in (name, str(value))
            ]
            words = (re.sub(r"[^\w.-]", "_", word, flags=re.ASCII) for word in (figure.name, *parts))
            key = shorten_middle(separator.join(words), _LONGEST_KEY)
            again = (f"{key}{separator}{number}" for number in count(2))
            values[
                key
                if key not in values
                else next(candidate for candidate in again if candidate not in values)
            ] = row.number
    return values
