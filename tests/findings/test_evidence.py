# SPDX-License-Identifier: Apache-2.0
"""What each finding rests on, in the order shown: the row it is about first, then what explains it."""

from __future__ import annotations

import pytest
from helpers.hand_results import Row, a_rank, by_rank, found, row

STEP = by_rank("time.step", 1.0, 1.0)
SPLIT = "time.idle_host_by"
LINK = {"collective": "all_reduce", "group": "0-1"}
STRAGGLER = "balance.straggler_rank"


def held(*causes: str) -> list[Row]:
    """Idle time of the host by cause, with rows of all that is shown beside it."""
    return [
        *by_rank("time.idle_host", 0.3, 0.3),
        *(one for cause in causes for one in by_rank(SPLIT, 0.2, 0.2, category=cause)),
        *(row(metric, 0.5) for metric in ("data.stall", "memory.peak_reserved", "launch.delay")),
        row("launch.queue_length", 3.0),
    ]


def short() -> list[Row]:
    """Kernels of 5 µs."""
    return [
        *by_rank("time.idle_device", 0.001, 0.001),
        *(row(metric, 0.6) for metric in ("launch.short_kernels", "compute.launch_bound_share")),
        row("compute.kernel_time", 5e-6),
        row("compute.kernel_count", 1_000.0),
    ]


def late(cause: str = "compute") -> list[Row]:
    """Rank 1 is late by that cause."""
    said = "rank 1 is late by 250 ms a step, latest in 5 of 5 steps"
    stats = {"late_by": 0.25, "p_value": 0.001, f"excess_{cause}": 0.2}
    return [
        row(STRAGGLER, 1.0, reason=said),
        row(STRAGGLER, 1.0, category="1"),
        *(row(STRAGGLER, value, category="1", stat=stat) for stat, value in stats.items()),
        row("balance.caused_wait", 0.25, category="1"),
    ]


def waits(kind: str = "all_reduce") -> list[Row]:
    return [
        *by_rank("time.exposed_wait", 0.3, 0.0),
        *by_rank("time.exposed_wait", 0.3, 0.0, collective=kind),
        *(row(metric, 0.2) for metric in ("balance.load_imbalance", "comm.skew", "overlap.pipeline_bubble")),
        row("compute.moe_share", 0.2),
        row("compute.category_share", 0.2, category="moe"),
    ]


def transfers(small: bool = False) -> list[Row]:
    return [
        *by_rank("time.exposed_transfer", 0.1, 0.1, **LINK),
        *(row(f"comm.{figure}", 0.2, **LINK) for figure in ("transfer", "busbw", "alpha")),
        row("comm.beta", 1e-9, **LINK),
        row("comm.count", 20.0 if small else 2.0, **LINK),
        row("comm.volume", 2e3 if small else 2e9, **LINK),
        row("overlap.same_stream", 0.1),
        row("comm.bandwidth_utilization", 0.5),
    ]


def kernels(*categories: str) -> list[Row]:
    """Compute time, with all that is said of kernels of those categories."""
    figures = ("memory.bound_share", "memory.hbm_utilization", "compute.roofline_efficiency")
    return [
        *by_rank("compute.time", 0.8, 0.8),
        row("compute.gemm_efficiency", 0.4),
        *(row(figure, 0.3) for figure in figures),
        *(one for name in categories for one in by_rank("compute.category_share", 0.3, 0.3, category=name)),
        *(row("compute.roofline_efficiency", 0.2, category=name) for name in categories),
        *(one for name in categories for one in by_rank("compute.above_roofline", 0.2, 0.2, category=name)),
    ]


RATES = (("0-1", 40.0), ("2-3", 100.0), ("4-5", 110.0))
DEVICE_TIME = [row("memory.peak_allocated", 2.0), row("memory.peak_reserved", 3.0)]
PRODUCTS = "compute.product_time"
COPIES = {"d2d": 0.01, "h2d pinned": 0.04, "memset": 0.02, "d2h": 0.03}
SPEEDS = {"0": 1.0, "1": 1.0, "2": 1.25}


ROWS: dict[str, list[Row]] = {
    "data_loading": held("loader"),
    "device_allocation": held("allocation"),
    "cold_start": held("cold_start"),
    "synchronization": held("sync"),
    "before_capture": held("capture"),
    "host_bound": held("python", "unrecorded", "operators", "launch"),
    "short_kernels": [*held("launch", "operators"), *short()],
    "pipeline_bubble": [*waits("recv"), row("time.exposed_wait", 0.1, collective="send")],
    "expert_imbalance": waits("all_to_all"),
    "late_rank": [*waits(), *late()],
    "uneven_ranks": [*waits(), row(STRAGGLER, 0.4, reason="no rank stands out")],
    "small_messages": transfers(small=True),
    "exposed_communication": transfers(),
    "low_gemm_efficiency": kernels("gemm"),
    "low_attention_efficiency": kernels("attention"),
    "below_roofline": kernels("convolution"),
    "memory_bound": kernels("elementwise", "copy", "normalization", "reduction"),
    "tensor_cores": [
        *by_rank(PRODUCTS, 0.3, 0.3, category="without_tensor_cores", stat="fp32"),
        *(row(PRODUCTS, 0.5), row("compute.gemm_efficiency", 0.9)),
    ],
    "misaligned_products": [
        *by_rank(PRODUCTS, 0.2, 0.1, category="misaligned", stat="bf16"),
        *by_rank(PRODUCTS, 0.3, 0.3, category="misaligned", stat="fp16"),
        row("compute.gemm_efficiency", 0.9),
    ],
    "double_precision": [
        *by_rank("compute.precision_time", 0.4, 0.4, category="fp64"),
        *(*by_rank("compute.time", 0.8, 0.8), row("compute.precision_time", 0.7)),
    ],
    "contention": [
        *by_rank("compute.contention", 1.2, 1.2),
        *by_rank("compute.contention", 0.08, 0.08, stat="excess", unit="s"),
        *(*by_rank("time.overlapped", 0.5, 0.5), row("compute.achieved_flops", 1e12)),
    ],
    "recompute": [
        *by_rank("compute.time", 0.8, 0.8),
        *by_rank("compute.recompute_share", 0.2, 0.2),
        *DEVICE_TIME,
    ],
    "device_stalls": [*by_rank("time.idle_device", 0.2, 0.1), row("compute.kernel_count", 100.0)],
    "fragmentation": [
        *(row("memory.reserved_unused", 3e9), row("memory.fragmentation", 0.3, unit="1")),
        *(row("memory.peak_reserved", 10e9), row("memory.peak_allocated", 7e9)),
    ],
    "memory_leak": [
        row("memory.leak", 3e6),
        *(row("memory.leak", n * 1e6, category=f"f{n} a.py:{n}") for n in (1, 2)),
    ],
    "out_of_memory": [
        row("memory.out_of_memory", 1.0, reason="too much is held"),
        *(row("memory.out_of_memory", 1e9, stat=stat) for stat in ("asked", "largest_free", "unused")),
        row("memory.out_of_memory", 2e9, stat="held", category="f a.py:1"),
    ],
    "exposed_copies": [
        *by_rank("time.exposed_copy", 0.1, 0.1),
        *(row("time.exposed_copy", seconds, category=name) for name, seconds in COPIES.items()),
        *(row("memory.copy_bandwidth", 1e9, category=way) for way in (None, "d2d", "d2h", "h2d")),
    ],
    "slow_device": [
        *(row("balance.kernel_speed", own, category=rank) for rank, own in SPEEDS.items()),
        row("balance.kernel_speed", 1.25),
        *(row("balance.kernel_speed", 1.2, category="2", stat=one) for one in ("gemm", "norm")),
        *(*by_rank("compute.time", 0.7, 0.7, 0.9), row("balance.load_imbalance", 1.2)),
    ],
    "slow_link": [
        *(row("comm.busbw", rate, **LINK | {"group": of, "category": "1 MiB"}) for of, rate in RATES),
        *(row("comm.busbw", rate, **LINK | {"group": of}) for of, rate in RATES),
        *by_rank("time.exposed_transfer", 0.2, 0.2, **LINK),
    ],
    "slow_network": [
        row("comm.busbw", 2e9, category="64MiB-256MiB", **LINK),
        row("comm.bandwidth_utilization", 0.04, category="64MiB-256MiB", **LINK),
        *by_rank("time.exposed_transfer", 0.2, 0.2, **LINK),
    ],
    "throttling": [
        *(*by_rank("compute.drift", 1.2, 1.2), *by_rank("compute.drift", 1.0, 1.0, stat="later_longer")),
        *by_rank("compute.time", 0.8, 0.8),
    ],
    "host_pauses": [
        *held("python", "unrecorded"),
        *(row(SPLIT, step % 2 * 0.8, rank=rank, step=step) for rank in (0, 1) for step in range(4)),
    ],
    "warm_up": [
        *(row("time.step", seconds, step=step) for step, seconds in enumerate((5.0, 1.0, 1.0, 1.0))),
        *(row("time.step", 1.0, stat="p50"), row("time.step", 5.0, stat="max")),
    ],
    "missing_ranks": by_rank("time.exposed_unmatched", 0.1, 0.1),
    "unlinked_launches": [row("time.idle_unknown", 0.2), row("time.idle", 0.3)],
}


SHOWN = """
data_loading: time.idle_host | time.idle_host_by loader | data.stall
device_allocation: time.idle_host | time.idle_host_by allocation | memory.peak_reserved
cold_start: time.idle_host | time.idle_host_by cold_start
synchronization: time.idle_host | time.idle_host_by sync | launch.delay
before_capture: time.idle_host | time.idle_host_by capture
host_bound: time.idle_host | time.idle_host_by python | time.idle_host_by unrecorded
host_bound: time.idle_host_by operators | time.idle_host_by launch | launch.delay | launch.queue_length
short_kernels: time.idle_host_by launch | time.idle_host_by operators | time.idle_device
short_kernels: launch.short_kernels | compute.kernel_time | compute.launch_bound_share
pipeline_bubble: time.exposed_wait send | time.exposed_wait recv | overlap.pipeline_bubble
expert_imbalance: time.exposed_wait all_to_all | balance.load_imbalance | compute.moe_share
late_rank: balance.straggler_rank 1 | balance.straggler_rank 1 late_by | balance.straggler_rank 1 p_value
late_rank: balance.straggler_rank 1 excess_compute | balance.caused_wait 1 | time.exposed_wait
late_rank: balance.load_imbalance
uneven_ranks: time.exposed_wait | balance.straggler_rank | balance.load_imbalance | comm.skew
small_messages: comm.count all_reduce 0-1 | comm.volume all_reduce 0-1 | comm.alpha all_reduce 0-1
small_messages: comm.beta all_reduce 0-1 | time.exposed_transfer all_reduce 0-1
exposed_communication: time.exposed_transfer all_reduce 0-1 | comm.transfer all_reduce 0-1
exposed_communication: comm.busbw all_reduce 0-1 | overlap.same_stream | comm.bandwidth_utilization
low_gemm_efficiency: compute.gemm_efficiency | compute.roofline_efficiency gemm
low_gemm_efficiency: compute.above_roofline gemm | compute.category_share gemm
low_attention_efficiency: compute.roofline_efficiency attention | compute.above_roofline attention
low_attention_efficiency: compute.category_share attention
below_roofline: compute.roofline_efficiency convolution | compute.above_roofline convolution
below_roofline: compute.category_share convolution
memory_bound: compute.category_share elementwise | compute.category_share copy
memory_bound: compute.category_share normalization | compute.category_share reduction | memory.bound_share
memory_bound: memory.hbm_utilization | compute.roofline_efficiency
tensor_cores: compute.product_time without_tensor_cores fp32 | compute.product_time
tensor_cores: compute.gemm_efficiency
misaligned_products: compute.product_time misaligned bf16 | compute.product_time misaligned fp16
misaligned_products: compute.gemm_efficiency
double_precision: compute.precision_time fp64 | compute.precision_time | compute.time
contention: compute.contention | time.overlapped
recompute: compute.recompute_share | memory.peak_allocated | memory.peak_reserved
device_stalls: time.idle_device | compute.kernel_count
fragmentation: memory.reserved_unused | memory.fragmentation | memory.peak_reserved
fragmentation: memory.peak_allocated
memory_leak: memory.leak | memory.leak f2 a.py:2 | memory.leak f1 a.py:1
out_of_memory: memory.out_of_memory | memory.out_of_memory asked | memory.out_of_memory unused
out_of_memory: memory.out_of_memory largest_free | memory.out_of_memory f a.py:1 held
exposed_copies: time.exposed_copy | time.exposed_copy h2d pinned | time.exposed_copy d2h
exposed_copies: time.exposed_copy memset | memory.copy_bandwidth h2d | memory.copy_bandwidth d2h
slow_device: balance.kernel_speed | balance.kernel_speed 2 | balance.load_imbalance
slow_link: comm.busbw all_reduce 0-1 | time.exposed_transfer all_reduce 0-1
slow_network: comm.bandwidth_utilization 64MiB-256MiB all_reduce 0-1
slow_network: comm.busbw 64MiB-256MiB all_reduce 0-1 | time.exposed_transfer all_reduce 0-1
throttling: compute.drift
host_pauses: time.idle_host | time.idle_host_by python | time.idle_host_by unrecorded | launch.delay
warm_up: time.step | time.step p50 | time.step max
missing_ranks: time.exposed_unmatched
unlinked_launches: time.idle_unknown | time.idle
"""
"""What is shown of a finding, in this order: a metric and its keys."""


def test_what_communication_rests_on_that_nobody_can_tell_from_waiting() -> None:
    rows = [*by_rank("time.exposed_unmatched", 0.2, 0.2), row("time.exposed_comm", 0.3)]
    rows += [row("overlap.ratio", 0.5)]
    one = found(*STEP, *rows)["exposed_communication"]
    shown = ["time.exposed_unmatched", "time.exposed_comm", "overlap.ratio"]
    assert [e.metric for e in one.evidence] == shown


@pytest.mark.parametrize("name", ROWS)
def test_what_a_finding_rests_on(name: str) -> None:
    lines = [line.removeprefix(f"{name}: ") for line in SHOWN.split("\n") if line.startswith(f"{name}: ")]
    shown = " | ".join(lines).split(" | ")
    on = "host" if name == "double_precision" else "device"
    ranks = [a_rank(one, facts={"works_on": on, "world_size": 4}) for one in range(2)]
    one = found(*STEP, *ROWS[name], ranks=ranks)[name]
    keys = ((e.metric, e.category, e.collective, e.group, e.stat) for e in one.evidence)
    assert [" ".join(filter(None, key)) for key in keys] == shown
