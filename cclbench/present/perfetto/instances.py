# SPDX-License-Identifier: Apache-2.0
"""Collectives in the viewer: a rank's part, the rank that it waits for, and arrows between parts.

Viewers draw arrows forward in time and attach each end to a slice that is open then.  So an arrow connects
the beginnings of a collective's parts in the order of arrival, and ends at the rank that the others wait for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.intervals import Int64
from cclbench.present.perfetto.lines import as_microseconds, join_columns, key_values, object_members
from cclbench.record.rank import Rank

Ranks = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class LatestRanks:
    """Matched collectives, ascending, and the rank that arrives last at each; the lowest of equal ones."""

    instances: Int64
    ranks: Ranks

    @classmethod
    def from_ranks(cls, ranks: Iterable[Rank]) -> LatestRanks:
        """From the parts of all ranks."""
        columns = ["instance", "arrival_ns", "rank"]
        parts = pa.concat_tables(
            [rank_tables.collectives().select(columns).drop_null() for rank_tables in ranks]
        )
        instance, arrival, rank = (parts[column].to_numpy() for column in columns)
        order = np.lexsort((-rank, arrival, instance))
        last = order[np.flatnonzero(np.diff(instance[order], append=-1))]
        return cls(instance[last], rank[last])

    def latest_at(self, instances: Int64) -> Ranks:
        """The rank that arrives last at each instance."""
        return self.ranks[np.searchsorted(self.instances, instances)]


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveParts:
    """A rank's parts in collectives, to which its events refer."""

    table: pa.Table
    texts: pa.Array
    """Description of each part: members of a JSON object."""

    @classmethod
    def from_tables(cls, tables: Rank) -> CollectiveParts:
        """All parts of a rank."""
        table = tables.collectives()
        columns = {"library": "library", "kind": "collective", "group": "group", "dimension": "dimension"}
        payload = pc.max_element_wise(table["in_bytes"], table["out_bytes"])
        texts = object_members(
            *(key_values(key, table[name]) for name, key in columns.items()),
            key_values("seq", table["seq"]),
            key_values("payload_bytes", payload),
            *(key_values(name, table[name]) for name in ("dtype", "wait_ns", "transfer_ns")),
        )
        return cls(table, texts)

    def rows_of_keys(self, keys: pa.Array) -> pa.Array:
        """The row of each part by its key; null for null."""
        return pc.index_in(keys, value_set=self.table["collective"].combine_chunks())

    def instance_numbers(self, places: pa.Array) -> Int64:
        """The number shared by the parts of one collective; -1 for null and unmatched parts."""
        instance = self.table["instance"].take(places).fill_null(-1)
        return np.asarray(instance.to_numpy(), np.int64)


@dataclass(slots=True)
class InstanceArrows:
    """Beginnings of matched parts, collected rank by rank: instance, begin, rank, thread."""

    begins: list[tuple[Int64, Int64, Int64, Int64]] = field(default_factory=list)
    linked_count: int = 0
    """Number of collectives with at least two parts shown."""

    def add_begins(self, instances: Int64, begins: Int64, rank: int, threads: Int64) -> None:
        """Add the rows that are parts of a matched collective."""
        is_matched = instances >= 0
        if is_matched.any():
            ranks = np.full(int(is_matched.sum()), rank, np.int64)
            self.begins.append((instances[is_matched], begins[is_matched], ranks, threads[is_matched]))

    def flow_lines(self) -> pa.Array:
        """A flow for each collective with at least two parts shown, by arrival."""
        if not self.begins:
            return pa.array([], pa.large_string())
        instance, begin, rank, thread = map(np.concatenate, zip(*self.begins, strict=True))
        order = np.lexsort((rank, begin, instance))
        instance, begin, rank, thread = (column[order] for column in (instance, begin, rank, thread))
        first, last = np.diff(instance, prepend=-1) != 0, np.diff(instance, append=-1) != 0
        self.linked_count = int((first & ~last).sum())
        kept = ~(first & last)
        phase = pa.array(np.where(first, "s", np.where(last, 'f","bp":"e', "t"))[kept])
        return join_columns(
            '{"ph":"', phase, '","id":', pa.array(instance[kept]), ',"pid":', pa.array(rank[kept]),
            ',"tid":', pa.array(thread[kept]), ',"ts":', as_microseconds(begin[kept]),
            ',"cat":"collective","name":"collective"}',
        )  # fmt: skip
