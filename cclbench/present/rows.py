# SPDX-License-Identifier: Apache-2.0
"""Result rows as a report reads them: an Arrow table in, small things out, however many ranks and steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.intervals import Int64
from cclbench.present.findings import Scope
from cclbench.record.rows import Row, rows_of
from cclbench.schema import HAS_VALUE

MOST_PARTS: Final = 200
_NARROWED: Final = ("group", "collective", "category", "stat")


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A metric by rank and step: `values` has shape (ranks, steps), masked where there is no number."""

    ranks: Int64
    steps: Int64
    values: np.ma.MaskedArray[Any, np.dtype[np.float64]]


class Rows:
    """The rows of one run's full computation."""

    def __init__(self, results: pa.Table) -> None:
        self._all = results
        of_step = pc.is_valid(results["step"])
        whole = results.filter(pc.invert(of_step))
        self._of_step = _plain(results, of_step)
        self._of_run = whole.filter(pc.is_null(whole["rank"]))
        self._of_ranks = whole.filter(_plain(whole, pc.is_valid(whole["rank"])))

    @cached_property
    def scope(self) -> Scope:
        """Windows, ranks and steps that any row is about."""
        windows, ranks = (self._all[key].unique().to_pylist() for key in ("window", "rank"))
        steps = self._all.group_by(["step", "stat"]).aggregate([])
        pairs = zip(steps["step"].to_pylist(), steps["stat"].to_pylist(), strict=True)
        return Scope.of(windows, ranks, pairs)

    @cached_property
    def run(self) -> dict[str, Row]:
        """The run's own row of each metric, whatever its status."""
        own = self._of_run.filter(_plain(self._of_run, pc.is_valid(self._of_run["metric"])))
        return {row.metric: row for row in rows_of(own)}

    def value(self, metric: str) -> float | None:
        """The run's number; None where it has none."""
        row = self.run.get(metric)
        return row.value if row and row.has_value else None

    def why_not(self, metric: str) -> str:
        """Why the run has no number."""
        row = self.run.get(metric)
        return (row and row.reason) or f"its results have no {metric}"

    def parts(self, metric: str, most: int = MOST_PARTS) -> tuple[list[Row], int]:
        """The run's rows by group, collective, category and stat that have a number, and how many more."""
        own = self._of_run.filter(pc.equal(self._of_run["metric"], metric))
        narrowed = pc.invert(_plain(own, pc.is_valid(own["metric"])))
        found = own.filter(pc.and_(narrowed, _has_value(own)))
        return rows_of(found.slice(0, most)), max(0, len(found) - most)

    def statistics(self, metric: str) -> list[Row]:
        """The run's rows that a statistic alone narrows, with a number."""
        own = self._of_run.filter(
            pc.and_(pc.equal(self._of_run["metric"], metric), self._of_run["stat"].is_valid())
        )
        for key in ("group", "collective", "category"):
            own = own.filter(pc.is_null(own[key]))
        return rows_of(own.filter(_has_value(own)))

    def ranks(self, metric: str) -> dict[int, float]:
        """Each rank's number, by rank; modelled ones are none."""
        own = self._of_ranks.filter(pc.equal(self._of_ranks["metric"], metric))
        own = own.filter(pc.and_(_has_value(own), pc.not_equal(own["provenance"], "modelled")))
        return dict(sorted(zip(own["rank"].to_pylist(), own["value"].to_pylist(), strict=True)))

    def over_steps(self, metric: str) -> dict[int, float]:
        """The run's number of each step, by step."""
        own = self._stepped(metric)
        own = own.filter(pc.is_null(own["rank"]))
        return dict(sorted(zip(own["step"].to_pylist(), own["value"].to_pylist(), strict=True)))

    def grid(self, metric: str) -> Grid:
        """Each rank's number of each step."""
        own = self._stepped(metric)
        own = own.filter(pc.is_valid(own["rank"]))
        ranks, row = np.unique(own["rank"].to_numpy(), return_inverse=True)
        steps, column = np.unique(own["step"].to_numpy(), return_inverse=True)
        values = np.ma.array(np.zeros((len(ranks), len(steps))), mask=True)
        values[row, column] = own["value"].to_numpy()
        return Grid(ranks, steps, values)

    def _stepped(self, metric: str) -> pa.Table:
        """The numbers of single steps, modelled ones aside."""
        there = pc.and_(self._of_step, pc.equal(self._all["metric"], metric))
        own = self._all.select(["rank", "step", "value", "status", "provenance"]).filter(there)
        return own.filter(pc.and_(_has_value(own), pc.not_equal(own["provenance"], "modelled")))


def _has_value(table: pa.Table) -> pa.ChunkedArray:
    """Which rows have a number, be it partial."""
    return pc.is_in(table["status"], value_set=pa.array(HAS_VALUE))


def _plain(table: pa.Table, also: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which rows no group, collective, category or statistic narrows, of those in `also`."""
    for key in _NARROWED:
        also = pc.and_(also, pc.is_null(table[key]))
    return also
