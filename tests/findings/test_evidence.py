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
IDLE, EXPOSED = "time.idle_host", "time.exposed_transfer"
ROOFLINE = [f"compute.{figure}" for figure in ("roofline_efficiency", "above_roofline", "category_share")]
MOVING = "elementwise copy normalization reduction"
COPIES = {"d2d": 0.01, "h2d pinned": 0.04, "memset": 0.02, "d2h": 0.03}
SIZED = ("count", "volume", "alpha", "beta")
SPEEDS = {"0": 1.0, "1": 1.0, "2": 1.25}


def each(metric: str, keys: str) -> list[str]:
    """The metric by each of the keys."""
    return [f"{metric} {key}" for key in keys.split()]


CASES: dict[str, tuple[list[Row], list[str]]] = {
    "data_loading": (held("loader"), ["time.idle_host", f"{SPLIT} loader", "data.stall"]),
    "device_allocation": (held("allocation"), [IDLE, f"{SPLIT} allocation", "memory.peak_reserved"]),
    "cold_start": (held("cold_start"), ["time.idle_host", f"{SPLIT} cold_start"]),
    "synchronization": (held("sync"), ["time.idle_host", f"{SPLIT} sync", "launch.delay"]),
    "before_capture": (held("capture"), ["time.idle_host", f"{SPLIT} capture"]),
    "host_bound": (
        held("python", "unrecorded", "operators", "launch"),
        [IDLE, *each(SPLIT, "python unrecorded operators launch"), "launch.delay", "launch.queue_length"],
    ),
    "short_kernels": (
        [*held("launch", "operators"), *short()],
        [
            *(*each(SPLIT, "launch operators"), "time.idle_device", "launch.short_kernels"),
            *("compute.kernel_time", "compute.launch_bound_share"),
        ],
    ),
    "pipeline_bubble": (
        [*waits("recv"), row("time.exposed_wait", 0.1, collective="send")],
        [*(f"time.exposed_wait {kind}" for kind in ("send", "recv")), "overlap.pipeline_bubble"],
    ),
    "expert_imbalance": (
        waits("all_to_all"),
        ["time.exposed_wait all_to_all", "balance.load_imbalance", "compute.moe_share"],
    ),
    "late_rank": (
        [*waits(), *late()],
        [
            *(f"{STRAGGLER} 1", *each(f"{STRAGGLER} 1", "late_by p_value excess_compute")),
            *("balance.caused_wait 1", "time.exposed_wait", "balance.load_imbalance"),
        ],
    ),
    "uneven_ranks": (
        [*waits(), row(STRAGGLER, 0.4, reason="no rank stands out")],
        ["time.exposed_wait", STRAGGLER, "balance.load_imbalance", "comm.skew"],
    ),
    "small_messages": (
        transfers(small=True),
        [f"{name} all_reduce 0-1" for name in (*(f"comm.{one}" for one in SIZED), EXPOSED)],
    ),
    "exposed_communication": (
        transfers(),
        [
            *(f"{name} all_reduce 0-1" for name in (EXPOSED, "comm.transfer", "comm.busbw")),
            *("overlap.same_stream", "comm.bandwidth_utilization"),
        ],
    ),
    "low_gemm_efficiency": (
        kernels("gemm"),
        ["compute.gemm_efficiency", *(f"{figure} gemm" for figure in ROOFLINE)],
    ),
    "low_attention_efficiency": (kernels("attention"), [f"{figure} attention" for figure in ROOFLINE]),
    "below_roofline": (kernels("convolution"), [f"{figure} convolution" for figure in ROOFLINE]),
    "memory_bound": (
        kernels(*MOVING.split()),
        [
            *(*each("compute.category_share", MOVING), "memory.bound_share", "memory.hbm_utilization"),
            "compute.roofline_efficiency",
        ],
    ),
    "tensor_cores": (
        [
            *by_rank(PRODUCTS, 0.3, 0.3, category="without_tensor_cores", stat="fp32"),
            *(row(PRODUCTS, 0.5), row("compute.gemm_efficiency", 0.9)),
        ],
        [f"{PRODUCTS} without_tensor_cores fp32", PRODUCTS, "compute.gemm_efficiency"],
    ),
    "misaligned_products": (
        [
            *by_rank(PRODUCTS, 0.2, 0.1, category="misaligned", stat="bf16"),
            *by_rank(PRODUCTS, 0.3, 0.3, category="misaligned", stat="fp16"),
            row("compute.gemm_efficiency", 0.9),
        ],
        [f"{PRODUCTS} misaligned bf16", f"{PRODUCTS} misaligned fp16", "compute.gemm_efficiency"],
    ),
    "double_precision": (
        [
            *by_rank("compute.precision_time", 0.4, 0.4, category="fp64"),
            *(*by_rank("compute.time", 0.8, 0.8), row("compute.precision_time", 0.7)),
        ],
        ["compute.precision_time fp64", "compute.precision_time", "compute.time"],
    ),
    "contention": (
        [
            *by_rank("compute.contention", 1.2, 1.2),
            *by_rank("compute.contention", 0.08, 0.08, stat="excess", unit="s"),
            *(*by_rank("time.overlapped", 0.5, 0.5), row("compute.achieved_flops", 1e12)),
        ],
        ["compute.contention", "time.overlapped"],
    ),
    "recompute": (
        [*by_rank("compute.time", 0.8, 0.8), *by_rank("compute.recompute_share", 0.2, 0.2), *DEVICE_TIME],
        ["compute.recompute_share", "memory.peak_allocated", "memory.peak_reserved"],
    ),
    "device_stalls": (
        [*by_rank("time.idle_device", 0.2, 0.1), row("compute.kernel_count", 100.0)],
        ["time.idle_device", "compute.kernel_count"],
    ),
    "fragmentation": (
        [
            *(row("memory.reserved_unused", 3e9), row("memory.fragmentation", 0.3, unit="1")),
            *(row("memory.peak_reserved", 10e9), row("memory.peak_allocated", 7e9)),
        ],
        ["memory.reserved_unused", "memory.fragmentation", "memory.peak_reserved", "memory.peak_allocated"],
    ),
    "memory_leak": (
        [row("memory.leak", 3e6), *(row("memory.leak", n * 1e6, category=f"f{n} a.py:{n}") for n in (1, 2))],
        ["memory.leak", "memory.leak f2 a.py:2", "memory.leak f1 a.py:1"],
    ),
    "out_of_memory": (
        [
            row("memory.out_of_memory", 1.0, reason="too much is held"),
            *(row("memory.out_of_memory", 1e9, stat=stat) for stat in ("asked", "largest_free", "unused")),
            row("memory.out_of_memory", 2e9, stat="held", category="f a.py:1"),
        ],
        [
            *("memory.out_of_memory", *each("memory.out_of_memory", "asked unused largest_free")),
            "memory.out_of_memory f a.py:1 held",
        ],
    ),
    "exposed_copies": (
        [
            *by_rank("time.exposed_copy", 0.1, 0.1),
            *(row("time.exposed_copy", seconds, category=name) for name, seconds in COPIES.items()),
            *(row("memory.copy_bandwidth", 1e9, category=way) for way in (None, "d2d", "d2h", "h2d")),
        ],
        [
            "time.exposed_copy",
            *(f"time.exposed_copy {name}" for name in ("h2d pinned", "d2h", "memset")),
            *(f"memory.copy_bandwidth {name}" for name in ("h2d", "d2h")),
        ],
    ),
    "slow_device": (
        [
            *(row("balance.kernel_speed", own, category=rank) for rank, own in SPEEDS.items()),
            row("balance.kernel_speed", 1.25),
            *(row("balance.kernel_speed", 1.2, category="2", stat=one) for one in ("gemm", "norm")),
            *(*by_rank("compute.time", 0.7, 0.7, 0.9), row("balance.load_imbalance", 1.2)),
        ],
        ["balance.kernel_speed", "balance.kernel_speed 2", "balance.load_imbalance"],
    ),
    "slow_link": (
        [
            *(row("comm.busbw", rate, **LINK | {"group": of, "category": "1 MiB"}) for of, rate in RATES),
            *(row("comm.busbw", rate, **LINK | {"group": of}) for of, rate in RATES),
            *by_rank("time.exposed_transfer", 0.2, 0.2, **LINK),
        ],
        ["comm.busbw all_reduce 0-1", "time.exposed_transfer all_reduce 0-1"],
    ),
    "slow_network": (
        [
            row("comm.busbw", 2e9, category="64MiB-256MiB", **LINK),
            row("comm.bandwidth_utilization", 0.04, category="64MiB-256MiB", **LINK),
            *by_rank("time.exposed_transfer", 0.2, 0.2, **LINK),
        ],
        [
            *(f"comm.{name} 64MiB-256MiB all_reduce 0-1" for name in ("bandwidth_utilization", "busbw")),
            f"{EXPOSED} all_reduce 0-1",
        ],
    ),
    "throttling": (
        [
            *(*by_rank("compute.drift", 1.2, 1.2), *by_rank("compute.drift", 1.0, 1.0, stat="later_longer")),
            *by_rank("compute.time", 0.8, 0.8),
        ],
        ["compute.drift"],
    ),
    "host_pauses": (
        [
            *held("python", "unrecorded"),
            *(row(SPLIT, step % 2 * 0.8, rank=rank, step=step) for rank in (0, 1) for step in range(4)),
        ],
        ["time.idle_host", f"{SPLIT} python", f"{SPLIT} unrecorded", "launch.delay"],
    ),
    "warm_up": (
        [
            *(row("time.step", seconds, step=step) for step, seconds in enumerate((5.0, 1.0, 1.0, 1.0))),
            *(row("time.step", 1.0, stat="p50"), row("time.step", 5.0, stat="max")),
        ],
        ["time.step", "time.step p50", "time.step max"],
    ),
    "missing_ranks": (by_rank("time.exposed_unmatched", 0.1, 0.1), ["time.exposed_unmatched"]),
    "unlinked_launches": (
        [row("time.idle_unknown", 0.2), row("time.idle", 0.3)],
        ["time.idle_unknown", "time.idle"],
    ),
}


def test_what_communication_rests_on_that_nobody_can_tell_from_waiting() -> None:
    rows = [
        *by_rank("time.exposed_unmatched", 0.2, 0.2),
        row("time.exposed_comm", 0.3),
        row("overlap.ratio", 0.5),
    ]
    one = found(*STEP, *rows)["exposed_communication"]
    shown = ["time.exposed_unmatched", "time.exposed_comm", "overlap.ratio"]
    assert [e.metric for e in one.evidence] == shown


@pytest.mark.parametrize("name", CASES)
def test_what_a_finding_rests_on(name: str) -> None:
    rows, shown = CASES[name]
    on = "host" if name == "double_precision" else "device"
    ranks = [a_rank(one, facts={"works_on": on, "world_size": 4}) for one in range(2)]
    one = found(*STEP, *rows, ranks=ranks)[name]
    keys = ((e.metric, e.category, e.collective, e.group, e.stat) for e in one.evidence)
    assert [" ".join(filter(None, key)) for key in keys] == shown
