# SPDX-License-Identifier: Apache-2.0
"""Software of a run changed: buckets, launches, schedules; by hand, or simulated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from helpers.replay_programs import program, replayed, simulated, step
from helpers.synthetic import (
    Await,
    Collective,
    Compute,
    Layout,
    Link,
    Network,
    Pause,
    Program,
    simulate,
    simulation,
)
from helpers.true_steps import _true_step

from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import price_collective
from cclbench.hardware.collectives.schedule import read_schedule
from cclbench.machine import Machine
from cclbench.replay.answer import Replay
from cclbench.replay.scenario import parse_scenario

MIB = 1 << 20
MIB_NS = 5_000 + 100 * 1024


def on(replay: Replay, system: str, per_node: int) -> Replay:
    replay.machine = Machine(Hardware(per_node=per_node, system=system))
    return replay


def calls(*sizes: int) -> Program:
    """Gradients, each ready after a kernel, reduced beside the kernels and awaited at the end."""
    made = ((Compute(150_000), Collective("all_reduce", "dp", s, f"{at}")) for at, s in enumerate(sizes))
    return program(*(op for pair in made for op in pair))


def test_buckets_of_one_change_nothing_and_others_need_a_fit_or_a_machine() -> None:
    replay = replayed(simulated(calls(MIB, MIB, MIB, MIB)))
    assert "to merge" in str(replay.predict(parse_scenario(["buckets=1"])).idle)
    with pytest.raises(InputError, match="no fit to predict"):
        replay.predict(parse_scenario(["buckets=2"]))
    size = np.array([1.0 * MIB, 4.0 * MIB])
    apart, joined = price_collective("all_reduce", size, range(2), catalog.system("dgx-h100")).formula_s  # type: ignore[union-attr]
    # of all four in one bucket: measured x t(4 MiB) / 4 t(1 MiB), behind the last kernel of 4 x 150 µs
    end = step(on(replay, "dgx-h100", 8), "buckets=4")
    assert end == pytest.approx(600_000 + 4 * MIB_NS * joined / (4 * apart), rel=0.02)


def test_buckets_by_the_run_s_own_fit() -> None:
    merged = (
        *(Compute(150_000), Compute(150_000), Collective("all_reduce", "dp", 3 * MIB, "a")),
        *(Compute(150_000), Compute(150_000), Collective("all_reduce", "dp", 3 * MIB, "b")),
    )
    found = step(replayed(simulated(calls(MIB, 2 * MIB, MIB, 2 * MIB))), "buckets=2")
    assert found == pytest.approx(_true_step(simulated(program(*merged))), rel=1e-4)


def test_a_bucket_that_is_awaited_before_it_is_full_is_refused() -> None:
    gathers = tuple(
        op
        for size in (MIB, 2 * MIB, MIB, 2 * MIB)
        for op in (Collective("all_gather", "dp", size), Compute(100_000))
    )
    replay = replayed(simulated(program(*gathers)))
    with pytest.raises(InputError, match="awaited before the last"):
        replay.predict(parse_scenario(["buckets=2"]))
    # what awaits the first of a bucket awaits the whole: the step cannot get shorter than without it
    ops = (
        *(Compute(50_000), Collective("all_reduce", "dp", MIB, "a"), Compute(50_000)),
        *(Collective("all_reduce", "dp", 2 * MIB, "b"), Compute(10_000), Await("a"), Compute(400_000)),
    )
    replay = replayed(simulated(program(*ops)))
    assert step(replay, "buckets=2") > replay.unchanged.step_ns


@contextmanager
def launched_at_once() -> Iterator[None]:
    """The generator's hosts take no time for a launch, or for the op around it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "LAUNCH_NS", 0)
        patch.setattr(simulation, "OP_NS", 0)
        yield


def test_launches_of_a_graph_cost_their_host_nothing_in_between() -> None:
    """Forty kernels of 1 µs, launched 2 µs apart: the device waits for its host, with a graph it does not."""
    ops = (*([Compute(1_000)] * 40), Collective("all_reduce", "dp", MIB))
    replay = replayed(simulated(program(*ops)))
    with launched_at_once():
        true = _true_step(simulated(program(*ops)))
    assert replay.unchanged.step_ns > true + 30_000
    assert step(replay, "launches=graph") == pytest.approx(true, rel=2e-3)
    # where each step waits for its device, that remains; a pause between two launches goes
    ops = (Compute(10_000), Pause(200_000), Compute(10_000), Collective("all_reduce", "dp", MIB))
    replay = replayed(simulated(program(*ops)))
    paused = replay.unchanged.step_ns
    assert step(replay, "launches=graph") == pytest.approx(paused - 200_000, abs=10_000)
    assert step(replay, "launches=graph") >= step(replay, "host.time=0")


def test_a_schedule_takes_the_place_of_what_the_library_chose(tmp_path: Path) -> None:
    """Recursive doubling of four ranks, in the ratio of the model's times."""
    path = tmp_path / "steps.yaml"
    path.write_text(
        "kind: all_gather\nranks: 4\nsteps:\n"
        "  - [[0, 1, 0.25], [1, 0, 0.25], [2, 3, 0.25], [3, 2, 0.25]]\n"
        "  - [[0, 2, 0.5], [2, 0, 0.5], [1, 3, 0.5], [3, 1, 0.5]]\n"
    )
    ops = (Compute(100_000), Collective("all_gather", "dp", 64 * MIB))
    replay = on(replayed(simulate(Layout(dp=4), program(*ops), Network(Link(0, 10)))), "dgx-h100", 8)
    system, size = catalog.system("dgx-h100"), np.array([64.0 * MIB])
    new = price_collective("all_gather", size, range(4), system, plan=read_schedule(path)).formula_s[0]  # type: ignore[union-attr]
    old = price_collective("all_gather", size, range(4), system).formula_s[0]  # type: ignore[union-attr]
    moved = 10 * 64 * 1024
    more = step(replay, f"schedule={path}") - replay.unchanged.step_ns
    assert more == pytest.approx((new / old - 1) * moved, abs=50)
    with pytest.raises(InputError, match="missing"):
        parse_scenario([f"schedule={tmp_path / 'missing.yaml'}"])
