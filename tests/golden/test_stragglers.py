# SPDX-License-Identifier: Apache-2.0
"""A real pipeline job's operators against its published what-if answers (DP 2 x PP 4, 32 steps).

The published replay has no launch delays and takes means and medians over all steps, too.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import cclbench
from cclbench.record.run import Run

MAPPING = """\
version: 1
files: trace-ST.parquet
columns: {rank: rank, step: step, operator: optype, start: start_ts, duration: duration}
time: {unit: s, from: step}
place: {dp: dp_rank, pp: stage}
ranks: 8
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


@pytest.fixture(scope="module")
def published(test_data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((test_data / "stragglers" / "result-ST.json").read_text())
    return found


@pytest.fixture(scope="module")
def run(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("stragglers")
    shutil.copy(test_data / "stragglers" / "trace-ST.parquet", folder)
    (folder / "timeline.yaml").write_text(MAPPING)
    metrics = ["balance.straggler_slowdown"]
    return cclbench.run(folder, store=folder / "store", metrics=metrics)


def categories(run: Run, prefix: str = "") -> dict[str, float]:
    return {
        row["category"].removeprefix(prefix): row["value"]
        for row in run.rows
        if row["metric"] == "balance.straggler_slowdown" and (row["category"] or "").startswith(prefix or "~")
    }


def test_all_rows_are_read_and_all_calls_matched(run: Run, test_data: Path) -> None:
    rows = pq.read_metadata(test_data / "stragglers" / "trace-ST.parquet").num_rows
    assert sum(sum(entry.rows.values()) for entry in run.record.ranks) == rows == 6_784
    matching = run.record.matching
    assert matching.unmatched == {"its process group has one rank": matching.rows - matching.matched}


def test_steps_are_those_published(run: Run, published: dict[str, Any]) -> None:
    longest = run.sql(
        "SELECT step, max(end_ns - start_ns) / 1e9 AS s FROM steps WHERE source = 'module' GROUP BY step"
    ).to_pylist()
    found = {str(row["step"]): row["s"] for row in longest}
    assert found == pytest.approx(published["step_t_base"], abs=2e-6)


def test_the_slowdown_is_the_published_one(run: Run, published: dict[str, Any]) -> None:
    (row,) = (
        r for r in run.rows
        if r["metric"] == "balance.straggler_slowdown" and r["rank"] is None and r["category"] is None
    )  # fmt: skip
    assert row["status"] == "ok"
    assert row["value"] == pytest.approx(published["blocking_slowdown"], rel=0.02)
    assert published["blocking_slowdown"] == pytest.approx(1.1787, abs=1e-4)


@pytest.mark.parametrize(("prefix", "of"), [("pp ", "stage"), ("dp ", "dp_rank")])
def test_places_slow_it_down_as_published(prefix: str, of: str, run: Run, published: dict[str, Any]) -> None:
    found, told = categories(run, prefix), published[f"blocking_decompose_by_{of}"]
    assert found == pytest.approx(told, rel=0.02)
    assert sorted(found, key=lambda place: -found[place]) == list(told)
