# SPDX-License-Identifier: Apache-2.0
"""Use of the links in real traces, from the bytes and times of the collectives alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Measure

# Tesla V100-SXM2: 6 NVLink 2 of which NCCL's constants count on 20 GB/s each; 8 ranks in the node.
USABLE_BYTES_PER_S = 6 * 20e9
FACTOR = 2 * 7 / 8


def test_eight_v100_use_a_fifth_of_their_links_to_reduce(test_data: Path, measure: Measure) -> None:
    run = measure(test_data / "kineto" / "dlrm_8xv100")
    calls = run.collectives().to_pandas()
    reduces = calls[(calls["kind"] == "all_reduce") & calls["transfer_ns"].notna()]
    assert len(reduces)
    share = (reduces["in_bytes"].sum() * FACTOR) / (reduces["transfer_ns"].sum() / 1e9) / USABLE_BYTES_PER_S
    (row,) = (
        row
        for row in run.rows
        if row["metric"] == "comm.bandwidth_utilization"
        and (row["collective"], row["group"], row["rank"]) == ("all_reduce", None, None)
    )
    assert row["value"] == pytest.approx(share)
    assert row["value"] == pytest.approx(0.21, abs=0.01)
    assert "no card names the system" in row["reason"]
