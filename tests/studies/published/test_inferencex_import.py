# SPDX-License-Identifier: Apache-2.0
"""InferenceX's results as published runs, each a point of `cclbench pareto`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from formats.test_inferencex import DISAGGREGATED, ONE_NODE

from cclbench.comparison.build import run_subject
from cclbench.ground.errors import InputError
from cclbench.present.charts.pareto import points_of
from cclbench.record.store import Store
from cclbench.studies.published import import_inferencex


def board(folder: Path, *rows: Any) -> Path:
    path = folder / "agg_bmk.json"
    path.write_text(json.dumps(list(rows)))
    return path


def test_each_point_is_a_run(tmp_path: Path) -> None:
    """800 tokens/s of output on 8 GPUs; of 12 disaggregated ones over all of them."""
    found = import_inferencex(board(tmp_path, ONE_NODE, DISAGGREGATED, {"users": 3}), tmp_path / "store")
    assert [run.name for run in found.runs] == [
        "h200 gpt-oss-120b vllm fp4 1024-8192 8gpu c64",
        "h200 gpt-oss-120b vllm fp4 1024-8192 12gpu c64",
    ]
    assert found.unknown_columns == {"results of agents": 1}
    runs = [Store(tmp_path / "store").get(run.run) for run in found.runs]
    subjects = [run_subject("", run) for run in runs]
    one, disaggregated = points_of(subjects).points
    assert (one.per_device, disaggregated.per_device) == (100, pytest.approx(800 / 12))
    assert one.workload == "gpt-oss-120b, 1,024 input tokens, 8,192 output tokens"
    assert (one.latencies["ttft p50"], one.load["max_concurrency"]) == (0.4, 64)
    (row,) = (r for r in subjects[1].results.rows if r.metric == "serving.output_tokens_per_device")
    assert row.reason == "over all GPUs; published over those that decode"
    assert {r.provenance for r in subjects[0].results.rows} == {"published"}
    assert subjects[0].card_field("hardware.count") == 8
    again = import_inferencex(tmp_path / "agg_bmk.json", tmp_path / "store")
    assert not any(run.new for run in again.runs)


def test_contradicting_rates_are_flagged(tmp_path: Path) -> None:
    found = import_inferencex(board(tmp_path, ONE_NODE | {"tput_per_gpu": 400.0}), tmp_path / "store")
    (run,) = found.runs
    assert run.flagged == run.numbers > 0
    rows = run_subject("", Store(tmp_path / "store").get(run.run)).results.rows
    assert any("contradict its number of GPUs" in (row.reason or "") for row in rows)


def test_nothing_to_import_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no result with tput_per_gpu"):
        import_inferencex(board(tmp_path, {"users": 3}), tmp_path / "store")
