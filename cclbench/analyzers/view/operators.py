# SPDX-License-Identifier: Apache-2.0
"""A rank's work by what called for it, with what that costs at least: calls of operators, and kernels alone.

A device row belongs to the innermost call around its launch that has a cost model, else to the innermost;
what no call launched stands for itself, by its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench import classify, intervals
from cclbench.analyzers.view.columns import codes, spans
from cclbench.intervals import Index, Int64, Intervals, Mask, begins
from cclbench.normalize.operators import Ids, is_wrapper, nearest
from cclbench.operators.call import Call, NoModel, parse
from cclbench.operators.cost import Cost, cost_of, model_of
from cclbench.schema import CATEGORIES, EVENTS, PHASES

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

Float64 = npt.NDArray[np.float64]

NOT_LINKED: Final = "no operator's call is seen to launch it"
NO_CALLS: Final = "the trace records no operators' calls"
_INSIDE: Final = "what it calls is counted by itself"
PRODUCTS: Final = ("matrix product", "convolution", "attention")
"""Families whose models count all that a call does: what holds such a call is not counted again."""
_TEXTS: Final = ("name", "shapes", "dtypes", "strides", "values")
_CALL: Final = ("operator", "parent", *_TEXTS, "annotation", "recomputed")
_ROW: Final = ("kind", "operator", "name", "category", "phase", "module", "flops", "hbm_bytes")
_OTHER: Final = CATEGORIES.index("other")


@dataclass(frozen=True, slots=True)
class Kind:
    """Work that is alike: calls of an operator with equal arguments, or kernels of one name.

    `cost` is one call's; None where `why_not` says why.
    """

    call: Call
    linked: bool
    cost: Cost | None = None
    why_not: str | None = None

    @property
    def family(self) -> str | None:
        """The family of the operator's cost model, None without one."""
        model = model_of(self.call.name) if self.linked else None
        return model.family if model else None


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
        return np.asarray(np.isfinite(self.flops) & np.isfinite(self.bytes))

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
        moving = self.bytes / memory * 1e9
        # The memory's time is the least there is where the arithmetic's is not known.
        return np.where(np.isnan(moving), np.nan, np.fmax(self.compute_ns(peaks, stated_peak), moving))

    def compute_ns(self, peaks: Mapping[str, float | None], stated_peak: float | None) -> Float64:
        """The time of each work's arithmetic at those peaks; NaN where unknown, 0 where it has none."""
        peak = self._of_kinds([peaks.get(word or "") or np.nan for word in self.precision], np.float64)
        peak[self.stated] = stated_peak or np.nan
        with np.errstate(invalid="ignore"):
            return np.where(self.flops == 0, 0.0, self.flops / peak * 1e9)

    def when(self, chosen: Mask) -> Intervals:
        """When device rows of the chosen works run."""
        own = chosen[self.rows.work]
        return intervals.union(self.rows.starts[own], self.rows.ends[own])

    def _of_kinds(self, values: list[Any], dtype: Any) -> npt.NDArray[Any]:
        return np.asarray(np.array(values, dtype)[self.kind])


def works(rank: RankView) -> Works:
    """The works of a rank that begin in its windows."""
    return _on_host(rank) if rank.on_host else _on_device(rank)


class _Calls:
    """The rank's calls of operators, and which of them each call's work belongs to."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.ids = Ids(table["operator"].to_numpy())
        self.name, self.names = codes(table, "name")
        parents = self.ids.index_of(_or_no_id(table["parent"]))
        models = [model_of(name or "") for name in self.names]
        self._families = [model.family if model else None for model in models]
        self._counted_inside = _ancestors(parents, self._of_families(PRODUCTS))
        modelled = np.array([model is not None for model in models], np.bool_)[self.name]
        owner = nearest(parents, modelled & ~self._counted_inside)
        self.owner = np.where(owner >= 0, owner, np.arange(len(table)))
        self.recomputed = table["recomputed"].to_numpy()

    def __len__(self) -> int:
        return len(self.table)

    def _of_families(self, families: Collection[str]) -> Mask:
        """Which calls have a model of those families."""
        return np.array([family in families for family in self._families], np.bool_)[self.name]

    def kinds(
        self, calls: Int64, launched: Int64, kernels_of: Callable[[int], tuple[str, ...]]
    ) -> tuple[list[Kind], Int64]:
        """The distinct ways in which `calls` are called, and each one's; `launched` identifies kernels.

        `kernels_of(i)` are the names of the kernels of the i-th call.
        """
        code = launched
        for column in _TEXTS:
            numbers, words = codes(self.table, column)
            code = np.unique(code, return_inverse=True)[1] * len(words) + numbers[calls]
        # Steps differ, and only attention costs what a step's requests make it cost.
        numbers, words = codes(self.table, "annotation")
        own = np.where(self._of_families(("attention",))[calls], numbers[calls], 0)
        code = np.unique(code, return_inverse=True)[1] * len(words) + own
        _, first, kind = np.unique(code, return_index=True, return_inverse=True)
        return [self._kind(int(calls[i]), kernels_of(int(i))) for i in first], kind

    def _kind(self, call: int, kernels: tuple[str, ...]) -> Kind:
        name, *texts = (self.table[column][call].as_py() for column in _TEXTS)
        if self._counted_inside[call]:
            return Kind(Call(name), linked=True, why_not=_INSIDE)
        shapes, dtypes, strides, values = texts
        annotation = self.table["annotation"][call].as_py()
        found = parse(name, shapes, dtypes, strides, values, kernels, annotation)
        try:
            return Kind(found, linked=True, cost=cost_of(found))
        except NoModel as why:
            return Kind(found, linked=True, why_not=str(why))


def _or_no_id(ids: pa.ChunkedArray) -> Int64:
    """The ids, where one is null a number that none is."""
    return np.asarray(ids.fill_null(np.iinfo(np.int64).min).to_numpy())


def _ancestors(parents: Index, chosen: Mask) -> Mask:
    """Which calls hold a chosen one, shape (calls,)."""
    found = np.zeros(len(parents), np.bool_)
    above = np.unique(parents[chosen])
    while len(above := above[~np.append(found, True)[above]]):
        found[above] = True
        above = np.unique(parents[above])
    return found


def _on_device(rank: RankView) -> Works:
    found = [batch for batch, _ in rank.begun(("kernel", "copy", "memset"), *_ROW)]
    schema = pa.schema([EVENTS.field(name) for name in ("start_ns", "dur_ns", *_ROW)])
    table = pa.Table.from_batches(found, schema)
    calls = _Calls(rank.operators(*_CALL))
    starts, ends = spans(table)
    name, names = codes(table, "name")
    category = _indices(table, "category", CATEGORIES, _OTHER)
    phase = _indices(table, "phase", PHASES, PHASES.index("other"))
    module, modules = codes(table, "module")
    own = calls.ids.index_of(_or_no_id(table["operator"]))
    what, whats = codes(table, "kind")
    is_kernel = np.array([word == "kernel" for word in whats], np.bool_)[what]
    communicates = category == CATEGORIES.index("communication")
    owner = np.where(communicates, own, np.append(calls.owner, -1)[own])
    # Works are numbered by call, then, of rows without one, each for itself.
    alone = owner < 0
    key = np.where(alone, len(calls) + np.arange(len(owner)), owner)
    order = np.lexsort((starts, key))
    first = np.flatnonzero(begins(key[order]))
    work = np.empty(len(key), np.int64)
    work[order] = np.cumsum(begins(key[order])) - 1
    of_call = owner[order][first] >= 0
    head = order[first]
    lead = order[_longest(work[order], (ends - starts)[order], len(first))]

    def kernels_of(number: int) -> tuple[str, ...]:
        begin = first[np.flatnonzero(of_call)[number]]
        until = np.searchsorted(work[order], work[order[begin]], side="right")
        return tuple(names[code] or "" for code in name[order[begin:until]].tolist())

    launched = _identities(name[order], first)
    kinds, kind_of_call = calls.kinds(owner[head][of_call], launched[of_call], kernels_of)
    why_not = NOT_LINKED if len(calls) else NO_CALLS
    single = [Kind(Call(word or ""), linked=False, why_not=why_not) for word in names]
    kind = len(kinds) + name[head]
    kind[of_call] = kind_of_call
    kinds += single
    cost_flops, cost_bytes = _costs(kinds)
    stated_flops, stated_bytes = (
        np.bincount(work, table[column].cast(pa.float64()).fill_null(np.nan).to_numpy(), len(first))
        for column in ("flops", "hbm_bytes")
    )
    stated = ~np.isnan(stated_flops)
    recomputed = np.zeros(len(first), np.bool_)
    recomputed[of_call] = calls.recomputed[owner[head][of_call]]
    return Works(
        kinds=kinds,
        kind=_index(kind),
        phase=_index(phase[lead]),
        module=_index(module[lead]),
        modules=modules,
        category=_index(category[lead]),
        time_ns=intervals.union_lengths(work, starts, ends, len(first)),
        kernels=_index(np.bincount(work, minlength=len(first))),
        computes=np.bincount(work, is_kernel & ~communicates, minlength=len(first)) > 0,
        recomputed=recomputed,
        flops=np.where(stated, stated_flops, cost_flops[kind]),
        bytes=np.where(stated, stated_bytes, cost_bytes[kind]),
        stated=stated,
        rows=Rows(starts, ends, _index(work), _index(name), names),
    )


def _on_host(rank: RankView) -> Works:
    """A CPU's works: the calls that begin in a window, each with its time outside of other works."""
    calls = _Calls(rank.operators(*_CALL, "start_ns", "device_ns", "phase", "module"))
    table = calls.table
    starts, device_ns = table["start_ns"].to_numpy(), table["device_ns"].to_numpy()
    wrapper = np.array([is_wrapper(name or "") for name in calls.names], np.bool_)[calls.name]
    window = rank.window_of(starts[calls.owner]) if len(starts) else starts
    chosen = np.flatnonzero((device_ns > 0) & ~wrapper & (window >= 0))
    head, work = np.unique(calls.owner[chosen], return_inverse=True)
    time_ns = np.zeros(len(head), np.int64)
    np.add.at(time_ns, work, device_ns[chosen])
    kinds, kind = calls.kinds(head, np.zeros(len(head), np.int64), lambda _: ())
    words = [classify.category(name or "") for name in calls.names]
    category = np.array([CATEGORIES.index(word) if word else _OTHER for word in words], np.int64)[
        calls.name[head]
    ]
    module, modules = codes(table, "module")
    flops, size = _costs(kinds)
    empty = np.empty(0, np.int64)
    return Works(
        kinds=kinds,
        kind=_index(kind),
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


def _longest(work: Int64, ns: Int64, count: int) -> Int64:
    """Index of the longest row of each work, of rows in order of their works."""
    by_length = np.lexsort((-ns, work))
    return by_length[np.searchsorted(work[by_length], np.arange(count))]


def _identities(name: Int64, first: Int64) -> Int64:
    """A hash of the sequence of names from each of `first` to the next."""
    place = np.arange(len(name)) - np.repeat(first, np.diff(np.append(first, len(name))))
    mixed = (name.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(np.add.reduceat(mixed, first)).view(np.int64)


def _indices(table: pa.Table, column: str, vocabulary: Sequence[str], otherwise: int) -> Int64:
    """A dictionary column as indices into a vocabulary."""
    numbers, words = codes(table, column)
    return np.array([vocabulary.index(word) if word else otherwise for word in words], np.int64)[numbers]
