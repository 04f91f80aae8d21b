# SPDX-License-Identifier: Apache-2.0
"""Several captures of one job as one subject: the mean of each figure, captures weighted equally."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from msgspec.structs import replace

from cclbench.record.metric_name import metric_name
from cclbench.record.results import KEYS, Results
from cclbench.record.rows import Row

_STEP: Final = metric_name("time.step")
_PARTS: Final = metric_name("time.step_parts")
_Key = tuple[str | int | None, ...]


def mean_results(captures: Sequence[Results]) -> Results:
    """Mean over captures of each run-level and rank-level row; rows of single steps are dropped.

    A figure that any capture lacks has no mean: the row's reason names that capture.  Within a step part, a
    component that a capture does not list counts as 0; where captures distinguish different parts, the
    result has no step parts.
    """
    rows = [{_row_key(row): row for row in capture if row.step is None} for capture in captures]
    keys = dict.fromkeys(key for capture_rows in rows for key in capture_rows)
    parts = [
        {key for key in capture_rows if key[0] == _PARTS and not _is_within_part(key)}
        for capture_rows in rows
    ]
    if any(capture_rows != parts[0] for capture_rows in parts):
        keys = {key: None for key in keys if key[0] != _PARTS}
    return Results.from_rows(
        [_mean_row(key, [capture_rows.get(key) for capture_rows in rows]) for key in keys]
    )


def _row_key(row: Row) -> _Key:
    return (row.metric, row.rank, *(getattr(row, name) for name in KEYS))


def _is_within_part(key: _Key) -> bool:
    """Whether the key is of a component of a part: a collective, group or category."""
    return any(key[3:])


def _mean_row(key: _Key, rows: Sequence[Row | None]) -> Row:
    present = [row for row in rows if row is not None]
    first = present[0]
    is_component = key[0] == _PARTS and _is_within_part(key)
    values = [
        row.value if row is not None and row.has_value else 0.0 if is_component else None for row in rows
    ]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        if not numbers:
            return first
        missing = values.index(None)
        row = rows[missing]
        absence = (row.reason if row is not None else None) or "the run has no such figure"
        reason = f"capture {missing + 1} of {len(rows)}: {absence}"
        return replace(first, value=None, status="not_applicable", provenance=None, reason=reason)
    partial = next((row for row in present if row.status == "partial"), None)
    kinds = {row.provenance for row in present}
    return replace(
        partial or first,
        value=fmean(numbers),
        provenance=first.provenance if len(kinds) == 1 else "derived",
        coverage=min((row.coverage for row in present if row.coverage is not None), default=None),
        coverage_time=min(
            (row.coverage_time for row in present if row.coverage_time is not None), default=None
        ),
    )


def divide_by_calls(results: Results, calls: float) -> Results:
    """The rows of step time and step parts divided by `calls`, for a capture whose window is its trace."""
    rows = (row for row in results.rows if row.metric in (_STEP, _PARTS))
    return Results.from_rows(
        [row if row.value is None else replace(row, value=row.value / calls) for row in rows]
    )
