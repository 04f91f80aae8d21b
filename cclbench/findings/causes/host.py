# SPDX-License-Identifier: Apache-2.0
"""The device waits for its host: data loading, allocation, synchronization, launches, Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, NamedTuple

import numpy as np

from cclbench.findings.case import Case, sum_by_rank
from cclbench.findings.finding import Finding, finding
from cclbench.findings.losses import largest_rank, parts_words
from cclbench.ground.units import humanise
from cclbench.record.metric_name import MetricName, metric_name

_IDLE_HOST: Final = metric_name("time.idle_host")
_DATA_STALL: Final = metric_name("data.stall")
_PEAK_RESERVED: Final = metric_name("memory.peak_reserved")
_LAUNCH_DELAY: Final = metric_name("launch.delay")
_IDLE_DEVICE: Final = metric_name("time.idle_device")
_KERNELS: Final = metric_name("compute.kernel_count")
_KERNEL_TIME: Final = metric_name("compute.kernel_time")
_SHORT_KERNELS: Final = metric_name("launch.short_kernels")
_LAUNCH_BOUND_SHARE: Final = metric_name("compute.launch_bound_share")
_MEAN_KERNEL: Final = metric_name("compute.mean_kernel")
_QUEUE_LENGTH: Final = metric_name("launch.queue_length")
BY: Final = metric_name("time.idle_host_by")
_GAIN: Final = "this takes launching threads no time"
_EXACT: Final = "each device gap is attributed by the launch that ends it and by what its thread did"
_LOADS_THEN: Final = "; it then loads data, which may not be ready sooner without the wait"
_EXACT_CPU: Final = "no operator or transfer runs in that time"
_SHORT_KERNEL_S: Final = 10e-6
_OPERATOR_S: Final = 15e-6
"""Least host time of a PyTorch operator, with its launch and the Python around it."""
_QUEUED_S: Final = 20e-6
"""Least median delay of launches that are ahead of the device: more than any launch latency."""
_LAUNCHING: Final = "launch+operators"
_LEAST_STEPS: Final = 4
"""Least number of steps in which pauses in some can be found."""
_MOSTLY: Final = 0.5
_GAPS: Final = """SELECT rank, name, start_ns, dur_ns FROM events
WHERE side = 'host' AND kind IN ({kinds}){more} ORDER BY dur_ns DESC LIMIT 20"""
_ELSEWHERE: Final = """SELECT rank, track, name AS launched, gap_ns, start_ns FROM track_gaps
WHERE side = 'device' ORDER BY gap_ns DESC LIMIT 20"""
_BETWEEN_OPERATORS: Final = """SELECT rank, track, name AS next_operator, gap_ns, start_ns FROM track_gaps
WHERE side = 'host' ORDER BY gap_ns DESC LIMIT 20"""


def _held_seconds(case: Case, *causes: str) -> dict[int, float]:
    """Device wait by rank with the host in these causes, s a step."""
    return sum_by_rank(case.ranks(BY, category=cause) for cause in causes)


def _held_after_waits(case: Case, *causes: str) -> dict[int, float]:
    """The same, including what followed a wait for the device in gaps that this wait began."""
    behind = [case.ranks(BY, category="sync", stat=f"then_{cause}") for cause in causes]
    return sum_by_rank([_held_seconds(case, *causes), *behind])


def _of_step(case: Case, lost: Mapping[int, float]) -> str:
    """`1.2 ms of a step of 10 ms`, on the rank that loses most."""
    most = max(lost, key=lambda rank: lost[rank])
    step_s = case.windows.get(most, case.step_s)
    where = f" on rank {most}" if len(lost) > 1 else ""
    return f"{humanise(lost[most], 's')} of a step of {humanise(step_s, 's')}{where}"


def _evidence_keys(*names: str) -> list[tuple[MetricName, Mapping[str, str]]]:
    return [(BY, {"category": name}) for name in names]


@finding(
    "data_loading",
    title="the device waits for data",
    rule="time.idle_host_by loader, also after a wait for the device",
    gain="loaders and checkpoints take launching threads no time",
    actions={
        "pytorch": (
            "raise DataLoader(num_workers=...), set persistent_workers=True and prefetch_factor",
            "decode and tokenise before training, or move the input closer: node-local disk, a cache",
        ),
        "any": ("load the next batch while the device computes this one", "read fewer, larger files"),
        "cpu": (
            "load in separate processes, on cores that no rank computes on:"
            " DataLoader(num_workers=..., persistent_workers=True, prefetch_factor=...)",
            "write checkpoints asynchronously (torch.distributed.checkpoint.async_save), or less often",
            "decode and tokenise before training, or move the input closer: node-local disk, a cache",
        ),
    },
)
def data_loading(case: Case) -> Iterator[Finding]:
    lost = _held_after_waits(case, "loader")
    if any(lost.values()):
        waits = "Nothing is computed during" if case.on_host else "The device waits for"
        thread = "step's thread" if case.on_host else "launching thread"
        yield case.finding(
            "data_loading",
            f"{waits} the data loader or a checkpoint: {_of_step(case, lost)}.",
            lost=lost,
            host_causes=["loader"],
            because=f"the {thread} is in a range of the data loader or a checkpoint during the gaps",
            evidence=case.evidence(_IDLE_HOST, *_evidence_keys("loader"), _DATA_STALL),
            query=_GAPS.format(kinds="'annotation', 'op'", more=" AND name ILIKE '%load%'"),
        )


@finding(
    "device_allocation",
    title="the device waits while its memory is allocated",
    rule="time.idle_host_by allocation",
    gain=_GAIN,
    actions={
        "pytorch": (
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which avoids flushing the cache",
            "avoid torch.cuda.empty_cache(), and keep shapes constant over the steps",
        ),
        "any": ("allocate before the first step, and reuse",),
    },
)
def device_allocation(case: Case) -> Iterator[Finding]:
    lost = _held_after_waits(case, "allocation")
    if any(lost.values()):
        yield case.finding(
            "device_allocation",
            f"The device waits while the host allocates or frees its memory: {_of_step(case, lost)}.",
            lost=lost,
            host_causes=["allocation"],
            because=_EXACT,
            evidence=case.evidence(_IDLE_HOST, *_evidence_keys("allocation"), _PEAK_RESERVED),
            query=_GAPS.format(
                kinds="'other'",
                more=" AND (name ILIKE '%malloc%' OR name ILIKE '%free%' OR name ILIKE '%alloc%')",
            ),
        )


@finding(
    "cold_start",
    title="first calls load code or create a context",
    rule="time.idle_host_by cold_start, also after a wait for the device: first calls of a function, kernel"
    " or library that take 50 times as long as usual, once; where the CPU is the device, time between"
    " operators that does so in the first step",
    gain=_GAIN,
    actions={
        "pytorch": (
            "capture after a warm-up: torch.profiler.schedule(wait=1, warmup=2), or cclbench.torch.profile",
            "where start-up itself counts: CUDA_MODULE_LOADING=EAGER",
        ),
        "any": ("warm up before the capture, so that it holds no first call",),
        "cpu": (
            "capture after a warm-up: torch.profiler.schedule(wait=1, warmup=2), or cclbench.torch.profile",
        ),
    },
)
def cold_start(case: Case) -> Iterator[Finding]:
    lost = _held_after_waits(case, "cold_start")
    if any(lost.values()):
        yield case.finding(
            "cold_start",
            f"First calls load code or create a context: {_of_step(case, lost)}. Later steps do not have it.",
            lost=lost,
            host_causes=["cold_start"],
            because="time between two operators of 50 times the median, all of it in the first step"
            if case.on_host
            else "calls and operators that take 50 times as long as usual, and are the first of their"
            " function and kernel, or are all before the second step",
            evidence=case.evidence(_IDLE_HOST, *_evidence_keys("cold_start")),
            query=_BETWEEN_OPERATORS
            if case.on_host
            else "SELECT rank, name, start_ns, dur_ns FROM events WHERE side = 'host' AND kind IN ('launch',"
            " 'other', 'op') ORDER BY dur_ns DESC LIMIT 20",
        )


@finding(
    "synchronization",
    precedence=1,
    title="the host waits for the device, and then the device for the host",
    rule="time.idle_host_by sync: gaps that begin while the launching thread waits for the device; not where"
    " the CPU is the device",
    gain="the host never waits for the device",
    actions={
        "pytorch": (
            "look for .item(), .cpu(), .tolist(), nonzero(), boolean masks and print(tensor) in the step: log"
            " every N steps, and copy with non_blocking=True",
            "find them with torch.cuda.set_sync_debug_mode('warn')",
        ),
        "any": ("let the host run ahead of the device: synchronize at most once a step",),
    },
)
def synchronization(case: Case) -> Iterator[Finding]:
    lost = {} if case.on_host else _held_seconds(case, "sync")
    if any(lost.values()):
        worst = max(lost, key=lambda rank: lost[rank])
        loader_s = case.ranks(BY, category="sync", stat="then_loader").get(worst, 0.0)
        loading = loader_s > _MOSTLY * lost[worst]
        yield case.finding(
            "synchronization",
            "The host waits for the device, which then runs dry until the host launches again:"
            f" {_of_step(case, lost)}.",
            lost=lost,
            host_causes=["sync"],
            surely=[] if loading else None,
            because=_EXACT + (_LOADS_THEN if loading else ""),
            evidence=case.evidence(_IDLE_HOST, *_evidence_keys("sync"), _LAUNCH_DELAY),
            query="SELECT rank, name, start_ns, dur_ns FROM syncs ORDER BY dur_ns DESC LIMIT 20",
        )


@finding(
    "short_kernels",
    title="many short kernels: launching them takes longer than running them",
    rule="time.idle_host_by launch and operators, also after a wait for the device, where most kernels are"
    " shorter than their launch or than 15 µs, or their mean is below 10 µs, and at most half of that time is"
    " in operators that work on the host (stat on_host); and time.idle_device between such kernels; not where"
    " kernel_gaps holds",
    gain="launches and operators take the host no time, as with a CUDA graph; at most there are no gaps"
    " between kernels either, as if they were fused",
    actions={
        "pytorch": (
            "capture the step as CUDA graphs: torch.cuda.graph, torch.cuda.make_graphed_callables",
            "fuse and launch as graphs with torch.compile(mode='reduce-overhead')",
            "use a fused or foreach optimizer, and larger batches",
        ),
        "any": ("launch fewer, larger kernels: fuse, batch, or replay a graph",),
    },
)
def short_kernels(case: Case) -> Iterator[Finding]:
    gaps_s = _kernel_gaps(case)
    kernels, median_s = case.number(_KERNELS), case.number(_KERNEL_TIME)
    lost = {
        rank: host_s + gaps_s.get(rank, 0.0)
        for rank, host_s in _held_after_waits(case, "launch", "operators").items()
    }
    if kernels and median_s and any(lost.values()) and not _is_queued(case) and _is_launch_bound(case):
        yield case.finding(
            "short_kernels",
            f"The device waits for launches between short kernels ({kernels:,.0f} a step,"
            f" half of them below {humanise(median_s, 's')}): {_of_step(case, lost)}.",
            lost=lost,
            host_causes=["launch", "operators"],
            whatif=[f"host[{_LAUNCHING}].time=0", "kernels.gap=0"],
            surely=[f"host[{_LAUNCHING}].time=0"],
            because=_EXACT,
            evidence=case.evidence(
                *_evidence_keys("launch", "operators"),
                _IDLE_DEVICE,
                _SHORT_KERNELS,
                _KERNEL_TIME,
                _LAUNCH_BOUND_SHARE,
            ),
            query="SELECT rank, name, count(*) AS kernels, sum(dur_ns) AS ns FROM events WHERE kind"
            " = 'kernel'"
            " AND dur_ns < 10000 GROUP BY ALL ORDER BY kernels DESC LIMIT 20",
        )


@finding(
    "kernel_gaps",
    title="short kernels are queued, and each begins some time after the one before it",
    rule="time.idle_device of less than 10 µs for each kernel, where kernels are short (short_kernels), that"
    " time is more than time.idle_host_by launch and operators, and launch.delay is at least 20 µs in the"
    " median: launches are ahead",
    gain="at most no gaps between kernels, as if they were fused",
    actions={
        "pytorch": (
            "fuse neighbouring kernels: torch.compile; fused norms, attention and optimizers",
            "larger batches, or fewer streams that wait for one another's events",
        ),
        "any": ("fuse neighbouring kernels: gaps of about 1 µs remain between those of a CUDA graph",),
    },
)
def kernel_gaps(case: Case) -> Iterator[Finding]:
    median_s = case.number(_KERNEL_TIME)
    if median_s and _is_queued(case) and _has_short_kernels(case):
        lost = _kernel_gaps(case)
        yield case.finding(
            "kernel_gaps",
            f"The device is idle between queued short kernels (half of them below {humanise(median_s, 's')}):"
            f" {_of_step(case, lost)}.",
            lost=lost,
            whatif=["kernels.gap=0"],
            surely=[],
            because=_EXACT + "; a wait for another stream looks the same",
            evidence=case.evidence(_IDLE_DEVICE, _KERNELS, _KERNEL_TIME, _LAUNCH_DELAY, _QUEUE_LENGTH),
            query=_ELSEWHERE,
        )


def _is_queued(case: Case) -> bool:
    """Whether launches are ahead, and the device's gaps are mostly those between kernels in its queue."""
    host_s = sum(_held_after_waits(case, "launch", "operators").values())
    delay_s = case.number(_LAUNCH_DELAY, stat="p50") or 0.0
    return delay_s >= _QUEUED_S and sum(_kernel_gaps(case).values()) > host_s


def _is_launch_bound(case: Case) -> bool:
    """Whether kernels are short, and the host does not mostly compute."""
    computes = case.ranks(BY, category="operators", stat="on_host")
    launches = _held_after_waits(case, "launch", "operators")
    if any(seconds > _MOSTLY * launches.get(rank, 0.0) for rank, seconds in computes.items()):
        return False
    return _has_short_kernels(case)


def _has_short_kernels(case: Case) -> bool:
    """Whether kernels are mostly shorter than launches or operators."""
    mean_s, median_s = (case.number(metric) or inf for metric in (_MEAN_KERNEL, _KERNEL_TIME))
    is_short = (case.number(_SHORT_KERNELS) or 0.0) >= _MOSTLY
    return is_short or mean_s < _SHORT_KERNEL_S or median_s < _OPERATOR_S


def _kernel_gaps(case: Case) -> dict[int, float]:
    """The idle time of each device between queued kernels, s a step, where these are short gaps."""
    kernels = case.number(_KERNELS)
    return {
        rank: idle_s
        for rank, idle_s in case.ranks(_IDLE_DEVICE).items()
        if kernels and 0.0 < idle_s / kernels < _SHORT_KERNEL_S
    }


class _StepPauses(NamedTuple):
    """Host idle time of some steps beyond that of the others."""

    lost: dict[int, float]
    """Lost time per mean step by rank, s."""
    rank: int
    """The rank that loses most."""
    longest_s: float
    steps: list[int]
    """Indices of the steps in which that rank pauses."""
    of_steps: int

    def when_words(self) -> str:
        """`in 3 of 9 steps, every 3 steps`."""
        apart = {after - before for before, after in itertools.pairwise(self.steps)}
        period = f", every {apart.pop()} steps" if len(self.steps) > 2 and len(apart) == 1 else ""
        return f"in {len(self.steps)} of {self.of_steps} steps{period}"


def _step_pauses(case: Case) -> _StepPauses | None:
    """Pauses of hosts in Python or in unrecorded time; None where most of that is in every step."""
    held = {} if case.on_host else _held_after_waits(case, "python", "unrecorded")
    grid = case.results.grid(BY) if any(held.values()) else None
    if grid is None or not grid.values.size or (steps := grid.values.shape[1]) < _LEAST_STEPS:
        return None
    idle = grid.values.filled(0.0)
    usual = np.sort(idle, axis=1)[:, (steps - 1) // 4]
    beyond = np.maximum(idle - usual[:, None], 0.0)
    lost = {
        rank: min(float(rank_s.mean()), held.get(rank, 0.0))
        for rank, rank_s in zip(grid.ranks.tolist(), beyond, strict=True)
    }
    rank = max(lost, key=lambda candidate: lost[candidate])
    if lost[rank] < _MOSTLY * max(held.values()):
        return None
    rank_s = beyond[grid.ranks.tolist().index(rank)]
    paused = np.flatnonzero(rank_s > rank_s.max() / 2).tolist()
    return _StepPauses(lost, rank, float(rank_s.max()), paused, steps)


@finding(
    "host_pauses",
    precedence=2,
    title="the host pauses in some steps",
    rule="time.idle_host_by python and unrecorded, also after a wait for the device, where most of it is in"
    " some of at least four steps beyond what the other steps have; not where the CPU is the device",
    gain="host time before a launch of more than twice its median and 100 µs becomes the median",
    actions={
        "pytorch": (
            "collect garbage at the same steps on all ranks (gc.disable, gc.collect(1) every N steps)",
            "look for what runs every few steps in the training thread: logging, metrics, checkpoints,"
            " a new epoch's data",
            "profile the host (py-spy record --native) in such a step",
        ),
        "any": ("look for what runs in the host's thread only in these steps",),
    },
)
def host_pauses(case: Case) -> Iterator[Finding]:
    pauses = _step_pauses(case)
    if pauses is not None:
        yield case.finding(
            "host_pauses",
            f"The host of rank {pauses.rank} pauses {pauses.when_words()} and leaves its device idle, up to"
            f" {humanise(pauses.longest_s, 's')}: {_of_step(case, pauses.lost)}.",
            lost=pauses.lost,
            whatif=["host[python+unrecorded].time=usual"],
            because="device idle time in these steps beyond the lower quartile of the rank's steps, while"
            " its host is in Python or in unrecorded time",
            evidence=case.evidence(_IDLE_HOST, *_evidence_keys("python", "unrecorded"), _LAUNCH_DELAY),
            query=_ELSEWHERE,
        )


@finding(
    "host_bound",
    title="the host is too slow for the device",
    rule="time.idle_host_by python and unrecorded, also after a wait for the device, unless most of it is"
    " pauses in some steps (host_pauses); also launch and operators where kernels are not short and the CPU"
    " is not the device",
    gain=_GAIN,
    actions={
        "pytorch": (
            "profile the host (py-spy, with_stack=True) for what runs between launches: Python loops,"
            " logging, garbage collection (gc.freeze, gc.disable in the step), locks",
            "compile the step with torch.compile",
            "capture the step as a CUDA graph: torch.cuda.graph",
        ),
        "jax": ("dispatch further ahead: read no results in the loop, donate buffers, scan over steps",),
        "any": ("let the host prepare the next launches while the device works",),
        "cpu": (
            "profile Python (py-spy, with_stack=True) for what runs between operators: loops, logging,"
            " garbage collection (gc.freeze, gc.disable in the step), locks",
            "compile the step with torch.compile",
            "pin each rank to its own cores: taskset or numactl, torch.set_num_threads",
        ),
    },
)
def host_bound(case: Case) -> Iterator[Finding]:
    causes = [] if _step_pauses(case) is not None else ["python", "unrecorded"]
    causes += [] if case.on_host or _is_launch_bound(case) else ["operators", "launch"]
    lost = _held_after_waits(case, *causes)
    rank = largest_rank(lost)
    if rank is not None:
        parts = [(_held_after_waits(case, cause).get(rank, 0.0), cause) for cause in causes]
        after_waits_s = sum(
            case.ranks(BY, category="sync", stat=f"then_{cause}").get(rank, 0.0) for cause in causes
        )
        after_waits = f", {humanise(after_waits_s, 's')} of it after waits for the device" * bool(
            after_waits_s
        )
        waits = "Nothing is computed between operators" if case.on_host else "The device waits for its host"
        yield case.finding(
            "host_bound",
            f"{waits}: {_of_step(case, lost)}{parts_words(parts)}{after_waits}.",
            lost=lost,
            host_causes=causes,
            because=_EXACT_CPU if case.on_host else _EXACT,
            evidence=case.evidence(_IDLE_HOST, *_evidence_keys(*causes), _LAUNCH_DELAY, _QUEUE_LENGTH),
            query=_BETWEEN_OPERATORS if case.on_host else _ELSEWHERE,
        )
