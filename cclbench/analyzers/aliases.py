# SPDX-License-Identifier: Apache-2.0
"""Metric names of CCL-Bench's leaderboard, and the metric of cclbench that each stands for.

The definitions are ours: units are base SI (fractions, bytes, bytes per second), and collective
payloads are the large side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name for a metric, or for its part about some kinds of collectives."""

    metric: str
    collectives: tuple[str, ...] = ()


ALIASES: Final[Mapping[str, Alias]] = {
    "average_memory_bandwidth": Alias("memory.copy_bandwidth"),
    "avg_step_time": Alias("time.step"),
    "bandwidth_utilization_allgather_group_6": Alias("comm.busbw", ("all_gather",)),
    "bandwidth_utilization_allreduce_group_6": Alias("comm.busbw", ("all_reduce",)),
    "bandwidth_utilization_alltoall_group_6": Alias("comm.busbw", ("all_to_all",)),
    "bandwidth_utilization_peertopeer_group_6": Alias("comm.busbw", ("send", "recv", "send_recv")),
    "bandwidth_utilization_reducescatter_group_6": Alias("comm.busbw", ("reduce_scatter",)),
    "collective_vol_allgather_gb": Alias("comm.volume", ("all_gather",)),
    "collective_vol_allreduce_gb": Alias("comm.volume", ("all_reduce",)),
    "collective_vol_alltoall_gb": Alias("comm.volume", ("all_to_all",)),
    "collective_vol_reducescatter_gb": Alias("comm.volume", ("reduce_scatter",)),
    "collective_vol_total_gb": Alias("comm.volume"),
    "communication_fraction": Alias("comm.fraction"),
    "compute_comm_overlap": Alias("overlap.ratio"),
    "dominant_kernel_concentration": Alias("compute.dominant_kernel"),
    "load_imbalance_ratio": Alias("balance.load_imbalance"),
    "mean_sm_coverage": Alias("compute.sm_coverage"),
    "memory_transfer_overhead": Alias("memory.transfer_overhead"),
    "mfu": Alias("compute.mfu"),
    "moe_fraction": Alias("compute.moe_share"),
    "scale_up_bw_utility": Alias("whatif.scale_up_bandwidth_x2"),
    "straggler": Alias("balance.straggler_delay"),
    "total_communication_time": Alias("comm.time"),
    "tpot": Alias("serving.tpot"),
    "ttft": Alias("serving.ttft"),
}

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "algorithm bandwidth": ("comm.algbw",),
    "bubble": ("overlap.pipeline_bubble", "overlap.bubble_ideal"),
    "bus bandwidth": ("comm.busbw",),
    "cost": ("cost.step", "cost.token"),
    "energy": ("energy.step", "energy.token"),
    "goodput": ("serving.goodput", "goodput.training"),
    "hang": ("comm.unfinished", "comm.missing_calls"),
    "hfu": ("compute.hfu",),
    "idle": ("time.idle", "time.idle_host", "time.idle_device", "time.idle_unknown"),
    "iteration time": ("time.step", "log.step"),
    "mbu": ("memory.mbu",),
    "message sizes": ("comm.count", "comm.volume"),
    "occupancy": ("compute.occupancy", "compute.sm_coverage", "compute.busy"),
    "overlap": ("overlap.ratio", "overlap.efficiency"),
    "pipeline edges": ("comm.edges",),
    "point to point": ("comm.edges", "comm.busbw"),
    "recomputation": ("compute.recompute_share", "compute.model_flops_share"),
    "roofline": ("compute.roofline_efficiency", "compute.above_roofline"),
    "scaling": ("scaling.efficiency",),
    "tail latency": ("serving.e2e_latency", "serving.ttft", "time.step"),
    "throughput": ("throughput.tokens", "throughput.samples", "serving.output_throughput"),
}
"""Terms of the field, in lower case, and the metrics that state them or come closest."""
