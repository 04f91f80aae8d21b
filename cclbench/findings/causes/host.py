# SPDX-License-Identifier: Apache-2.0
"""The device waits for its host: data loading, allocation, synchronization, launches, Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from cclbench.findings.case import Case
from cclbench.findings.causes.launches import is_launch_bound
from cclbench.findings.finding import Finding, finding
from cclbench.findings.host_idle import (
    BY,
    EXACT,
    LAUNCH_DELAY,
    MOSTLY,
    QUEUE_LENGTH,
    TRACK_GAPS,
    evidence_keys,
    host_wait_seconds,
    host_wait_seconds_with_sync,
)
from cclbench.findings.losses import largest_rank, loss_words, parts_words
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_IDLE_HOST: Final = metric_name("time.idle_host")
_DATA_STALL: Final = metric_name("data.stall")
_PEAK_RESERVED: Final = metric_name("memory.peak_reserved")
_GAIN: Final = "this takes launching threads no time"
_LOADS_THEN: Final = "; it then loads data, which may not be ready sooner without the wait"
_EXACT_CPU: Final = "no operator or transfer runs in that time"
_LEAST_STEPS: Final = 4
"""Least number of steps in which pauses in some can be found."""
_GAPS: Final = """SELECT rank, name, start_ns, dur_ns FROM events
WHERE side = 'host' AND kind IN ({kinds}){more} ORDER BY dur_ns DESC LIMIT 20"""
_BETWEEN_OPERATORS: Final = """SELECT rank, track, name AS next_operator, gap_ns, start_ns FROM track_gaps
WHERE side = 'host' ORDER BY gap_ns DESC LIMIT 20"""


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
    lost = host_wait_seconds_with_sync(case, "loader")
    if any(lost.values()):
        waits = "Nothing is computed during" if case.on_host else "The device waits for"
        thread = "step's thread" if case.on_host else "launching thread"
        yield case.finding(
            "data_loading",
            f"{waits} the data loader or a checkpoint: {loss_words(lost)}.",
            lost=lost,
            host_causes=["loader"],
            because=f"the {thread} is in a range of the data loader or a checkpoint during the gaps",
            evidence=case.evidence(_IDLE_HOST, *evidence_keys("loader"), _DATA_STALL),
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
    lost = host_wait_seconds_with_sync(case, "allocation")
    if any(lost.values()):
        yield case.finding(
            "device_allocation",
            f"The device waits while the host allocates or frees its memory: {loss_words(lost)}.",
            lost=lost,
            host_causes=["allocation"],
            because=EXACT,
            evidence=case.evidence(_IDLE_HOST, *evidence_keys("allocation"), _PEAK_RESERVED),
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
    lost = host_wait_seconds_with_sync(case, "cold_start")
    if any(lost.values()):
        yield case.finding(
            "cold_start",
            f"First calls load code or create a context: {loss_words(lost)}. Later steps do not have it.",
            lost=lost,
            host_causes=["cold_start"],
            because="time between two operators of 50 times the median, all of it in the first step"
            if case.on_host
            else "calls and operators that take 50 times as long as usual, and are the first of their"
            " function and kernel, or are all before the second step",
            evidence=case.evidence(_IDLE_HOST, *evidence_keys("cold_start")),
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
    lost = {} if case.on_host else host_wait_seconds(case, "sync")
    if any(lost.values()):
        worst = max(lost, key=lambda rank: lost[rank])
        loader_s = case.ranks(BY, category="sync", stat="then_loader").get(worst, 0.0)
        loading = loader_s > MOSTLY * lost[worst]
        yield case.finding(
            "synchronization",
            "The host waits for the device, which then runs dry until the host launches again:"
            f" {loss_words(lost)}.",
            lost=lost,
            host_causes=["sync"],
            surely=[] if loading else None,
            because=EXACT + (_LOADS_THEN if loading else ""),
            evidence=case.evidence(_IDLE_HOST, *evidence_keys("sync"), LAUNCH_DELAY),
            query="SELECT rank, name, start_ns, dur_ns FROM syncs ORDER BY dur_ns DESC LIMIT 20",
        )


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
    held = {} if case.on_host else host_wait_seconds_with_sync(case, "python", "unrecorded")
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
    if lost[rank] < MOSTLY * max(held.values()):
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
            f" {humanise(pauses.longest_s, 's')}: {loss_words(pauses.lost)}.",
            lost=pauses.lost,
            whatif=["host[python+unrecorded].time=usual"],
            because="device idle time in these steps beyond the lower quartile of the rank's steps, while"
            " its host is in Python or in unrecorded time",
            evidence=case.evidence(_IDLE_HOST, *evidence_keys("python", "unrecorded"), LAUNCH_DELAY),
            query=TRACK_GAPS,
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
    causes += [] if case.on_host or is_launch_bound(case) else ["operators", "launch"]
    lost = host_wait_seconds_with_sync(case, *causes)
    rank = largest_rank(lost)
    if rank is not None:
        parts = [(host_wait_seconds_with_sync(case, cause).get(rank, 0.0), cause) for cause in causes]
        after_waits_s = sum(
            case.ranks(BY, category="sync", stat=f"then_{cause}").get(rank, 0.0) for cause in causes
        )
        after_waits = f", {humanise(after_waits_s, 's')} of it after waits for the device" * bool(
            after_waits_s
        )
        waits = "Nothing is computed between operators" if case.on_host else "The device waits for its host"
        yield case.finding(
            "host_bound",
            f"{waits}: {loss_words(lost)}{parts_words(parts)}{after_waits}.",
            lost=lost,
            host_causes=causes,
            because=_EXACT_CPU if case.on_host else EXACT,
            evidence=case.evidence(_IDLE_HOST, *evidence_keys(*causes), LAUNCH_DELAY, QUEUE_LENGTH),
            query=_BETWEEN_OPERATORS if case.on_host else TRACK_GAPS,
        )
