# SPDX-License-Identifier: Apache-2.0
"""Results recorded, and what a later computation is held against."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.typed import figures
from msgspec.structs import asdict, replace

from cclbench.contribute.record import FigureChange, compare_record, record_results, row_changes
from cclbench.record.rows import Row


def row(metric: str, value: float | None, **other: Any) -> Row:
    """A row of result.v1 of the run."""
    ok = value is not None
    told = {"status": "ok" if ok else "not_applicable", "provenance": "measured" if ok else None}
    about = {"metric": metric, "value": value, "better": "lower", "source": "kineto"}
    return figures([{**about, **told, **other}])[0]


@pytest.fixture
def rows() -> list[Row]:
    """A step of two ranks, with a statistic, and a metric that does not apply."""
    return [
        row("time.step", 0.25),
        row("time.step", 0.3, stat="max"),
        row("time.step", 0.2, rank=0),
        row("time.step", 0.3, rank=1),
        row("compute.mfu", None, unit="1", reason="no card"),
    ]


def other_at(rows: list[Row], index: int, **change: Any) -> list[Row]:
    """The rows with one of them otherwise."""
    return [replace(r, **change) if i == index else r for i, r in enumerate(rows)]


def test_a_record_has_the_runs_rows(rows: list[Row]) -> None:
    record = record_results(rows)
    assert [r.metric for r in record.rows] == ["time.step", "time.step", "compute.mfu"]
    assert {name: value for name, value in asdict(record.rows[2]).items() if value is not None} == {
        "metric": "compute.mfu",
        "unit": "1",
        "status": "not_applicable",
        "reason": "no card",
        "better": "lower",
        "window": "steps",
        "version": 1,
        "source": "kineto",
    }
    assert (record.metrics["time.step"].rows, record.metrics["time.step"].version) == (4, 1)


def test_the_same_rows_in_another_order_are_the_same(rows: list[Row]) -> None:
    told = compare_record(record_results(rows), rows[::-1])
    assert (told.rows, told.exact, told.changes, told.outdated, told.newer) == (3, 3, (), (), ())


def test_modelled_rows_and_other_peoples_metrics_are_not_recorded(rows: list[Row]) -> None:
    more = [*rows, row("memory.hbm_utilization", 0.5, provenance="modelled"), row("mine.own", 1.0)]
    assert set(record_results(more).metrics) == {"time.step", "compute.mfu"}


@pytest.mark.parametrize(
    ("index", "change", "words"),
    [
        (0, {"value": 0.2500001}, "time.step: recorded 0.25 s, computed 0.2500001 s"),
        (1, {"value": 0.3 * (1 + 1e-11)}, "time.step (stat max): recorded 0.3 s, computed 0.300000000003 s"),
        (0, {"unit": "ms"}, "time.step: recorded 0.25 s, unit s, computed 0.25 ms, unit ms"),
        (
            0,
            {"provenance": "derived"},
            "recorded 0.25 s, provenance measured, computed 0.25 s, provenance derived",
        ),
        (0, {"window": "trace"}, "recorded 0.25 s, window steps, computed 0.25 s, window trace"),
        (1, {"stat": "p95"}, "time.step (stat max): recorded 0.3 s, computed no such row"),
        (4, {"value": 0.4, "status": "ok", "provenance": "derived"}, "compute.mfu: recorded not applicable"),
        (
            4,
            {"status": "failed"},
            "compute.mfu: recorded not applicable, status not_applicable, computed failed",
        ),
        (3, {"value": 0.30001}, "time.step (rows of single ranks): recorded 4 with digest "),
        (3, {"rank": 2}, "time.step (rows of single ranks)"),
    ],
)
def test_a_change_is_named(rows: list[Row], index: int, change: dict[str, Any], words: str) -> None:
    told = compare_record(record_results(rows), other_at(rows, index, **change))
    assert words in str(told.changes[0])


@pytest.mark.parametrize(
    ("index", "change"),
    [
        (0, {"value": 0.25 * (1 + 1e-13)}),  # the last digits, as sums in another order have them
        (3, {"value": 0.3 * (1 + 1e-13)}),
        (4, {"reason": "said in other words"}),
    ],
)
def test_what_is_no_change(rows: list[Row], index: int, change: dict[str, Any]) -> None:
    told = compare_record(record_results(rows), other_at(rows, index, **change))
    assert told.changes == ()
    assert told.exact == (2 if index == 0 else 3)


def test_zero_is_only_zero(rows: list[Row]) -> None:
    record = record_results(other_at(rows, 0, value=0.0))
    assert [str(c) for c in compare_record(record, other_at(rows, 0, value=1e-300)).changes] == [
        "time.step: recorded 0.0 s, computed 1e-300 s"
    ]


def test_a_row_that_is_gone_or_new_is_a_change(rows: list[Row]) -> None:
    assert compare_record(record_results(rows), rows[1:]).changes == (
        FigureChange("time.step", {}, "0.25 s", "no such row"),
    )
    more = [*rows, row("time.step", 0.1, step=3)]
    assert compare_record(record_results(rows), more).changes == (
        FigureChange("time.step", {"step": 3}, "no such row", "0.1 s"),
    )
    of_rank = [*rows, row("time.step", 0.1, rank=0, step=3)]
    assert "single ranks" in str(compare_record(record_results(rows), of_rank).changes[0])


def test_a_metric_defined_otherwise_is_not_compared(rows: list[Row]) -> None:
    now = [replace(r, version=2, value=9.0) if r.metric == "time.step" else r for r in rows]
    told = compare_record(record_results(rows), now)
    assert (told.outdated, told.changes, told.rows) == (("time.step",), (), 1)
    assert compare_record(record_results(rows), rows[:4]).outdated == ("compute.mfu",)  # gone altogether


def test_a_newer_metric_is_named(rows: list[Row]) -> None:
    assert compare_record(record_results(rows[:4]), rows).newer == ("compute.mfu",)


def test_differences_are_bit_for_bit(rows: list[Row]) -> None:
    assert row_changes(rows, rows[::-1]) == []
    assert row_changes(rows, other_at(rows, 4, reason="other words")) == []
    (change,) = row_changes(rows, other_at(rows, 3, value=0.3 * (1 + 3e-16)))
    assert str(change) == "time.step (rank 1): recorded 0.3 s, computed 0.30000000000000004 s"
    (gone,) = row_changes(rows, rows[:-1])
    assert (gone.metric, gone.computed) == ("compute.mfu", "no such row")
    (modelled,) = row_changes(rows, [*rows, row("mine.own", 0.5, provenance="modelled")])
    assert modelled.metric == "mine.own"
