# SPDX-License-Identifier: Apache-2.0
"""Names of CCL-Bench's metric tools, and the metric of cclbench that each stands for, or why none does.

The definitions are ours: units are base SI (fractions, bytes, bytes per second), and collective
payloads are the large side.  Its tools' names: tools/main.py of github.com/cornell-sysphotonics/ccl-bench.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cclbench.ground.errors import UsageError


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name for a metric, or for its part about some kinds of collectives."""

    metric: str
    collectives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a name stands for no metric, and what to ask instead."""

    reason: str
    instead: str


ALIASES: Final[Mapping[str, Alias]] = {
    "achieved_flops_from_trace_json": Alias("compute.achieved_flops"),
    "average_memory_bandwidth": Alias("memory.copy_bandwidth"),
    "avg_comm_bandwidth_GBps": Alias("comm.algbw"),
    "avg_step_time": Alias("time.step"),
    "bandwidth_utilization": Alias("comm.bandwidth_utilization", ("all_reduce",)),
    "bandwidth_utilization_allgather_group_6": Alias("comm.busbw", ("all_gather",)),
    "bandwidth_utilization_allreduce_group_6": Alias("comm.busbw", ("all_reduce",)),
    "bandwidth_utilization_alltoall_group_6": Alias("comm.busbw", ("all_to_all",)),
    "bandwidth_utilization_peertopeer_group_6": Alias(
        "comm.bandwidth_utilization", ("send", "recv", "send_recv")
    ),
    "bandwidth_utilization_reducescatter_group_6": Alias("comm.busbw", ("reduce_scatter",)),
    "break_down_steps": Alias("compute.category_share"),
    "coll_call_num": Alias("comm.count"),
    "collective_vol_allgather_gb": Alias("comm.volume", ("all_gather",)),
    "collective_vol_allreduce_gb": Alias("comm.volume", ("all_reduce",)),
    "collective_vol_alltoall_gb": Alias("comm.volume", ("all_to_all",)),
    "collective_vol_reducescatter_gb": Alias("comm.volume", ("reduce_scatter",)),
    "collective_vol_total_gb": Alias("comm.volume"),
    "communication_fraction": Alias("comm.fraction"),
    "communication_overhead": Alias("comm.fraction"),
    "communication_overlap_ratio": Alias("overlap.ratio"),
    "communication_ratio": Alias("comm.fraction"),
    "compute_comm_overlap": Alias("overlap.ratio"),
    "compute_utilization_proxy": Alias("compute.busy"),
    "dominant_kernel_concentration": Alias("compute.dominant_kernel"),
    "estimated_bandwidth": Alias("memory.hbm_utilization"),
    "estimated_throughput_tokens_per_s": Alias("throughput.tokens"),
    "hockney_alpha_s": Alias("comm.alpha", ("all_reduce",)),
    "hockney_beta_s_per_byte": Alias("comm.beta", ("all_reduce",)),
    "kernel_compute_time_group_6": Alias("compute.time"),
    "load_imbalance_ratio": Alias("balance.load_imbalance"),
    "mean_sm_coverage": Alias("compute.sm_coverage"),
    "memory_bound_fraction": Alias("memory.bound_share"),
    "memory_transfer_overhead": Alias("memory.transfer_overhead"),
    "mfu": Alias("compute.mfu"),
    "moe_fraction": Alias("compute.moe_share"),
    "num_comm_kernels": Alias("comm.count"),
    "scale_up_bw_utility": Alias("whatif.scale_up_bandwidth_x2"),
    "straggler": Alias("balance.straggler_delay"),
    "straggler_metrics": Alias("balance.straggler_slowdown"),
    "total_comm_time_s": Alias("comm.time"),
    "total_communication_time": Alias("comm.time"),
    "total_compute_time_s": Alias("compute.time"),
    "tpot": Alias("serving.tpot"),
    "tpot_group_6": Alias("serving.tpot"),
    "traffic_window": Alias("comm.windows"),
    "ttft": Alias("serving.ttft"),
    "ttft_group_6": Alias("serving.ttft"),
}

REFUSALS: Final[Mapping[str, Refusal]] = {
    "aggregate_gpu_utilization": Refusal(
        "a GPU that waits in a collective would count as used",
        "compute.busy is the share in which it computes, time.step_parts has waits and idle time",
    ),
    "allreduce_comm_time_s": Refusal(
        "waiting and transfer are different causes, and times of kinds that run at once do not add up",
        "comm.wait and comm.transfer by kind, overlap.exposed_by for what is not hidden",
    ),
    "avg_comm_kernel_time_s": Refusal(
        "a mean over collectives of all sizes, including their waits, is of no collective",
        "comm.wait and comm.transfer by kind, comm.busbw by size",
    ),
    "comm_kernel_breakdown_tpu": Refusal(
        "times of kinds that run at once do not add up to a whole",
        "comm.transfer by kind, overlap.exposed_by for what is not hidden",
    ),
    "estimated_total_tokens": Refusal(
        "tokens are the card's, not FLOPs of a trace over an assumed model size",
        "throughput.tokens, from the card's batch and the step",
    ),
    "flops_per_token_used": Refusal(
        "a constant of an assumed model size is no measurement",
        "compute.mfu states its FLOPs, compute.model_flops_share compares them with those of operators",
    ),
    "gpu_step_score": Refusal(
        "its weights and reference values are chosen by hand, and a smaller batch improves it",
        "throughput.tokens_per_device, or cost.token with a price",
    ),
    "hockney_inverse_beta_Bps": Refusal(
        "the inverse of another metric would double its rows", "comm.beta; its inverse is in B/s"
    ),
    "throughput_group_6": Refusal(
        "a server's total rate grows with its accelerators",
        "serving.total_tokens_per_device, or serving.output_throughput for the output of all",
    ),
    "total_kernel_time": Refusal(
        "summed over streams and ranks it can exceed the time that passed",
        "compute.time and comm.time, which are unions per rank and step; cclbench ops --by kernel lists sums",
    ),
    "total_model_flops_from_args": Refusal(
        "a sum over a capture grows with the capture",
        "compute.achieved_flops per second, or cclbench ops --by program",
    ),
    "total_trace_time": Refusal(
        "the length of a capture is no result", "time.step with --window trace is its device time"
    ),
    "wall_time_s": Refusal(
        "the length of a capture is no result", "time.step with --window trace is its device time"
    ),
}


def refusal_of(name: str) -> UsageError | None:
    """The error for a name that stands for no metric: why, and what to ask instead; None for other names."""
    if (refusal := REFUSALS.get(name)) is None:
        return None
    what = f"{name} of CCL-Bench stands for no metric: {refusal.reason}"
    return UsageError(what, hint=f"instead: {refusal.instead}")


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
    "step": ("time.step", "log.step"),
    "tail latency": ("serving.e2e_latency", "serving.ttft", "time.step"),
    "throughput": ("throughput.tokens", "throughput.samples", "serving.output_throughput"),
}
"""Terms of the field, in lower case, and the metrics that state them or come closest."""
