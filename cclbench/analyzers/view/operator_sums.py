# SPDX-License-Identifier: Apache-2.0
"""Sums of a rank's work by operator, shapes, module, phase, kernel or category, with roofline times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.operator_calls import Float64, WorkKind
from cclbench.analyzers.view.platform import hbm_bytes_per_s, peak_flops_per_s, run_accelerator
from cclbench.analyzers.view.works import Works
from cclbench.classify import base_name
from cclbench.ground.errors import UsageError
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.ground.schema import CATEGORIES, PHASES
from cclbench.operators.call import Call, Tensor

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

By = Literal["op", "shape", "module", "phase", "kernel", "category"]
BY: Final[tuple[By, ...]] = ("op", "shape", "module", "phase", "kernel", "category")
NO_MODULE: Final = "none"
"""Key of work outside any module."""


@dataclass(slots=True)
class OperatorSums:
    """Sums of the work of one key; FLOPs and bytes only of work with a cost model."""

    calls: int = 0
    time_ns: int = 0
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
    """What costs assume besides the recorded arguments."""
    why_not: str | None = None
    cached_ns: int = 0
    """Time of work that is faster than its roofline by no more than the device's cache may save."""
    above_ns: int = 0
    """Time of work that is faster than that."""
    beaten_ns: float = 0.0
    """Roofline time of both."""

    def add_sums(self, other: OperatorSums) -> None:
        """Add another rank's sums."""
        for column in fields(self):
            if column.name == "why_not":
                self.why_not = self.why_not or other.why_not
            elif column.name in _SETS:
                setattr(self, column.name, getattr(self, column.name) | getattr(other, column.name))
            else:
                setattr(self, column.name, getattr(self, column.name) + getattr(other, column.name))


_SETS: Final = ("operators", "families", "precisions", "assumptions")
_MODELLED: Final = ("roofline_ns", "beaten_ns")


@dataclass(frozen=True, slots=True)
class DeviceRoof:
    """Peaks of an accelerator: bytes/s of its memory, FLOP/s by precision."""

    memory: float
    peaks: Mapping[str, float]
    """Peaks of the precisions that occur, where known."""
    cache_bytes: int | None = None


class RankSums(NamedTuple):
    """One rank's sums by each of the requested keys, and their totals."""

    sums: dict[By, dict[str, OperatorSums]]
    policy: str
    windows: int
    time_ns: int
    linked_ns: int
    compute_ns: int
    modelled_ns: int
    roof: DeviceRoof | None
    no_roofline: str | None


def rank_sums(view: RankView, keys: Sequence[By]) -> RankSums:
    """Sums of a rank's work by each of the keys; `NotApplicable` without work."""
    works = view.works
    times = _work_times(view, works)
    computes = works.computes
    return RankSums(
        sums={by: _rank_sums(works, times, by) for by in keys},
        policy=view.windows.policy,
        windows=len(view.windows),
        time_ns=int(works.time_ns.sum()),
        linked_ns=int(works.time_ns[works.is_linked].sum()),
        compute_ns=int(works.time_ns[computes].sum()),
        modelled_ns=int(works.time_ns[computes & works.has_cost].sum()),
        roof=times.roof,
        no_roofline=times.no_roofline,
    )


class _Times(NamedTuple):
    """Arithmetic time at the peak and roofline time of each work item; the peaks, or why there are none.

    `faster`: mask of work that is faster than its roofline; `cached`: of that which the cache may explain.
    """

    arithmetic: Float64
    least: Float64
    faster: Mask
    cached: Mask
    roof: DeviceRoof | None = None
    no_roofline: str | None = None


def _rank_sums(works: Works, times: _Times, by: By) -> dict[str, OperatorSums]:
    """One rank's sums by key."""
    arithmetic, modelled = times.arithmetic, works.has_cost
    least = np.where(times.faster, np.nan, times.least)
    key, keys = work_keys(works, by)
    sums = [OperatorSums() for _ in keys]
    columns = {
        "calls": np.ones(len(works)),
        "time_ns": works.time_ns,
        "modelled_ns": np.where(modelled, works.time_ns, 0),
        "flops": np.where(modelled, works.flops, 0),
        "bytes": np.where(modelled, works.bytes, 0),
        "rooflined_ns": np.where(np.isnan(least), 0, works.time_ns),
        "roofline_ns": np.nan_to_num(least),
        "cached_ns": np.where(times.cached, works.time_ns, 0),
        "above_ns": np.where(times.faster & ~times.cached, works.time_ns, 0),
        "beaten_ns": np.where(times.faster, times.least, 0),
        "compute_ns": np.where(arithmetic >= times.least, works.time_ns, 0),
        "memory_ns": np.where(arithmetic < times.least, works.time_ns, 0),
    }
    if by == "kernel":
        # a kernel has its operator's cost only if the operator launched no other kernel
        single_kernel = works.kernels[works.rows.work] == 1
        columns = {
            name: np.where(single_kernel, values[works.rows.work], 0) for name, values in columns.items()
        }
        columns |= {"calls": np.ones(len(key)), "time_ns": works.rows.ends - works.rows.starts}
    for name, values in columns.items():
        is_integer = name == "calls" or (name.endswith("_ns") and name not in _MODELLED)
        totals = np.bincount(key, values.astype(np.float64), len(keys)).tolist()
        for key_sums, amount in zip(sums, totals, strict=True):
            setattr(key_sums, name, int(amount) if is_integer else amount)
    if by == "kernel":
        return dict(zip(keys, sums, strict=True))
    # common properties of one key and kind are added once
    pair = key * len(works.kinds) + works.kind
    for work in _first_of_values(pair, np.ones(len(works), np.bool_)):
        key_sums, kind = sums[key[work]], works.kinds[works.kind[work]]
        key_sums.operators |= {_kind_name(kind)}
        key_sums.families |= {kind.model_family} if kind.model_family else set()
        key_sums.precisions |= {kind.cost.precision} if kind.cost and kind.cost.precision else set()
        key_sums.assumptions |= {kind.cost.assumes} if kind.cost and kind.cost.assumes else set()
    for work in _first_of_values(pair, ~modelled & works.computes):
        key_sums = sums[key[work]]
        key_sums.why_not = key_sums.why_not or works.kinds[works.kind[work]].why_not
    return dict(zip(keys, sums, strict=True))


def _first_of_values(pair: Int64, chosen: Mask) -> list[int]:
    """Index of the first chosen entry of each distinct value, in order."""
    at = np.flatnonzero(chosen)
    _, positions = np.unique(pair[at], return_index=True)
    return [int(index) for index in np.sort(at[positions])]


def _kind_name(kind: WorkKind) -> str:
    """A kind's name: its operator, or the kernel's base name."""
    return kind.call.name if kind.linked else base_name(kind.call.name)


def _work_times(view: RankView, works: Works) -> _Times:
    unknown, none = np.full(len(works), np.nan), np.zeros(len(works), np.bool_)
    try:
        device, memory = run_accelerator(view), hbm_bytes_per_s(view)
    except NotApplicable as why:
        return _Times(unknown, unknown, none, none, no_roofline=str(why))
    peaks, cache = device.peak_flops_per_s, device.cache_bytes
    try:
        stated_peak: float | None = peak_flops_per_s(view)
    except NotApplicable:
        stated_peak = None
    # copies to or from the host cross a link, not the device's memory
    least = np.where(works.computes, works.roofline_ns(peaks, stated_peak, memory), np.nan)
    used = sorted({word for word in works.kind_precisions if word})
    known = {word: peak for word in used if (peak := peaks.get(word))}
    faster = works.is_faster_than(least)
    cached = faster & ~works.is_faster_than(works.roofline_ns(peaks, stated_peak, memory, cache or 0))
    arithmetic = works.compute_ns(peaks, stated_peak)
    return _Times(arithmetic, least, faster, cached, DeviceRoof(memory, known, cache))


def work_keys(works: Works, by: By) -> tuple[Int64, list[str]]:
    """Key code of each work item (by kernel: of each device event), and the keys."""
    if by == "kernel":
        words = [base_name(name or "") for name in works.rows.names]
        if not len(works.rows.name) and len(works):
            raise UsageError("a CPU runs no kernels: ask --by op")
        return _number_words(words, works.rows.name)
    if by == "module":
        return _number_words([word or NO_MODULE for word in works.modules], works.module)
    if by == "phase":
        return _number_words(list(PHASES), works.phase)
    if by == "category":
        return _number_words(list(CATEGORIES), works.category)
    names = [_kind_name(kind) for kind in works.kinds]
    if by == "shape":
        shaped = (f"{name}({_shape_words(kind.call)})" for name, kind in zip(names, works.kinds, strict=True))
        names = [name.removesuffix("()") for name in shaped]
    return _number_words(names, works.kind)


def _number_words(words: Sequence[str], index: Index) -> tuple[Int64, list[str]]:
    """Code of each entry, and the distinct words that occur."""
    numbers: dict[str, int] = {}
    used = np.unique(index).tolist()
    code = np.zeros(len(words), np.int64)
    for used_code in used:
        code[used_code] = numbers.setdefault(words[used_code], len(numbers))
    return code[index], list(numbers)


def _shape_words(call: Call) -> str:
    """`bf16[16,559], bf16[559,64]`: types and sizes of a call's tensors."""
    return ", ".join(_tensor_words(call.arguments))


def _tensor_words(arguments: Iterable[Any]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield f"{argument.precision or argument.dtype}[{','.join(map(str, argument.shape))}]"
        elif isinstance(argument, tuple) and any(isinstance(item, Tensor) for item in argument):
            yield f"{len(argument)} x {next(_tensor_words(argument))}"
