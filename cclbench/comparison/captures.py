# SPDX-License-Identifier: Apache-2.0
"""Several captures of one job as one subject: the mean of each figure, each capture with the same weight."""

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


def mean_of(captures: Sequence[Results]) -> Results:
    """The run's and each rank's rows of all captures, their values averaged; steps of captures are no pairs.

    What a capture has no number of is not averaged over the others: the row says which one lacks it.  Within
    a part of the step, what a capture does not name takes no time in it; where captures differ in which parts
    they can tell, there are none.
    """
    rows = [{_row_key(row): row for row in capture if row.step is None} for capture in captures]
    keys = dict.fromkeys(key for own in rows for key in own)
    parts = [{key for key in own if key[0] == _PARTS and not _is_within_part(key)} for own in rows]
    if any(own != parts[0] for own in parts):
        keys = {key: None for key in keys if key[0] != _PARTS}
    return Results.from_rows([_mean_row(key, [own.get(key) for own in rows]) for key in keys])


def _row_key(row: Row) -> _Key:
    return (row.metric, row.rank, *(getattr(row, name) for name in KEYS))


def _is_within_part(key: _Key) -> bool:
    """Whether it is of something within a part, by collective, group or category."""
    return any(key[3:])


def _mean_row(key: _Key, rows: Sequence[Row | None]) -> Row:
    known = [row for row in rows if row is not None]
    first = known[0]
    within = key[0] == _PARTS and _is_within_part(key)
    values = [row.value if row is not None and row.has_value else 0.0 if within else None for row in rows]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        if not numbers:
            return first
        place = values.index(None)
        row = rows[place]
        why = (row.reason if row is not None else None) or "it has no such figure"
        reason = f"capture {place + 1} of {len(rows)}: {why}"
        return replace(first, value=None, status="not_applicable", provenance=None, reason=reason)
    partial = next((row for row in known if row.status == "partial"), None)
    kinds = {row.provenance for row in known}
    return replace(
        partial or first,
        value=fmean(numbers),
        provenance=first.provenance if len(kinds) == 1 else "derived",
        coverage=min((row.coverage for row in known if row.coverage is not None), default=None),
        coverage_time=min(
            (row.coverage_time for row in known if row.coverage_time is not None), default=None
        ),
    )


def divide_by_calls(results: Results, calls: float) -> Results:
    """The run's step time and its parts over the calls in it, of a capture whose only step is its length."""
    rows = (row for row in results.rows if row.metric in (_STEP, _PARTS))
    return Results.from_rows(
        [row if row.value is None else replace(row, value=row.value / calls) for row in rows]
    )
