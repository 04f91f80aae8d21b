# SPDX-License-Identifier: Apache-2.0
"""Sums of a rank's work by keys such as operator, module or kernel, with roofline times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.durations import Durations, durations_by_code
from cclbench.analyzers.view.equal_work import EqualWork, equal_work
from cclbench.analyzers.view.operator_calls import Float64
from cclbench.analyzers.view.ordered_calls import CallPlace, PlacedCalls, ordered_calls
from cclbench.analyzers.view.platform import hbm_bytes_per_s, peak_flops_per_s, run_accelerator
from cclbench.analyzers.view.work_keys import (
    CountedWork,
    Words,
    WorkFilter,
    counted_work,
    key_codes,
    parse_keys,
    tree_levels,
)
from cclbench.analyzers.view.works import Works
from cclbench.classify.kernel_labels import kernel_label
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.operators.product_sizes import ProductSizes, product_sizes

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

NS_PER_S: Final = 10**9
SEVERAL_KERNELS: Final = "the call that launched it launched other kernels as well"


@dataclass(slots=True)
class OperatorSums:
    """Sums of the work of one key; FLOPs and bytes only of work with a cost model."""

    calls: int = 0
    time_ns: int = 0
    own_ns: int = 0
    """Of a tree's node: time of work of no module within it."""
    durations: Durations = field(default_factory=Durations, compare=False)
    """Device time of each call."""
    modelled_ns: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    rooflined_ns: int = 0
    """Time of work with a known roofline time, which its kind does not beat."""
    roofline_ns: float = 0.0
    compute_ns: int = 0
    """Time of compute-bound work."""
    memory_ns: int = 0
    operators: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset()
    precisions: frozenset[str] = frozenset()
    assumptions: frozenset[str] = frozenset()
    products: frozenset[ProductSizes | None] = frozenset()
    """Sizes of the matrix products; None of other work."""
    why_not: str | None = None
    cached_ns: int = 0
    """Time of work that is faster than its roofline by no more than the device's cache may save."""
    above_ns: int = 0
    """Time of work that is faster than that."""
    beaten_ns: float = 0.0
    """Roofline time of both."""
    possible_flops: float = 0.0
    """What the peak allows in the time of work with known FLOPs and peak that is not faster than it."""
    done_flops: float = 0.0
    """FLOPs of this work."""

    def add_sums(self, other: OperatorSums) -> None:
        """Add another rank's sums."""
        self.why_not = self.why_not or other.why_not
        for name in _SETS:
            setattr(self, name, getattr(self, name) | getattr(other, name))
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_SETS: Final = ("operators", "families", "precisions", "assumptions", "products")
_ADDED: Final = tuple({column.name for column in fields(OperatorSums)} - {*_SETS, "why_not"})
_MODELLED: Final = ("roofline_ns", "beaten_ns")


@dataclass(frozen=True, slots=True)
class DeviceRoof:
    """Peaks of an accelerator: bytes/s of its memory, FLOP/s by precision."""

    memory: float
    peaks: Mapping[str, float]
    """Peaks of the precisions that occur, where known."""
    cache_bytes: int | None = None
    attainable: Mapping[str, float] = field(default_factory=dict)
    """The fastest matrix products measured, of these precisions, where known."""


class UnmodelledKernel(NamedTuple):
    """Kernels without a cost: their label, the operator that launched them, and why there is none.

    `kernel` is None where the CPU is the device, `operator` where no call is linked.
    """

    kernel: str | None
    operator: str | None
    why_not: str | None


class RankSums(NamedTuple):
    """One rank's sums by each of the requested keys, and the totals of the chosen work."""

    sums: dict[str, dict[Words, OperatorSums]]
    policy: str
    windows: int
    time_ns: int
    """Time of all work, of which `chosen_ns` is chosen by the filters."""
    chosen_ns: int
    linked_ns: int
    compute_ns: int
    modelled_ns: int
    unmodelled: dict[UnmodelledKernel, tuple[int, int]]
    """Number and time of compute kernels without a cost."""
    roof: DeviceRoof | None
    no_roofline: str | None
    hidden_ns: int
    """Σ length of transfers beside the device's core less the core's time for them."""
    calls_in_order: dict[CallPlace, PlacedCalls]
    """All work by its place in the step, if asked for."""
    equal_work: EqualWork | None
    """All work by what it computes, if asked for with that."""


def rank_sums(
    view: RankView,
    keys: Sequence[str],
    filters: Sequence[WorkFilter] = (),
    *,
    tree: bool = False,
    in_order: bool = False,
) -> RankSums:
    """Sums of a rank's chosen work by each of the keys (`op`, `op,module`); `NotApplicable` without work.

    `tree`: of modules or their classes, each with all modules within it.
    """
    works = view.works
    times = _work_times(view, works)
    chosen = counted_work(works, (), filters)
    ns, computes = chosen.time_ns(works), works.computes[chosen.work]
    has_cost = works.has_cost[chosen.work]
    return RankSums(
        sums={by: _rank_sums(works, times, by, filters, tree=tree) for by in keys},
        policy=view.windows.policy,
        windows=len(view.windows),
        time_ns=int(works.time_ns.sum()),
        chosen_ns=int(ns.sum()),
        linked_ns=int(ns[works.is_linked[chosen.work]].sum()),
        compute_ns=int(ns[computes].sum()),
        modelled_ns=int(ns[computes & has_cost].sum()),
        unmodelled=_unmodelled_kernels(works, chosen.keep(computes & ~has_cost)),
        roof=times.roof,
        no_roofline=times.no_roofline,
        hidden_ns=int((works.rows.ends - works.rows.starts - works.rows.ns).sum()),
        calls_in_order=ordered_calls(view) if in_order else {},
        equal_work=equal_work(view, times.rooflined, times.least) if in_order else None,
    )


class _Times(NamedTuple):
    """Arithmetic time at the peak and roofline time of each work item; the peaks, or why there are none.

    `faster`: mask of work that is faster than its roofline; `cached`: of that which the cache may explain.
    `peak`: of each work item, FLOP/s, NaN where it or the FLOPs are unknown.
    """

    arithmetic: Float64
    least: Float64
    faster: Mask
    cached: Mask
    peak: Float64
    roof: DeviceRoof | None = None
    no_roofline: str | None = None

    @property
    def rooflined(self) -> Mask:
        """Mask of work that is compared with its roofline time."""
        return ~self.faster & ~np.isnan(self.least)


def _rank_sums(
    works: Works, times: _Times, by: str, filters: Sequence[WorkFilter], *, tree: bool
) -> dict[Words, OperatorSums]:
    """One rank's sums by the words of its keys."""
    keys = parse_keys(by)
    counted = counted_work(works, keys, filters)
    if not tree:
        codes, words = key_codes(works, counted, keys)
        return _group_sums(works, times, counted, codes, words)
    sums: dict[Words, OperatorSums] = {}
    for level in tree_levels(works, counted, keys):
        sums |= _group_sums(works, times, level.counted, level.codes, level.words, level.own_work)
    return sums


def _group_sums(
    works: Works,
    times: _Times,
    counted: CountedWork,
    codes: Int64,
    words: Sequence[Words],
    own_work: Mask | None = None,
) -> dict[Words, OperatorSums]:
    """Sums of the counted work by its code; `own_work`: mask of a node's own work."""
    work, ns = counted.work, counted.time_ns(works)
    # a kernel has its operator's cost only if the operator launched no other kernel
    sole = np.ones(len(work), np.bool_) if counted.event is None else works.kernels[work] == 1
    modelled = works.has_cost[work] & sole
    faster, cached = times.faster[work] & sole, times.cached[work] & sole
    arithmetic, ideal = times.arithmetic[work], times.least[work]
    rooflined = sole & ~faster & ~np.isnan(ideal)
    peak = times.peak[work]
    compared = sole & ~np.isnan(peak) & (cached | ~faster)
    columns: dict[str, npt.NDArray[Any]] = {
        "calls": np.ones(len(work)),
        "time_ns": ns,
        "own_ns": ns if own_work is None else np.where(own_work, ns, 0),
        "modelled_ns": np.where(modelled, ns, 0),
        "flops": np.where(modelled, works.flops[work], 0),
        "bytes": np.where(modelled, works.bytes[work], 0),
        "rooflined_ns": np.where(rooflined, ns, 0),
        "roofline_ns": np.where(rooflined, ideal, 0),
        "cached_ns": np.where(cached, ns, 0),
        "above_ns": np.where(faster & ~cached, ns, 0),
        "beaten_ns": np.where(faster, ideal, 0),
        "possible_flops": np.where(compared, peak * ns / NS_PER_S, 0),
        "done_flops": np.where(compared, np.nan_to_num(works.flops[work]), 0),
        "compute_ns": np.where(sole & (arithmetic >= ideal), ns, 0),
        "memory_ns": np.where(sole & (arithmetic < ideal), ns, 0),
    }
    totals = {}
    for name, values in columns.items():
        amounts = np.bincount(codes, values.astype(np.float64), len(words))
        is_integer = name == "calls" or (name.endswith("_ns") and name not in _MODELLED)
        totals[name] = (amounts.astype(np.int64) if is_integer else amounts).tolist()
    sums = [
        OperatorSums(durations=each, **dict(zip(totals, amounts, strict=True)))
        for each, *amounts in zip(durations_by_code(codes, ns, len(words)), *totals.values(), strict=True)
    ]
    _add_properties(works, sums, codes, work, sole)
    pair = codes * len(works.kinds) + works.kind[work]
    for entry in _first_of_values(pair, ~modelled & works.computes[work]):
        key_sums, kind = sums[codes[entry]], works.kinds[works.kind[work[entry]]]
        key_sums.why_not = key_sums.why_not or (SEVERAL_KERNELS if kind.cost else kind.why_not)
    return dict(zip(words, sums, strict=True))


def _add_properties(
    works: Works, sums: Sequence[OperatorSums], codes: Int64, work: Index, sole: Mask
) -> None:
    """Add what the kinds of the work of a key have in common: operators, families, precisions, sizes."""
    products: dict[int, ProductSizes | None] = {}
    properties: list[tuple[set[Any], ...]] = [tuple(set() for _ in _SETS) for _ in sums]
    pair = (codes * len(works.kinds) + works.kind[work]) * 2 + sole
    entries = _first_of_values(pair, np.ones(len(work), np.bool_))
    columns = codes[entries].tolist(), works.kind[work[entries]].tolist(), sole[entries].tolist()
    for code, number, is_sole in zip(*columns, strict=True):
        operators, families, precisions, assumptions, sizes = properties[code]
        kind = works.kinds[number]
        cost = kind.cost if is_sole else None
        operators.add(kind.name)
        if is_sole and kind.model_family:
            families.add(kind.model_family)
        if cost and number not in products:
            products[number] = product_sizes(kind.call, cost)
        sizes.add(products[number] if cost else None)
        if cost and cost.precision:
            precisions.add(cost.precision)
        if cost and cost.assumes:
            assumptions.add(cost.assumes)
    for key_sums, values in zip(sums, properties, strict=True):
        for name, words in zip(_SETS, values, strict=True):
            setattr(key_sums, name, frozenset(words))


def _unmodelled_kernels(works: Works, chosen: CountedWork) -> dict[UnmodelledKernel, tuple[int, int]]:
    """Number and time of the kernels of the chosen work, by their label and operator."""
    events = chosen.event
    if events is None and len(works.rows.work):
        is_chosen = np.zeros(len(works), np.bool_)
        is_chosen[chosen.work] = True
        events = np.flatnonzero(is_chosen[works.rows.work]).astype(np.int32)
    work = chosen.work if events is None else works.rows.work[events]
    ns = works.time_ns[work] if events is None else works.rows.ns[events]
    names = max(len(works.rows.names), 1)
    name = np.zeros(len(work), np.int64) if events is None else works.rows.name[events]
    pairs, code = np.unique(works.kind[work].astype(np.int64) * names + name, return_inverse=True)
    count, total = np.bincount(code, minlength=len(pairs)), np.bincount(code, ns, len(pairs))
    by_kernel: dict[UnmodelledKernel, tuple[int, int]] = {}
    for pair, calls, time in zip(pairs.tolist(), count.tolist(), total.tolist(), strict=True):
        kind = works.kinds[pair // names]
        label = None if events is None else kernel_label(works.rows.names[pair % names] or "")
        key = UnmodelledKernel(label, kind.call.name if kind.linked else None, kind.why_not)
        more = by_kernel.get(key, (0, 0))
        by_kernel[key] = more[0] + calls, more[1] + int(time)
    return by_kernel


def _first_of_values(pair: Int64, chosen: Mask) -> list[int]:
    """Index of the first chosen entry of each distinct value, in order."""
    at = np.flatnonzero(chosen)
    _, positions = np.unique(pair[at], return_index=True)
    return [int(index) for index in np.sort(at[positions])]


def _work_times(view: RankView, works: Works) -> _Times:
    unknown, none = np.full(len(works), np.nan), np.zeros(len(works), np.bool_)
    nothing = _Times(unknown, unknown, none, none, unknown)
    try:
        device, memory = run_accelerator(view), hbm_bytes_per_s(view)
    except NotApplicable as why:
        return nothing._replace(no_roofline=str(why))
    peaks, cache = device.peak_flops_per_s, device.cache_bytes
    try:
        stated_peak: float | None = peak_flops_per_s(view)
    except NotApplicable:
        stated_peak = None
    # copies to or from the host cross a link, not the device's memory
    least = np.where(works.computes, works.roofline_ns(peaks, stated_peak, memory), np.nan)
    used = sorted({word for word in works.kind_precisions if word})
    precision_peaks = {word: peak for word in used if (peak := peaks.get(word))}
    faster = works.is_faster_than(least)
    cached = faster & ~works.is_faster_than(works.roofline_ns(peaks, stated_peak, memory, cache or 0))
    arithmetic = works.compute_ns(peaks, stated_peak)
    attainable = {word: peak for word in used if (peak := device.attainable_flops_per_s.get(word))}
    compared = _compared_peaks(works, works.peaks_of(peaks, stated_peak or view.facts.peak_flops_per_s))
    return _Times(
        arithmetic, least, faster, cached, compared, DeviceRoof(memory, precision_peaks, cache, attainable)
    )


def _compared_peaks(works: Works, peaks: Float64) -> Float64:
    """The peak of each work item; of work without arithmetic the one with most FLOPs; NaN without FLOPs.

    Copies and fills have no arithmetic; what a collective computes is not known.
    """
    idle = ~works.computes & ~works.is_communication | (works.flops == 0)
    arithmetic = ~np.isnan(peaks) & (works.flops > 0)
    values, code = np.unique(peaks[arithmetic], return_inverse=True)
    flops = np.bincount(code, works.flops[arithmetic], len(values))
    main = values[flops.argmax()] if len(values) else np.nan
    return np.where(idle & np.isnan(peaks), main, np.where(idle | np.isfinite(works.flops), peaks, np.nan))
