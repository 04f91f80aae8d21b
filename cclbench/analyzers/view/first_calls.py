# SPDX-License-Identifier: Apache-2.0
"""First calls that take long because they load code, create a context or build a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from cclbench.analyzers.view.columns import has_word, matching_rows, row_spans, word_codes
from cclbench.analyzers.view.launches import correlations_of
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Mask
from cclbench.normalize.host_calls import (
    ALLOCATES,
    LEAST_COLD_NS,
    LOADS,
    cold_calls,
    cold_operators,
    may_be_cold,
)

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

_IN_RUNTIME: Final = re.compile(f"{ALLOCATES.pattern}|{LOADS.pattern}")
"""Names of runtime calls that allocate, free or load, and launch nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class FirstCalls:
    """First calls of the runtime and of operators that take long; arrays of shape (calls,), times in ns."""

    launches: Int64
    """Index into the rank's launch calls, −1 for calls that launch nothing."""
    threads: Int64
    starts: Int64
    ends: Int64

    def __len__(self) -> int:
        return len(self.starts)


def first_calls(rank: RankView) -> FirstCalls:
    """The first calls of a rank, by `host_calls.cold_calls` and `cold_operators`."""
    until = int(np.sort(rank.windows.starts)[1]) if len(rank.windows) > 1 else None
    parts = [_runtime_calls(rank, until), *([] if rank.on_host else [_cold_operators(rank, until)])]
    return FirstCalls(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(FirstCalls))
    )


def _cold_operators(rank: RankView, until: int | None) -> FirstCalls:
    """Cold operator calls, from the rows with the names of long calls and the rows within these calls."""
    names: dict[str, int] = {}
    empty = np.empty(0, np.int64)
    long = _join_parts(
        _rows_of(rank, ("op",), names), lambda some_rows: some_rows.ends - some_rows.starts >= LEAST_COLD_NS
    )
    if not len(long.starts):
        return FirstCalls(empty, empty, empty, empty)
    extent = intervals.union(long.starts, long.ends)

    def lies_inside(some_rows: _HostRows) -> Mask:
        return intervals.within(extent, some_rows.starts, some_rows.ends) > 0

    operators = _join_parts(
        _rows_of(rank, ("op",), names),
        lambda some_rows: lies_inside(some_rows) | np.isin(some_rows.name, long.name),
    )
    calls = _join_parts(_rows_of(rank, ("launch", "sync", "other"), names), lies_inside)
    cold = cold_operators(operators, calls[1:], until)
    return FirstCalls(np.full(int(cold.sum()), -1, np.int64), *(column[cold] for column in operators[1:]))


class _HostRows(NamedTuple):
    """Host events; arrays of shape (rows,), times in ns."""

    name: Int64
    threads: Int64
    starts: Int64
    ends: Int64


def _join_parts(parts: Iterator[_HostRows], chosen: Callable[[_HostRows], Mask]) -> _HostRows:
    """The chosen rows of all parts."""
    columns = [[column[mask] for column in part] for part in parts for mask in [chosen(part)]]
    empty = np.empty(0, np.int64)
    return _HostRows(*(np.concatenate([empty, *(part[i] for part in columns)]) for i in range(4)))


def _rows_of(rank: RankView, kinds: tuple[str, ...], names: dict[str, int]) -> Iterator[_HostRows]:
    """Operators that may be cold, launches, waits, and calls that allocate or load, in bounded batches."""
    for batch in rank.tables.events(kinds, ("side", "track", "kind", "name", "start_ns", "dur_ns")):
        name, words = word_codes(batch, "name")
        code = np.array([names.setdefault(word or "", len(names)) for word in words], np.int64)[name]
        cold = np.where(
            has_word(batch, "kind", "op"),
            matching_rows(batch, "name", may_be_cold),
            ~has_word(batch, "kind", "other") | matching_rows(batch, "name", _IN_RUNTIME.match),
        )
        chosen = has_word(batch, "side", "host") & cold
        starts, ends = row_spans(batch)
        yield _HostRows(code[chosen], batch["track"].to_numpy()[chosen], starts[chosen], ends[chosen])


def _runtime_calls(rank: RankView, until: int | None) -> FirstCalls:
    """Cold runtime calls."""
    calls = rank.launch_calls
    kernel = np.full(len(calls) + 1, -1)
    kernels: dict[str, int] = {}
    for batch in rank.tables.events(("kernel",), ("correlation", "name")):
        call = calls.indices_of(correlations_of(batch))
        name, names = word_codes(batch, "name")
        codes = np.array([kernels.setdefault(word or "", len(kernels)) for word in names], np.int64)
        kernel[call[call >= 0]] = codes[name][call >= 0]
    functions: dict[str, int] = {}
    parts = []
    columns = ("side", "track", "kind", "name", "start_ns", "dur_ns", "correlation")
    for batch in rank.tables.events(("launch", "other"), columns):
        name, names = word_codes(batch, "name")
        launches = has_word(batch, "kind", "launch")
        chosen = has_word(batch, "side", "host")
        chosen &= launches | matching_rows(batch, "name", _IN_RUNTIME.match)
        codes = np.array([functions.setdefault(word or "", len(functions)) for word in names], np.int32)
        call = np.where(launches, calls.indices_of(correlations_of(batch)), -1)
        times = (batch[column].to_numpy() for column in ("start_ns", "dur_ns", "track"))
        parts.append([column[chosen] for column in (codes[name], call, *times)])
    if not parts:
        return FirstCalls(*(np.empty(0, np.int64),) * 4)
    function, call, start, dur, thread = map(np.concatenate, zip(*parts, strict=True))
    words = [*functions]
    cold = np.flatnonzero(
        cold_calls(
            function,
            kernel[call],
            start,
            dur,
            np.array([ALLOCATES.match(word) is not None for word in words], np.bool_)[function],
            np.array([LOADS.match(word) is not None for word in words], np.bool_)[function],
            until,
        )
    )
    return FirstCalls(call[cold], thread[cold], start[cold], start[cold] + dur[cold])
