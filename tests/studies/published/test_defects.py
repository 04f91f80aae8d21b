# SPDX-License-Identifier: Apache-2.0
"""Each known defect: how many real values have it, a row that has it and one that has not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cclbench.studies.published.defects import DEFECTS, defects_of
from cclbench.studies.published.leaderboard import Publication

from .conftest import published

COUNTS = """
longer_than_step 47  whole_capture 58  summed_share 101  merged_chips 14  alone 2  equals_step 53
first_pass 53  engine_iteration 54  idle_left_out 17  gib 121  waiting_included 121  small_side 26
small_side_volume 52  bytes_accessed 114  nothing_recognised 12  no_payload_known 225  copies_left_out 26
lower_bound 17  straggler_without_data 48  least_in_collectives 24  busy_ratio 74  unweighted 8
category_for_kernel 17  simulated 43  sampled 16
"""
TPU = {"hardware_type": "TPU", "trace_types": ["json_tpu"]}
NSYS = {"trace_types": ["nsys", "json"]}
GATHER = "bandwidth_utilization_allgather_group_6"
REDUCE = "bandwidth_utilization_allreduce_group_6"
P2P = "bandwidth_utilization_peertopeer_group_6"
GATHERED = "collective_vol_allgather_gb"
TIME, VOLUME = "total_communication_time", "collective_vol_total_gb"
OVERLAP, MFU, STEP = "compute_comm_overlap", "mfu", "avg_step_time"
BANDWIDTH, COPIES = "average_memory_bandwidth", "memory_transfer_overhead"
DOMINANT = "dominant_kernel_concentration"
EXAMPLES: dict[str, tuple[str, tuple[dict[str, float], Any], tuple[dict[str, float], Any]]] = {
    # what: column, (numbers, metadata) that have it, (numbers, metadata) that have not
    "unavailable": (MFU, ({MFU: -1.0}, {}), ({MFU: 1.0}, {})),
    "longer_than_step": (TIME, ({TIME: 1.1, STEP: 1.0}, {}), ({TIME: 1.0, STEP: 1.0}, {})),
    "whole_capture": (TIME, ({TIME: 1.0}, NSYS), ({TIME: 1.0}, {})),
    "summed_share": ("communication_fraction", ({"communication_fraction": 5.0}, {}), ({OVERLAP: 5.0}, {})),
    "merged_chips": (OVERLAP, ({OVERLAP: 5.0}, TPU), ({OVERLAP: 5.0}, {})),
    "alone": (OVERLAP, ({OVERLAP: 82.5}, {"total_count": 1}), ({OVERLAP: 82.5}, {"total_count": 2})),
    "equals_step": ("tpot", ({"tpot": 0.2, STEP: 0.2}, {}), ({"tpot": 0.2, STEP: 0.3}, {})),
    "first_pass": ("ttft", ({"ttft": 0.1}, {}), ({"tpot": 0.1}, {})),
    "engine_iteration": (STEP, ({STEP: 1.0}, {"phase": "inference"}), ({STEP: 1.0}, {})),
    "idle_left_out": (MFU, ({MFU: 50.0}, TPU), ({MFU: 50.0}, {})),
    "gib": (REDUCE, ({REDUCE: 1.0}, {}), ({P2P: 1.0}, {})),
    "waiting_included": (REDUCE, ({REDUCE: 1.0}, {}), ({VOLUME: 1.0}, {})),
    "link_samples": (P2P, ({P2P: 5.0}, NSYS), ({GATHER: 5.0}, {})),
    "small_side": (GATHER, ({GATHER: 1.0}, {}), ({REDUCE: 1.0}, {})),
    "small_side_volume": (VOLUME, ({VOLUME: 2.0, GATHERED: 1.0}, {}), ({VOLUME: 2.0, GATHERED: 0.0}, {})),
    "bytes_accessed": (VOLUME, ({VOLUME: 2.0}, TPU), ({VOLUME: 2.0}, {})),
    "nothing_recognised": (TIME, ({TIME: 0.0}, {"tp": 4}), ({TIME: 0.0}, {})),
    "no_payload_known": (VOLUME, ({VOLUME: 0.0}, {"tp": 4}), ({VOLUME: 1.0}, {"tp": 4})),
    "copies_left_out": (COPIES, ({COPIES: 1.0}, {}), ({COPIES: 1.0}, NSYS)),
    "lower_bound": (BANDWIDTH, ({BANDWIDTH: 1.0}, TPU), ({BANDWIDTH: 1.0}, {})),
    "straggler_without_data": ("straggler", ({"straggler": 0.0}, {}), ({"straggler": 0.1}, {})),
    "least_in_collectives": ("straggler", ({"straggler": 0.1}, {}), ({"straggler": 0.0}, {})),
    "busy_ratio": ("load_imbalance_ratio", ({"load_imbalance_ratio": 1.0}, {}), ({"straggler": 0.1}, {})),
    "unweighted": ("mean_sm_coverage", ({"mean_sm_coverage": 5.0}, NSYS), ({"mean_sm_coverage": 5.0}, {})),
    "category_for_kernel": (DOMINANT, ({DOMINANT: 5.0}, TPU), ({DOMINANT: 5.0}, {})),
    "simulated": ("scale_up_bw_utility", ({"scale_up_bw_utility": 5.0}, {}), ({MFU: 5.0}, {})),
    "sampled": (STEP, ({STEP: 1.0}, {"total_count": 17}), ({STEP: 1.0}, {"total_count": 16})),
}


def test_counts_on_the_real_rows_and_examples_of_all_defects(board: Publication) -> None:
    found = Counter(
        defect.key for row in board.rows for column in row.metrics for defect in defects_of(row, column)
    )
    words = COUNTS.split()
    assert found == dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert list(EXAMPLES) == [defect.key for defect in DEFECTS]
    assert list(defects_of(published({"straggler": None}), "straggler")) == []


@pytest.mark.parametrize("key", EXAMPLES)
def test_a_row_with_the_defect_and_one_without(key: str) -> None:
    column, (bad, of_bad), (good, of_good) = EXAMPLES[key]
    assert key in [defect.key for defect in defects_of(published(bad, **of_bad), column)]
    row = published(good, **of_good)
    assert all(key != defect.key for column in good for defect in defects_of(row, column))


def test_facts_behind_the_counts(board: Publication) -> None:
    """The figures that the definitions' page states, from the numbers alone."""

    def numbers(column: str) -> list[tuple[float, float]]:
        return [
            (value, row.number_in("avg_step_time"))
            for row in board.rows
            if (value := row.metrics.get(column)) is not None
        ]

    assert sum(time > step for time, step in numbers(TIME)) == 47
    assert [tpot == step for tpot, step in numbers("tpot")] == [True] * 53
    stragglers = [value for value, _ in numbers("straggler")]
    assert (stragglers.count(0.0), len(stragglers)) == (48, 72)
    alone = [
        row.metrics["compute_comm_overlap"] for row in board.rows if row.whole_number("total_count") == 1
    ]
    assert alone == [82.4935, 55.2837]
    assert sum((row.whole_number("total_count") or 0) > 16 for row in board.rows) == 2
