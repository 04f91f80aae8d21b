# SPDX-License-Identifier: Apache-2.0
"""A rank's work by what called for it, with what that costs at least: calls of operators, and kernels alone.

A device row belongs to the innermost call around its launch that has a cost model, else to the innermost;
what no call launched stands for itself, by its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench import classify, intervals
from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.columns import Words, codes, spans
from cclbench.analyzers.view.operator_calls import Kind, OperatorCalls, ids_of
from cclbench.disk_columns import DiskColumn, DiskTable, Number, cuts, parted, release, stretches, taken
from cclbench.intervals import Index, Int64, Intervals, Joined, Mask, begins
from cclbench.normalize.operators import is_wrapper
from cclbench.operators.call import Call
from cclbench.schema import CATEGORIES, PHASES

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

Float64 = npt.NDArray[np.float64]

NOT_LINKED: Final = "no operator's call is seen to launch it"
NO_CALLS: Final = "the trace records no operators' calls"
ROWS_AT_ONCE: Final = 1 << 16
"""Device rows whose works are told at once, some 15 MB."""
_ROW: Final = ("kind", "operator", "name", "category", "phase", "module", "flops", "hbm_bytes")
_OTHER: Final = CATEGORIES.index("other")
_COMMUNICATION: Final = CATEGORIES.index("communication")
_AS_ADDED: Final = ("phase", "module", "category", "time_ns", "kernels", "computes", "recomputed")


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The device rows of the works, arrays of shape (rows,); a CPU has none."""

    starts: Int64
    ends: Int64
    work: Index
    """Index of the work that each belongs to."""
    name: Index
    names: Sequence[str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Works:
    """What a rank did in its windows, a work a call, or a kernel that no call launched; shape (works,)."""

    kinds: Sequence[Kind]
    kind: Index
    phase: Index
    """Index in `PHASES`."""
    module: Index
    """Index in `modules`, whose last one, None, stands for none."""
    modules: Sequence[str | None]
    category: Index
    """Index in `CATEGORIES`, of the row that takes longest."""
    time_ns: Int64
    """|its device rows|; of a CPU's call its time outside of calls that are works of their own."""
    kernels: Index
    computes: Mask
    """Whether a kernel that is not communication is among its rows, or the CPU runs it."""
    recomputed: Mask
    flops: Float64
    """Of the cost model, or as the trace states them; NaN where neither is."""
    bytes: Float64
    stated: Mask
    """Whether the trace states them."""
    rows: Rows

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def communicates(self) -> Mask:
        """Which works are communication."""
        return np.asarray(self.category == CATEGORIES.index("communication"))

    @property
    def linked(self) -> Mask:
        """Which works an operator's call launched."""
        return self._of_kinds([kind.linked for kind in self.kinds], np.bool_)

    @property
    def modelled(self) -> Mask:
        """Which works have FLOPs and bytes, by a model or by the trace."""
        return self.told(lambda some: np.isfinite(some.flops) & np.isfinite(some.bytes))

    @property
    def precision(self) -> list[str | None]:
        """The precision of each kind's arithmetic."""
        return [kind.cost.precision if kind.cost else None for kind in self.kinds]

    def of_family(self, family: str) -> Mask:
        """Which works have a cost model of that family."""
        return self._of_kinds([kind.family == family for kind in self.kinds], np.bool_)

    def roofline_ns(
        self, peaks: Mapping[str, float | None], stated_peak: float | None, memory: float
    ) -> Float64:
        """The least time of each work at those peaks, FLOP/s by precision and B/s; NaN where unknown.

        `stated_peak` is that of works whose FLOPs the trace states.
        """

        def of(some: Works) -> Float64:
            moving = some.bytes / memory * 1e9
            # The memory's time is the least there is where the arithmetic's is not known.
            return np.where(np.isnan(moving), np.nan, np.fmax(some.compute_ns(peaks, stated_peak), moving))

        return self.told(of)

    def compute_ns(self, peaks: Mapping[str, float | None], stated_peak: float | None) -> Float64:
        """The time of each work's arithmetic at those peaks; NaN where unknown, 0 where it has none."""
        peak_of_kinds = np.array([peaks.get(word or "") or np.nan for word in self.precision], np.float64)

        def of(some: Works) -> Float64:
            peak = peak_of_kinds[some.kind]
            peak[some.stated] = stated_peak or np.nan
            with np.errstate(invalid="ignore"):
                return np.where(some.flops == 0, 0.0, some.flops / peak * 1e9)

        return self.told(of)

    def told(self, of: Callable[[Works], npt.NDArray[Number]]) -> npt.NDArray[Number]:
        """What is told of some works at a time, of all of them; on disk where they are many."""
        if len(self) <= ROWS_AT_ONCE:
            return of(self)
        parts = (of(self._some(own)) for own in stretches(len(self), ROWS_AT_ONCE))
        first = next(parts)
        column: DiskColumn[Number] = DiskColumn(first.dtype.type)
        for part in (first, *parts):
            column.append(part)
            release(self)
        return column.values()

    def _some(self, own: slice) -> Works:
        """Some of the works, without their rows."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        empty = np.empty(0, np.int64)
        rows = Rows(empty, empty, _index(empty), _index(empty), [])
        of_works = {name: values[own] for name, values in columns.items() if isinstance(values, np.ndarray)}
        return Works(**{**columns, **of_works, "rows": rows})

    def when(self, chosen: Mask) -> Intervals:
        """When device rows of the chosen works run."""
        found, rows = Joined(), self.rows
        for some in stretches(len(rows.work), ROWS_AT_ONCE):
            own = chosen[rows.work[some]]
            found.add(intervals.union(rows.starts[some][own], rows.ends[some][own]))
            release(rows)
        return found.whole()

    def sum(self, amounts: npt.NDArray[Any], chosen: Mask) -> float:
        """Σ amounts of the chosen works."""
        own = taken(amounts, chosen)
        release(amounts)
        total: float = own.sum().item()
        return total

    def coverage(self, chosen: Mask, used: Mask) -> Coverage:
        """Of the chosen works those that are used, too."""
        found = Coverage(0, 0, 0, 0)
        for some in stretches(len(self), ROWS_AT_ONCE):
            own = chosen[some]
            found += Coverage.of_rows(used[some][own], self.time_ns[some][own])
            release(self.time_ns)
        return found

    def _of_kinds(self, values: list[Any], dtype: Any) -> npt.NDArray[Any]:
        of_kinds = np.array(values, dtype)
        return self.told(lambda some: np.asarray(of_kinds[some.kind]))


def works(rank: RankView) -> Works:
    """The works of a rank that begin in its windows."""
    return _on_host(rank) if rank.on_host else _on_device(rank)


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
        owners = np.append(calls.owner, np.int32(-1))
        for batch, _ in rank.begun(("kernel", "copy", "memset"), *_ROW):
            starts, ends = spans(batch)
            category = _indices(batch, "category", CATEGORIES, _OTHER)
            communicates = category == _COMMUNICATION
            own = calls.ids.index_of(ids_of(batch["operator"]))
            owner = np.where(communicates, own, owners[own])
            alone = len(calls) + len(self) + np.arange(len(batch))
            numbers, kinds = codes(batch, "kind")
            is_kernel = np.array([kind == "kernel" for kind in kinds], np.bool_)[numbers]
            self._table.append(
                starts=starts,
                ends=ends,
                key=np.where(owner < 0, alone, owner),
                category=category,
                phase=_indices(batch, "phase", PHASES, PHASES.index("other")),
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

    def by_work(self) -> Iterator[Int64]:
        """The rows, in order, of some works at a time, which follow one another."""
        for rows in parted(self["key"], cuts(self["key"], ROWS_AT_ONCE)):
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
            flops=np.float64,
            hbm_bytes=np.float64,
        )

    def add(self, rows: Int64) -> None:
        """The works of those rows, which are all of theirs."""
        key, starts, ends, computes, flops, hbm_bytes = (
            self._rows[column][rows] for column in ("key", "starts", "ends", "computes", "flops", "hbm_bytes")
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
        self._table.append(
            key=own,
            kind=kind,
            phase=self._rows["phase"][lead],
            module=self._rows.module[lead],
            category=self._rows["category"][lead],
            time_ns=intervals.union_lengths(work, starts, ends, count),
            kernels=np.bincount(work, minlength=count),
            computes=np.bincount(work, computes, count) > 0,
            recomputed=recomputed,
            flops=np.bincount(work, flops, count),
            hbm_bytes=np.bincount(work, hbm_bytes, count),
        )

    def works(self) -> Works:
        """All works that were added."""
        rows, table = self._rows, self._table
        kinds, place = self._calls.kinds()
        why_not = NOT_LINKED if len(self._calls) else NO_CALLS
        single = [Kind(Call(word or ""), linked=False, why_not=why_not) for word in rows.name.words]
        flops, size = _costs([*kinds, *single])
        costs = DiskTable(kind=np.int32, flops=np.float64, bytes=np.float64, stated=np.bool_)
        for own in stretches(len(table), ROWS_AT_ONCE):
            number, told, moved = (table[column][own] for column in ("kind", "flops", "hbm_bytes"))
            kind = len(kinds) - 1 - number
            kind[number >= 0] = place[number[number >= 0]]
            stated = ~np.isnan(told)
            costs.append(
                kind=kind,
                flops=np.where(stated, told, flops[kind]),
                bytes=np.where(stated, moved, size[kind]),
                stated=stated,
            )
        of_rows = DiskTable(work=np.int32, name=np.int32)
        for own in stretches(len(rows), ROWS_AT_ONCE):
            of_rows.append(work=np.searchsorted(table["key"], rows["key"][own]), name=rows.name[own])
            rows.release()
        return Works(
            kinds=[*kinds, *single],
            modules=rows.module.words,
            **{column: costs[column] for column in ("kind", "flops", "bytes", "stated")},
            **{column: table[column] for column in _AS_ADDED},
            rows=Rows(rows["starts"], rows["ends"], of_rows["work"], of_rows["name"], rows.name.words),
        )


def _on_device(rank: RankView) -> Works:
    calls = OperatorCalls(rank)
    rows = _DeviceRows(rank, calls)
    rank.rest()
    found = _DeviceWorks(rows, calls)
    for own in rows.by_work():
        found.add(own)
    return found.works()


def _floats(numbers: pa.Array) -> Float64:
    """A column of numbers, NaN where they are not stated."""
    return np.asarray(numbers.cast(pa.float64()).fill_null(np.nan).to_numpy())


def _on_host(rank: RankView) -> Works:
    """A CPU's works: the calls that begin in a window, each with its time outside of other works."""
    calls = OperatorCalls(rank)
    table = rank.operators("start_ns", "device_ns", "phase", "module")
    starts, device_ns = table["start_ns"].to_numpy(), table["device_ns"].to_numpy()
    wrapper = calls.name.each([is_wrapper(name or "") for name in calls.name.words])
    window = rank.window_of(starts[calls.owner]) if len(starts) else starts
    chosen = np.flatnonzero((device_ns > 0) & ~wrapper & (window >= 0))
    head, work = np.unique(calls.owner[chosen], return_inverse=True)
    time_ns = np.zeros(len(head), np.int64)
    np.add.at(time_ns, work, device_ns[chosen])
    number = calls.number_kinds(head, np.zeros(len(head), np.int64), lambda _: ())
    kinds, place = calls.kinds()
    kind = place[number]
    words = [classify.category(name or "") for name in calls.name.words]
    category = np.array([CATEGORIES.index(word) if word else _OTHER for word in words], np.int64)[
        calls.name[head]
    ]
    module, modules = codes(table, "module")
    flops, size = _costs(kinds)
    empty = np.empty(0, np.int64)
    return Works(
        kinds=kinds,
        kind=kind,
        phase=_index(_indices(table, "phase", PHASES, PHASES.index("other"))[head]),
        module=_index(module[head]),
        modules=modules,
        category=_index(category),
        time_ns=time_ns,
        kernels=np.zeros(len(head), np.int32),
        computes=category != CATEGORIES.index("communication"),
        recomputed=calls.recomputed[head],
        flops=flops[kind],
        bytes=size[kind],
        stated=np.zeros(len(head), np.bool_),
        rows=Rows(empty, empty, _index(empty), _index(empty), []),
    )


def _index(numbers: Int64) -> Index:
    """Numbers of things that are held in memory, in half the space."""
    return numbers.astype(np.int32)


def _costs(kinds: Sequence[Kind]) -> tuple[Float64, Float64]:
    """FLOPs and bytes of each kind, NaN where it has no cost."""
    costs = [(kind.cost.flops, kind.cost.bytes) if kind.cost else (np.nan, np.nan) for kind in kinds]
    flops, size = np.array(costs, np.float64).reshape(len(costs), 2).T
    return flops, size


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


def _indices(
    table: pa.RecordBatch | pa.Table, column: str, vocabulary: Sequence[str], otherwise: int
) -> Int64:
    """A dictionary column as indices into a vocabulary."""
    numbers, words = codes(table, column)
    return np.array([vocabulary.index(word) if word else otherwise for word in words], np.int64)[numbers]
