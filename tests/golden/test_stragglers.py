# SPDX-License-Identifier: Apache-2.0
"""Stragglers, gains and modelled transfers of real runs, and runs of several files."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cclbench
from cclbench.comparison.interval import compare_captures
from cclbench.record.run import Run

from .conftest import Measure

MAPPING = """\
version: 1
files: trace-JOB.parquet
columns: {rank: rank, step: step, operator: optype, start: start_ts, duration: duration}
time: {unit: s, from: step}
place: {dp: dp_rank, pp: stage}
operators:
  "*-compute": {does: compute}
  optimizer: {does: compute, category: optimizer}
  gc: {does: compute}
  forward-send: {does: send, peer: {pp: 1}}
  forward-recv: {does: recv, peer: {pp: -1}}
  backward-send: {does: send, peer: {pp: -1}}
  backward-recv: {does: recv, peer: {pp: 1}}
  params-all-gather: {does: all_gather, over: [dp]}
  grads-reduce-scatter: {does: reduce_scatter, over: [dp]}
  layernorm-grads-all-reduce: {does: all_reduce, over: []}
  embedding-grads-all-reduce: {does: all_reduce, over: [pp]}
  optimizer-clip-main-grad: {does: all_reduce, over: [dp, pp]}
"""
JOBS = {"ST": (6_784, 1.1787), "AR": (117_216, 1.9730)}
"""Rows of each, and its published slowdown."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was ingested, and what was published of it."""

    name: str
    run: Run
    published: dict[str, Any]

    def slowdown(self, prefix: str) -> dict[str, float]:
        """The rows whose category begins so, by the rest of it."""
        return {
            row["category"].removeprefix(prefix): row["value"]
            for row in self.run.rows
            if row["metric"] == "balance.straggler_slowdown" and (row["category"] or "").startswith(prefix)
        }


@pytest.fixture(scope="module", params=JOBS)
def job(test_data: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    name, folder = request.param, tmp_path_factory.mktemp("stragglers")
    shutil.copy(test_data / "stragglers" / f"trace-{name}.parquet", folder)
    (folder / "timeline.yaml").write_text(MAPPING.replace("JOB", name))
    run = cclbench.run(folder, store=folder / "store", metrics=["balance.straggler_slowdown"])
    return Job(name, run, json.loads((test_data / "stragglers" / f"result-{name}.json").read_text()))


def test_all_rows_are_read_and_steps_are_those_published(job: Job) -> None:
    assert sum(sum(entry.rows.values()) for entry in job.run.record.ranks) == JOBS[job.name][0]
    matching = job.run.record.matching
    assert matching.unmatched == {"its process group has one rank": matching.rows - matching.matched}
    longest = job.run.sql(
        "SELECT step, max(end_ns - start_ns) / 1e9 AS s FROM steps WHERE source = 'module' GROUP BY step"
    ).to_pylist()
    found = {str(row["step"]): row["s"] for row in longest}
    assert found == pytest.approx(job.published["step_t_base"], rel=1e-6, abs=2e-6)


def test_the_slowdown_is_the_published_one(job: Job) -> None:
    row = job.run.figures.row("balance.straggler_slowdown")
    low, high = (job.run.figures.value("balance.straggler_slowdown", stat=stat) for stat in ("low", "high"))
    assert row.status == "ok"
    assert row.value == pytest.approx(job.published["blocking_slowdown"], rel=0.03)
    assert low <= row.value <= high
    assert job.published["blocking_slowdown"] == pytest.approx(JOBS[job.name][1], abs=1e-4)


@pytest.mark.parametrize(("prefix", "of"), [("pp ", "stage"), ("dp ", "dp_rank")])
def test_places_slow_it_down_as_published(prefix: str, of: str, job: Job) -> None:
    """A part lies between 1 and the job, where those published may lie outside."""
    told = job.published[f"blocking_decompose_by_{of}"]
    within = {place: min(max(ratio, 1.0), JOBS[job.name][1]) for place, ratio in told.items()}
    found = job.slowdown(prefix)
    assert found == pytest.approx(within, rel=0.03)
    assert max(found, key=lambda place: found[place]) == max(told, key=lambda place: told[place])


def test_operators_slow_it_down_as_published(job: Job) -> None:
    told = job.published["blocking_decompose_by_optype"]
    found = job.slowdown("operator ")
    assert {"forward-compute", "backward-compute"} <= found.keys()
    assert found == pytest.approx({name: told[name] for name in found}, rel=0.03)


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


Floats = np.ndarray
POINTS = {"tiny-jax-dp2-tp4-cpu": 11, "tiny-llama-ddp4-gloo-cpu": 12, "tiny-llama-fsdp2-tp2-gloo-cpu": 12}
POINTS |= {"tiny-llama-fsdp4-gloo-cpu": 12}
"""Closed steps of each: on XLA's devices the last of twelve is open."""


def step_times(run: Run) -> Floats:
    """The run's closed steps, in order."""
    return np.array([*run.figures.steps("time.step").values()])


def assert_alike(one: Floats, other: Floats) -> None:
    found = compare_captures([one], [other])
    assert found.low < 1 < found.high


@pytest.mark.parametrize("name", POINTS)
def test_shipped_runs_are_like_themselves(repository: Path, measure: Measure, name: str) -> None:
    times = step_times(measure(repository / "workload_cards" / f"{name}.yaml"))
    assert len(times) == POINTS[name]
    half = len(times) // 2
    for one, other in ((times, times), (times[:half], times[half:]), (times[::2], times[1::2])):
        assert_alike(one, other)


def test_the_halves_of_99_steps_on_tpus_are_alike(test_data: Path, measure: Measure) -> None:
    """Steps of 784.4 and 784.2 ms take turns, with one slip."""
    times = step_times(measure(test_data / "xprof" / "tpu_v6e_4plane_host_offload_psum.xplane.pb"))
    assert len(times) == 99
    assert_alike(times[:49], times[49:])
    assert_alike(times, times)
    assert np.corrcoef(times[1:], times[:-1])[0, 1] < -0.8
    assert_alike(times[::2], times[1::2])  # of captures a quarter of a per mille is chance
