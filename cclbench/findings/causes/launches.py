# SPDX-License-Identifier: Apache-2.0
"""Kernels too short for their launches, and gaps between kernels that are launched in time."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from cclbench.findings.case import Case
from cclbench.findings.finding import Finding, finding
from cclbench.findings.host_idle import (
    BY,
    EXACT,
    LAUNCH_DELAY,
    MOSTLY,
    QUEUE_LENGTH,
    TRACK_GAPS,
    evidence_keys,
    host_wait_seconds_with_sync,
)
from cclbench.findings.losses import loss_words
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_IDLE_DEVICE: Final = metric_name("time.idle_device")
_KERNELS: Final = metric_name("compute.kernel_count")
_KERNEL_TIME: Final = metric_name("compute.kernel_time")
_SHORT_KERNELS: Final = metric_name("launch.short_kernels")
_LAUNCH_BOUND_SHARE: Final = metric_name("compute.launch_bound_share")
_MEAN_KERNEL: Final = metric_name("compute.mean_kernel")
_SHORT_KERNEL_S: Final = 10e-6
_OPERATOR_S: Final = 15e-6
"""Least host time of a PyTorch operator, with its launch and the Python around it."""
_QUEUED_S: Final = 20e-6
"""Least median delay of launches that are ahead of the device: more than any launch latency."""
_LAUNCHING: Final = "launch+operators"


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
        for rank, host_s in host_wait_seconds_with_sync(case, "launch", "operators").items()
    }
    if kernels and median_s and any(lost.values()) and not _is_queued(case) and is_launch_bound(case):
        yield case.finding(
            "short_kernels",
            f"The device waits for launches between short kernels ({kernels:,.0f} a step,"
            f" half of them below {humanise(median_s, 's')}): {loss_words(lost)}.",
            lost=lost,
            host_causes=["launch", "operators"],
            whatif=[f"host[{_LAUNCHING}].time=0", "kernels.gap=0"],
            surely=[f"host[{_LAUNCHING}].time=0"],
            because=EXACT,
            evidence=case.evidence(
                *evidence_keys("launch", "operators"),
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
            f" {loss_words(lost)}.",
            lost=lost,
            whatif=["kernels.gap=0"],
            surely=[],
            because=EXACT + "; a wait for another stream looks the same",
            evidence=case.evidence(_IDLE_DEVICE, _KERNELS, _KERNEL_TIME, LAUNCH_DELAY, QUEUE_LENGTH),
            query=TRACK_GAPS,
        )


def _is_queued(case: Case) -> bool:
    """Whether launches are ahead, and the device's gaps are mostly those between kernels in its queue."""
    host_s = sum(host_wait_seconds_with_sync(case, "launch", "operators").values())
    delay_s = case.number(LAUNCH_DELAY, stat="p50") or 0.0
    return delay_s >= _QUEUED_S and sum(_kernel_gaps(case).values()) > host_s


def is_launch_bound(case: Case) -> bool:
    """Whether kernels are short, and the host does not mostly compute."""
    computes = case.ranks(BY, category="operators", stat="on_host")
    launches = host_wait_seconds_with_sync(case, "launch", "operators")
    if any(seconds > MOSTLY * launches.get(rank, 0.0) for rank, seconds in computes.items()):
        return False
    return _has_short_kernels(case)


def _has_short_kernels(case: Case) -> bool:
    """Whether kernels are mostly shorter than launches or operators."""
    mean_s, median_s = (case.number(metric) or inf for metric in (_MEAN_KERNEL, _KERNEL_TIME))
    is_short = (case.number(_SHORT_KERNELS) or 0.0) >= MOSTLY
    return is_short or mean_s < _SHORT_KERNEL_S or median_s < _OPERATOR_S


def _kernel_gaps(case: Case) -> dict[int, float]:
    """The idle time of each device between queued kernels, s a step, where these are short gaps."""
    kernels = case.number(_KERNELS)
    return {
        rank: idle_s
        for rank, idle_s in case.ranks(_IDLE_DEVICE).items()
        if kernels and 0.0 < idle_s / kernels < _SHORT_KERNEL_S
    }
