# SPDX-License-Identifier: Apache-2.0
"""Proxies that wait behind each message, simulated."""

from __future__ import annotations

import pytest
from helpers.replay_programs import program, replayed, simulated, step
from helpers.synthetic import Collective, Compute, Layout

from cclbench.replay.scenario import scenario

MIB = 1 << 20


def test_a_fence_is_paid_for_each_message_to_another_node() -> None:
    """An all-to-all of four ranks on two nodes sends two messages off each node's rank: 2 x 7 µs."""
    ops = (Compute(200_000), Collective("all_to_all", "ep", MIB))
    replay = replayed(simulated(program(*ops), Layout(ep=4, gpus_per_host=2)))
    more = step(replay, "scale_out.fence=7us") - replay.unchanged.step_ns
    assert more == pytest.approx(14_000, abs=20)
    # a ring of four ranks has 2 x 3 steps
    ops = (Compute(200_000), Collective("all_reduce", "dp", MIB))
    ring = replayed(simulated(program(*ops), Layout(dp=4, gpus_per_host=2)))
    assert step(ring, "scale_out.fence=1us") - ring.unchanged.step_ns == pytest.approx(6_000, abs=20)
    near = replayed(simulated(program(*ops), Layout(dp=4)))
    assert "leaves a node" in str(near.predict(scenario(["scale_out.fence=1us"])).idle)
