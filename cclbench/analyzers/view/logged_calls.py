# SPDX-License-Identifier: Apache-2.0
"""Collective and transfer calls that files list one by one: NCCL logs, Flight Recorder dumps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import has_values, with_values, with_words
from cclbench.analyzers.view.transfers import size_range
from cclbench.formats import READERS, sort_by_precedence

_ALIKE: Final = ("rank", "kind", "group", "communicator", "bytes", "src_rank", "dst_rank", "from_begin")
_ROWS: Final = 1 << 18
"""Number of rows that are counted at a time."""


@dataclass(frozen=True, slots=True)
class CountedCalls:
    """Calls with a common `key`: `ranks`, number of ranks that make them; `sized`, calls of known payload."""

    key: tuple[Any, ...]
    calls: int
    bytes: float
    sized: int
    ranks: int


@dataclass(frozen=True, eq=False)
class LoggedCalls:
    """Grouped calls with their number, `calls`; columns of `TIMINGS`, which may be null.

    `from_begin`: the file lists all calls of the communicator; `size`: the range of sizes of `bytes`.
    """

    source: str
    """The reader of the files."""
    table: pa.Table

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks with calls, ascending."""
        return sorted(self.table["rank"].drop_null().unique().to_pylist())

    @cached_property
    def communicators(self) -> int:
        """Number of communicators; 0 where unknown."""
        return len(self.table["communicator"].drop_null().unique())

    def of_known_rank(self) -> LoggedCalls:
        """The calls of known ranks."""
        return LoggedCalls(self.source, self.table.filter(self.table["rank"].is_valid()))

    def counted_by(self, *columns: str) -> list[CountedCalls]:
        """The calls grouped by columns, without nulls; without columns all calls."""
        rows = with_values(self.table, *columns)
        calls = rows["calls"].to_numpy()
        payload = rows["bytes"].fill_null(0).to_numpy().astype(np.float64) * calls
        counted = (
            rows.append_column("payload", pa.array(payload))
            .append_column("sized", pa.array(np.where(has_values(rows, "bytes"), calls, 0)))
            .group_by(list(columns), use_threads=False)
            .aggregate([("calls", "sum"), ("payload", "sum"), ("sized", "sum"), ("rank", "count_distinct")])
        )
        if columns:
            counted = counted.sort_by([(name, "ascending") for name in columns])
        numbers = ("calls_sum", "payload_sum", "sized_sum", "rank_count_distinct")
        return [
            CountedCalls(tuple(row[name] for name in columns), *(row[name] or 0 for name in numbers))
            for row in counted.to_pylist()
        ]


def logged_calls(timings: pa.Table) -> LoggedCalls | None:
    """The calls of the preferred reader that lists them; None where no file of the run does."""
    sources = set(timings["source"].unique().to_pylist())
    listing = [
        name for name in sort_by_precedence(READERS) if READERS.get(name).lists_calls and name in sources
    ]
    if not listing:
        return None
    timings = timings.append_column("from_begin", pa.array(has_values(timings, "seq", "communicator")))
    timings = timings.set_column(
        timings.schema.get_field_index("calls"), "calls", timings["calls"].fill_null(1)
    )
    parts = [
        with_words(timings.slice(first, _ROWS), "source", listing[:1])
        .select([*_ALIKE, "calls"])
        .group_by(list(_ALIKE), use_threads=False)
        .aggregate([("calls", "sum")])
        for first in range(0, len(timings), _ROWS)
    ]
    grouped = (
        pa.concat_tables(parts)
        .unify_dictionaries()
        .group_by(list(_ALIKE), use_threads=False)
        .aggregate([("calls_sum", "sum")])
    )
    columns = {
        name: grouped[name].cast(pa.string()) if pa.types.is_dictionary(grouped[name].type) else grouped[name]
        for name in _ALIKE
    }
    columns |= {"calls": grouped["calls_sum_sum"], "size": _size_ranges(grouped["bytes"])}
    return LoggedCalls(listing[0], pa.table(columns))


def _size_ranges(size: pa.ChunkedArray) -> pa.Array:
    """The ranges of sizes, powers of 4; null for null and for 0 bytes."""
    exponent = (np.frexp(size.fill_null(0).to_numpy().astype(np.float64))[1] - 1) // 2
    exponents, place = np.unique(exponent, return_inverse=True)
    words = pa.array([size_range(power) if power >= 0 else None for power in exponents.tolist()], pa.string())
    return words.take(pa.array(place))
