# SPDX-License-Identifier: Apache-2.0
"""What people get: rows, critical path, contention, knee; against answers worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate, write

import cclbench
from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError, UsageError
from cclbench.machine import Machine
from cclbench.record.run import Run
from cclbench.replay.answer import Replay
from cclbench.replay.answer_rows import fidelity_note
from cclbench.replay.result import ReplayResult, replay_scenarios
from cclbench.replay.scenario import parse_scenario

NODE = Machine(Hardware(per_node=2))


def stored(folder: Path, *ops: object, link: Link, steps: int = 3) -> Run:
    """Two ranks that do the same."""
    program = Program(ops, steps=steps, closing=True)  # type: ignore[arg-type]
    truth = simulate(Layout(dp=2), program, Network(link))
    write(truth, folder / "traces")
    return cclbench.ingest(folder / "traces", store=folder / "store")


@pytest.fixture(scope="module")
def bound_by_communication(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Kernels of 20 µs between all-reduces of 1 to 5 MiB without latency, 1 µs a KiB, in turn."""
    ops = [op for i in range(1, 6) for op in (Compute(20_000), Collective("all_reduce", "dp", i << 20))]
    folder = tmp_path_factory.mktemp("communication")
    return stored(folder, *ops, Compute(20_000), link=Link(0, 1_000))


@pytest.fixture(scope="module")
def bound_by_compute(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Kernels of 2 ms beside all-reduces of up to 1.5 ms that nobody awaits before they are done."""
    ops = [
        op
        for i in range(1, 6)
        for op in (Collective("all_reduce", "dp", i * 300 << 10, f"{i}"), Compute(2_000_000))
    ]
    folder = tmp_path_factory.mktemp("compute")
    return stored(folder, *ops, Compute(20_000), link=Link(1_000, 1_000))


def step(found: ReplayResult, number: int = 0) -> float:
    ns = found.predicted[number].step_ns
    assert ns is not None
    return ns


def test_twice_the_bandwidth_halves_what_the_step_waits_for(bound_by_communication: Run) -> None:
    found = replay_scenarios(bound_by_communication, ["scale_up.bandwidth=x2"], machine=NODE)
    assert found.unchanged.step_ns == pytest.approx(found.measured_ns, rel=0.01)
    saved = (1 + 2 + 3 + 4 + 5) * 1024 * 1_000 / 2
    assert step(found) == pytest.approx(found.measured_ns - saved, rel=0.01)
    assert found.predicted[0].low_ns == found.predicted[0].high_ns == step(found)
    # the critical path is the whole of the time
    for path in (found.unchanged.path, found.predicted[0].path):
        assert sum(path.places.values()) == path.length_ns
        assert sum(path.communication.values()) == path.places["communication"]
    before, after = found.unchanged.path, found.predicted[0].path
    assert before.places["communication"] == 3 * 15 * 1024 * 1_000
    assert after.places["communication"] == pytest.approx(before.places["communication"] / 2, rel=1e-6)
    assert before.places["compute"] == 3 * 6 * 20_000
    assert list(before.communication) == [("all_reduce", "0-1")]


def test_bandwidth_is_of_no_use_to_a_step_bound_by_compute(bound_by_compute: Run) -> None:
    found = replay_scenarios(bound_by_compute, ["scale_up.bandwidth=x2"], machine=NODE)
    assert found.unchanged.step_ns == pytest.approx(found.measured_ns, rel=0.01)
    assert step(found) == pytest.approx(found.measured_ns, rel=0.001)
    path = found.predicted[0].path
    assert path.places["compute"] > 0.98 * path.length_ns


def test_a_slower_rank_holds_all_up(bound_by_compute: Run) -> None:
    found = replay_scenarios(bound_by_compute, ["rank[1].kernels.time=x1.5"], machine=NODE)
    assert step(found) == pytest.approx(1.5 * found.measured_ns, rel=0.01)
    assert max(found.predicted[0].path.ranks, key=found.predicted[0].path.ranks.__getitem__) == 1


@pytest.mark.parametrize(("off", "said"), [(-0.02, "-2.0%"), (0.011, "+1.1%"), (0.009, None)])
def test_an_unchanged_replay_more_than_1_percent_off_says_so(
    off: float, said: str | None, bound_by_compute: Run
) -> None:
    replay = Replay(bound_by_compute, machine=NODE)
    replay.unchanged = replace(replay.unchanged, step_ns=replay.measured_ns * (1 + off))
    reason = fidelity_note(replay.unchanged.step_ns, replay.measured_ns)
    assert (reason is None) if said is None else (reason or "").startswith(f"{said} off the measured step")


def test_scenarios_and_sweeps_come_on_top_of_what_is_set(bound_by_communication: Run) -> None:
    found = replay_scenarios(
        bound_by_communication,
        ["kernels.time=x2"],
        scenarios=["scale_up.bandwidth=x2,rank[0].kernels.time=x0.5"],
        sweeps=["scale_up.bandwidth=x1..x4"],
        machine=NODE,
    )
    labels = [p.scenario.label for p in found.predicted]
    assert labels == [
        "kernels.time=x2",
        "+ scale_up.bandwidth=x2,rank[0].kernels.time=x0.5",
        *(f"scale_up.bandwidth=x{f}" for f in (1, 2, 4)),
    ]
    assert step(found, 2) == step(found, 0)
    assert step(found, 1) <= step(found, 3)


def test_the_knee_is_where_little_is_left_to_gain(bound_by_compute: Run) -> None:
    """Above x0.5 the all-reduces hide behind the kernels; below they do not."""
    found = replay_scenarios(bound_by_compute, sweeps=["scale_up.bandwidth=x0.125..x8"], machine=NODE)
    steps = [p.step_ns for p in found.predicted]
    assert all(a >= b for a, b in pairwise(steps))
    (knee,) = [row for row in found.rows if row["metric"] == "whatif.knee"]
    best = steps[-1]
    factors = [0.125, 0.25, 0.5, 1, 2, 4, 8]
    assert knee["value"] == next(f for f, ns in zip(factors, steps, strict=True) if ns <= best * 1.05)
    assert 0.125 < knee["value"] <= 1


def test_rows_are_those_of_results(bound_by_communication: Run, repository: Path) -> None:
    found = replay_scenarios(bound_by_communication, ["scale_up.bandwidth=x2"], machine=NODE)
    schema = json.loads((repository / "cclbench" / "schemas" / "result.json").read_text())
    row = {**schema, **schema["definitions"]["row"]}
    row.pop("$id", None)
    rows = found.rows
    for one in rows:
        jsonschema.validate(one, row)
    measured = next(r for r in rows if r["metric"] == "whatif.measured_step")
    assert measured["provenance"] == "measured"
    assert {r["provenance"] for r in rows if r is not measured} == {"modelled"}
    assert {r["stat"] for r in rows if r["metric"] == "whatif.step"} == {None, "low", "high"}


def test_what_is_known_within_bounds_only_is_null_with_its_bounds(tmp_path: Path) -> None:
    ops = [op for size in (1, 4) for op in (Compute(20_000), Collective("all_reduce", "dp", size << 20))]
    run = stored(tmp_path, *ops, Compute(20_000), link=Link(500_000, 1_000), steps=2)
    found = replay_scenarios(run, ["scale_up.bandwidth=x2"], machine=NODE)
    assert found.predicted[0].step_ns is None
    rows = {r["stat"]: r for r in found.rows if r["metric"] == "whatif.step"}
    assert rows[None]["value"] is None
    assert rows[None]["status"] == "not_applicable"
    assert "only bounds are known" in rows[None]["reason"]
    truth = found.measured_ns - 5 * 1024 * 1_000 / 2
    assert rows["low"]["value"] * 1e9 <= truth <= rows["high"]["value"] * 1e9


def test_kernels_beside_communication_are_quicker_without_it(bound_by_compute: Run) -> None:
    """With a factor of 2, a kernel beside communication all along takes half its time alone."""
    still = Replay(bound_by_compute, machine=NODE, contention=2.0)
    assert still.unchanged.step_ns == pytest.approx(still.measured_ns, rel=0.01)
    plain = Replay(bound_by_compute, machine=NODE)
    fast = [r.predict(parse_scenario(["scale_up.bandwidth=x1000"])).high_ns for r in (plain, still)]
    assert fast[0] == pytest.approx(plain.measured_ns, rel=0.01)
    assert fast[1] < 0.85 * plain.measured_ns


def test_what_cannot_be_replayed(bound_by_compute: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no setting is given"):
        replay_scenarios(bound_by_compute)
    # a run without windows cannot be replayed
    run = stored(tmp_path, Compute(1_000), link=Link(1, 1))
    with pytest.raises(InputError, match="has no windows"):
        Replay(run, ranks=[])


def test_ranks_alone_keep_their_waiting(bound_by_communication: Run) -> None:
    found = replay_scenarios(bound_by_communication, ["scale_up.bandwidth=x2"], ranks=[0], machine=NODE)
    assert found.predicted[0].high_ns == pytest.approx(found.unchanged.step_ns)
    assert any("are not matched across ranks" in note for note in found.notes)
    assert np.isfinite(found.predicted[0].low_ns)
