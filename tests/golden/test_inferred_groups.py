# SPDX-License-Identifier: Apache-2.0
"""Real traces that state no process group: what is inferred, and which condition refuses the others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.ground.errors import UsageError
from cclbench.record.run import Run

from .conftest import Measure

CAVEAT = "process groups are inferred (R1): all 8 ranks run one sequence of 8 collectives in step"


@pytest.fixture(scope="module")
def stated(kineto: Path, measure: Measure) -> Run:
    """DLRM on eight ranks, whose execution traces state the process group."""
    return measure(kineto / "dlrm_8xv100")


@pytest.fixture(scope="module")
def inferred(kineto: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same without the execution traces."""
    folder = tmp_path_factory.mktemp("inferred") / "dlrm"
    folder.mkdir()
    for file in (kineto / "dlrm_8xv100").glob("*.json.gz"):
        shutil.copyfile(file, folder / file.name)
    return cclbench.run(folder, store=folder.parent / "store")


def test_groups_and_figures_are_those_with_execution_traces(stated: Run, inferred: Run) -> None:
    matching = inferred.manifest["matching"]
    assert (matching["matched"], matching["rows"], matching["complete"]) == (64, 64, 8)
    assert matching["unmatched"] == {}
    columns = ["rank", "kind", "group", "group_size", "start_ns", "arrival_ns", "wait_ns", "transfer_ns"]
    by = ["rank", "start_ns"]
    own, true = (run.collectives().to_pandas().sort_values(by)[columns] for run in (inferred, stated))
    assert own.to_dict("records") == true.to_dict("records")
    assert inferred.manifest["clocks"] == stated.manifest["clocks"]
    (group,) = inferred.groups().to_pylist()
    known = {"group": "0-7", "ranks": [*range(8)], "size": 8, "descriptions": [], "source": "inferred"}
    assert group == known
    assert [one["source"] for one in stated.groups().to_pylist()] == ["stated"]
    assert stated.manifest["inference"] is None
    found = numbers(inferred)
    assert found == numbers(stated)
    assert found["comm.wait", None, None, None, None, None, None] is not None


def numbers(run: Run) -> dict[tuple[Any, ...], float | None]:
    keys = ("metric", "rank", "step", "group", "collective", "category", "stat")
    topics = ("time.", "comm.wait", "comm.transfer", "comm.skew", "balance.")
    return {
        tuple(row[key] for key in keys): row["value"] for row in run.rows if row["metric"].startswith(topics)
    }


def test_every_number_that_rests_on_the_group_says_so(stated: Run, inferred: Run) -> None:
    assert not any("inferred" in (row["reason"] or "") for row in stated.rows)
    said = {row["metric"] for row in inferred.rows if (row["reason"] or "").endswith(CAVEAT)}
    silent = {row["metric"] for row in inferred.rows if row["value"] is not None} - said
    assert {"comm.wait", "comm.busbw", "time.exposed_wait", "balance.straggler_rank"} <= said
    assert {"time.step", "time.idle", "compute.time", "comm.time", "overlap.ratio", "data.stall"} <= silent
    for row in inferred.rows:
        of_group = row["group"] is not None or row["metric"] in ("comm.wait", "comm.transfer", "comm.skew")
        if of_group and row["value"] is not None:
            assert row["reason"].endswith(CAVEAT), row


def test_whatif_says_so_too(inferred: Run) -> None:
    found = cclbench.whatif(inferred, "scale_up.bandwidth=x2")
    for row in found.rows:
        modelled = row["provenance"] == "modelled"
        assert (row["reason"] or "").endswith(CAVEAT) == modelled, row


def test_a_run_without_inference_is_another_one(inferred: Run) -> None:
    folder, store = Path(inferred.manifest["source"]), inferred.path.parent
    run = cclbench.run(folder, store=store, inference=False, metrics=["comm.wait"])
    assert run.id != inferred.id
    assert run.manifest["inference"] is None
    assert run.manifest["ingest"]["inference"] is False
    assert run.manifest["matching"]["unmatched"] == {"its process group is unknown": 64}
    assert run.rows[0]["status"] == "not_applicable"
    with pytest.raises(UsageError, match="has inferred process groups"):
        cclbench.metrics(inferred.id, store=store, inference=False)


def test_two_processes_of_torchrun_are_a_world_of_two(test_data: Path, measure: Measure) -> None:
    run = measure(test_data / "nsys" / "nsysai_mfu_2gpu_before_c8f71e.sqlite", "trace")
    assert [entry["facts"]["world_size"] for entry in run.manifest["ranks"]] == [2, 2]
    reason = "a world of 2 ranks has no other group"
    assert run.manifest["inference"] == {"rule": "R0", "group": "0-1", "reason": reason}
    matching = run.manifest["matching"]
    assert (matching["matched"], matching["instances"], matching["complete"]) == (66, 33, 33)
    assert matching["unmatched"] == {}
    assert matching["wait_beyond_duration_ns"] == 0


@pytest.mark.parametrize(
    ("capture", "reason"),
    [("sampled_2of128", "2 of 128 ranks have a trace"), ("ddp_a100", "1 of 8 ranks has a trace")],
)
def test_refused_with_the_condition(kineto: Path, measure: Measure, capture: str, reason: str) -> None:
    run = measure(kineto / capture)
    assert run.manifest["inference"] == {"rule": None, "group": None, "reason": reason}
    assert run.groups().num_rows == 0
    assert run.manifest["matching"]["matched"] == 0
