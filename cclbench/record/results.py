# SPDX-License-Identifier: Apache-2.0
"""The result rows of one run's full computation, as comparisons and reports ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.intervals import Int64
from cclbench.record.rows import Row, rows_of
from cclbench.schema import HAS_VALUE, OPEN

MOST_PARTS: Final = 200
KEYS: Final = ("stat", "collective", "group", "category")
"""What narrows a row of the whole run."""


class Scope(NamedTuple):
    """What result rows are about: window policies, ranks, numbers of closed and open steps, each sorted."""

    windows: list[str]
    ranks: list[int]
    steps: list[int]
    open_steps: list[int]

    @classmethod
    def of(
        cls,
        windows: Iterable[str],
        ranks: Iterable[int | None],
        steps: Iterable[tuple[int | None, str | None]],
    ) -> Scope:
        """From the rows' own words; a step comes with the row's statistic, which says whether it is open."""
        pairs = {(step, stat == OPEN) for step, stat in steps if step is not None}
        return cls(
            sorted(set(windows)),
            sorted({rank for rank in ranks if rank is not None}),
            sorted(step for step, is_open in pairs if not is_open),
            sorted(step for step, is_open in pairs if is_open),
        )


def scope_of(rows: Sequence[Row]) -> Scope:
    """The scope of those rows."""
    return Scope.of(
        (row.window for row in rows), (row.rank for row in rows), ((row.step, row.stat) for row in rows)
    )


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A metric by rank and step: `values` has shape (ranks, steps), masked where there is no number."""

    ranks: Int64
    steps: Int64
    values: np.ma.MaskedArray[Any, np.dtype[np.float64]]


class Results:
    """Rows of `schema.RESULTS`, an Arrow table of any size: small answers to what people ask of it."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @cached_property
    def rows(self) -> list[Row]:
        """The rows about the whole run: of no single rank, of no single step."""
        table = self._table
        return rows_of(table.filter(pc.and_(table["rank"].is_null(), table["step"].is_null())))

    @cached_property
    def _by_key(self) -> dict[tuple[str | None, ...], Row]:
        return {(row.metric, *(getattr(row, key) for key in KEYS)): row for row in self.rows}

    @cached_property
    def _by_metric(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.metric, []).append(row)
        return found

    @cached_property
    def scope(self) -> Scope:
        """Windows, ranks and steps that any row is about."""
        windows, ranks = (self._table[key].unique().to_pylist() for key in ("window", "rank"))
        steps = self._table.group_by(["step", "stat"]).aggregate([])
        pairs = zip(steps["step"].to_pylist(), steps["stat"].to_pylist(), strict=True)
        return Scope.of(windows, ranks, pairs)

    @cached_property
    def run(self) -> dict[str, Row]:
        """The run's own row of each metric, whatever its status."""
        return {row.metric: row for row in self.rows if not row.narrowed}

    def row(self, metric: str, **keys: str) -> Row | None:
        """The run's own row of a metric, or the one that those of `KEYS` narrow it to."""
        return self._by_key.get((metric, *(keys.get(key) for key in KEYS)))

    def value(self, metric: str, **keys: str) -> float | None:
        """That row's number; None where there is no row or no number."""
        row = self.row(metric, **keys)
        return row.value if row and row.has_value else None

    def why_not(self, metric: str) -> str:
        """Why the run has no number."""
        row = self.row(metric)
        return (row and row.reason) or f"its results have no {metric}"

    def parts(self, metric: str, most: int = MOST_PARTS) -> tuple[list[Row], int]:
        """The run's rows by group, collective, category and stat that have a number, and how many more."""
        found = [row for row in self._by_metric.get(metric, ()) if row.narrowed and row.has_value]
        return found[:most], max(0, len(found) - most)

    def ranks(self, metric: str, **keys: str) -> dict[int, float]:
        """Each rank's number, by rank, or those that `KEYS` narrow it to; modelled ones are none."""
        return self._by("rank", metric, **keys)

    def steps(self, metric: str) -> dict[int, float]:
        """The run's number of each step, by step; modelled ones are none."""
        return self._by("step", metric)

    def _by(self, key: str, metric: str, **keys: str) -> dict[int, float]:
        own = self._numbers(metric, key, **keys)
        return dict(sorted(zip(own[key].to_pylist(), own["value"].to_pylist(), strict=True)))

    def grid(self, metric: str) -> Grid:
        """Each rank's number of each step; modelled ones are none."""
        own = self._numbers(metric, "rank", "step")
        ranks, row = np.unique(own["rank"].to_numpy(), return_inverse=True)
        steps, column = np.unique(own["step"].to_numpy(), return_inverse=True)
        values = np.ma.array(np.zeros((len(ranks), len(steps))), mask=True)
        values[row, column] = own["value"].to_numpy()
        return Grid(ranks, steps, values)

    def _numbers(self, metric: str, *of: str, **keys: str) -> pa.Table:
        """The metric's numbers of single ranks or steps that only `keys` narrow, modelled ones aside."""
        table = self._table
        there = pc.equal(table["metric"], metric)
        for key in ("rank", "step", *KEYS):
            if key in keys:
                there = pc.and_(there, pc.fill_null(pc.equal(table[key], keys[key]), False))
            else:
                there = pc.and_(there, table[key].is_valid() if key in of else table[key].is_null())
        own = table.select(["rank", "step", "value", "status", "provenance"]).filter(there)
        has_value = pc.is_in(own["status"], value_set=pa.array(HAS_VALUE))
        return own.filter(pc.and_(has_value, pc.not_equal(own["provenance"], "modelled")))
