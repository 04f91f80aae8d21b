# SPDX-License-Identifier: Apache-2.0
"""`host[...].time=usual`: what is longer than the rank's own steps at that place, in simulated jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

import cclbench
from cclbench.selftest.exam import ExamItem, simulate_item
from cclbench.selftest.traces import write_traces

USUAL = "host[python+unrecorded].time=usual"


def saved(cause: str, seed: int, folder: Path) -> tuple[float, float]:
    """The shares of the step that it saves, and that the cause costs."""
    made = simulate_item(ExamItem("planted", cause, seed))
    write_traces(made.planted.with_cause, made.truth.histories, folder / "traces")
    answer = cclbench.whatif(cclbench.run(folder / "traces", store=folder / "store"), USUAL)
    assert made.gain is not None
    return 1 - answer.single_outcome.high_ns / answer.unchanged.step_ns, made.gain


def test_a_pause_in_some_steps_is_not_usual(tmp_path: Path) -> None:
    share, cost = saved("stall_every_third_step_of_one_rank", 108, tmp_path)
    assert share == pytest.approx(cost, abs=0.01)


def test_a_host_that_is_slow_in_each_step_is_usual(tmp_path: Path) -> None:
    share, cost = saved("oversubscribed_cores", 119, tmp_path)
    assert cost > 0.1
    assert share < 0.01
