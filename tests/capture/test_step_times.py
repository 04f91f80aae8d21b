# SPDX-License-Identifier: Apache-2.0
"""Captured step times, and a begun card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import cclbench
from cclbench.capture.begun_card import begin_card, check_phase, environment_variables, on_device
from cclbench.capture.marks import collective_mark
from cclbench.capture.step_times import StepPhase, StepTimes, write_step_times
from cclbench.card import CardFacts, load_card, validate_card
from cclbench.formats import recognise_format
from cclbench.formats.kineto.events import Args
from cclbench.formats.kineto.payloads import StatedCollectives
from cclbench.formats.step_times import StepTimesFile
from cclbench.ground.errors import InputError, UsageError

TIMES = StepTimes(
    rank=3,
    profiler="torch.profiler",
    records=["shapes"],
    unprofiled=StepPhase.from_seconds([1.0, 3.0]),
    profiled=StepPhase(4, 9.0),
)


def test_what_is_written_is_read_and_evidence_of_a_run(tmp_path: Path) -> None:
    """The overhead is the ratio of means."""
    assert (TIMES.unprofiled.mean_s, TIMES.profiled.mean_s) == (2.0, 2.25)
    assert TIMES.relative_overhead == 0.125
    write_step_times(TIMES, tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == "rank3_step_times.json"
    reader = recognise_format(path, path.read_bytes())
    assert reader.name == "step_times"
    facts = {"rank": 3, "profiler": "torch.profiler", "records": ["shapes"], "profiled_steps": 4}
    seconds = {"step": 2.0, "least": 1.0, "most": 3.0, "median": 2.0}
    facts |= {f"unprofiled_{name}_s": value for name, value in seconds.items()} | {"profiled_step_s": 2.25}
    assert StepTimesFile().read(path).facts == facts | {"unprofiled_steps": 2, "unprofiled_slow_steps": 0}
    (file,) = cclbench.run(path, store=tmp_path / "store").record.evidence
    assert (file.reader, file.facts["rank"]) == ("step_times", 3)


@pytest.mark.parametrize(
    "change",
    [
        {"rank": -1},
        {"unprofiled": {"steps": 0, "seconds": 1.0}},
        {"unprofiled": {"steps": 1, "seconds": 0}},
        {"profiled": {"steps": 1, "seconds": 1e300}},
        {"profiled": {"steps": 1, "seconds": 1.0, "each": [-1.0]}},
        {"profiled": None},
        {"records": ["\x1b[2J"]},
        {"profiler": "<b>"},
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write_step_times(TIMES, tmp_path)
    path = tmp_path / "rank3_step_times.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=r"rank3_step_times\.json"):
        StepTimesFile().read(path)


def test_the_mark_of_a_collective_is_read_as_it_is_written(tmp_path: Path) -> None:
    written = collective_mark(
        "reduce_scatter",
        12,
        "2",
        ranks=[1, 3],
        description="mesh_dp, of replicas",
        payload=(1_508_352, 754_176, "float32"),
        threads={4452, 4450},
    )
    told = StatedCollectives(tmp_path).stated_payload(written, Args())
    assert told is not None
    read, seq = told
    assert seq == 12
    assert (read.collective, read.in_bytes, read.out_bytes) == ("reduce_scatter", 1_508_352, 754_176)
    assert (read.group_name, read.ranks, read.group_description) == ("2", (1, 3), "mesh_dp, of replicas")
    assert (read.dtype, read.rows, read.threads) == ("float32", 1, (4450, 4452))


def test_the_mark_of_a_barrier_has_no_bytes_and_that_of_a_receipt_its_sender(tmp_path: Path) -> None:
    stated = StatedCollectives(tmp_path)
    barrier = stated.stated_payload(
        collective_mark("barrier", 0, "0", ranks=[0, 1], description="all"), Args()
    )
    assert (barrier[0].in_bytes, barrier[0].dtype, barrier[0].threads) == (None, None, ())
    written = collective_mark("recv", 5, "0", ranks=[4, 7], description="pp", peer=7, payload=(0, 8, "int64"))
    receipt = stated.stated_payload(written, Args())
    assert (receipt[0].src_rank, receipt[0].dst_rank, receipt[1]) == (7, None, 5)


FACTS = CardFacts(
    (),
    world_size=8,
    per_node=4,
    framework="pytorch",
    framework_version="2.13.0",
    communication_library="nccl",
    communication_version="2.27.5",
    groups=(("mesh_dp_shard", (0, 2, 4, 6)), ("mesh_tp", (0, 1))),
    phase="training",
    model={"name": "Llama", "parameters": 8_030_261_248},
    batch={"global": 32, "sequence_length": 8192},
    environment={"NCCL_ALGO": "Ring"},
)


def test_the_card_says_what_the_job_says(tmp_path: Path) -> None:
    folder = tmp_path / "my job"
    folder.mkdir()
    begin_card(on_device(FACTS, "NVIDIA H100 80GB HBM3", 85_045_870_592), folder)
    (path,) = folder.iterdir()
    assert path.name == "my-job.yaml"
    assert [problem for problem in validate_card(path) if problem.severity == "error"] == []
    card = load_card(path)
    assert (card.id, card.workload.phase, card.workload.batch.global_) == ("my-job", "training", 32)
    hardware = card.hardware
    assert (hardware.accelerator, hardware.count, hardware.per_node) == ("nvidia-h100-sxm", 8, 4)
    assert (card.parallelism.dp_shard, card.parallelism.tp, card.parallelism.pp) == (4, 2, 1)
    assert card.software.communication.environment == {"NCCL_ALGO": "Ring"}
    assert "parallelism.pp" not in card.raw
    missing = {problem.path for problem in validate_card(path)}
    assert {"workload.precision", "workload.model.layers", "evidence.traces"} <= missing


def test_a_device_that_the_catalog_does_not_know_is_a_gap_with_its_name(tmp_path: Path) -> None:
    assert on_device(FACTS, "cpu").accelerator == "generic-cpu"
    begin_card(on_device(FACTS, "Abacus 3000"), tmp_path)
    (path,) = tmp_path.iterdir()
    assert load_card(path).hardware.accelerator is None
    assert 'the trace says "Abacus 3000"' in path.read_text()
    path.write_text("id: mine\n")  # a card that is there stays
    begin_card(FACTS, tmp_path)
    assert [(one, one.read_text()) for one in tmp_path.iterdir()] == [(path, "id: mine\n")]


def test_nothing_is_guessed_of_what_the_job_does(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="pass phase='training' or 'inference' or 'serving'"):
        begin_card(replace(FACTS, phase=None), tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="one of training, inference, serving"):
        check_phase("train")


def test_variables_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.setenv("NCCL_PROTO", "")
    monkeypatch.setenv("MY_NCCL_ALGO", "Ring")
    found = environment_variables("NCCL_", "TORCH_NCCL_")
    assert found["NCCL_ALGO"] == "Tree"
    assert not {"NCCL_PROTO", "MY_NCCL_ALGO"} & set(found)
