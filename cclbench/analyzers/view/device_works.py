# SPDX-License-Identifier: Apache-2.0
"""The works of a rank whose device launches kernels: device rows by the call that each belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench import intervals
from cclbench.analyzers.view.columns import Words, codes, places, spans
from cclbench.analyzers.view.operator_calls import Float64, Kind, OperatorCalls, costs_of, ids_of
from cclbench.analyzers.view.works import WORKS_AT_ONCE, WorkRows, Works
from cclbench.disk_columns import DiskTable, pieces, release
from cclbench.disk_order import cuts, parted
from cclbench.intervals import Index, Int64, begins
from cclbench.normalize.device_rows import DEVICE_WORK
from cclbench.operators.call import Call
from cclbench.schema import CATEGORIES, PHASES

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

NOT_LINKED: Final = "no operator's call is seen to launch it"
NO_CALLS: Final = "the trace records no operators' calls"
_ROW: Final = ("kind", "operator", "name", "category", "phase", "module", "flops", "hbm_bytes")
_OTHER: Final = CATEGORIES.index("other")
_COMMUNICATION: Final = CATEGORIES.index("communication")
_AS_ADDED: Final = ("phase", "module", "category", "time_ns", "kernels", "computes", "recomputed", "sequence")


def device_works(rank: RankView) -> Works:
    """The works of a rank's device that begin in its windows."""
    calls = OperatorCalls(rank)
    rank.rest()
    rows = _DeviceRows(rank, calls)
    rank.rest()
    found = _DeviceWorks(rows, calls)
    for own in rows.by_work():
        found.add(own)
    return found.works()


class _DeviceRows:
    """The device rows that begin in the windows, on disk; `key` is the call that each belongs to.

    A row without one has a key of its own, above all calls.
    """

    def __init__(self, rank: RankView, calls: OperatorCalls) -> None:
        self.name, self.module = Words(), Words()
        self._table = DiskTable(
            starts=np.int64,
            ends=np.int64,
            key=np.int32,
            category=np.int8,
            phase=np.int8,
            computes=np.bool_,
            flops=np.float64,
            hbm_bytes=np.float64,
        )
        for batch, _ in rank.begun(DEVICE_WORK, *_ROW):
            starts, ends = spans(batch)
            category = places(batch, "category", CATEGORIES, _OTHER)
            communicates = category == _COMMUNICATION
            own = calls.ids.index_of(ids_of(batch["operator"]))
            owner = own.copy()
            called = (own >= 0) & ~communicates
            owner[called] = calls.owner[own[called]]
            release(calls.owner)
            alone = len(calls) + len(self) + np.arange(len(batch))
            numbers, kinds = codes(batch, "kind")
            is_kernel = np.array([kind == "kernel" for kind in kinds], np.bool_)[numbers]
            self._table.append(
                starts=starts,
                ends=ends,
                key=np.where(owner < 0, alone, owner),
                category=category,
                phase=places(batch, "phase", PHASES, PHASES.index("other")),
                computes=is_kernel & ~communicates,
                flops=_floats(batch["flops"]),
                hbm_bytes=_floats(batch["hbm_bytes"]),
            )
            self.name.append(batch, "name")
            self.module.append(batch, "module")

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """All values of a column."""
        return self._table[column]

    def of(self, column: str, rows: Int64) -> npt.NDArray[Any]:
        """The values of some rows."""
        found = self[column][rows]
        self.release()
        return found

    def by_work(self) -> Iterator[Int64]:
        """The rows, in order, of some works at a time, which follow one another."""
        for rows in parted(self["key"], cuts(WORKS_AT_ONCE, self["key"])):
            if len(rows):
                yield rows
            self.release()

    def release(self) -> None:
        """Let go of the rows that were read."""
        for table in (self._table, self.name, self.module):
            table.release()


class _DeviceWorks:
    """The works of device rows, which are added in order of their keys."""

    def __init__(self, rows: _DeviceRows, calls: OperatorCalls) -> None:
        self._rows, self._calls = rows, calls
        self._table = DiskTable(
            key=np.int32,
            kind=np.int32,
            phase=np.int32,
            module=np.int32,
            category=np.int32,
            time_ns=np.int64,
            kernels=np.int32,
            computes=np.bool_,
            recomputed=np.bool_,
            sequence=np.int64,
            flops=np.float64,
            hbm_bytes=np.float64,
        )

    def add(self, rows: Int64) -> None:
        """The works of those rows, which are all of theirs."""
        key, starts, ends, computes, flops, hbm_bytes = (
            self._rows.of(column, rows)
            for column in ("key", "starts", "ends", "computes", "flops", "hbm_bytes")
        )
        name = self._rows.name[rows]
        order = np.lexsort((starts, key))
        new = begins(key[order])
        first = np.flatnonzero(new)
        count = len(first)
        work = np.empty(len(key), np.int32)
        work[order] = np.cumsum(new) - 1
        own = key[order][first]
        of_call = own < len(self._calls)
        lead = rows[order[_longest(work[order], (ends - starts)[order], count)]]
        begun = np.append(first, len(key))

        def kernels_of(number: int) -> tuple[str, ...]:
            at = np.flatnonzero(of_call)[number]
            words = self._rows.name.words
            return tuple(words[code] or "" for code in name[order[begun[at] : begun[at + 1]]].tolist())

        launched = _identities(name[order], first)[of_call]
        kind = -1 - name[order[first]]  # of a work without a call its name
        kind[of_call] = self._calls.number_kinds(own[of_call], launched, kernels_of)
        recomputed = np.zeros(count, np.bool_)
        recomputed[of_call] = self._calls.recomputed[own[of_call]]
        sequence = np.full(count, -1, np.int64)
        sequence[of_call] = self._calls.sequence[own[of_call]]
        self._table.append(
            key=own,
            kind=kind,
            phase=self._rows.of("phase", lead),
            module=self._rows.module[lead],
            category=self._rows.of("category", lead),
            time_ns=intervals.union_lengths(work, starts, ends, count),
            kernels=np.bincount(work, minlength=count),
            computes=np.bincount(work, computes, count) > 0,
            recomputed=recomputed,
            sequence=sequence,
            flops=np.bincount(work, flops, count),
            hbm_bytes=np.bincount(work, hbm_bytes, count),
        )

    def works(self) -> Works:
        """All works that were added."""
        rows, table = self._rows, self._table
        kinds, place = self._calls.kinds()
        why_not = NOT_LINKED if len(self._calls) else NO_CALLS
        single = [Kind(Call(word or ""), linked=False, why_not=why_not) for word in rows.name.words]
        flops, size = costs_of([*kinds, *single])
        costs = DiskTable(kind=np.int32, flops=np.float64, bytes=np.float64, stated=np.bool_)
        for own in pieces(len(table), most=WORKS_AT_ONCE):
            number, counted, moved = (table[column][own] for column in ("kind", "flops", "hbm_bytes"))
            kind = len(kinds) - 1 - number
            kind[number >= 0] = place[number[number >= 0]]
            stated = ~np.isnan(counted)
            costs.append(
                kind=kind,
                flops=np.where(stated, counted, flops[kind]),
                bytes=np.where(stated, moved, size[kind]),
                stated=stated,
            )
        of_rows = DiskTable(work=np.int32, name=np.int32)
        for own in pieces(len(rows), most=WORKS_AT_ONCE):
            of_rows.append(work=np.searchsorted(table["key"], rows["key"][own]), name=rows.name[own])
            rows.release()
        return Works(
            kinds=[*kinds, *single],
            modules=rows.module.words,
            **{column: costs[column] for column in ("kind", "flops", "bytes", "stated")},
            **{column: table[column] for column in _AS_ADDED},
            rows=WorkRows(rows["starts"], rows["ends"], of_rows["work"], of_rows["name"], rows.name.words),
        )


def _floats(numbers: pa.Array) -> Float64:
    """A column of numbers, NaN where they are not stated."""
    return np.asarray(numbers.cast(pa.float64()).fill_null(np.nan).to_numpy())


def _longest(work: Index, ns: Int64, count: int) -> Int64:
    """Index of the longest row of each work, of rows in order of their works."""
    by_length = np.lexsort((-ns, work))
    return by_length[np.searchsorted(work[by_length], np.arange(count))]


def _identities(name: Index, first: Int64) -> Int64:
    """A hash of the sequence of names from each of `first` to the next."""
    place = np.arange(len(name)) - np.repeat(first, np.diff(np.append(first, len(name))))
    mixed = (name.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(np.add.reduceat(mixed, first)).view(np.int64)
