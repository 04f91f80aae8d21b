# SPDX-License-Identifier: Apache-2.0
"""The device: exposed copies, stalls between streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.findings.case import Case
from cclbench.findings.finding import Finding, finding
from cclbench.findings.losses import largest_rank, loss_words, parts_words
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_EXPOSED_COPY: Final = metric_name("time.exposed_copy")
_BUSY: Final = metric_name("compute.busy")
_IDLE_DEVICE: Final = metric_name("time.idle_device")
_KERNELS: Final = metric_name("compute.kernel_count")
_BANDWIDTH: Final = metric_name("memory.copy_bandwidth")
_STALL_S: Final = 10e-6
"""Idle time per kernel that is more than the usual gap between consecutive kernels."""


@finding(
    "exposed_copies",
    title="the device copies and computes nothing",
    rule="time.exposed_copy, where the device also runs kernels",
    gain="copies take no time",
    actions={
        "pytorch": (
            "pin host memory (DataLoader(pin_memory=True), tensor.pin_memory()) and copy with"
            " .to(device, non_blocking=True) on a separate stream",
            "copy less within the device: .contiguous(), .clone(), torch.cat, layout or type conversions",
            "keep on the device what each step copies between it and the host; offload less",
        ),
        "any": (
            "copy from pinned memory, overlapped with compute",
            "copy less within the device: consistent layouts and types",
            "keep on the device what each step copies between it and the host",
        ),
    },
)
def exposed_copies(case: Case) -> Iterator[Finding]:
    lost = case.ranks(_EXPOSED_COPY)
    rank = largest_rank(lost)
    if rank is None or case.number(_BUSY) == 0:
        return
    rows = case.parts(_EXPOSED_COPY)
    parts = sorted((row for row in rows if row.category), key=lambda row: -row.number)
    labels = [row.category or "" for row in parts]
    on_rank = [(case.ranks(_EXPOSED_COPY, category=label).get(rank, 0.0), label) for label in labels]
    pageable = sum(row.number for row in parts if "pageable" in (row.category or ""))
    total = sum(row.number for row in parts)
    slow = " Most of it is to or from pageable memory." if total and pageable > total / 2 else ""
    directions = list(dict.fromkeys((row.category or "").split(" ")[0] for row in parts[:3] if row.number))
    rates = {way: case.number(_BANDWIDTH, category=way) for way in directions}
    moved = ", ".join(f"{way} {humanise(rate, 'B/s')}" for way, rate in rates.items() if rate)
    fast = f" Bandwidth of all copies by direction: {moved}." if moved else ""
    yield case.finding(
        "exposed_copies",
        f"Only copies and memsets run for {loss_words(lost)}{parts_words(on_rank)}.{slow}{fast}",
        lost=lost,
        whatif=["copies.time=0"],
        because="an exact part of the step",
        evidence=case.evidence(
            _EXPOSED_COPY,
            *[(_EXPOSED_COPY, {"category": row.category or ""}) for row in parts[:3]],
            *[(_BANDWIDTH, {"category": way}) for way in directions],
        ),
        query="SELECT rank, name, copy_direction, bytes, start_ns, dur_ns FROM events"
        " WHERE kind IN ('copy', 'memset') ORDER BY dur_ns DESC LIMIT 20",
    )


@finding(
    "device_stalls",
    title="the device is idle although its work was launched in time",
    rule="time.idle_device of at least 10 µs per kernel: work that waits for an event or another stream",
    gain="unknown: the trace does not show what the device waits for",
    actions={
        "any": (
            "look at what the kernels after the gaps wait for (cclbench timeline): events of other streams,"
            " host callbacks, graph launches",
            "record event waits (CUDA synchronization events), so that the trace shows the cause",
        ),
    },
)
def device_stalls(case: Case) -> Iterator[Finding]:
    lost, kernels = case.ranks(_IDLE_DEVICE), case.number(_KERNELS)
    if kernels and max(lost.values(), default=0.0) / kernels >= _STALL_S:
        yield case.finding(
            "device_stalls",
            f"The device is idle for {humanise(max(lost.values()), 's')} of a step although the next kernel"
            " was launched in time.",
            lost=lost,
            no_gain="the trace does not show what the device waits for",
            confidence="medium",
            because="the gaps are exact; the trace does not show what the device waits for",
            evidence=case.evidence(_IDLE_DEVICE, _KERNELS),
            query="SELECT rank, name, end_ns AS start_ns, gap_ns FROM idle_gaps"
            " ORDER BY gap_ns DESC LIMIT 20",
        )
