# SPDX-License-Identifier: Apache-2.0
"""Request percentiles over several captures: of all requests pooled, never means of percentiles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from msgspec.structs import replace

from cclbench.analyzers.benchmarks import pool_benchmarks, run_benchmarks
from cclbench.analyzers.metric import Value
from cclbench.analyzers.serving import LATENCIES, latency_values
from cclbench.analyzers.view.run_view import RunView
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.units import humanise
from cclbench.record.results import Results
from cclbench.record.rows import Row

_PERCENTILE: Final = re.compile(r"p\d[\d.]*")


def with_pooled_percentiles(results: Results, captures: Sequence[ComparisonSubject]) -> Results:
    """The captures' mean results, with latency percentiles of all captures' requests pooled.

    Where a capture has summaries only, there is no pooled value: the row's reason lists each capture's.
    """
    figures = {f"serving.{figure}": figure for figure in LATENCIES}

    @cache
    def pooled_values(figure: str, category: str | None) -> dict[str | None, Value]:
        all_benchmarks = []
        for capture in captures:
            benchmarks = [
                benchmark
                for benchmark in run_benchmarks(RunView(capture.stored))
                if category in (None, benchmark.label)
            ]
            all_benchmarks += benchmarks
            if pool_benchmarks(benchmarks) is None:
                return {}
        pooled = pool_benchmarks(all_benchmarks)
        return {} if pooled is None else {value.stat: value for value in latency_values(pooled, figure)}

    def with_pooled_value(row: Row) -> Row:
        if row.metric not in figures or not _PERCENTILE.fullmatch(row.stat or ""):
            return row
        value = pooled_values(figures[row.metric], row.category).get(row.stat)
        return _unpooled_row(row, captures) if value is None else _pooled_row(row, value, len(captures))

    return Results.from_rows([with_pooled_value(row) for row in results])


def _pooled_row(row: Row, value: Value, captures: int) -> Row:
    words = [f"of all requests of {captures} captures together", value.words]
    partial = value.coverage if value.status == "partial" else None
    return replace(
        row,
        value=value.value,
        status=value.status,
        provenance=value.provenance,
        reason="; ".join(filter(None, words)),
        coverage=None if partial is None else partial.by_count,
        coverage_time=None,
    )


def _unpooled_row(row: Row, captures: Sequence[ComparisonSubject]) -> Row:
    keys = {key: value for key in ("stat", "category") if (value := getattr(row, key)) is not None}
    values = [capture.results.value(row.metric, **keys) for capture in captures]
    value_words = ", ".join("none" if value is None else humanise(value, row.unit) for value in values)
    reason = f"percentiles cannot be pooled without each capture's requests; per capture: {value_words}"
    return replace(row, value=None, status="not_applicable", provenance=None, reason=reason, coverage=None)
