# SPDX-License-Identifier: Apache-2.0
"""The metric of a replay: its value with bounds, or why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.hand_made import Evidence, of_run
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate, write

import cclbench
from cclbench.analyzers.metric import Value
from cclbench.analyzers.rows import Row
from cclbench.record.rows import builtins
from cclbench.record.selection import Selection
from cclbench.results import NOT_REPLAYED, full_results

NAME = "whatif.scale_up_bandwidth_x2"


class Found(NamedTuple):
    """A replay's answer."""

    ratio: float | None
    low: float
    high: float
    basis: tuple[str, ...] = ("a fit",)


def values(found: Found | None) -> list[Value]:
    return of_run(NAME, Evidence(), replayed=None if found is None else lambda _: found)


def test_the_value_has_its_bounds_and_basis() -> None:
    value, low, high = values(Found(0.75, 0.7, 0.8))
    assert (value.value, value.stat, value.reason) == (0.75, None, "a fit")
    assert [(v.stat, v.value) for v in (low, high)] == [("low", 0.7), ("high", 0.8)]
    assert {v.provenance for v in (value, low, high)} == {"modelled"}
    # Known within bounds only is no value, nor is no model.
    value, low, high = values(Found(None, 0.5, 0.9))
    assert (value.value, value.status) == (None, "not_applicable")
    assert value.reason == "only bounds are known: 50.0 % to 90.0 %; a fit"
    assert (low.value, high.value) == (0.5, 0.9)
    (value,) = values(None)
    assert value.status == "not_applicable"
    assert "models are disabled" in str(value.reason)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of one node: kernels of 20 µs between all-reduces of 1 to 5 MiB, 1 ms a MiB."""
    ops = [op for i in range(1, 6) for op in (Compute(20_000), Collective("all_reduce", "dp", i << 20))]
    folder = tmp_path_factory.mktemp("whatif") / "traces"
    program = Program((*ops, Compute(20_000)), steps=2)
    write(simulate(Layout(dp=2, gpus_per_host=2), program, Network(Link(0, 1_000))), folder)
    return folder


def rows(traces: Path, store: Path, **options: object) -> list[Row]:
    run = cclbench.run(traces, store=store, **options)  # type: ignore[arg-type]
    return [row for row in run.rows if row["metric"] == NAME]


def test_a_step_bound_by_its_network(traces: Path, tmp_path: Path) -> None:
    """15 transfers of 1.024 ms each step, whose halves are saved."""
    found = rows(traces, tmp_path, metrics=[NAME])
    step = next(row["value"] for row in cclbench.run(traces, store=tmp_path, metrics=["time.step"]).rows)
    assert found[0]["value"] == pytest.approx(1 - 15 * 1.024e-3 / 2 / step, rel=1e-3)
    assert [row["stat"] for row in found] == [None, "high", "low"]
    assert {(row["provenance"], row["status"], row["unit"]) for row in found} == {("modelled", "ok", "1")}
    (alias, *_) = cclbench.run(traces, store=tmp_path, metrics=["scale_up_bw_utility"]).rows
    assert alias["value"] == found[0]["value"]


def test_a_run_is_replayed_only_where_that_is_asked_for(traces: Path, tmp_path: Path) -> None:
    asked = rows(traces, tmp_path, metrics=["whatif.*"])
    (row,) = rows(traces, tmp_path)
    assert (row["value"], row["status"], row["reason"]) == (None, "not_applicable", NOT_REPLAYED)
    assert rows(traces, tmp_path, metrics=["*", NAME]) == asked
    assert rows(traces, tmp_path) == [row]


def test_a_report_replays_unless_the_run_is_large(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(store: Path) -> list[object]:
        found = builtins(full_results(cclbench.run(traces, store=store), Selection()))
        return [row for row in found if row["metric"] == NAME]

    run = cclbench.run(traces, store=tmp_path / "small")
    asked = rows(traces, tmp_path / "small", metrics=[NAME])
    assert shown(tmp_path / "small") == asked == shown(tmp_path / "small")
    kept = run.sql("SELECT value FROM results WHERE metric LIKE 'whatif.%' AND stat IS NULL").to_pylist()
    assert kept == [{"value": asked[0]["value"]}]
    monkeypatch.setattr("cclbench.results.PASSING_ROWS", 100)
    (row,) = shown(tmp_path / "large")
    assert row["reason"] == NOT_REPLAYED  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        *((own, "all ranks' steps") for own in ({"window": "trace"}, {"steps": (0, 1)}, {"ranks": [0]})),
        ({"model": False}, "models are disabled"),
    ],
)
def test_a_narrowed_run_is_not_replayed_nor_one_without_models(
    options: dict[str, object], why: str, traces: Path, tmp_path: Path
) -> None:
    (row,) = rows(traces, tmp_path, metrics=[NAME], **options)
    assert row["status"] == "not_applicable"
    assert why in row["reason"]


def test_a_run_without_collectives_is_not_replayed(tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    write(simulate(Layout(), Program((Compute(20_000),))), alone)
    (row,) = rows(alone, tmp_path, metrics=[NAME])
    assert row["reason"] == "no collective is part of the replay"
