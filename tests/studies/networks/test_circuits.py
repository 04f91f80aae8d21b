# SPDX-License-Identifier: Apache-2.0
"""Circuit switches between nodes: answers worked out by hand, and the program simulated again with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from helpers.replay_programs import program, replayed, simulated, step
from helpers.synthetic import Collective, Compute, Layout, Program, Transfer, simulation
from helpers.true_steps import _true_step

from cclbench.ground.errors import UsageError
from cclbench.replay.scenario import parse_scenario

TRANSFER_NS = 5_000 + 100 * 1024
"""Of a MiB in `simulated`."""


@contextmanager
def circuits(latency_ns: int) -> Iterator[None]:
    """Ports of the generator's ranks talk to one process group at a time, within and between nodes."""
    arrive, held = simulation._Simulation.arrive, dict[tuple[int, int], tuple[tuple[int, ...], int]]()

    def later(self: Any, rank: int, key: Any, call: Any, at: int) -> Any:
        done = arrive(self, rank, key, call, at)
        if done.end is not None:
            latest = max(done.arrivals.values())
            for member in done.members:
                group, end = held.get((id(self), member), (done.group, 0))
                latest = max(latest, end + (latency_ns if group != done.group else 0))
            done.end += latest - max(done.arrivals.values())
            held.update({(id(self), member): (done.group, done.end) for member in done.members})
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation._Simulation, "arrive", later)
        yield


def alternating(between_ns: int) -> Program:
    """Two groups of each rank take turns, a kernel of so many ns before each collective."""
    return program(
        *(Compute(between_ns), Collective("all_reduce", "dp", 1 << 20)),
        *(Compute(between_ns), Collective("all_reduce", "tp", 1 << 20)),
    )


APART = Layout(dp=2, tp=2, gpus_per_host=1)


def test_reconfiguration_shows_as_far_as_it_outlasts_the_kernel_between_two_phases() -> None:
    """Two boundaries a step, each a kernel of 300 µs long: of 500 µs each shows 200 µs."""
    replay = replayed(simulated(alternating(300_000), APART))
    unchanged = replay.unchanged.step_ns
    steps = {
        us: step(replay, f"scale_out.reconfiguration={us}us") for us in (0, 100, 200, 310, 400, 500, 800)
    }
    assert steps[100] == pytest.approx(unchanged, abs=20)
    # the first of the first step's phases follows nothing: 7 of 8 boundaries in 4 steps
    assert steps[500] - unchanged == pytest.approx(2 * 200_000 * 7 / 8, rel=0.06)
    assert [*steps.values()] == sorted(steps.values())


@pytest.mark.parametrize("latency_us", [0, 50, 250, 400, 2_000])
def test_it_is_the_step_simulated_again_with_circuits(latency_us: int) -> None:
    ops = (
        *(Transfer("recv", 1 << 18, 1), Compute(150_000), Collective("all_gather", "dp", 1 << 20)),
        *(Compute(250_000), Transfer("send", 1 << 18, 1), Collective("all_reduce", "tp", 1 << 19)),
        *(Compute(50_000), Collective("reduce_scatter", "dp", 1 << 20)),
    )
    layout = Layout(dp=2, tp=2, pp=2, gpus_per_host=1)
    replay = replayed(simulated(program(*ops), layout))
    with circuits(latency_us * 1_000):
        true = _true_step(simulated(program(*ops), layout))
    assert step(replay, f"scale_out.reconfiguration={latency_us}us") == pytest.approx(true, rel=5e-4)


def test_groups_within_a_node_need_no_circuits() -> None:
    replay = replayed(simulated(alternating(100_000), Layout(dp=2, tp=2, gpus_per_host=2)))
    found = replay.predict(parse_scenario(["scale_out.reconfiguration=1ms"]))
    assert "more than one process group" in str(found.idle)
    alone = replayed(simulated(alternating(100_000), Layout(dp=2, tp=2, gpus_per_host=4)))
    assert "leaves a node" in str(alone.predict(parse_scenario(["scale_out.reconfiguration=1ms"])).idle)


def test_transfers_of_two_groups_that_overlapped_take_turns() -> None:
    """Both all-reduces begin together; one behind the other, the step is one transfer longer."""
    ops = (
        *(Compute(200_000), Collective("all_reduce", "dp", 1 << 20, "a")),
        Collective("all_reduce", "tp", 1 << 20, "b"),
    )
    replay = replayed(simulated(program(*ops), APART))
    longer = step(replay, "scale_out.reconfiguration=0us") - replay.unchanged.step_ns
    assert longer == pytest.approx(TRANSFER_NS, rel=0.05)


@pytest.mark.parametrize("value", ["25", "2s", "x2", "-1ms"])
def test_latencies_have_a_unit_and_a_limit(value: str) -> None:
    with pytest.raises(UsageError, match=r"scale_out\.reconfiguration"):
        parse_scenario([f"scale_out.reconfiguration={value}"])
