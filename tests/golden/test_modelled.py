# SPDX-License-Identifier: Apache-2.0
"""A real rank whose partner has no trace: its transfers are modelled, unless nobody wants that."""

from __future__ import annotations

from pathlib import Path

import pytest

import cclbench

METRIC = "comm.transfer"


@pytest.fixture(scope="module")
def alone(test_data: Path, evidence_store: Path) -> cclbench.Run:
    """Rank 0 of two on a node of eight A100, two closed steps and an open one."""
    source = test_data / "kineto" / "nccl_meta_a100"
    return cclbench.run(source, store=evidence_store, metrics=(METRIC,))


def test_a_lone_ranks_transfers_lie_between_nothing_and_what_its_calls_took(alone: cclbench.Run) -> None:
    """Broadcasts of the two closed steps took 30,975 + 7,775 and 30,848 + 7,648 ns."""
    own = {(row["collective"], row["stat"]): row for row in alone.rows if row["rank"] is None}
    assert {row["provenance"] for row in own.values()} == {"modelled"}
    for kind in (None, "all_reduce", "broadcast"):
        low, value, high = (own[kind, stat]["value"] for stat in ("low", None, "high"))
        assert 0 < low <= value <= high
    assert own["broadcast", "high"]["value"] <= (38_750 + 38_496) / 2 / 1e9 * (1 + 1e-12)
    # 102 MB per step among two at 240 GB/s take 0.43 ms at least.
    assert 0.00042 < own["all_reduce", None]["value"] < 0.001
    assert (
        "links as of aws-p4d, azure-nd-a100-v4, oci-gpu4-8, since no card names the system"
        in own[None, None]["reason"]
    )


def test_without_models_there_is_the_reason_only(alone: cclbench.Run) -> None:
    again = cclbench.metrics(alone, metrics=(METRIC,), model=False)
    reason = "no collective is matched across its ranks: 14 not matched with another rank's"
    told = [(row["value"], row["status"], row["reason"]) for row in again.rows]
    assert told == [(None, "not_applicable", reason)] * 2
