# SPDX-License-Identifier: Apache-2.0
"""What is wrong with published numbers, as data: which column, which rows, in words.

Each was found in the tools that computed the numbers, and shows in the numbers themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cclbench.analyzers.aliases import ALIASES
from cclbench.published.leaderboard import PublishedRow

MOST_RANKS_READ: Final = 16
_BANDWIDTHS: Final = tuple(name for name in ALIASES if name.startswith("bandwidth_utilization_"))
_VOLUMES: Final = tuple(name for name in ALIASES if name.startswith("collective_vol_"))
_SAMPLED: Final = (
    *("avg_step_time", "average_memory_bandwidth", "communication_fraction", "compute_comm_overlap"),
    *("load_imbalance_ratio", "mean_sm_coverage", "memory_transfer_overhead", "total_communication_time"),
)


@dataclass(frozen=True, slots=True)
class Defect:
    """Something a reader of a number must know."""

    key: str
    columns: tuple[str, ...]
    applies: Callable[[PublishedRow, float], bool]
    """Of the row and its number in the column."""
    words: str
    no_number: bool = False
    """Whether the number stands for none, so that there is a reason in its place."""


def _whole_trace(row: PublishedRow, _: float) -> bool:
    return row.traced_by("nsys")


def _on_tpu(row: PublishedRow, _: float) -> bool:
    return row.tpu


def _always(_: PublishedRow, __: float) -> bool:
    return True


def _spread(row: PublishedRow) -> bool:
    """Whether each layer's tensors are split over devices, which cannot be done without collectives."""
    return (row.count("tp") or 1) > 1


DEFECTS: Final[Sequence[Defect]] = (
    Defect(
        "unavailable",
        tuple(ALIASES),
        lambda _, value: value == -1,
        "published as -1, which its tool writes for no data",
        no_number=True,
    ),
    Defect(
        "longer_than_step",
        ("total_communication_time",),
        lambda row, value: value > row.number_of("avg_step_time"),
        "is longer than the step itself: durations are summed over streams, devices or the whole capture;"
        " ours is their union within a step",
    ),
    Defect(
        "whole_capture",
        ("total_communication_time",),
        _whole_trace,
        "sum over all devices and the whole capture, not of a step",
    ),
    Defect(
        "summed_share",
        ("communication_fraction",),
        _always,
        "share of summed kernel durations; ours is of their union, where what overlaps counts once",
    ),
    Defect(
        "merged_chips",
        ("compute_comm_overlap",),
        _on_tpu,
        "all chips and the host's threads are merged, so that one chip's compute hides another's"
        " communication; ours is rank by rank",
    ),
    Defect(
        "alone",
        ("compute_comm_overlap",),
        lambda row, value: row.count("total_count") == 1 and value > 0,
        "of one chip, which has nobody to communicate with",
    ),
    Defect(
        "equals_step",
        ("tpot",),
        lambda row, value: value == row.number_of("avg_step_time"),
        "equals the step time: mean duration of an engine iteration in the trace; ours is what a client"
        " measures per output token",
    ),
    Defect(
        "first_pass",
        ("ttft",),
        _always,
        "duration of the trace's first forward pass; ours is what a client waits for its first token",
    ),
    Defect(
        "engine_iteration",
        ("avg_step_time",),
        lambda row, _: row.text("phase") != "training",
        "mean over engine iterations, most of them decode; no step of fixed work",
    ),
    Defect(
        "idle_left_out",
        ("mfu",),
        _on_tpu,
        "of the time in which the chip computes; ours counts idle time too, as the GPU rows do",
    ),
    Defect(
        "gib",
        tuple(name for name in _BANDWIDTHS if "peertopeer" not in name),
        _always,
        "published in GiB/s under the label GB/s, converted here",
    ),
    Defect(
        "waiting_included",
        _BANDWIDTHS,
        _always,
        "median over one rank's kernels, whose duration includes waiting for other ranks",
    ),
    Defect(
        "small_side",
        ("bandwidth_utilization_allgather_group_6",),
        lambda row, _: not row.tpu,
        "from the bytes a rank hands in; ours takes the gathered whole, as many times more as the group has"
        " ranks",
    ),
    Defect(
        "small_side_volume",
        ("collective_vol_allgather_gb", "collective_vol_total_gb"),
        lambda row, _: not row.tpu and row.number_of("collective_vol_allgather_gb") > 0,
        "all-gathers count by the bytes a rank hands in; ours by the gathered whole",
    ),
    Defect(
        "bytes_accessed",
        (*_BANDWIDTHS, *_VOLUMES),
        _on_tpu,
        "from the bytes an operation reads and writes in memory, not from its payload",
    ),
    Defect(
        "nothing_recognised",
        ("communication_fraction", "total_communication_time", "compute_comm_overlap"),
        lambda row, _: _spread(row) and row.number_of("total_communication_time") == 0,
        "published as 0 for tensors split over devices: its tool recognised no communication",
        no_number=True,
    ),
    Defect(
        "no_payload_known",
        _VOLUMES,
        lambda row, _: _spread(row) and row.number_of("collective_vol_total_gb") == 0,
        "published as 0 for tensors split over devices: the trace states no payloads",
        no_number=True,
    ),
    Defect(
        "copies_left_out",
        ("memory_transfer_overhead",),
        lambda row, _: not row.tpu and row.traced_by("json") and not row.traced_by("nsys"),
        "counts kernels that copy and leaves the trace's memcpy rows out; ours counts those rows",
    ),
    Defect(
        "lower_bound",
        ("average_memory_bandwidth",),
        _on_tpu,
        "over the time from a copy's start to its barrier, scheduling included: a lower bound",
    ),
    Defect(
        "straggler_without_data",
        ("straggler",),
        lambda _, value: value == 0,
        "published as 0, which its tool writes for no data",
        no_number=True,
    ),
    Defect(
        "least_in_collectives",
        ("straggler",),
        lambda _, value: value != 0,
        "(most − least) / most time in collectives over ranks, where the straggler is the rank with the"
        " least; ours is by arrival",
    ),
    Defect(
        "busy_ratio",
        ("load_imbalance_ratio",),
        _always,
        "largest over smallest busy time, waiting in collectives included; ours is largest over mean compute",
    ),
    Defect(
        "unweighted",
        ("mean_sm_coverage",),
        _whole_trace,
        "mean over kernels whatever they last; ours is weighted by duration",
    ),
    Defect(
        "category_for_kernel",
        ("dominant_kernel_concentration",),
        _on_tpu,
        "share of an HLO category, not of a kernel",
    ),
    Defect(
        "simulated",
        ("scale_up_bw_utility",),
        _always,
        "simulated by its authors (ASTRA-sim, rings of 50 ns a link), not measured",
    ),
    Defect(
        "sampled",
        _SAMPLED,
        lambda row, _: (row.count("total_count") or 0) > MOST_RANKS_READ,
        f"of {MOST_RANKS_READ} ranks drawn at random, not of all",
    ),
)


def defects(row: PublishedRow, column: str) -> Iterator[Defect]:
    """What is wrong with the row's number in that column; nothing where it has none."""
    value = row.metrics.get(column)
    if value is not None:
        yield from (defect for defect in DEFECTS if column in defect.columns and defect.applies(row, value))
