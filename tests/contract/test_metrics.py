# SPDX-License-Identifier: Apache-2.0
"""Every registered metric explains itself, and every name of CCL-Bench's leaderboard has an answer."""

from __future__ import annotations

from cclbench.analyzers.aliases import ALIASES
from cclbench.analyzers.metric import METRICS, resolve_metrics

LEADERBOARD = {
    "avg_step_time": "time.step",
    "mfu": "compute.mfu",
    "mean_sm_coverage": "compute.sm_coverage",
    "dominant_kernel_concentration": "compute.dominant_kernel",
    "moe_fraction": "compute.moe_share",
    "average_memory_bandwidth": "memory.copy_bandwidth",
    "memory_transfer_overhead": "memory.transfer_overhead",
    "communication_fraction": "comm.fraction",
    "total_communication_time": "comm.time",
    "bandwidth_utilization_allgather_group_6": "comm.busbw",
    "bandwidth_utilization_allreduce_group_6": "comm.busbw",
    "bandwidth_utilization_alltoall_group_6": "comm.busbw",
    "bandwidth_utilization_reducescatter_group_6": "comm.busbw",
    "bandwidth_utilization_peertopeer_group_6": "comm.bandwidth_utilization",
    "compute_comm_overlap": "overlap.ratio",
    "load_imbalance_ratio": "balance.load_imbalance",
    "straggler": "balance.straggler_delay",
    "scale_up_bw_utility": "whatif.scale_up_bandwidth_x2",
    "collective_vol_allgather_gb": "comm.volume",
    "collective_vol_allreduce_gb": "comm.volume",
    "collective_vol_alltoall_gb": "comm.volume",
    "collective_vol_reducescatter_gb": "comm.volume",
    "collective_vol_total_gb": "comm.volume",
    "ttft": "serving.ttft",
    "tpot": "serving.tpot",
}
UNITS = {"s", "B", "B/s", "FLOP/s", "1/s", "1", "ratio", "count", "J", "USD", "USD/token", "s/B"}


def test_metrics_explain_themselves() -> None:
    for name in METRICS:
        metric = METRICS.get(name)
        for text in (metric.definition, metric.not_applicable, metric.combined):
            assert len(text) > 10, name
        for sentence in (metric.definition, metric.combined):
            assert sentence[0] == sentence[0].upper(), name
        assert metric.definition.endswith("."), name
        assert metric.formula.strip(), name
        assert metric.unit in UNITS, name
        assert metric.better in ("higher", "lower", None), name
        assert metric.inputs, name
        assert metric.version >= 1, name
        topic, dot, rest = name.partition(".")
        assert (topic, bool(dot), bool(rest)) == (metric.topic, True, True)


def test_the_leaderboards_names_are_all_answered() -> None:
    assert len(LEADERBOARD) == 25
    for alias, metric in LEADERBOARD.items():
        ((found, _),) = resolve_metrics([alias])
        assert found.name == metric
        assert alias in found.aliases
    assert set(ALIASES) >= set(LEADERBOARD)


PROMISED = {
    *(f"time.{part}" for part in ("step", "compute_only", "overlapped", "exposed_comm", "exposed_copy")),
    *(f"time.{part}" for part in ("idle", "idle_host", "idle_device", "idle_unknown")),
    *(f"throughput.{what}" for what in ("samples", "tokens", "tokens_per_device")),
    *(f"compute.{what}" for what in ("time", "busy", "mfu", "achieved_flops", "category_share")),
    *(f"compute.{what}" for what in ("dominant_kernel", "moe_share", "sm_coverage", "occupancy")),
    *(f"compute.{what}" for what in ("kernel_count", "mean_kernel", "contention", "recompute_share")),
    *(f"compute.{what}" for what in ("gemm_efficiency", "roofline_efficiency", "model_flops_share")),
    *(f"time.{what}" for what in ("phase", "module")),
    *(f"compute.{what}" for what in ("mean_kernel", "contention", "kernel_time", "launch_bound_share")),
    *(f"launch.{what}" for what in ("call_time", "delay", "short_kernels", "queue_length")),
    *(f"memory.{what}" for what in ("copy_bandwidth", "copy_time", "transfer_overhead")),
    *(f"memory.{what}" for what in ("hbm_utilization", "bound_share", "peak_allocated")),
    *(f"comm.{what}" for what in ("time", "fraction", "count", "volume", "algbw", "busbw")),
    *(f"comm.{what}" for what in ("wait", "transfer", "skew", "alpha", "beta", "windows")),
    *(f"time.exposed_{part}" for part in ("wait", "transfer", "unmatched")),
    *(f"overlap.{what}" for what in ("ratio", "efficiency", "exposed_by", "pipeline_bubble")),
    *(f"balance.{what}" for what in ("load_imbalance", "straggler_delay", "straggler_rank")),
    *(f"serving.{what}" for what in ("ttft", "tpot", "itl", "e2e_latency", "goodput", "iteration")),
    *(f"serving.{what}" for what in ("request_throughput", "output_throughput")),
    *(f"comm.{what}" for what in ("nic_bytes", "nvlink_bytes")),
    "data.stall",
}
"""Names that people rely on."""


def test_the_metrics_promised_are_there() -> None:
    assert {name for name in METRICS if METRICS.get(name).name == name} >= PROMISED
