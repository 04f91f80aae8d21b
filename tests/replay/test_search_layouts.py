# SPDX-License-Identifier: Apache-2.0
"""A search over layouts: the same work, the devices it takes, and memory that is examined or said not to
be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.replay_jobs import traced
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate

from cclbench.ground.errors import InputError, UsageError
from cclbench.present.search_picture import draw_front
from cclbench.replay.answer import Replay
from cclbench.replay.scenario import parse_scenario
from cclbench.replay.scenario_file import read_scenario, write_scenario
from cclbench.replay.search import parse_limit, search_space
from cclbench.replay.space import SearchSpace, read_space

SPACE = SearchSpace({"parallelism.dp": ("2", "4", "8"), "parallelism.tp": ("2", "4")})
MODEL = {"parameters": 1_000_000_000, "hidden": 2048, "layers": 2, "heads": 16}


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    """Kernels of 8 ms on two by two ranks, four micro-batches."""
    ops = [op for _ in range(4) for op in (Compute(2_000_000), Collective("all_reduce", "tp", 1 << 20))]
    program = Program((*ops, Collective("all_reduce", "dp", 1 << 22)), steps=2, closing=True)
    truth = simulate(Layout(dp=2, tp=2), program, Network(Link(2_000, 1)))
    with traced(truth, model=MODEL, batch={"micro": 1, "sequence_length": 512}, microbatches=4) as made:
        yield made


def test_the_same_work_on_other_devices(replay: Replay) -> None:
    """Kernels go as 1 / (dp · tp): the global batch stays, and every scenario says so."""
    found = search_space(replay, SPACE)
    assert found.devices == 4
    assert len(found.ranked) == found.points == 6
    for trial in found.ranked:
        degrees = {
            key: int(value) for key, _, value in (text.partition("=") for text in trial.scenario.texts[:2])
        }
        devices = degrees["parallelism.dp"] * degrees["parallelism.tp"]
        assert trial.devices == devices
        assert trial.scenario.texts[-1] == "batch=global"
        assert trial.step_ns == replay.predict(parse_scenario(trial.scenario.texts)).step_ns or devices == 4
        assert trial.ranked_ns == pytest.approx(8_000_000 * 4 / devices, rel=0.25)
        assert trial.memory is None
        assert "memory not examined: the optimizer is unknown" in str(trial.unexamined)
    assert [trial.devices for trial in found.front] == [4, 8, 16, 32]
    rows = [row for row in found.rows if row["metric"] == "search.memory"]
    assert len(rows) == 6
    assert all(row["value"] is None and "not examined" in row["reason"] for row in rows)


def test_tokens_of_a_device_count_devices(replay: Replay) -> None:
    """What all scale to loses: per device the run's own layout is the best."""
    found = search_space(replay, SPACE, goal="tokens_per_second_per_device", tokens=1_000.0)
    tokens = [found.tokens_of(trial) for trial in found.ranked]
    assert tokens == sorted(tokens, key=lambda one: -(one or 0))
    assert found.best_trial.devices == 4
    last = found.ranked[-1]
    assert found.tokens_of(last) == pytest.approx(
        1_000 * found.unchanged_ns * 4 / (last.ranked_ns * last.devices)
    )


def test_devices_are_limited(replay: Replay) -> None:
    found = search_space(replay, SPACE, limits=[parse_limit("devices<=8")])
    assert {trial.devices for trial in found.ranked} == {4, 8}
    assert all("beyond devices<=8" in str(trial.infeasible) for trial in found.infeasible)
    with pytest.raises(UsageError, match="no layouts"):
        search_space(replay, SearchSpace({"compute": ("x1",)}), limits=[parse_limit("devices<=8")])


def test_what_makes_no_layout_is_infeasible(replay: Replay) -> None:
    found = search_space(replay, SearchSpace({"parallelism.dp": ("2", "16"), "parallelism.tp": ("2", "3")}))
    reasons = {trial.scenario.texts[:2]: str(trial.infeasible) for trial in found.infeasible}
    assert "16 heads cannot be split over 3" in reasons["parallelism.dp=2", "parallelism.tp=3"]
    assert "4 micro-batches of a rank are 0.5" in reasons["parallelism.dp=16", "parallelism.tp=2"]
    assert len(found.ranked) == 1


def test_a_search_keeps_the_global_batch(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("space:\n  parallelism.dp: ['8']\n  batch: [rank]\n", encoding="utf-8")
    with pytest.raises(InputError, match="the global batch stays"):
        read_space(path)


def test_the_best_comes_back_from_its_file(replay: Replay, tmp_path: Path) -> None:
    best = search_space(replay, SPACE).best_trial
    write_scenario(best.scenario, tmp_path / "best.yaml")
    name, texts = read_scenario(tmp_path / "best.yaml")
    assert replay.predict(parse_scenario(texts, name)) == best.predicted


def test_the_front_is_drawn_against_devices(replay: Replay) -> None:
    figure = draw_front(search_space(replay, SPACE), title="a run")
    axes = figure.axes[0]
    assert axes.get_xlabel() == "devices"
    assert axes.get_xscale() == "log"
