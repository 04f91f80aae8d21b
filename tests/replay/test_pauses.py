# SPDX-License-Identifier: Apache-2.0
"""`host[...].time=usual`: what is longer than the rank's own steps at that place; `kernels[recomputed]`."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.launch_trace import write_launches

import cclbench
from cclbench.selftest.exam import ExamItem, simulate_item
from cclbench.selftest.traces import write_traces

USUAL = "host[python+unrecorded].time=usual"


def saved(cause: str, seed: int, folder: Path, setting: str = USUAL) -> tuple[float, float]:
    """The shares of the step that the setting saves, and that the cause costs."""
    made = simulate_item(ExamItem("planted", cause, seed))
    write_traces(made.planted.with_cause, made.truth.histories, folder / "traces")
    answer = cclbench.whatif(cclbench.run(folder / "traces", store=folder / "store"), setting)
    assert made.gain is not None
    return 1 - answer.single_outcome.high_ns / answer.unchanged.step_ns, made.gain


def test_a_pause_in_some_steps_is_not_usual(tmp_path: Path) -> None:
    share, cost = saved("stall_every_third_step_of_one_rank", 108, tmp_path)
    assert share == pytest.approx(cost, abs=0.01)


def test_a_host_that_is_slow_in_each_step_is_usual(tmp_path: Path) -> None:
    share, cost = saved("oversubscribed_cores", 119, tmp_path)
    assert cost > 0.1
    assert share < 0.01


def test_work_of_a_few_steps_has_no_usual_time(tmp_path: Path) -> None:
    """20 launches 500 µs apart in the fourth of eight steps of 1 ms, as of a checkpoint: 10 ms of 18."""
    step, more = [(10.0, 5.0)] * 100, [(500.0, 2.0)] * 20
    write_launches(tmp_path / "traces/rank0.json", [step, step, step, [*step, *more], step, step, step, step])
    answer = cclbench.whatif(cclbench.run(tmp_path / "traces", store=tmp_path / "store"), USUAL)
    steps, cut_us = 7, 10  # the first step is not counted; the first of the 20 follows a usual launch
    unchanged_us = answer.unchanged.step_ns / 1e3
    assert unchanged_us == pytest.approx((steps * 1_000 + 10_000) / steps, rel=0.01)
    assert answer.single_outcome.high_ns / 1e3 == pytest.approx(1_000 + cut_us, rel=0.02)


@pytest.mark.parametrize("seed", [1, 2])
def test_recomputed_kernels_go_with_their_calls(seed: int, tmp_path: Path) -> None:
    share, cost = saved("recomputed_layers", seed, tmp_path, "kernels[recomputed].time=0")
    assert cost > 0.01
    assert share == pytest.approx(cost, abs=0.01)
