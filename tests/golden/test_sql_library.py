# SPDX-License-Identifier: Apache-2.0
"""The SQL library's views and the metrics compute one thing in two ways: they are equal to the nanosecond."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from cclbench.operator_table import operator_costs
from cclbench.record.run import Run

from .conftest import Measure

Key = tuple[int | None, int | None]
"""Rank and step."""
DATA_POINTS = ("tiny-llama-fsdp2-tp2-gloo-cpu", "tiny-jax-dp2-tp4-cpu", "llama-train-h100")
PARTS = {
    f"{part}_ns": f"time.{part}" for part in ("compute_only", "overlapped", "exposed_comm", "exposed_copy")
}
PARTS |= {"window_ns": "time.step", "idle_ns": "time.idle"}
WAITS = {"wait_ns": "comm.wait", "transfer_ns": "comm.transfer"}


@pytest.fixture(scope="module", params=DATA_POINTS)
def run(request: pytest.FixtureRequest, repository: Path, measure: Measure) -> Run:
    """A data point with its metrics."""
    return measure(repository / "workload_cards" / f"{request.param}.yaml")


def values(run: Run, metric: str) -> dict[Key, float]:
    """The metric's own values by rank and step."""
    narrower = ("group", "collective", "category", "stat")
    return {
        (row["rank"], row["step"]): row["value"]
        for row in run.rows
        if row["metric"] == metric and row["value"] is not None and all(row[key] is None for key in narrower)
    }


def check_steps(run: Run, view: str, metrics: dict[str, str]) -> int:
    """Compare a view's rows by rank and step with metrics, by column; how many values were compared."""
    compared = 0
    rows = run.sql(f"FROM {view}").to_pylist()
    for column, metric in metrics.items():
        expected = values(run, metric)
        by_rank: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            by_rank[row["rank"]].append(row[column])
            if (row["rank"], row["step"]) in expected:
                assert row[column] == round(expected[row["rank"], row["step"]] * 1e9), (metric, row)
                compared += 1
        for rank, lengths in by_rank.items():
            if (rank, None) in expected:
                assert sum(lengths) == round(expected[rank, None] * len(lengths) * 1e9), (metric, rank)
                compared += 1
    return compared


def test_busy_has_the_parts_of_every_step_on_every_rank_and_waits_are_those_of_the_metrics(run: Run) -> None:
    assert check_steps(run, "busy", PARTS) >= len(PARTS) * len(run.ranks)
    for row in run.sql("FROM busy").to_pylist():
        assert row["busy_ns"] + row["idle_ns"] == row["window_ns"]
    assert check_steps(run, "waits", WAITS) >= 2 * len(run.ranks) or values(run, "comm.wait") == {}


def test_idle_gaps_are_the_stretches_in_which_a_device_is_idle(run: Run) -> None:
    gaps = run.sql("SELECT count(*) AS gaps, sum(gap_ns) AS ns FROM idle_gaps").to_pylist()
    states = run.sql(
        "SELECT count(*) AS gaps, sum(dur_ns) AS ns FROM activity WHERE state = 'idle'"
    ).to_pylist()
    on_host = all(entry.facts.works_on == "host" for entry in run.record.ranks)
    assert gaps == ([{"gaps": 0, "ns": None}] if on_host else states)


def test_step_spread_is_the_steps_time_and_collective_instances_have_the_skew(run: Run) -> None:
    (row,) = run.sql("SELECT sum(max_ns) AS ns, count(*) AS steps FROM step_spread").to_pylist()
    step = values(run, "time.step")[None, None]
    assert float(row["ns"]) / row["steps"] / 1e9 == pytest.approx(step, rel=1e-12)
    query = "SELECT avg(skew_ns) AS ns FROM collective_instances WHERE complete AND in_windows"
    (row,) = run.sql(query).to_pylist()
    expected = values(run, "comm.skew").get((None, None))
    assert row["ns"] == (None if expected is None else pytest.approx(expected * 1e9, rel=1e-12))


def test_bandwidth_by_collective_is_that_of_the_metrics(run: Run) -> None:
    query = """SELECT rank, sum(algbw * total_ns) / sum(total_ns) AS algbw,
    sum(busbw * total_ns) / sum(total_ns) AS busbw FROM bandwidth_by_collective WHERE matched GROUP BY rank"""
    rows = run.sql(query).to_pylist()
    for name in ("algbw", "busbw"):
        expected = {r: value for (r, _), value in values(run, f"comm.{name}").items() if r is not None}
        assert {row["rank"]: row[name] for row in rows} == pytest.approx(expected, rel=1e-12)


def test_launches_have_the_calls_time_and_delay(run: Run) -> None:
    query = """SELECT rank, avg(dur_ns) AS call_ns, avg(delay_ns) FILTER (delay_ns >= 0) AS delay_ns
    FROM launches WHERE in_window GROUP BY rank"""
    rows = run.sql(query).to_pylist()
    for column, metric in (("call_ns", "launch.call_time"), ("delay_ns", "launch.delay")):
        expected = values(run, metric)
        for row in rows:
            assert row[column] == pytest.approx(expected[row["rank"], None] * 1e9, rel=1e-12)


def test_copies_and_memory_are_those_of_the_metrics(run: Run) -> None:
    rows = run.sql(
        "SELECT rank, max(allocated_bytes) AS bytes FROM memory_timeline GROUP BY rank"
    ).to_pylist()
    for row in rows:
        assert row["bytes"] == values(run, "memory.peak_allocated")[row["rank"], None]
    rows = run.sql("SELECT rank, sum(total_ns) AS ns FROM copies WHERE in_window GROUP BY rank").to_pylist()
    for row in rows:
        steps = len(run.sql(f"FROM step_windows WHERE rank = {row['rank']}"))
        expected = values(run, "memory.copy_time")[row["rank"], None] * steps * 1e9
        assert float(row["ns"]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("by", ["op", "module", "phase", "category"])
def test_operator_work_adds_up_to_what_ops_prints(by: Any, run: Run) -> None:
    key = {"op": "name", "module": "coalesce(module, 'none')"}.get(by, by)
    query = f"""SELECT {key} AS key, count(*) AS calls, sum(dur_ns)::BIGINT AS time_ns,
    sum(flops) FILTER (bytes IS NOT NULL) AS flops, sum(bytes) FILTER (flops IS NOT NULL) AS bytes,
    sum(roofline_ns) / 1e9 AS roofline_s, sum(dur_ns - roofline_ns) / 1e9 AS gap_s,
    quantile_cont(dur_ns, 0.5) / 1e9 AS p50_s, quantile_cont(dur_ns, 0.9) / 1e9 AS p90_s,
    max(dur_ns) / 1e9 AS max_s
    FROM operator_work GROUP BY key"""  # noqa: S608
    found = {row["key"]: row for row in run.sql(query).to_pylist()}
    expected = {row.key: row for row in operator_costs(run, by=by).rows}
    assert set(found) == set(expected)
    columns = ("flops", "bytes", "roofline_s", "gap_s", "p50_s", "p90_s", "max_s")
    for name, row in expected.items():
        own = found[name]
        assert (own["calls"], own["time_ns"]) == (row.calls, row.time_ns)
        figures = [getattr(row, column) for column in columns]
        wanted = [figure if figure is None else pytest.approx(figure, rel=1e-9) for figure in figures]
        assert [own[column] for column in columns] == wanted, name
