# SPDX-License-Identifier: Apache-2.0
"""Pareto fronts of serving benchmarks, against brute force, and what limits a comparison."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from formats.test_serving import SGLANG, VLLM
from helpers.command_line import Call
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from cclbench.comparison.serving_points import ServingPoint, ServingPoints, collected_points, non_dominated
from cclbench.present.charts.pareto import draw_points


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=25))
def test_the_front_is_that_of_all_pairs(points: list[tuple[int, int]]) -> None:
    def beaten(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return b[0] >= a[0] and b[1] <= a[1] and b != a

    expected = [not any(beaten(point, other) for other in points) for point in points]
    rates, times = (np.array([point[n] for point in points], np.float64) for n in (0, 1))
    assert non_dominated(rates, times).tolist() == expected


def point(
    rate: float, ttft: float, workload: str = "m", devices: int | None = 2, **load: float
) -> ServingPoint:
    per_device = None if devices is None else rate / devices
    return ServingPoint("run", f"{rate}", workload, rate, per_device, {"ttft p99": ttft}, load)


def test_what_has_a_front_of_its_own_and_what_limits_it() -> None:
    """Workloads; accelerators that one does not state; requests of other lengths."""
    found = collected_points([[point(10, 1), point(20, 2), point(15, 3)], [point(5, 9, "other")]])
    assert found.fronts == {"ttft p99": (0, 1, 3)}
    assert found.notes == ["2 workloads, each with its own best points: m; other"]
    # per device the first would be better; in all it is not
    found = ServingPoints((point(10, 1, devices=1), point(20, 1, devices=8)))
    assert found.fronts["ttft p99"] == (0,)
    found = ServingPoints((*found.points, point(15, 5, devices=None)))
    assert (found.is_per_device, found.fronts["ttft p99"]) == (False, (1,))
    assert found.notes[0].startswith("throughput is in all, not per accelerator: 1 of 3 points")


@pytest.mark.parametrize(("latencies", "scale"), [((1.0, 1.5), "linear"), ((1.0, 20.0), "log")])
def test_marks_lie_within_axes_that_have_ticks(latencies: tuple[float, float], scale: str) -> None:
    axes = Figure().subplots()
    draw_points(axes, ServingPoints(tuple(point(175, seconds) for seconds in latencies)), "ttft p99")
    low, high = axes.get_xlim()
    assert axes.get_xscale() == scale
    assert low < min(latencies) < max(latencies) < high
    assert len([place for place in axes.get_xticks() if low <= place <= high]) >= 2
    assert axes.get_ylim() == (0, pytest.approx(1.12 * 87.5))  # per device, of two


def test_requests_of_other_lengths_are_unequal_work() -> None:
    found = ServingPoints((point(1, 1, input_tokens=100.0), point(2, 2, input_tokens=106.0)))
    assert found.notes == ["unequal work: a request has 100 to 106 input tokens in the mean"]
    assert ServingPoints((point(1, 1, input_tokens=100.0), point(2, 2, input_tokens=105.0))).notes == []


def results(folder: Path, *rates: tuple[int, float, float]) -> Path:
    """A client's results: concurrency, output tokens/s, p99 of the time to first token in ms."""
    folder.mkdir()
    for load, rate, ttft in rates:
        own = {"max_concurrency": load, "output_throughput": rate, "p99_ttft_ms": ttft}
        (folder / f"c{load}.json").write_text(json.dumps(VLLM | own))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Three loads, of which the last is slower and later than the second."""
    return results(tmp_path / "sweep", (1, 10, 100), (8, 40, 200), (64, 30, 900))


def test_the_command_marks_the_best(call: Call, sweep: Path, tmp_path: Path) -> None:
    """And a report has a drawing for each latency."""
    answer = call("pareto", sweep, "--json", "--plot", tmp_path / "p.svg")
    assert answer.code == 0, answer.err
    document = json.loads(answer.out)
    assert document["fronts"]["ttft p99"] == [0, 2]
    best = {point["max_concurrency"]: point["best_for"] or "" for point in document["points"]}
    assert {load: "ttft p99" in words for load, words in best.items()} == {1: True, 8: True, 64: False}
    assert document["per_device"] is False
    assert "64" in (tmp_path / "p.svg").read_text()
    printed = call("pareto", sweep).out
    assert "200 ms*" in printed
    assert "900 ms*" not in printed
    page = tmp_path / "run.html"
    assert call("report", sweep, "-o", page).code == 0
    text = page.read_text()
    assert "Throughput against time to first token" in text
    assert "p99, 2 of 3 points are best" in text
    assert "throughput is in all, not per accelerator" in text


def test_an_open_loop_is_of_its_model_too(call: Call, tmp_path: Path) -> None:
    """Without a limit of concurrency the rate names what was served, and without a rate the tokens do."""
    folder = tmp_path / "models"
    folder.mkdir()
    own = {"max_concurrency": None, "request_rate": 2.0, "p99_ttft_ms": 5}
    (folder / "a.json").write_text(json.dumps(VLLM | own | {"model_id": "a"}))
    (folder / "b.json").write_text(json.dumps(VLLM | own | {"model_id": "b", "request_rate": "inf"}))
    document = json.loads(call("pareto", folder, "--json").out)
    assert [point["workload"] for point in document["points"]] == ["a", "b"]
    assert document["fronts"]["ttft p99"] == [0, 1]


def test_one_point_is_no_drawing_and_none_an_error(call: Call, tmp_path: Path) -> None:
    path = results(tmp_path / "one", (1, 10, 100))
    assert call("pareto", path).code == 0
    answer = call("pareto", path, "--plot", tmp_path / "p.svg")
    assert (answer.code, "fewer than two points" in answer.err) == (2, True)
    path = tmp_path / "sglang.jsonl"
    path.write_text(json.dumps({k: v for k, v in SGLANG.items() if "throughput" not in k}))
    answer = call("pareto", path)
    assert (answer.code, "no serving benchmark states a throughput" in answer.err) == (2, True)
