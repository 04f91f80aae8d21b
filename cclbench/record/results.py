# SPDX-License-Identifier: Apache-2.0
"""Result rows of a run, and queries that comparisons, reports and the terminal make on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.errors import UsageError, near
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import HAS_VALUE, OPEN
from cclbench.record.metric_name import DECLARED, MetricName
from cclbench.record.rows import IN_MEMORY, Row, join_tables, rows_of, table_of, words_of

MOST_PARTS: Final = 200
ROWS_AT_ONCE: Final = 1 << 14
"""Rows that are converted to `Row` at once in an iteration."""
KEYS: Final = ("stat", "collective", "group", "category")
"""The fields that narrow a row of the whole run to a part."""


class Scope(NamedTuple):
    """Window policies, ranks, and numbers of closed and open steps in result rows, each sorted."""

    windows: list[str]
    ranks: list[int]
    steps: list[int]
    open_steps: list[int]


NOTHING: Final = Scope([], [], [], [])
"""The scope of no rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A metric by rank and step: `values` has shape (ranks, steps), masked where there is no value."""

    ranks: Int64
    steps: Int64
    values: np.ma.MaskedArray[Any, np.dtype[np.float64]]


class Results:
    """Rows of `schema.RESULTS`, of which few are a `Row` at a time."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        """As `schema.RESULTS` or `rows.COMPACT`."""

    @classmethod
    def from_rows(cls, rows: Sequence[Row]) -> Results:
        """Results of the given rows."""
        return cls(table_of(rows))

    @classmethod
    def from_tables(cls, parts: Iterable[pa.Table]) -> Results:
        """The rows of those tables of `rows.COMPACT`, one after another."""
        return cls(join_tables(parts))

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Row]:
        for part in self.slices(ROWS_AT_ONCE):
            yield from rows_of(part)

    def slices(self, rows: int = IN_MEMORY) -> Iterator[pa.Table]:
        """The table in parts of that many rows."""
        for first in range(0, len(self), rows):
            yield self.table.slice(first, rows)

    @cached_property
    def metrics(self) -> list[MetricName]:
        """The names of the metrics, in order of first occurrence."""
        return list(self._row_ranges)

    def metric_rows(self, metric: MetricName) -> pa.Table:
        """The rows of a metric; none if there is no such metric."""
        places = self._row_ranges.get(metric, [(0, 0)])
        return pa.concat_tables(self.table.slice(first, rows) for first, rows in places)

    @cached_property
    def _row_ranges(self) -> dict[MetricName, list[tuple[int, int]]]:
        """The ranges of each metric's rows: first row and number of rows."""
        metric = self.table["metric"].dictionary_encode().unify_dictionaries().combine_chunks()
        runs = pc.run_end_encode(metric.indices)
        ends = runs.run_ends.to_pylist()
        ranges: dict[MetricName, list[tuple[int, int]]] = {}
        for name, (first, end) in zip(
            metric.dictionary.take(runs.values).to_pylist(), pairwise([0, *ends]), strict=True
        ):
            ranges.setdefault(name, []).append((first, end - first))
        return ranges

    def _check_name(self, metric: MetricName) -> None:
        """`LookupError` with near names for a metric that no row has and no module declares."""
        if metric not in DECLARED and metric not in self._row_ranges:
            raise LookupError(f"no metric is called {metric!r}; {near(metric, DECLARED)}")

    @property
    def summary(self) -> Results:
        """The rows without those of a rank's steps, groups, collectives, categories and statistics."""
        return Results.from_tables(map(_summary_rows, self.slices()))

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of the whole run, not of a single rank or step."""
        return list(chain.from_iterable(map(_rows_of_run, self.slices())))

    @cached_property
    def _by_key(self) -> dict[tuple[str | None, ...], Row]:
        return {(row.metric, *(getattr(row, key) for key in KEYS)): row for row in self.rows}

    @cached_property
    def _by_metric(self) -> dict[MetricName, list[Row]]:
        by_metric: dict[MetricName, list[Row]] = {}
        for row in self.rows:
            by_metric.setdefault(row.metric, []).append(row)
        return by_metric

    @cached_property
    def scope(self) -> Scope:
        """Windows, ranks and steps that occur in the rows."""
        steps = {
            (step, stat == OPEN)
            for part in self.slices(ROWS_AT_ONCE)
            for step, stat in zip(part["step"].to_pylist(), words_of(part["stat"]), strict=True)
            if step is not None
        }
        return Scope(
            windows=_distinct_values(self.table["window"]),
            ranks=_distinct_values(self.table["rank"]),
            steps=sorted(step for step, is_open in steps if not is_open),
            open_steps=sorted(step for step, is_open in steps if is_open),
        )

    @cached_property
    def run(self) -> dict[MetricName, Row]:
        """The run's own row of each metric, of any status."""
        return {row.metric: row for row in self.rows if not row.narrowed}

    def row(self, metric: MetricName, **keys: str) -> Row | None:
        """The run's own row of a metric, or the one narrowed by `keys`, some of `KEYS`."""
        match = self._by_key.get((metric, *_key_values(keys)))
        if match is None:
            self._check_name(metric)
        return match

    def value(self, metric: MetricName, **keys: str) -> float | None:
        """The value of that row; None if there is no row or no value."""
        row = self.row(metric, **keys)
        return row.value if row and row.has_value else None

    def missing_reason(self, metric: MetricName) -> str:
        """Why the run has no value of a metric."""
        row = self.row(metric)
        return (row and row.reason) or f"its results have no {metric}"

    def parts(self, metric: MetricName, most: int = MOST_PARTS) -> tuple[list[Row], int]:
        """The run's rows by group, collective, category and stat that have a value, and how many more."""
        if metric not in self._by_metric:
            self._check_name(metric)
        rows = [row for row in self._by_metric.get(metric, ()) if row.narrowed and row.has_value]
        return rows[:most], max(0, len(rows) - most)

    def ranks(self, metric: MetricName, **keys: str) -> dict[int, float]:
        """Each rank's value, by rank, optionally narrowed by `keys`; without modelled values."""
        numbers = self._measured_values(metric, **keys)
        by_rank = {rank: value for rank, step, value in numbers if rank is not None and step is None}
        return dict(sorted(by_rank.items()))

    def steps(self, metric: MetricName) -> dict[int, float]:
        """The run's value of each step, by step; without modelled values."""
        numbers = self._measured_values(metric)
        return dict(
            sorted((step, value) for rank, step, value in numbers if rank is None and step is not None)
        )

    def grid(self, metric: MetricName) -> Grid:
        """Each rank's value of each step; without modelled values."""
        numbers = [
            number
            for number in self._measured_values(metric)
            if number[0] is not None and number[1] is not None
        ]
        ranks, row = np.unique(np.array([rank for rank, _, _ in numbers], np.int64), return_inverse=True)
        steps, column = np.unique(np.array([step for _, step, _ in numbers], np.int64), return_inverse=True)
        values = np.ma.array(np.zeros((len(ranks), len(steps))), mask=True)
        values[row, column] = [value for _, _, value in numbers]
        return Grid(ranks, steps, values)

    def _measured_values(self, metric: MetricName, **keys: str) -> Sequence[_Number]:
        """Rank, step and value of the metric's rows narrowed by `keys` that have a value; not modelled."""
        if metric not in self._values_by_metric:
            self._check_name(metric)
            self._values_by_metric[metric] = _values_by_keys(self.metric_rows(metric))
        return self._values_by_metric[metric].get(_key_values(keys), ())

    @cached_property
    def _values_by_metric(self) -> dict[str, dict[tuple[str | None, ...], list[_Number]]]:
        return {}


def _key_values(keys: Mapping[str, str]) -> tuple[str | None, ...]:
    """The values of `KEYS` in their order, None for others; `UsageError` for any other key."""
    for key in keys.keys() - set(KEYS):
        raise UsageError(f"rows have no key {key!r}", hint=near(key, KEYS))
    return tuple(map(keys.get, KEYS))


_Number = tuple[int | None, int | None, float]


def _summary_rows(table: pa.Table) -> pa.Table:
    """The rows of the whole run, and those of a whole rank."""
    narrowed = [table[key].is_valid() for key in ("step", *KEYS)]
    return table.filter(pc.or_(table["rank"].is_null(), pc.invert(reduce(pc.or_, narrowed))))


def _rows_of_run(table: pa.Table) -> list[Row]:
    return rows_of(table.filter(pc.and_(table["rank"].is_null(), table["step"].is_null())))


def _values_by_keys(table: pa.Table) -> dict[tuple[str | None, ...], list[_Number]]:
    """Rank, step and value of the rows that have a value, by their keys; without modelled ones."""
    words = [words_of(table[name]) for name in ("status", "provenance", *KEYS)]
    numbers = [table[name].to_pylist() for name in ("rank", "step", "value")]
    by_keys: dict[tuple[str | None, ...], list[_Number]] = {}
    for (status, provenance, *keys), number in zip(
        zip(*words, strict=True), zip(*numbers, strict=True), strict=True
    ):
        if status in HAS_VALUE and provenance != "modelled":
            by_keys.setdefault(tuple(keys), []).append(number)
    return by_keys


def _distinct_values(column: pa.ChunkedArray) -> list[Any]:
    """The distinct values of a column, sorted."""
    return sorted(column.drop_null().unique().to_pylist())
