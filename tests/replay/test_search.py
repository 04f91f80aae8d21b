# SPDX-License-Identifier: Apache-2.0
"""Search over settings, and the sampler of its candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import inf, prod
from pathlib import Path
from random import Random

import pytest
from helpers.replay_jobs import traced
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate, write
from jsonschema import Draft7Validator

import cclbench
from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.json_schema import packaged_schema
from cclbench.machine import Machine
from cclbench.present.search_picture import draw_front
from cclbench.replay.answer import Replay
from cclbench.replay.sampler import Point, explore_grid
from cclbench.replay.scenario import parse_scenario
from cclbench.replay.scenario_file import read_scenario, write_scenario
from cclbench.replay.search import parse_limit, search_space
from cclbench.replay.space import SearchSpace, read_space


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """Two ranks, all-reduces of five sizes without latency between kernels."""
    folder = tmp_path_factory.mktemp("search")
    ops = [op for i in range(1, 6) for op in (Compute(800_000), Collective("all_reduce", "dp", i << 20))]
    program = Program((*ops, Compute(20_000)), steps=2, closing=True)
    write(simulate(Layout(dp=2), program, Network(Link(0, 1_000))), folder / "traces")
    run = cclbench.ingest(folder / "traces", store=folder / "store")
    return Replay(run, machine=Machine(Hardware(per_node=2)))


SPACE = SearchSpace(
    {"scale_up.bandwidth": ("x1", "x2", "x4"), "kernels.time": ("unchanged", "x0.5")},
    {"scale_up.bandwidth": {"x2": 10, "x4": 15}, "kernels.time": {"x0.5": 20}},
    "EUR/h",
)


def test_all_points_are_ranked_as_by_hand(replay: Replay) -> None:
    """Communication takes 15 · 1,024 µs, the kernels 4,020 µs, one after the other."""
    found = search_space(replay, SPACE)
    by_hand = {
        (rate, share): 15 * 1024 / rate + 4_020 * share + found.unchanged_ns / 1e3 - 15 * 1024 - 4_020
        for rate in (1, 2, 4)
        for share in (1, 0.5)
    }
    expected = sorted(by_hand, key=by_hand.__getitem__)
    assert len(found.ranked) == found.points == 6
    for trial, (rate, share) in zip(found.ranked, expected, strict=True):
        texts = [f"scale_up.bandwidth=x{rate}", *(["kernels.time=x0.5"] if share == 0.5 else [])]
        assert [*trial.scenario.texts] == texts
        assert trial.step_ns == pytest.approx(by_hand[rate, share] * 1e3, rel=1e-3)
        assert trial.step_ns == replay.predict(parse_scenario(texts)).step_ns
        assert trial.low_ns <= trial.step_ns <= trial.high_ns


def test_the_front_is_what_none_beats_in_both(replay: Replay) -> None:
    """By cost 0, 10, 15, 20, 30, 35 the step falls until 15, where the network is four times as fast."""
    found = search_space(replay, SPACE)
    assert [trial.cost for trial in found.front] == [0, 10, 15, 35]
    steps = [trial.ranked_ns for trial in found.front]
    assert steps == sorted(steps, reverse=True)
    assert found.front[-1] == found.best_trial
    assert search_space(replay, SearchSpace(SPACE.values)).front == ()


def test_what_is_refused_or_beyond_a_limit_is_told(replay: Replay) -> None:
    space = SearchSpace(
        {"collective.all_reduce": ("unchanged", "tree"), "copies.bandwidth": ("x1", "x2")},
        {"copies.bandwidth": {"x2": 7}},
    )
    found = search_space(replay, space, limits=[parse_limit("cost<=5")])
    assert [trial.scenario.label for trial in found.ranked] == ["copies.bandwidth=x1"]
    reasons = {trial.scenario.label: trial.infeasible for trial in found.infeasible}
    assert reasons.keys() == {
        "copies.bandwidth=x2",
        "collective.all_reduce=tree, copies.bandwidth=x1",
        "collective.all_reduce=tree, copies.bandwidth=x2",
    }
    assert "cost<=5" in str(reasons["copies.bandwidth=x2"])
    assert "needs a named machine" in str(reasons["collective.all_reduce=tree, copies.bandwidth=x1"])
    rows = {row["category"]: row for row in found.rows if row["metric"] == "search.step" and not row["stat"]}
    assert rows["copies.bandwidth=x2"]["value"] is None
    assert rows["copies.bandwidth=x1"]["value"] == found.unchanged_ns / 1e9
    none = search_space(replay, SPACE, limits=[parse_limit("step<=1us")])
    assert not none.ranked
    assert len(none.infeasible) == 6
    with pytest.raises(InputError, match="no point of the space is feasible"):
        _ = none.best_trial


def test_a_limit_of_the_step_keeps_what_is_faster(replay: Replay) -> None:
    found = search_space(replay, SPACE, limits=[parse_limit("step<=12ms")])
    assert {trial.scenario.label for trial in found.ranked} == {
        trial.scenario.label for trial in search_space(replay, SPACE).ranked if trial.ranked_ns <= 12e6
    }
    assert 0 < len(found.ranked) < 6
    # fewer trials than points
    found = search_space(replay, SPACE, trials=4, seed=1)
    assert len(found.ranked) == 4
    assert found.points == 6
    # tokens go as the inverse of the step
    found = search_space(replay, SPACE, goal="tokens_per_second_per_device", tokens=1_000.0)
    best = found.best_trial
    assert found.tokens_of(best) == pytest.approx(1_000 * found.unchanged_ns / best.step_ns)
    # a limit of a cost that is not stated is refused
    with pytest.raises(UsageError, match="the space does not state"):
        search_space(replay, SearchSpace(SPACE.values), limits=[parse_limit("cost<=1")])


def test_the_best_comes_back_from_its_file(replay: Replay, tmp_path: Path) -> None:
    best = search_space(replay, SPACE).best_trial
    write_scenario(best.scenario, tmp_path / "best.yaml")
    name, texts = read_scenario(tmp_path / "best.yaml")
    assert replay.predict(parse_scenario(texts, name)) == best.predicted


@pytest.mark.parametrize("text", ["cost>=3", "costs<=3", "cost<=x", "step<="])
def test_a_constraint_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_limit(text)


def test_a_space_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(
        "space:\n  scale_up.bandwidth: [x1, x2, x4]\n  kernels.time: [unchanged, x0.5]\n"
        "cost:\n  scale_up.bandwidth: {x2: 10, x4: 15}\n  kernels.time: {x0.5: 20}\ncost_unit: EUR/h\n"
    )
    assert read_space(path) == SPACE
    Draft7Validator.check_schema(dict(packaged_schema("space")))
    # a space has an end
    path = tmp_path / "large.yaml"
    values = ", ".join(f"x{n}" for n in range(1, 102))
    path.write_text(
        f"space:\n  kernels.time: [{values}]\n  copies.bandwidth: [{values}]\n  host.time: [{values}]\n"
    )
    with pytest.raises(InputError, match="more than 1,000,000"):
        read_space(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("space:\n  kernels.time: [x1, y2]\n", "bad.yaml:2: kernels.time=y2"),
        ("space:\n  kernels.time:\n  - x1\n  - y2\n", "bad.yaml:4: kernels.time=y2"),
        ("space:\n  kernel.time: [x1]\n", "did you mean kernels.time"),
        ("space:\n  kernels.time: []\n", "bad.yaml:2: space.kernels.time: is empty"),
        ("space:\n  kernels.time: [x1, x1]\n", "names something twice"),
        ("space:\n  kernels.time: [x1]\ncost:\n  kernels.times: {x1: 3}\n",
         "bad.yaml:4: the space has no 'kernels.times'"),
        ("space:\n  kernels.time: [x1]\ncost:\n  kernels.time: {x2: 3}\n",
         "bad.yaml:4: the space has no 'x2'"),
        ("space:\n  kernels.time: [x1]\ncost:\n  kernels.time: {x1: .inf}\n",
         "bad.yaml:4: cost.kernels.time.x1: is Infinity but must be a number"),
        ("space:\n  kernels.time: [x1]\ncost:\n  kernels.time: {x1: much}\n", "must be a number"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_space_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as failed:
        read_space(path)
    assert says in str(failed.value)


LAYOUTS = SearchSpace({"parallelism.dp": ("2", "4", "8"), "parallelism.tp": ("2", "4")})
SIZES = {"parameters": 1_000_000_000, "hidden": 2048, "layers": 2, "heads": 16}


@pytest.fixture(scope="module")
def layouts() -> Iterator[Replay]:
    """Kernels of 8 ms on two by two ranks, four micro-batches."""
    ops = [op for _ in range(4) for op in (Compute(2_000_000), Collective("all_reduce", "tp", 1 << 20))]
    program = Program((*ops, Collective("all_reduce", "dp", 1 << 22)), steps=2, closing=True)
    truth = simulate(Layout(dp=2, tp=2), program, Network(Link(2_000, 1)))
    with traced(truth, model=SIZES, batch={"micro": 1, "sequence_length": 512}, microbatches=4) as made:
        yield made


def test_the_same_work_on_other_devices(layouts: Replay) -> None:
    """Kernels go as 1 / (dp · tp): the global batch stays, and every scenario says so."""
    found = search_space(layouts, LAYOUTS)
    assert found.devices == 4
    assert len(found.ranked) == found.points == 6
    for trial in found.ranked:
        degrees = {
            key: int(value) for key, _, value in (text.partition("=") for text in trial.scenario.texts[:2])
        }
        devices = degrees["parallelism.dp"] * degrees["parallelism.tp"]
        assert trial.devices == devices
        assert trial.scenario.texts[-1] == "batch=global"
        assert trial.step_ns == layouts.predict(parse_scenario(trial.scenario.texts)).step_ns or devices == 4
        assert trial.ranked_ns == pytest.approx(8_000_000 * 4 / devices, rel=0.25)
        assert trial.memory is None
        assert "memory not examined: the optimizer is unknown" in str(trial.unexamined)
    assert [trial.devices for trial in found.front] == [4, 8, 16, 32]
    rows = [row for row in found.rows if row["metric"] == "search.memory"]
    assert len(rows) == 6
    assert all(row["value"] is None and "not examined" in row["reason"] for row in rows)


def test_tokens_of_a_device_count_devices(layouts: Replay) -> None:
    """What all scale to loses: per device the run's own layout is the best."""
    found = search_space(layouts, LAYOUTS, goal="tokens_per_second_per_device", tokens=1_000.0)
    tokens = [found.tokens_of(trial) for trial in found.ranked]
    assert tokens == sorted(tokens, key=lambda one: -(one or 0))
    assert found.best_trial.devices == 4
    last = found.ranked[-1]
    assert found.tokens_of(last) == pytest.approx(
        1_000 * found.unchanged_ns * 4 / (last.ranked_ns * last.devices)
    )


def test_devices_are_limited(layouts: Replay) -> None:
    found = search_space(layouts, LAYOUTS, limits=[parse_limit("devices<=8")])
    assert {trial.devices for trial in found.ranked} == {4, 8}
    assert all("beyond devices<=8" in str(trial.infeasible) for trial in found.infeasible)
    with pytest.raises(UsageError, match="no layouts"):
        search_space(layouts, SearchSpace({"compute": ("x1",)}), limits=[parse_limit("devices<=8")])
    # what makes no layout is infeasible
    found = search_space(layouts, SearchSpace({"parallelism.dp": ("2", "16"), "parallelism.tp": ("2", "3")}))
    reasons = {trial.scenario.texts[:2]: str(trial.infeasible) for trial in found.infeasible}
    assert "16 heads cannot be split over 3" in reasons["parallelism.dp=2", "parallelism.tp=3"]
    assert "4 micro-batches of a rank are 0.5" in reasons["parallelism.dp=16", "parallelism.tp=2"]
    assert len(found.ranked) == 1


def test_a_search_keeps_the_global_batch(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("space:\n  parallelism.dp: ['8']\n  batch: [rank]\n", encoding="utf-8")
    with pytest.raises(InputError, match="the global batch stays"):
        read_space(path)


def test_the_front_is_drawn_against_devices(layouts: Replay) -> None:
    axes = draw_front(search_space(layouts, LAYOUTS), title="a run").axes[0]
    assert axes.get_xlabel() == "devices"
    assert axes.get_xscale() == "log"


LARGEST = 10_000


def made_up(seed: int) -> tuple[tuple[int, ...], Callable[[Point], float]]:
    """A grid of 501 to 10,000 points, and the sum of a part by axis and half as much by pair of axes."""
    random = Random(seed)  # noqa: S311 - chance that repeats
    shape: tuple[int, ...] = ()
    while not 500 < prod(shape) <= LARGEST:
        shape = tuple(random.randint(2, 10) for _ in range(random.randint(3, 7)))
    own = [[random.random() for _ in range(size)] for size in shape]
    pairs = {
        (a, b): [[random.random() / 2 for _ in range(shape[b])] for _ in range(shape[a])]
        for a in range(len(shape))
        for b in range(a)
    }

    def objective(point: Point) -> float:
        alone = sum(own[axis][value] for axis, value in enumerate(point))
        return 0.5 + alone + sum(part[point[a]][point[b]] for (a, b), part in pairs.items())

    return shape, objective


def test_a_tenth_of_the_points_comes_within_two_percent_of_the_least() -> None:
    near = 0
    for seed in range(50):
        shape, objective = made_up(seed)
        most = prod(shape) // 10
        found = explore_grid(shape, objective, most, seed)
        assert len(found) <= most
        assert all(found[point] == objective(point) for point in found)
        least = min(map(objective, product(*map(range, shape))))
        near += min(found.values()) <= 1.02 * least
    assert near >= 45


def test_a_small_grid_is_looked_at_whole() -> None:
    shape, objective = (2, 3, 4), lambda point: float(sum(point))
    assert [*explore_grid(shape, objective, 24, 0)] == [*product(range(2), range(3), range(4))]
    # a grid of exactly as many points is looked at whole
    asked: list[Point] = []
    explore_grid((2, 3), lambda point: asked.append(point) or 1.0, 6, 3)  # type: ignore[func-returns-value]
    assert asked == [*product(range(2), range(3))]


def test_a_seed_gives_the_same_points() -> None:
    shape, objective = made_up(3)
    assert explore_grid(shape, objective, 60, 5) == explore_grid(shape, objective, 60, 5)
    assert explore_grid(shape, objective, 60, 5) != explore_grid(shape, objective, 60, 6)


@pytest.mark.parametrize("most", [1, 2, 7, 23])
def test_no_more_points_are_looked_at_than_allowed_nor_any_twice(most: int) -> None:
    asked: list[Point] = []
    explore_grid((2, 3, 4), lambda point: asked.append(point) or float(sum(point)), most, 1)  # type: ignore[func-returns-value]
    assert len(asked) == len({*asked}) == most


def test_a_descent_ends_at_the_best_of_each_line() -> None:
    """Of 20 x 20 points along lines of 20: the least of all."""
    found = explore_grid((20, 20), lambda point: abs(point[0] - 13) + abs(point[1] - 4.5), 60, 0)
    assert min(found, key=found.__getitem__)[0] == 13
    assert min(found.values()) == 0.5
    assert len(found) == 60
    # one needle along each axis, which no neighbour tells of
    found = explore_grid((30, 30), lambda point: (point[0] != 17) + (point[1] != 3), 62, 4)
    assert min(found.values()) == 0
    # points without an answer are left behind
    shape = (10, 10, 10)
    found = explore_grid(shape, lambda point: inf if sum(point) < 20 else float(sum(point)), 200, 0)
    assert min(found.values()) == 20
