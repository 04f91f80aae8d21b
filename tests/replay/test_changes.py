# SPDX-License-Identifier: Apache-2.0
"""Registered changes: against answers worked out by hand, and the program simulated again with the change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.replay_programs import program, replayed, simulated, step
from helpers.synthetic import Await, Case, Collective, Compute, Copy, Layout, Pause, in_layouts, simulation
from helpers.synthetic.program import Op
from helpers.true_steps import _true_step

from cclbench.replay.answer import Replay
from cclbench.replay.change import CHANGES
from cclbench.replay.scenario import parse_scenario

LOADS = ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
HOST_TIMES = ("STEP_NS", "OP_NS", "LAUNCH_NS", "LATENCY_NS", "SYNCHRONISE_NS")


@contextmanager
def hosts(factor: float) -> Iterator[None]:
    """The generator's hosts take so many times as long."""
    with pytest.MonkeyPatch.context() as patch:
        for name in HOST_TIMES:
            patch.setattr(simulation, name, round(getattr(simulation, name) * factor))
        yield


def paused(ops: tuple[Op, ...], factor: float, row: tuple[str, str] | bool = True) -> tuple[Op, ...]:
    """The same with pauses of that row (True: of any) so many times as long."""
    return tuple(
        replace(op, ns=round(op.ns * factor)) if isinstance(op, Pause) and row in (True, op.row) else op
        for op in ops
    )


def test_a_loader_that_is_gone_leaves_the_host_s_other_time() -> None:
    """Of two pauses of the host one is a data loader's; the device waits for both. What of it lies before the
    first window, up to a launch latency, stays as it is."""
    ops = (
        *(Compute(10_000), Pause(300_000, LOADS), Compute(10_000), Pause(200_000)),
        *(Compute(10_000), Collective("all_reduce", "dp", 1 << 20)),
    )
    replay = replayed(simulated(program(*ops)))
    unchanged = replay.unchanged.step_ns
    assert step(replay, "host[loader].time=0") == pytest.approx(unchanged - 300_000, abs=1_000)
    assert step(replay, "host[loader].time=x0.5") == pytest.approx(unchanged - 150_000, abs=1_000)
    other = simulated(program(*paused(ops, 0.25, LOADS)))
    assert step(replay, "host[loader].time=x0.25") == pytest.approx(_true_step(other), abs=1_000)
    with hosts(0.5):
        both = simulated(program(*paused(paused(ops, 0.5), 0.5, LOADS)))
    assert step(replay, "host[loader].time=x0.5", "host.time=x0.5") == pytest.approx(
        _true_step(both), abs=1_000
    )


def test_without_its_straggler_a_step_is_that_of_the_others() -> None:
    ops = (Compute(100_000), Collective("all_reduce", "dp", 1 << 20), Compute(200_000))
    layout = Layout(dp=4)
    replay = replayed(simulated(program(*ops, slow={2: 1500}), layout))
    true = _true_step(simulated(program(*ops), layout))
    assert replay.unchanged.step_ns == pytest.approx(true + 150_000, rel=1e-3)
    assert step(replay, "kernels.time=median") == pytest.approx(true, rel=1e-6)
    # a single rank takes the median of its steps
    replay = replayed(simulated(program(Compute(100_000)), Layout()))
    found = replay.predict(parse_scenario(["kernels.time=median"]))
    assert found.step_ns == pytest.approx(replay.unchanged.step_ns, rel=1e-3)


def test_what_touches_nothing_says_so() -> None:
    replay = replayed(simulated(program(Compute(100_000), Collective("all_reduce", "dp", 1 << 20))))
    for text, why in {
        "copies.bandwidth=x2": "no such copy",
        "host[loader].time=0": "no host thread does that",
        "kernels.time=median": "every such kernel takes the",
    }.items():
        found = replay.predict(parse_scenario([text]))
        assert found.step_ns is None
        assert why in str(found.idle)
    both = replay.predict(parse_scenario(["copies.bandwidth=x2", "kernels.time=x0.5"]))
    assert both.idle is None
    assert any("copies.bandwidth has no effect" in line for line in both.basis)


def test_every_change_says_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.yaml").write_text("kind: all_gather\nranks: 2\nsteps: [[[0, 1, 0.5], [1, 0, 0.5]]]\n")
    for key in CHANGES:
        one = CHANGES.get(key)
        assert one.definition
        named = key.replace("<kind>", "all_reduce")
        for value in one.values.split(", "):
            assert parse_scenario([f"{named}={value}"]).changes.keys() == {named}


@pytest.fixture(scope="module")
def random_cases() -> list[tuple[Case, Replay]]:
    return drawn(14)


def drawn(count: int, fits: Callable[[Layout], bool] = lambda _: True) -> list[tuple[Case, Replay]]:
    """Those of so many random layouts that fit, with programs that copy and pause, and their replays."""
    found: list[tuple[Case, Replay]] = []

    def one(case: Case) -> None:
        more = (Compute(5_000), Copy(60_000, 1 << 20), Pause(80_000, LOADS), *case.program.ops)
        case = replace(case, program=replace(case.program, ops=more))
        if fits(case.layout):
            found.append((case, replayed(case.simulate())))

    in_layouts(count, 7, one)
    return found


def again(case: Case, cause: str, ops: tuple[Op, ...], factor: float) -> float:
    """The step of those operations, stragglers of that cause so many times as late."""
    late = tuple(
        replace(one, ns=round(one.ns * factor)) if one.cause == cause else one
        for one in case.program.stragglers
    )
    return _true_step(replace(case, program=replace(case.program, ops=ops, stragglers=late)).simulate())


def test_random_programs_are_replayed_as_simulated_again(random_cases: list[tuple[Case, Replay]]) -> None:
    settings = ("copies.bandwidth=x2", "host.time=x0.5", "host[loader].time=x0.5")
    errors: dict[str, list[float]] = {text: [] for text in settings}
    for case, replay in random_cases:
        ops = case.program.ops
        copied = tuple(replace(op, ns=op.ns // 2) if isinstance(op, Copy) else op for op in ops)
        true = {"copies.bandwidth=x2": again(case, "copy", copied, 0.5)}
        with hosts(0.5):
            true["host.time=x0.5"] = again(case, "launch", paused(ops, 0.5), 0.5)
        true["host[loader].time=x0.5"] = again(case, "none", paused(ops, 0.5, LOADS), 1)
        for text, found in errors.items():
            found.append(abs(step(replay, text) / true[text] - 1))
    for text, found in errors.items():
        assert float(np.median(found)) < 1e-5, text
        # Whose first windows begin apart, the pace of all ranks is not the longest window.
        assert float(np.quantile(found, 0.8)) < 0.002, text
        assert max(found) < 0.05, text


def test_one_changes_nothing_and_less_is_never_slower(random_cases: list[tuple[Case, Replay]]) -> None:
    for _, replay in random_cases:
        unchanged = replay.unchanged.step_ns
        for key, factors in {
            "copies.bandwidth": (2, 8),
            "host.time": (0.5, 0),
            "host[loader].time": (0.5, 0),
            "kernels.time": (0.5, 0),
            "transfers.time": (0.5, 0),
        }.items():
            assert step(replay, f"{key}=x1") == unchanged
            less, least = (step(replay, f"{key}=x{factor}") for factor in factors)
            assert unchanged >= less >= least
    # without overlap no step is shorter
    for _, replay in random_cases:
        assert step(replay, "overlap=off") >= replay.unchanged.step_ns


def test_random_programs_without_overlap_are_those_that_await_each_collective_at_once() -> None:
    """Of layouts with one kind of groups, whose collectives run in one stream."""

    def one_stream(layout: Layout) -> bool:
        return layout.pp == 1 and sum(size > 1 for size in (layout.dp, layout.tp, layout.ep)) == 1

    errors = []
    for case, replay in drawn(70, one_stream):
        ops = tuple(
            replace(op, label=None) if isinstance(op, Collective) else op
            for op in case.program.ops
            if not isinstance(op, Await)
        )
        serial = step(replay, "overlap=off")
        assert serial >= replay.unchanged.step_ns
        errors.append(serial / again(case, "none", ops, 1) - 1)
    assert len(errors) >= 3
    assert float(np.median(np.abs(errors))) < 1e-4
    assert max(map(abs, errors)) < 0.05
