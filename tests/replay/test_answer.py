# SPDX-License-Identifier: Apache-2.0
"""From a scenario to an answer: simulation and critical path."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate, write

import cclbench
from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError, UsageError
from cclbench.machine import Machine
from cclbench.record.rows import Row
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.answer_rows import fidelity_note, knee_row, modelled_row, path_rows, predicted_rows
from cclbench.replay.critical_path import Path as CriticalPath
from cclbench.replay.memory import MemoryNeed
from cclbench.replay.nodes import Nodes
from cclbench.replay.outcome import Predicted, ReplayedStep
from cclbench.replay.result import ReplayResult, replay_scenarios
from cclbench.replay.scenario import Scenario, parse_scenario
from cclbench.replay.search import SearchLimit, SearchResult, SearchTrial, _pareto_front, parse_limit
from cclbench.replay.simulate import cut_pieces, simulate_nodes

NODE = Machine(Hardware(per_node=2))


def stored(folder: Path, *ops: object, link: Link, steps: int = 3) -> Run:
    """Two ranks that do the same."""
    program = Program(ops, steps=steps, closing=True)  # type: ignore[arg-type]
    write(simulate(Layout(dp=2), program, Network(link)), folder / "traces")
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
    return stored(tmp_path_factory.mktemp("compute"), *ops, Compute(20_000), link=Link(1_000, 1_000))


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


def test_a_slower_rank_holds_all_up(bound_by_compute: Run) -> None:
    found = replay_scenarios(bound_by_compute, ["scale_up.bandwidth=x2"], machine=NODE)
    assert found.unchanged.step_ns == pytest.approx(found.measured_ns, rel=0.01)
    assert step(found) == pytest.approx(found.measured_ns, rel=0.001)
    path = found.predicted[0].path
    assert path.places["compute"] > 0.98 * path.length_ns
    # a slower rank holds all up
    found = replay_scenarios(bound_by_compute, ["rank[1].kernels.time=x1.5"], machine=NODE)
    assert step(found) == pytest.approx(1.5 * found.measured_ns, rel=0.01)
    assert max(found.predicted[0].path.ranks, key=found.predicted[0].path.ranks.__getitem__) == 1


@pytest.mark.parametrize(("off", "said"), [(-0.02, "-2.0%"), (0.011, "+1.1%"), (0.009, None)])
def test_a_replay_over_1_percent_off_says_so(off: float, said: str | None, bound_by_compute: Run) -> None:
    replay = Replay(bound_by_compute, machine=NODE)
    replay.unchanged = replace(replay.unchanged, step_ns=replay.measured_ns * (1 + off))
    reason = fidelity_note(replay.unchanged.step_ns, replay.measured_ns)
    assert (reason is None) if said is None else (reason or "").startswith(f"{said} off the measured step")


def test_scenarios_and_sweeps_come_on_top_of_what_is_set(bound_by_communication: Run) -> None:
    more = {"scenarios": ["scale_up.bandwidth=x2,rank[0].kernels.time=x0.5"], "machine": NODE}
    more |= {"sweeps": ["scale_up.bandwidth=x1..x4"]}
    found = replay_scenarios(bound_by_communication, ["kernels.time=x2"], **more)
    labels = [p.scenario.label for p in found.predicted]
    expected = ["kernels.time=x2", "+ scale_up.bandwidth=x2,rank[0].kernels.time=x0.5"]
    expected += [*(f"scale_up.bandwidth=x{f}" for f in (1, 2, 4))]
    assert labels == expected
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


PLACES = {"host": 20, "compute": 100, "communication": 80}
PATH = CriticalPath(200, PLACES, {("all_reduce", "0-1"): 60, (None, None): 20}, {1: 150, 0: 50})
UNCHANGED = ReplayedStep(1_000_000.0, PATH)


def predicted(step: float | None, low: float = 400_000, high: float = 600_000, **more: Any) -> Predicted:
    expected = None if step is None else ReplayedStep(step, PATH)
    change = more.pop("change", Scenario("asked", ("kernels.time=x2",)))
    return Predicted(change, expected, low, high, PATH, more.pop("basis", ("by a", "by b")), **more)


def told(row: Row) -> tuple[Any, ...]:
    return row.metric, row.stat, row.value, row.unit, row.status, row.better


def test_rows_of_a_step_its_bounds_and_what_is_gained() -> None:
    rows = predicted_rows(predicted(500_000), UNCHANGED)
    assert [told(row) for row in rows[:6]] == [
        ("whatif.step", None, 0.0005, "s", "ok", "lower"),
        ("whatif.step", "low", 0.0004, "s", "ok", "lower"),
        ("whatif.step", "high", 0.0006, "s", "ok", "lower"),
        ("whatif.speedup", None, 2.0, "ratio", "ok", "higher"),
        ("whatif.speedup", "low", 1_000_000 / 600_000, "ratio", "ok", "higher"),
        ("whatif.speedup", "high", 2.5, "ratio", "ok", "higher"),
    ]
    assert {row.category for row in rows} == {"asked"}
    assert {row.provenance for row in rows} == {"modelled"}
    assert {(row.window, row.version) for row in rows} == {("steps", 1)}
    assert (rows[0].reason, rows[3].reason) == ("by a; by b", None)
    assert predicted_rows(predicted(500_000, basis=()), UNCHANGED)[0].reason is None
    # bounds alone are said to be bounds
    rows = predicted_rows(predicted(None), UNCHANGED)
    why = "only bounds are known, see stats low and high: by a; by b"
    assert [told(rows[i]) for i in (0, 3)] == [
        ("whatif.step", None, None, "s", "not_applicable", "lower"),
        ("whatif.speedup", None, None, "ratio", "not_applicable", "higher"),
    ]
    assert rows[0].reason == rows[3].reason == why
    assert rows[0].provenance is None
    plain = predicted_rows(predicted(None, basis=()), UNCHANGED)
    assert plain[0].reason == "only bounds are known, see stats low and high: no model applies"
    # what touches nothing has no rows but its reason
    rows = predicted_rows(predicted(500_000, idle="nothing is touched"), UNCHANGED)
    assert [told(row) for row in rows] == [
        ("whatif.step", None, None, "s", "not_applicable", "lower"),
        ("whatif.speedup", None, None, "ratio", "not_applicable", "higher"),
    ]
    assert {row.reason for row in rows} == {"by a; by b"}


def test_bounds_within_1_percent_are_a_value() -> None:
    assert predicted(None, 990_000, 1_000_000).step_ns == 995_000
    assert predicted(None, 989_999, 1_000_000).step_ns is None
    assert predicted(7, 1, 9).step_ns == 7
    assert predicted(7, 1, 9, idle="why").step_ns is None


def test_shares_of_the_path_by_place_collective_and_rank() -> None:
    rows = path_rows(PATH, "asked")
    assert [(row.stat, row.collective, row.group, row.rank, row.value) for row in rows] == [
        *(("host", None, None, None, 0.1), ("compute", None, None, None, 0.5)),
        ("communication", None, None, None, 0.4),
        ("communication", "all_reduce", "0-1", None, 0.3),
        *(("communication", None, None, None, 0.1), (None, None, None, 0, 0.25)),
        (None, None, None, 1, 0.75),
    ]
    assert {(row.metric, row.unit, row.better) for row in rows} == {("whatif.critical_path", "1", None)}
    assert [row.value for row in path_rows(CriticalPath(0, {"host": 0}, {}, {}), None)] == [0]


def curve(*points: tuple[float, float | None], idle: str | None = None) -> list[tuple[float, Predicted]]:
    made = [(factor, step, Scenario(f"kernels.time=x{factor:g}")) for factor, step in points]
    return [(factor, predicted(step, change=change, idle=idle)) for factor, step, change in made]


@pytest.mark.parametrize(
    ("points", "knee"),
    [
        # at most 5 % above the best, from the worse end on
        ([(1, 200.0), (2, 105.0), (4, 101.0), (8, 100.0)], 2),
        ([(1, 200.0), (2, 105.1), (4, 101.0), (8, 100.0)], 4),
        ([(1, 100.0), (2, 101.0), (4, 105.0), (8, 200.0)], 4),
        ([(1, 100.0), (2, 100.0)], 1),
    ],
)
def test_the_knee_is_within_5_percent_of_the_best(points: list[tuple[float, float]], knee: float) -> None:
    row = knee_row(curve(*points))
    assert told(row) == ("whatif.knee", None, knee, "ratio", "ok", None)
    assert row.category == "kernels.time"
    assert row.reason == "beyond it the sweep gains less than 5% of the step"


def test_a_sweep_known_in_part_or_of_nothing_has_no_knee() -> None:
    row = knee_row(curve((1, 200.0), (2, None), (4, 100.0)))
    assert (row.value, row.reason) == (None, "of 1 of the sweep's 3 points only bounds are known")
    assert knee_row(curve((1, 200.0), idle="nothing")).reason == "nothing"


def test_a_row_without_a_value_does_not_apply() -> None:
    assert told(modelled_row("m", 0.0)) == ("m", None, 0.0, "s", "ok", "lower")
    assert modelled_row("m", 1.0, provenance="measured").provenance == "measured"
    assert modelled_row("m", None, provenance="measured").provenance is None


def test_one_scenario_is_the_only_one() -> None:
    one = ReplayResult(1.0, UNCHANGED, (predicted(5),), (), ())
    assert one.single_outcome.step_ns == 5
    with pytest.raises(UsageError, match="there are 2 scenarios; select one of them"):
        _ = replace(one, predicted=(predicted(5), predicted(6))).single_outcome


def trial(step: float | None, cost: float | None = None, **more: Any) -> SearchTrial:
    low, high = more.pop("low", 1.0), more.pop("high", 9e9)
    predicted, infeasible = more.pop("predicted", None), more.pop("infeasible", None)
    return SearchTrial(Scenario(f"{step}-{cost}"), cost, predicted, step, low, high, infeasible, **more)


def found(*ranked: SearchTrial, **more: Any) -> SearchResult:
    front, infeasible = more.get("front", ()), more.get("infeasible", ())
    tokens, devices = more.get("tokens"), more.get("devices")
    return SearchResult(2e9, ranked, front, infeasible, 7, "EUR/h", "step", tokens, devices)


def test_rows_of_a_search() -> None:
    memory = MemoryNeed(1.0, 2.0, 3.0, 4.0, 100)
    best = trial(1e9, 3.0, predicted=predicted(1e9), low=5e8, high=2e9, devices=8, memory=memory)
    bounded = trial(None, 1.0, low=1e9, high=3e9, devices=4, unexamined="nobody knows")
    refused = trial(None, infeasible="too dear")
    made = found(best, bounded, front=(bounded, best), infeasible=(refused,), tokens=100.0, devices=4)
    rows = made.figures
    by_trial = {
        label: [row for row in rows if row.category == label] for label in ("1000000000.0-3.0", "None-1.0")
    }
    assert told(rows[0])[:3] == ("search.unchanged_step", None, 2.0)
    assert [(row.metric, row.stat, row.value, row.unit) for row in by_trial["1000000000.0-3.0"]] == [
        *(("search.rank", None, 1, "1"), ("search.step", None, 1.0, "s"), ("search.step", "low", 0.5, "s")),
        *(("search.step", "high", 2.0, "s"), ("search.speedup", None, 2.0, "ratio")),
        # twice as fast on twice the devices
        ("search.tokens_per_second_per_device", None, 100.0, "1/s"),
        *(("search.cost", None, 3.0, "EUR/h"), ("search.devices", None, 8, "1")),
        *(("search.memory", None, 10.0, "B"), ("search.front", None, 2, "1")),
    ]
    second = by_trial["None-1.0"]
    assert [(row.metric, row.stat, row.value) for row in second] == [
        *(("search.rank", None, 2), ("search.step", None, None), ("search.step", "low", 1.0)),
        *(("search.step", "high", 3.0), ("search.speedup", None, None), ("search.cost", None, 1.0)),
        *(("search.devices", None, 4), ("search.memory", None, None), ("search.front", None, 1)),
    ]
    assert (second[7].reason, by_trial["1000000000.0-3.0"][1].reason) == ("nobody knows", "by a; by b")
    assert second[1].reason == "only bounds are known, see stats low and high; ranked by the upper one: "
    assert (rows[-1].value, rows[-1].reason) == (None, "too dear")
    assert made.rows[0]["metric"] == "search.unchanged_step"
    assert [row.metric for row in found(trial(1e9)).figures] == [
        "search.unchanged_step",
        *("search.rank", "search.step", "search.step", "search.step", "search.speedup"),
    ]


def test_trials_of_a_search() -> None:
    assert trial(5.0, high=9.0).ranked_ns == 5
    assert trial(None, high=9.0).ranked_ns == 9
    assert trial(5.0, infeasible="x").ranked_ns == float("inf")
    # what a front is against
    assert found(trial(1.0)).priced_by == "cost"
    assert found(trial(1.0), devices=4).priced_by == "devices"
    assert found(trial(1.0), trial(2.0, 3.0), devices=4).priced_by == "cost"
    assert not found(trial(1.0)).relaid
    with pytest.raises(InputError, match="no point of the space is feasible; too dear"):
        _ = found(infeasible=(trial(1.0, infeasible="too dear"),)).best_trial
    # tokens a second and device
    assert found(trial(1e9), tokens=10.0).tokens_of(trial(1e9, devices=8)) == 20
    assert found(trial(1e9), tokens=10.0, devices=4).tokens_of(trial(1e9, devices=8)) == 10
    assert found(trial(1e9), tokens=10.0, devices=4).tokens_of(trial(None)) is None
    assert found(trial(1e9)).tokens_of(trial(1e9)) is None
    # the front is cheapest first and none is beaten in both
    made = ((1.0, 9.0), (3.0, 2.0), (4.0, 2.0), (1.0, 10.0), (5.0, None))
    fast, cheap, beaten, same, free = (trial(*one) for one in made)
    front = _pareto_front([same, beaten, cheap, fast, free], lambda one: one.cost)
    assert front == [free, cheap, fast]


def test_limits_as_people_write_them() -> None:
    assert parse_limit("cost<=100") == SearchLimit("cost", 100.0, "cost<=100")
    assert parse_limit(" devices <= 64 ") == SearchLimit("devices", 64.0, " devices <= 64 ")
    assert {parse_limit(f"step{text}").most for text in ("<=0.5", "<=500ms", " <= 500 ms")} == {5e8}
    with pytest.raises(UsageError, match="'cost' is not KEY<=VALUE; such as cost<=100"):
        parse_limit("cost")
    with pytest.raises(UsageError, match="'step<=3GB': '3GB' is not a step; such as"):
        parse_limit("step<=3GB")


def test_settings_of_a_scenario_and_what_needs_a_machine() -> None:
    keys = "scale_up.bandwidth scale_out.latency kernels.time rank[3].kernels.time copies.bandwidth"
    texts = [f"{key}=x2" for key in keys.split()]
    assert tuple(parse_scenario(texts).changes) == tuple(text.partition("=")[0] for text in texts)
    assert parse_scenario(texts).needs_system is None
    stated = "scale_up.bandwidth=1GB/s scale_out.latency=5us scale_out=infiniband-ndr system=dgx-h200"
    for text in stated.split():
        one = parse_scenario([text])
        assert one.needs_system == text.partition("=")[0]
        assert one.moves_communication
    assert parse_scenario(["collective.all_reduce=tree"]).needs_system == "collective.all_reduce"
    assert parse_scenario(["scale_out.latency=x2"]).moves_communication


NONE = np.empty(0, np.int64)


def one_by_one(nodes: Nodes, source: np.ndarray, target: np.ndarray, lag: np.ndarray) -> list[int]:
    """Ends of all nodes by the definition, each when all it needs is known."""
    ends: dict[int, int] = {}
    first = nodes.first_of_lane
    while len(ends) < len(nodes):
        for i in range(len(nodes)):
            own = [] if first[i] else [(i - 1, int(nodes.gap[i]))]
            fed = [(int(nodes.feeder[i]), int(nodes.feed_lag[i]))] if nodes.feeder[i] >= 0 else []
            edges = [(int(s), int(g)) for s, t, g in zip(source, target, lag, strict=True) if t == i]
            causes = own + fed + edges
            if i not in ends and all(cause in ends for cause, _ in causes):
                ready = max((ends[c] + g for c, g in causes), default=int(nodes.start[i]))
                ends[i] = ready + int(nodes.dur[i])
    return [ends[i] for i in range(len(nodes))]


def test_kernels_start_when_launched_and_when_their_stream_is_free() -> None:
    # host points at 0, 10, 20; kernels of 30, 5, 5 launched by them, 3 later, gap 1 on the stream
    host = n.blank_nodes(3, lane=0, kind=n.HOST, start=[0, 10, 20], end=[0, 10, 20], gap=[0, 10, 10], rank=0)
    work = n.blank_nodes(
        3, lane=1, kind=n.COMPUTE, dur=[30, 5, 5], gap=[0, 1, 1], feeder=[0, 1, 2], feed_lag=3, rank=0
    )
    nodes = n.join_nodes([host, work])
    cut = cut_pieces(nodes, NONE, NONE, NONE)
    assert simulate_nodes(nodes, cut).end.tolist() == [0, 10, 20, 33, 39, 45]
    slow = replace(nodes, gap=np.array([0, 100, 10, 0, 1, 1]))
    assert simulate_nodes(slow, cut).end.tolist() == [0, 100, 110, 33, 108, 118]
    assert simulate_nodes(slow, cut).launched.tolist()[4:] == [4, 5]


@pytest.mark.parametrize("seed", range(25))
def test_pieces_give_what_the_definition_gives(seed: int) -> None:
    random = np.random.default_rng(seed)
    count, lanes = 60, 5
    lane = np.sort(random.integers(0, lanes, count))
    when = np.empty(count, np.int64)  # an order of all nodes in which every edge points forward
    for one in range(lanes):
        when[lane == one] = np.sort(random.choice(10_000, int((lane == one).sum()), replace=False))
    host = np.flatnonzero(lane < 2)
    feeder = np.full(count, -1)
    last = dict.fromkeys(range(lanes), -1)
    for i in np.flatnonzero(lane >= 2):
        before = [h for h in host if when[h] < when[i] and h > last[int(lane[i])]]
        if before and random.random() < 0.7:
            feeder[i] = last[int(lane[i])] = int(random.choice(before))
    pairs = random.integers(0, count, (14, 2))
    pairs = pairs[when[pairs[:, 0]] < when[pairs[:, 1]]]
    source, target = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    known = {"lane": lane, "rank": 0, "start": when, "end": when, "feeder": feeder}
    most = {"gap": 20, "dur": 40, "feed_lag": 9}
    drawn = {name: random.integers(0, below, count) for name, below in most.items()}
    nodes = n.blank_nodes(count, **known, **drawn)
    lag = random.integers(-3, 10, len(source))
    found = simulate_nodes(nodes, cut_pieces(nodes, source, target, lag))
    assert found.end.tolist() == one_by_one(nodes, source, target, lag)
    assert (found.end - found.start == nodes.dur).all()


def test_a_circle_is_one_clear_error() -> None:
    nodes = n.blank_nodes(4, lane=[0, 0, 1, 1], rank=[0, 0, 1, 1], start=[0, 10, 0, 10], end=[5, 15, 5, 15])
    with pytest.raises(InputError, match="ranks 0, 1 wait for one another in a circle"):
        cut_pieces(nodes, np.array([1, 3]), np.array([2, 0]), np.array([0, 0]))
