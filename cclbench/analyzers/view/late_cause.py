# SPDX-License-Identifier: Apache-2.0
"""Why a rank is late: it computes, copies or loads longer, is launched later, or has larger work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.arrivals import SPENT
from cclbench.analyzers.view.kernel_times import Kernel, Totals, kernel_speeds, kernel_times, longest_kernels
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
"""Each cause in words; `host` where the device is the CPU."""
_MOSTLY: Final = 0.5
"""Share of an excess from which on something explains it."""


@dataclass(frozen=True, slots=True)
class RankWork:
    """What a rank's kernels and data loading take in its windows."""

    on_host: bool
    windows: int
    kernels: Totals
    loading_ns: float
    """Time in data loaders, a window: while the device does nothing, unless the CPU is the device."""


@dataclass(frozen=True, slots=True)
class LateCause:
    """One of `CAUSES`, and by how much the rank does that longer than the others, ns a step."""

    name: str
    excess_ns: float

    @property
    def words(self) -> str:
        """What it means."""
        return CAUSES[self.name]


def rank_work(rank: RankView) -> RankWork:
    """That of a rank."""
    try:
        kernels = longest_kernels(kernel_times(rank))
    except NotApplicable:
        kernels = {}
    ranges = loading_intervals(rank)
    held = ranges if rank.on_host else intervals.subtract(ranges, intervals.join(*rank.busy))
    windows = max(len(rank.windows), 1)
    return RankWork(rank.on_host, windows, kernels, held.length / windows)


def serves_experts(found: CollectiveInstances) -> bool:
    """Whether a collective serves mixtures of experts: an all_to_all, or one of the dimension ep."""
    return any(one.collective == "all_to_all" or one.dimension == "ep" for one in found.labels)


def late_cause(late: StragglerVerdict, work: Mapping[int, RankWork], *, experts: bool) -> LateCause | None:
    """Why the rank is late, None where it does nothing longer; `experts` as `serves_experts` says.

    What it does longer most: compute, copies or idling.  Idling, or on a CPU computing, that data loading
    explains is the loader's.  Computing is told apart by kernels: all families alike are the device's;
    mixture of experts, or products around an all_to_all, the experts'; attention, or other grids of the same
    kernels, the sequences'.
    """
    excess = {what: late.excess_ns[SPENT.index(what)] for what in ("compute", "copy", "idle")}
    most = max(excess, key=lambda what: excess[what])
    if excess[most] <= 0:
        return None
    others = [own for rank, own in work.items() if rank != late.rank]
    mine = work.get(late.rank)
    if mine is None or not others:
        return LateCause("launch" if most == "idle" else most, excess[most])
    loads = mine.loading_ns - median(own.loading_ns for own in others)
    if most != "copy" and (most == "idle" or mine.on_host) and loads >= _MOSTLY * excess[most]:
        return LateCause("loader", excess[most])
    if most == "idle":
        return LateCause("host" if mine.on_host else "launch", excess[most])
    return LateCause(_of_kernels(late.rank, work, experts) if most == "compute" else most, excess[most])


def _of_kernels(rank: int, work: Mapping[int, RankWork], experts: bool) -> str:
    """Which of compute, device, experts and lengths a rank's longer kernels are.

    The device's are kernels that the others run, too: not those of other grids, if these are most of it.
    """
    kernels = {one: own.kernels for one, own in work.items() if own.kernels}
    try:
        found = kernel_speeds(kernels)
    except NotApplicable:
        return "compute"
    if rank not in kernels:
        return "compute"
    categories = {kernel[0] or "other" for totals in kernels.values() for kernel in totals}
    more = {name: max(0.0, _extra_kernel_time(rank, work, _of_category(name))) for name in sorted(categories)}
    whole = sum(more.values())
    if not whole:
        return "compute"
    shared = set.intersection(*(set(totals) for totals in kernels.values()))
    other_grids = _extra_kernel_time(rank, work, lambda kernel: kernel not in shared)
    if found.slows_together(rank) and other_grids < _MOSTLY * whole:
        return "device"
    products = more.get("moe", 0.0) + (more.get("gemm", 0.0) if experts else 0.0)
    if products >= _MOSTLY * whole:
        return "experts"
    if max(more.get("attention", 0.0), other_grids) >= _MOSTLY * whole:
        return "lengths"
    return "compute"


def _of_category(name: str) -> Callable[[Kernel], bool]:
    return lambda kernel: (kernel[0] or "other") == name


def _extra_kernel_time(rank: int, work: Mapping[int, RankWork], chosen: Callable[[Kernel], bool]) -> float:
    """How much longer those kernels take the rank than the median of the others, ns a window."""
    taken = {
        one: sum(ns for kernel, (_, ns) in own.kernels.items() if chosen(kernel)) / own.windows
        for one, own in work.items()
    }
    return taken[rank] - median(ns for one, ns in taken.items() if one != rank)
