# SPDX-License-Identifier: Apache-2.0
"""Runs whose all-reduces are StragglAR's, simulated."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.replay_programs import program, replayed, simulated, step
from helpers.synthetic import Collective, Compute, Layout, Link, Network, simulate

from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import price_collective
from cclbench.machine import Machine
from cclbench.replay.answer import Replay
from cclbench.replay.scenario import parse_scenario

MIB = 1 << 20


def late_rank(ns: int, world: int = 8) -> Replay:
    layout = Layout(dp=world, gpus_per_host=8)
    ops = (Compute(500_000), Collective("all_reduce", "dp", 256 * MIB))
    network = Network(Link(20_000, 5))
    truth = simulate(layout, program(*ops, slow={3: 1000 + ns // 500}), network)
    replay = replayed(truth)
    replay.machine = Machine(Hardware(per_node=8, system="dgx-a100"))
    return replay


def test_stragglar_turns_waiting_into_work_as_far_as_the_last_rank_is_late() -> None:
    """Eight ranks: (n + log2 n - 2) / (n - 1) = 9/7 of S after a rank that is late enough, of a ring 14/8."""
    enough, none = late_rank(2_000_000), late_rank(0)
    ring_ns = 20_000 + 5 * 256 * 1024
    saved = enough.unchanged.step_ns - step(enough, "stragglar=measured")
    system = catalog.system("dgx-a100")
    size = np.array([256.0 * MIB])
    now = price_collective("all_reduce", size, range(8), system)
    rounds = price_collective("all_reduce", size, range(8), system, algorithm="stragglar")
    share = 1 - float(rounds.formula_s[0] / now.formula_s[0])  # type: ignore[union-attr]
    assert saved == pytest.approx(share * ring_ns, rel=1e-3, abs=20)
    assert 0.22 < share < 0.28
    assert step(none, "stragglar=measured") == none.unchanged.step_ns


def test_stragglar_needs_a_machine_and_four_ranks() -> None:
    """Only measured arrivals are replayed."""
    few = replayed(simulated(program(Compute(100_000), Collective("all_reduce", "dp", MIB))))
    assert "four or more ranks" in str(few.predict(parse_scenario(["stragglar=measured"])).idle)
    replay = late_rank(100_000)
    replay.machine = Machine(Hardware(per_node=8))
    with pytest.raises(InputError, match="needs a named machine"):
        replay.predict(parse_scenario(["stragglar=measured"]))
    with pytest.raises(UsageError, match="measured"):
        parse_scenario(["stragglar=x2"])
