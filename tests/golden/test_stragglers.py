# SPDX-License-Identifier: Apache-2.0
"""Two real pipeline jobs' operators against their published what-if answers.

ST: DP 2 x PP 4, 32 steps, the last stage has more work; AR: DP 4 x PP 4, 44 steps, one slow rank.  The
published replays have no launch delays and take means and medians over all stages and steps, too.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.record.run import Run

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
    rows = {
        row["stat"]: row for row in job.run.rows
        if row["metric"] == "balance.straggler_slowdown" and row["rank"] is None and row["category"] is None
    }  # fmt: skip
    row = rows[None]
    assert row["status"] == "ok"
    assert row["value"] == pytest.approx(job.published["blocking_slowdown"], rel=0.03)
    assert rows["low"]["value"] <= row["value"] <= rows["high"]["value"]
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
