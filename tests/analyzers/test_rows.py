# SPDX-License-Identifier: Apache-2.0
"""Result rows: order, reasons, what ranks without an answer do, and what aliases select."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pyarrow as pa
import pytest
from hand_made import a_rank, collective, comm, compute, event, rows_of, window
from typed import figures

from cclbench.analyzers.metric import METRICS, Failed, Metric, NotApplicable, Value, mean_over_ranks, resolve
from cclbench.analyzers.rows import metric_rows, rank_rows, run_values, select, window_policy
from cclbench.analyzers.view.run_view import RunView
from cclbench.errors import UsageError
from cclbench.record.rows import Row, builtins
from cclbench.schema import EVIDENCE, RESULTS


class NoEvidence:
    """A run of traces alone."""

    def evidence(self, name: str) -> pa.Table:
        return EVIDENCE[name].empty_table()


NO_EVIDENCE = NoEvidence()


def a_metric(per_rank: object) -> Metric:
    return Metric(
        name="test.metric",
        definition="d",
        formula="f",
        unit="s",
        better="lower",
        inputs=(),
        not_applicable="nothing to say",
        version=3,
        per_rank=per_rank,
        combine=mean_over_ranks,
        rank_rows=True,
    )


def a_row(values: dict[int, list[Value]]) -> list[dict]:
    policies = dict.fromkeys(values, "steps")
    return builtins(metric_rows(a_metric(None), values, policies, [], asked="steps", source="kineto"))


def none(why: str, status: str = "not_applicable") -> list[Value]:
    return [Value(value=None, status=status, reason=why)]


def test_a_row_has_the_schemas_columns_in_their_order() -> None:
    rows = rows_of("time.step", a_rank([compute(0, 5)], [window(0, 10, 4)]))
    assert list(rows[0]) == RESULTS.names
    assert pa.Table.from_pylist(rows, schema=RESULTS).num_rows == len(rows)


@pytest.mark.parametrize("status", ["failed", "not_applicable"])
def test_a_number_that_its_status_denies_is_no_number(status: str) -> None:
    rows = a_row({0: [Value(value=3.0, status=status, reason="why")]})
    assert {(row["value"], row["status"]) for row in rows} == {(None, status)}


def test_the_runs_row_comes_first_then_breakdowns_then_ranks() -> None:
    ranks = {
        1: [
            Value(value=3.0),
            Value(value=1.0, step=2),
            Value(value=2.0, category="b"),
            Value(value=1, category="a"),
        ],
        0: [Value(value=5.0)],
    }
    assert [(row["rank"], row["category"], row["step"], row["value"]) for row in a_row(ranks)] == [
        (None, None, None, 4.0),
        (None, "a", None, 1.0),
        (None, "b", None, 2.0),
        (0, None, None, 5.0),
        (1, None, None, 3.0),
        (1, "a", None, 1.0),
        (1, "b", None, 2.0),
        (1, None, 2, 1.0),
    ]


def test_weights_make_the_mean_of_ratios_the_ratio_of_sums() -> None:
    rows = a_row({0: [Value(value=0.5, weight=10)], 1: [Value(value=0.1, weight=30)]})
    assert rows[0]["value"] == pytest.approx(8 / 40)


def test_no_rank_has_an_answer() -> None:
    alike = a_row({0: none("no kernels"), 1: none("no kernels")})
    assert (alike[0]["status"], alike[0]["value"], alike[0]["reason"]) == (
        "not_applicable",
        None,
        "no kernels",
    )
    assert alike[0]["provenance"] is None
    different = a_row({0: none("no kernels"), 1: none("cut"), 2: none("cut")})
    assert different[0]["reason"] == "no kernels (rank 0); cut (rank 1-2)"


def test_some_ranks_have_no_answer() -> None:
    rows = a_row(
        {0: none("cut"), 1: [Value(value=2.0, reason="rough")], 2: [Value(value=4.0, reason="rough")]}
    )
    assert rows[0]["value"] == 3.0
    assert rows[0]["reason"] == "rough; 1 of 3 ranks left out: cut (rank 0)"
    assert [(row["rank"], row["status"]) for row in rows[1:]] == [(0, "not_applicable"), (1, "ok"), (2, "ok")]


def test_a_failed_rank_fails_the_run() -> None:
    rows = a_row({0: none("1.4 of the peak", "failed"), 1: [Value(value=2.0)]})
    assert (rows[0]["status"], rows[0]["value"]) == ("failed", None)
    assert rows[0]["reason"] == "1.4 of the peak (rank 0)"


def _raise(error: Exception) -> object:
    def per_rank(_: object) -> Value:
        raise error

    return per_rank


@pytest.mark.parametrize(
    ("per_rank", "status", "why"),
    [
        (_raise(NotApplicable("no kernels")), "not_applicable", "no kernels"),
        (_raise(Failed("above one")), "failed", "above one"),
        (lambda _: [], "not_applicable", "nothing to say"),
        (lambda _: Value(value=math.nan), "failed", "the result is not a finite number"),
        (lambda _: [Value(value=1.0), Value(value=math.inf)], "failed", "the result is not a finite number"),
    ],
)
def test_what_is_no_number_is_a_value_with_a_reason(per_rank: object, status: str, why: str) -> None:
    view = a_rank([compute(0, 5)], [window(0, 10)])
    (only,) = rank_rows(view, [a_metric(per_rank)])["test.metric"]
    assert (only.value, only.status, only.reason) == (None, status, why)


def test_the_window_is_the_policy_used() -> None:
    stepped = a_rank([compute(0, 5)], [window(0, 10, 1)], rank=0)
    whole = a_rank([compute(0, 5)], [window(0, 10, source="whole_trace")], rank=1)
    rows = rows_of("time.idle", stepped, whole)
    assert {(row["rank"], row["window"]) for row in rows} == {(None, "trace"), (0, "steps"), (1, "trace")}
    assert window_policy(a_rank(works_on=None), "annotations") == "annotations"


def test_values_cross_process_boundaries() -> None:
    chosen = [METRICS.get(name) for name in METRICS]
    view = a_rank([compute(0, 5), comm(3, 9)], [window(0, 10, 1)])
    values = rank_rows(view, chosen)
    sent = pickle.loads(pickle.dumps(values))  # noqa: S301  (our own bytes)
    of_run = run_values(RunView(NO_EVIDENCE), chosen)

    def rows(of_rank: dict[str, list[Value]]) -> list[Row]:
        return [
            row
            for metric in chosen
            for row in metric_rows(
                metric,
                {0: of_rank.get(metric.name, [])},
                {0: "steps"},
                of_run.get(metric.name, []),
                asked="steps",
                source="kineto",
            )
        ]

    assert rows(sent) == rows(values)


def test_a_glob_an_alias_and_a_misspelling() -> None:
    assert [metric.name for metric, _ in resolve(["overlap.*"])] == [
        "overlap.efficiency",
        "overlap.exposed_by",
        "overlap.pipeline_bubble",
        "overlap.ratio",
    ]
    (pair,) = resolve(["bandwidth_utilization_allgather_group_6"])
    assert (pair[0].name, pair[1].collectives) == ("comm.busbw", ("all_gather",))
    assert [(m.name, a) for m, a in resolve(["mfu", "compute.mfu"])] == [("compute.mfu", None)]
    assert [(m.name, a) for m, a in resolve(["comm.busbw", "bandwidth_utilization_*"])] == [
        ("comm.busbw", None)
    ]
    assert len(resolve(["bandwidth_utilization_*"])) == 5
    with pytest.raises(UsageError, match=r"unknown metric 'time.stepp'; did you mean time.step"):
        resolve(["time.stepp"])


def test_an_alias_selects_its_kind_or_says_that_there_is_none() -> None:
    calls = [collective("all_gather", 0, 100, in_bytes=500, out_bytes=1000, group="0-1", group_size=2)]
    rows = rows_of("comm.busbw", a_rank([comm(0, 100)], [window(0, 100)], calls))
    ((_, gather),) = resolve(["bandwidth_utilization_allgather_group_6"])
    kept = builtins(select(figures(rows), gather))
    assert (kept[0]["value"], kept[0]["group"], kept[0]["rank"]) == (pytest.approx(500 / 100e-9), None, None)
    assert {row["collective"] for row in kept} == {"all_gather"}
    ((_, peers),) = resolve(["bandwidth_utilization_peertopeer_group_6"])
    (nothing,) = builtins(select(figures(rows), peers))
    assert (nothing["value"], nothing["status"]) == (None, "not_applicable")
    assert "send" in nothing["reason"]
    silent = rows_of("comm.busbw", a_rank([event("copy", 0, 9)], [window(0, 9)]))
    assert builtins(select(figures(silent), gather)) == silent


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_ranks_whose_combination_is_no_number_fail_the_run(number: float) -> None:
    metric = replace(a_metric(None), combine=lambda _: [Value(value=1.0), Value(value=number, stat="max")])
    (run, *_) = builtins(
        metric_rows(metric, {0: [Value(value=1.0)]}, {0: "steps"}, [], asked="steps", source="kineto")
    )
    assert (run["value"], run["status"], run["reason"]) == (
        None,
        "failed",
        "the result is not a finite number",
    )
