# SPDX-License-Identifier: Apache-2.0
"""Real runs split against themselves: what is no difference is not called one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cclbench.comparison.interval import compare_captures
from cclbench.record.run import Run

from .conftest import Measure

Floats = np.ndarray
POINTS = {
    "tiny-jax-dp2-tp4-cpu": 11,
    "tiny-llama-ddp4-gloo-cpu": 12,
    "tiny-llama-fsdp2-tp2-gloo-cpu": 12,
    "tiny-llama-fsdp4-gloo-cpu": 12,
}
"""Closed steps of each: on XLA's devices the last of twelve is open."""


def step_times(run: Run) -> Floats:
    """The run's closed steps, in order."""
    steps = {
        row["step"]: row["value"]
        for row in run.rows
        if row["metric"] == "time.step" and row["rank"] is None and row["step"] is not None
        if row["stat"] is None
    }
    return np.array([steps[step] for step in sorted(steps)])


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
