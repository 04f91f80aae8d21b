# SPDX-License-Identifier: Apache-2.0
"""Calls of collectives and transfers that files list one by one: NCCL's logs, Flight Recorder dumps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.view.columns import with_words
from cclbench.analyzers.view.transfers import size_range
from cclbench.formats import READERS, by_precedence

_ALIKE: Final = ("rank", "kind", "group", "communicator", "bytes", "src_rank", "dst_rank", "from_begin")
_ROWS: Final = 1 << 18
"""Rows that are counted at once."""


@dataclass(frozen=True, slots=True)
class CountedCalls:
    """Calls that have the values of `key` in common: `ranks` make them, `sized` state their bytes."""

    key: tuple[Any, ...]
    calls: int
    bytes: float
    sized: int
    ranks: int


@dataclass(frozen=True, eq=False)
class LoggedCalls:
    """Calls by what they have in common, `calls` of each: columns of `schema.TIMINGS`, any of them null.

    `from_begin`: the file holds all calls of the communicator; `size`: the range of sizes that holds `bytes`.
    """

    source: str
    """The reader of the files that list them."""
    table: pa.Table

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks that make any, ascending."""
        return sorted(self.table["rank"].drop_null().unique().to_pylist())

    @cached_property
    def communicators(self) -> int:
        """On how many they are; 0 where the files do not tell."""
        return len(self.table["communicator"].drop_null().unique())

    def of_known_rank(self) -> LoggedCalls:
        """Those of which the rank is known."""
        return LoggedCalls(self.source, self.table.filter(self.table["rank"].is_valid()))

    def counted_by(self, *columns: str) -> list[CountedCalls]:
        """The calls by those columns, of which none is null; without any, all of them."""
        whole = self.table
        for name in columns:
            whole = whole.filter(whole[name].is_valid())
        of_each = whole.append_column(
            "payload", pc.multiply(whole["bytes"].cast(pa.float64()), whole["calls"])
        )
        sized = pc.if_else(whole["bytes"].is_valid(), whole["calls"], 0)
        found = (
            of_each.append_column("sized", sized)
            .group_by(list(columns), use_threads=False)
            .aggregate([("calls", "sum"), ("payload", "sum"), ("sized", "sum"), ("rank", "count_distinct")])
        )
        if columns:
            found = found.sort_by([(name, "ascending") for name in columns])
        numbers = ("calls_sum", "payload_sum", "sized_sum", "rank_count_distinct")
        return [
            CountedCalls(tuple(row[name] for name in columns), *(row[name] or 0 for name in numbers))
            for row in found.to_pylist()
        ]


def logged_calls(timings: pa.Table) -> LoggedCalls | None:
    """The calls by the best of the readers that list them; None where no file of the run does."""
    there = set(timings["source"].unique().to_pylist())
    listing = [name for name in by_precedence(READERS) if READERS.get(name).lists_calls and name in there]
    if not listing:
        return None
    timings = timings.append_column(
        "from_begin", pc.and_(timings["seq"].is_valid(), timings["communicator"].is_valid())
    )
    of_each = [
        with_words(timings.slice(first, _ROWS), "source", listing[:1])
        .select(_ALIKE)
        .group_by(list(_ALIKE), use_threads=False)
        .aggregate([([], "count_all")])
        for first in range(0, len(timings), _ROWS)
    ]
    alike = (
        pa.concat_tables(of_each)
        .unify_dictionaries()
        .group_by(list(_ALIKE), use_threads=False)
        .aggregate([("count_all", "sum")])
    )
    columns = {
        name: alike[name].cast(pa.string()) if pa.types.is_dictionary(alike[name].type) else alike[name]
        for name in _ALIKE
    }
    columns |= {"calls": alike["count_all_sum"], "size": _size_ranges(alike["bytes"])}
    return LoggedCalls(listing[0], pa.table(columns))


def _size_ranges(size: pa.ChunkedArray) -> pa.Array:
    """The ranges of sizes, powers of 4, that hold these; null of none and of 0 bytes."""
    exponent = (np.frexp(size.fill_null(0).to_numpy().astype(np.float64))[1] - 1) // 2
    known, place = np.unique(exponent, return_inverse=True)
    words = pa.array([size_range(one) if one >= 0 else None for one in known.tolist()], pa.string())
    return words.take(pa.array(place))
