# SPDX-License-Identifier: Apache-2.0
"""Memory: requests that failed, leaks, reserved memory that nothing can use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.findings.case import Case
from cclbench.findings.finding import Finding, finding
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_OUT_OF_MEMORY: Final = metric_name("memory.out_of_memory")
_LEAK: Final = metric_name("memory.leak")
_UNUSED: Final = metric_name("memory.reserved_unused")
_FRAGMENTATION: Final = metric_name("memory.fragmentation")
_PEAK_RESERVED: Final = metric_name("memory.peak_reserved")
_PEAK_ALLOCATED: Final = metric_name("memory.peak_allocated")
_LEAST_UNUSED: Final = 0.2
"""Least share of the reserved memory that is unused at the peak, to report it."""
_NOT_TIME: Final = "it costs memory, not time"
_STATS: Final = ("asked", "device_free", "reserved", "unused", "largest_free", "missing")


@finding(
    "out_of_memory",
    title="the allocator ran out of memory",
    rule="memory.out_of_memory of at least 1",
    gain="none: the replay has no memory",
    actions={
        "any": (
            "see who holds what: cclbench memory SOURCE",
            "if free blocks are scattered: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "if too much is held: smaller batches or sequences, activation checkpointing, sharded optimizer"
            " states",
        ),
    },
)
def out_of_memory(case: Case) -> Iterator[Finding]:
    row = case.row(_OUT_OF_MEMORY)
    if row is None or row.number < 1:
        return
    stats = {stat: case.number(_OUT_OF_MEMORY, stat=stat) for stat in _STATS}
    held = sorted(
        (part for part in case.parts(_OUT_OF_MEMORY) if part.stat == "held"), key=lambda part: -part.number
    )
    sizes = {stat: humanise(number, "B") for stat, number in stats.items() if number is not None}
    claim = f"A request of {sizes.get('asked', 'unknown size')} found no memory ({row.reason})."
    if "unused" in sizes and "largest_free" in sizes:
        claim += (
            f" Free blocks held {sizes['unused']}, the largest that could serve it {sizes['largest_free']}."
        )
    if stats["missing"]:
        claim += f" {sizes['missing']} more had to be free."
    if held:
        claim += f" Most is held by {held[0].category}: {humanise(held[0].number, 'B')}."
    yield case.finding(
        "out_of_memory",
        claim,
        no_gain=_NOT_TIME,
        because="the allocator's own events",
        evidence=case.evidence(
            _OUT_OF_MEMORY,
            *[(_OUT_OF_MEMORY, {"stat": stat}) for stat in _STATS],
            *[(_OUT_OF_MEMORY, {"stat": "held", "category": part.category or ""}) for part in held[:3]],
        ),
        query="SELECT rank, device, action, size, device_free, call_site FROM allocations"
        " WHERE action = 'oom'",
    )


@finding(
    "memory_leak",
    title="memory is allocated in each step and never freed",
    rule="memory.leak above 0: blocks of at least four steps, of one call site, remain at the last step end",
    gain="none: the replay has no memory",
    actions={
        "pytorch": (
            "keep numbers instead of tensors: loss.item() or loss.detach(), not the loss with its graph",
            "look for lists and caches that the call site appends to, and for hooks that hold tensors",
        ),
        "any": ("look for lists and caches that the call site appends to",),
    },
)
def memory_leak(case: Case) -> Iterator[Finding]:
    leaked = case.number(_LEAK)
    if not leaked:
        return
    sites = sorted((row for row in case.parts(_LEAK) if row.category), key=lambda row: -row.number)
    named = "; ".join(f"{humanise(row.number, 'B')} at {row.category}" for row in sites[:3])
    yield case.finding(
        "memory_leak",
        f"{humanise(leaked, 'B')} more remain allocated after each step: {named}.",
        no_gain=_NOT_TIME,
        because="each block's allocation and the lack of its free; a cache that is still filling looks the"
        " same",
        confidence="medium",
        evidence=case.evidence(_LEAK, *[(_LEAK, {"category": row.category or ""}) for row in sites[:3]]),
    )


@finding(
    "fragmentation",
    title="much of the reserved memory is unused at the peak",
    rule="memory.reserved_unused of at least 20 % of memory.peak_reserved",
    gain="memory, not time: larger batches or less recomputation",
    actions={
        "pytorch": ("set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",),
        "any": ("keep shapes the same from step to step; allocate long-lived buffers first",),
    },
)
def fragmentation(case: Case) -> Iterator[Finding]:
    unused, reserved = case.number(_UNUSED), case.number(_PEAK_RESERVED)
    if unused is None or not reserved or unused < _LEAST_UNUSED * reserved:
        return
    scattered = case.number(_FRAGMENTATION)
    largest = (
        "" if scattered is None else f"; {humanise(scattered, '1')} of that is outside the largest block"
    )
    yield case.finding(
        "fragmentation",
        f"{humanise(unused, 'B')} of the memory that the allocator reserves are unused at the peak{largest}.",
        because="the allocator's own figures"
        + ("; how much of it larger requests could use is unknown" if scattered is None else ""),
        confidence="medium" if scattered is None else "high",
        evidence=case.evidence(_UNUSED, _FRAGMENTATION, _PEAK_RESERVED, _PEAK_ALLOCATED),
    )
