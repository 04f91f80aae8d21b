# SPDX-License-Identifier: Apache-2.0
"""Cause of a rank's lateness: compute, copies, data loading, launches, or more work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.arrivals import SPENT
from cclbench.analyzers.view.kernel_times import Kernel, Totals, kernel_speeds, longest_kernels
from cclbench.analyzers.view.late_rank import StragglerVerdict
from cclbench.analyzers.view.loading import loading_intervals
from cclbench.analyzers.view.meetings import CollectiveInstances
from cclbench.ground import intervals

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

CAUSES: Final[Mapping[str, str]] = {
    "compute": "computes longer",
    "device": "computes longer, all kernels by about the same: its device is slower",
    "experts": "computes longer in its experts: they have more tokens",
    "lengths": "computes longer in kernels that grow with the sequence: it has longer ones",
    "copy": "copies longer",
    "loader": "waits longer for its data",
    "launch": "is launched later by its host",
    "host": "is longer outside its operators",
}
"""Causes in words; `host` where the CPU is the device."""
_MOSTLY: Final = 0.5
"""Least share of an excess that explains it."""


@dataclass(frozen=True, slots=True)
class RankWork:
    """A rank's kernels and data loading in its windows."""

    on_host: bool
    windows: int
    kernels: Totals
    loading_ns: float
    """Time in data loaders per window; with an accelerator only while it is idle."""


@dataclass(frozen=True, slots=True)
class LateCause:
    """One of `CAUSES`, and how much longer the rank spends on it than the others, ns a step."""

    name: str
    excess_ns: float

    @property
    def words(self) -> str:
        """The cause in words."""
        return CAUSES[self.name]


def rank_work(rank: RankView) -> RankWork:
    """Kernels and data loading of a rank."""
    try:
        kernels = longest_kernels(rank.kernel_times)
    except NotApplicable:
        kernels = {}
    ranges = loading_intervals(rank)
    loading = ranges if rank.on_host else intervals.subtract(ranges, intervals.join(*rank.busy))
    windows = max(len(rank.windows), 1)
    return RankWork(rank.on_host, windows, kernels, loading.length / windows)


def serves_experts(instances: CollectiveInstances) -> bool:
    """Whether a collective serves experts: an all_to_all, or one of dimension ep."""
    return any(label.collective == "all_to_all" or label.dimension == "ep" for label in instances.labels)


def late_cause(late: StragglerVerdict, work: Mapping[int, RankWork], *, experts: bool) -> LateCause | None:
    """Cause of the rank's lateness; None where it spends no more time than others. `experts`: see
    `serves_experts`.

    The largest excess decides: compute, copy or idle. Idle time, or on a CPU compute, that data loading
    explains is `loader`. Compute is split by kernels: if all families are slower alike, `device`; expert
    kernels, or products with an all_to_all, `experts`; attention, or other grids of the same kernels,
    `lengths`.
    """
    excess = {part: late.excess_ns[SPENT.index(part)] for part in ("compute", "copy", "idle")}
    most = max(excess, key=lambda part: excess[part])
    if excess[most] <= 0:
        return None
    others = [other for rank, other in work.items() if rank != late.rank]
    late_work = work.get(late.rank)
    if late_work is None or not others:
        return LateCause("launch" if most == "idle" else most, excess[most])
    loads = late_work.loading_ns - median(other.loading_ns for other in others)
    if most != "copy" and (most == "idle" or late_work.on_host) and loads >= _MOSTLY * excess[most]:
        return LateCause("loader", excess[most])
    if most == "idle":
        return LateCause("host" if late_work.on_host else "launch", excess[most])
    return LateCause(_kernel_cause(late.rank, work, experts) if most == "compute" else most, excess[most])


def _kernel_cause(rank: int, work: Mapping[int, RankWork], experts: bool) -> str:
    """Which of compute, device, experts and lengths explains a rank's longer kernels.

    `device` compares common kernels: it does not apply if most of the excess is in other grids.
    """
    kernels = {number: other.kernels for number, other in work.items() if other.kernels}
    try:
        speeds = kernel_speeds(kernels)
    except NotApplicable:
        return "compute"
    if rank not in kernels:
        return "compute"
    categories = {kernel[0] or "other" for totals in kernels.values() for kernel in totals}
    excess = {
        name: max(0.0, _extra_kernel_time(rank, work, _category_filter(name))) for name in sorted(categories)
    }
    total = sum(excess.values())
    if not total:
        return "compute"
    shared = set.intersection(*(set(totals) for totals in kernels.values()))
    other_grids = _extra_kernel_time(rank, work, lambda kernel: kernel not in shared)
    if speeds.slows_together(rank) and other_grids < _MOSTLY * total:
        return "device"
    products = excess.get("moe", 0.0) + (excess.get("gemm", 0.0) if experts else 0.0)
    if products >= _MOSTLY * total:
        return "experts"
    if max(excess.get("attention", 0.0), other_grids) >= _MOSTLY * total:
        return "lengths"
    return "compute"


def _category_filter(name: str) -> Callable[[Kernel], bool]:
    return lambda kernel: (kernel[0] or "other") == name


def _extra_kernel_time(rank: int, work: Mapping[int, RankWork], chosen: Callable[[Kernel], bool]) -> float:
    """Excess time of the chosen kernels on the rank over the median of the others, ns a window."""
    kernel_ns = {
        number: sum(ns for kernel, (_, ns) in other.kernels.items() if chosen(kernel)) / other.windows
        for number, other in work.items()
    }
    return kernel_ns[rank] - median(ns for number, ns in kernel_ns.items() if number != rank)
