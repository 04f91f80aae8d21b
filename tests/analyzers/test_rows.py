# SPDX-License-Identifier: Apache-2.0
"""From ranks' values to a run's rows, with their statuses, reasons and sources."""

from __future__ import annotations

import math
import pickle
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, a_rank, collective, comm, compute, event, window
from helpers.hand_values import rows_of
from helpers.typed import figures

from cclbench.analyzers.aliases import Alias
from cclbench.analyzers.metric import (
    METRICS,
    Coverage,
    Failed,
    Metric,
    NotApplicable,
    Unknown,
    Value,
    mean_over_ranks,
    no_value,
    resolve_metrics,
)
from cclbench.analyzers.rows import metric_rows, rank_rows, run_values, select_alias_rows, window_policy
from cclbench.analyzers.stand_ins import STAND_INS
from cclbench.analyzers.view.per_rank import answer_or_reason, answers_by_rank
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.sources import side_by_side
from cclbench.engine import Serial
from cclbench.ground.errors import UsageError
from cclbench.ground.schema import RESULTS
from cclbench.record.rows import Row, builtins


def a_metric(per_rank: object, **more: Any) -> Metric:
    return Metric(
        name="test.metric", definition="d", formula="f", unit="s", better="lower", inputs=(),
        not_applicable="nothing to say", version=3, per_rank=per_rank,
        **{"combine": mean_over_ranks, "rank_rows": True, **more},
    )  # fmt: skip


def a_row(values: dict[int, list[Value]], **metric: Any) -> list[dict[str, Any]]:
    """Rows of a metric of those values of ranks."""
    policies = dict.fromkeys(values, "steps")
    made = metric_rows(
        a_metric(None, **metric), values, policies, [], default_window="steps", source="kineto"
    )
    return builtins(made)


def none(why: str, status: str = "not_applicable") -> list[Value]:
    return [Value(value=None, status=status, reason=why)]


IDLE = a_rank([compute(0, 5)], [window(0, 10)])


def test_a_row_has_the_schemas_columns_in_their_order() -> None:
    rows = rows_of("time.step", a_rank([compute(0, 5)], [window(0, 10, 4)]))
    assert list(rows[0]) == RESULTS.names
    assert pa.Table.from_pylist(rows, schema=RESULTS).num_rows == len(rows)


@pytest.mark.parametrize("status", ["failed", "not_applicable"])
def test_a_number_that_its_status_denies_is_no_number(status: str) -> None:
    rows = a_row({0: [Value(value=3.0, status=status, reason="why")]})
    assert {(row["value"], row["status"]) for row in rows} == {(None, status)}


def test_the_runs_row_comes_first_then_breakdowns_then_ranks() -> None:
    first = [Value(value=3.0), Value(value=1.0, step=2), Value(value=2.0, category="b")]
    ranks = {1: [*first, Value(value=1, category="a")], 0: [Value(value=5.0)]}
    expected = [(None, None, None, 4.0), (None, "a", None, 1.0), (None, "b", None, 2.0), (0, None, None, 5.0)]
    expected += [(1, None, None, 3.0), (1, "a", None, 1.0), (1, "b", None, 2.0), (1, None, 2, 1.0)]
    assert [(row["rank"], row["category"], row["step"], row["value"]) for row in a_row(ranks)] == expected


MEASURED, MODELLED = [Value(value=2.0)], [Value(value=8.0, provenance="modelled")]
ROUGH = {n: [Value(value=2.0 * n, reason="rough")] for n in (1, 2)}


@pytest.mark.parametrize(
    ("ranks", "value", "status", "reason"),
    [
        # Weights make the mean of ratios the ratio of sums.
        ({0: [Value(value=0.5, weight=10)], 1: [Value(value=0.1, weight=30)]}, 8 / 40, "ok", None),
        ({0: none("no kernels"), 1: none("no kernels")}, None, "not_applicable", "no kernels"),
        (
            *({0: none("no kernels"), 1: none("cut"), 2: none("cut")}, None),
            *("not_applicable", "no kernels (rank 0); cut (rank 1-2)"),
        ),
        ({0: none("cut"), **ROUGH}, 3, "ok", "rough; 1 of 3 ranks left out: cut (rank 0)"),
        ({0: none("1.4 of the peak", "failed"), 1: MEASURED}, None, "failed", "1.4 of the peak (rank 0)"),
        # Ranks without an answer that is no matter leave the figure whole.
        ({0: MEASURED, 1: none("no kernels")}, 2, "ok", "1 of 2 ranks left out: no kernels (rank 1)"),
    ],
)
def test_a_run(ranks: dict[int, list[Value]], value: float | None, status: str, reason: str | None) -> None:
    run, *own = a_row(ranks)
    assert (run["value"], run["status"], run["reason"]) == (pytest.approx(value), status, reason)
    assert (run["provenance"], run["coverage"]) == (None if value is None else "measured", None)
    assert [(row["rank"], row["status"]) for row in own] == [(n, one[0].status) for n, one in ranks.items()]


def test_what_was_measured_is_not_averaged_with_what_was_modelled() -> None:
    (run, *_), (alike, *_) = a_row({0: MEASURED, 1: MODELLED}), a_row({0: MODELLED, 1: MODELLED})
    assert [(row["value"], row["provenance"]) for row in (run, alike)] == [(2, "measured"), (8, "modelled")]


def _raise(error: Exception) -> object:
    def per_rank(_: object) -> Value:
        raise error

    return per_rank


NOT_FINITE = "the result is not a finite number"


@pytest.mark.parametrize(
    ("per_rank", "status", "why"),
    [
        (_raise(NotApplicable("no kernels")), "not_applicable", "no kernels"),
        (_raise(Failed("above one")), "failed", "above one"),
        (lambda _: [], "not_applicable", "nothing to say"),
        (lambda _: Value(value=math.nan), "failed", NOT_FINITE),
        (lambda _: [Value(value=1.0), Value(value=math.inf)], "failed", NOT_FINITE),
    ],
)
def test_what_is_no_number_is_a_value_with_a_reason(per_rank: object, status: str, why: str) -> None:
    (only,) = rank_rows(IDLE, [a_metric(per_rank)])["test.metric"]
    assert (only.value, only.status, only.reason) == (None, status, why)


def test_the_window_is_the_policy_used_and_no_two_are_combined() -> None:
    """A step of 10 ns and a trace of 30: the run's step takes 10, and not 30 or their mean."""
    stepped = a_rank([compute(0, 5)], [window(0, 10, 1)], rank=0)
    whole = a_rank([compute(0, 5)], [window(0, 30, source="whole_trace")], rank=1)
    run, *_ = rows = rows_of("time.step", stepped, whole)
    assert {(row["rank"], row["window"]) for row in rows} == {(None, "steps"), (0, "steps"), (1, "trace")}
    why = "1 of 2 ranks left out: its windows are the whole trace, the run's steps (rank 1)"
    assert (run["value"], run["reason"]) == (10e-9, why)
    assert {row["value"] for row in rows if row["rank"] == 1} == {30e-9}
    assert window_policy(a_rank(works_on=None), "annotations") == "annotations"


def test_values_cross_process_boundaries() -> None:
    chosen = [METRICS.get(name) for name in METRICS]
    values = rank_rows(a_rank([compute(0, 5), comm(3, 9)], [window(0, 10, 1)]), chosen)
    sent = pickle.loads(pickle.dumps(values))  # noqa: S301  (our own bytes)
    of_run = run_values(RunView(Evidence()), chosen)

    def rows(of_rank: dict[str, list[Value]]) -> list[Row]:
        found = []
        for metric in chosen:
            told, own = of_run.get(metric.name, []), {0: of_rank.get(metric.name, [])}
            found += metric_rows(metric, own, {0: "steps"}, told, default_window="steps", source="kineto")
        return found

    assert rows(sent) == rows(values)


def test_an_alias_selects_its_kind_or_says_that_there_is_none() -> None:
    calls = [collective("all_gather", 0, 100, in_bytes=500, out_bytes=1000, group="0-1", group_size=2)]
    rows = rows_of("comm.busbw", a_rank([comm(0, 100)], [window(0, 100)], calls))
    ((_, gather),) = resolve_metrics(["bandwidth_utilization_allgather_group_6"])
    kept = builtins(select_alias_rows(figures(rows), gather))
    assert (kept[0]["value"], kept[0]["group"], kept[0]["rank"]) == (pytest.approx(500 / 100e-9), None, None)
    assert {row["collective"] for row in kept} == {"all_gather"}
    peers = Alias("comm.busbw", ("send", "recv", "send_recv"))
    (nothing,) = builtins(select_alias_rows(figures(rows), peers))
    assert (nothing["value"], nothing["status"]) == (None, "not_applicable")
    assert nothing["reason"] == "send or recv or send_recv: no such collective of known size in the window"
    assert (nothing["rank"], nothing["collective"], nothing["provenance"]) == (None, None, None)
    ((_, reduce),) = resolve_metrics(["bandwidth_utilization_allreduce_group_6"])
    (nothing,) = builtins(select_alias_rows(figures(rows), reduce))
    assert (nothing["rank"], nothing["collective"]) == (None, "all_reduce")
    silent = rows_of("comm.busbw", a_rank([event("copy", 0, 9)], [window(0, 9)]))
    assert builtins(select_alias_rows(figures(silent), gather)) == silent


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_ranks_whose_combination_is_no_number_fail_the_run(number: float) -> None:
    odd = [Value(value=1.0), Value(value=number, stat="max")]
    (run, *_) = a_row({0: [Value(value=1.0)]}, combine=lambda _: odd)
    assert (run["value"], run["status"], run["reason"]) == (None, "failed", NOT_FINITE)


def test_a_combination_that_does_not_apply_says_why() -> None:
    (run, own) = a_row({0: [Value(value=1.0)]}, combine=_raise(NotApplicable("there is one")))
    assert (run["value"], run["status"], run["reason"]) == (None, "not_applicable", "there is one")
    assert own["value"] == 1


@pytest.mark.parametrize(
    ("own", "unknown", "expected"),
    [
        # Rows of known time add up.
        (Coverage(3, 4, 30, 40), [Coverage(0, 2, 0, 10)], (3 / 6, 30 / 50)),
        (Coverage(4, 4, 40, 40), [Coverage(0, 2, 0, 10), Coverage(0, 4, 0, 50)], (4 / 10, 40 / 100)),
        # Of a figure that counts no rows, or all of those it has, ranks are counted.
        (None, [Coverage(0, 2, 0, 10)], (1 / 2, None)),
        (None, [Coverage(0, 1), Coverage(0, 1)], (1 / 3, None)),
        (Coverage(4, 4), [Coverage(0, 1)], (1 / 2, None)),
        # What lacks rows of its own says which, where the others' time is not known.
        (Coverage(1, 4), [Coverage(0, 1)], (1 / 4, None)),
        (Coverage(3, 4, 30, 40), [Coverage(0, 2, 0, 10), Coverage(0, 1)], (3 / 4, 30 / 40)),
    ],
)
def test_unknown_ranks_make_a_figure_partial(
    own: Coverage | None, unknown: list[Coverage], expected: tuple[float, float | None]
) -> None:
    silent = {rank: [no_value("cut", coverage=one)] for rank, one in enumerate(unknown, start=1)}
    (run, *_) = a_row({0: [Value(value=2.0, coverage=own)], **silent})
    assert (run["value"], run["status"]) == (2, "partial")
    assert (run["coverage"], run["coverage_time"]) == (pytest.approx(expected[0]), expected[1])


def test_a_ranks_first_value_says_why_it_is_unknown() -> None:
    silent = [no_value("cut", coverage=Coverage(0, 2, 0, 10)), no_value("few", stat="p95")]
    (run, *_) = a_row({0: [Value(value=2.0)], 1: silent})
    assert (run["coverage"], run["reason"]) == (1 / 2, "1 of 2 ranks left out: cut (rank 1)")


def test_what_cannot_be_modelled_says_what_lacks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STAND_INS, "test.metric", _raise(NotApplicable("no card")))
    metric = a_metric(lambda _: [no_value("cut"), no_value("few", stat="p95")])
    (only,) = rank_rows(IDLE, [metric], model=True)["test.metric"]
    assert (only.reason, only.stat) == ("cut; not modelled: no card", None)
    (only,) = rank_rows(IDLE, [a_metric(lambda _: no_value("no card"))], model=True)["test.metric"]
    assert only.reason == "no card"


def test_what_a_trace_does_not_state_is_one_unknown_rank_unless_rows_are_counted() -> None:
    reasons = (Unknown("cut"), Unknown("cut", Coverage(0, 3)), NotApplicable("cut"))
    found = [rank_rows(IDLE, [a_metric(_raise(why))])["test.metric"][0] for why in reasons]
    assert [value.coverage for value in found] == [Coverage(0, 1), Coverage(0, 3), None]
    assert {(value.status, value.reason) for value in found} == {("not_applicable", "cut")}


def test_a_strangers_defect_is_told_in_so_many_characters_and_our_own_is_raised() -> None:
    """And so is an error in what was asked for."""
    raises = _raise(ValueError("x" * 400))
    raises.__module__ = "strange.metrics"
    (only,) = rank_rows(IDLE, [a_metric(raises)])["test.metric"]
    said = "a defect of the plug-in strange.metrics: ValueError: "
    assert (only.value, only.status, only.reason) == (None, "failed", said + "x" * (300 - len(said)))
    raises.__module__ = "cclbench.analyzers.time"
    with pytest.raises(ValueError, match="xxx"):
        rank_rows(IDLE, [a_metric(raises)])
    with pytest.raises(UsageError, match="nothing like it"):
        rank_rows(IDLE, [a_metric(_raise(UsageError("nothing like it")))])


def told_rows(told: list[Value], ranks: dict[int, list[Value]], policies: dict[int, str]) -> list[dict]:
    """Rows of a metric that files beside the traces tell of, too."""
    rows = metric_rows(a_metric(None), ranks, policies, told, default_window="annotations", source="kineto")
    return builtins(rows)


def test_what_files_tell_stands_in_where_no_rank_has_a_number() -> None:
    told = [Value(value=4.0, rank=0, step=1, stat="a"), Value(value=3.0, rank=0, step=0, stat="b")]
    told += [Value(value=2.0, rank=0, source="memory_snapshot"), Value(value=1.0)]
    silent = {0: none("cut"), 1: none("cut")}
    rows = told_rows(told, silent, {0: "steps", 1: "trace"})
    assert [(row["rank"], row["step"], row["value"], row["source"]) for row in rows] == [
        *((None, None, 1, "kineto"), (0, None, 2, "memory_snapshot")),
        *((0, 0, 3, "kineto"), (0, 1, 4, "kineto")),
    ]
    # Files tell of all that they hold, whatever windows were asked for.
    stepped = told_rows(told, silent, {0: "steps", 1: "steps"})
    assert {row["window"] for row in (*rows, *told_rows(told, {}, {}), *stepped)} == {"trace"}
    answered = told_rows(told, {0: [Value(value=9.0)], 1: none("cut")}, {0: "steps", 1: "trace"})
    assert [(row["rank"], row["value"], row["window"]) for row in answered] == [
        *((None, 9, "steps"), (0, 9, "steps"), (1, None, "trace"))
    ]
    (nothing, *_) = told_rows([no_value("none")], silent, {0: "steps", 1: "steps"})
    assert nothing["reason"] == "cut"
    (row,) = told_rows([], {}, {})
    assert (row["value"], row["status"], row["reason"]) == (None, "not_applicable", "the run has no trace")


def test_a_metric_of_all_ranks_alone_has_no_ranks_rows() -> None:
    rows = a_row({0: [Value(value=1.0)]}, rank_rows=False)
    assert [(row["rank"], row["value"], row["version"]) for row in rows] == [(None, 1, 3)]


def answers(of: dict[int, Any], ranks: list[int] | None = None, **more: Any) -> Any:
    run = SimpleNamespace(id="job", ranks=tuple(of), rank=lambda number: number)
    told = {"noun": "operators", "engine": Serial(), "progress": None, "what": "asked"} | more
    return answers_by_rank(run, of.__getitem__, ranks, **told)


def test_an_answer_or_why_there_is_none() -> None:
    rank = a_rank(rank=5)
    assert answer_or_reason(rank, lambda view: view.rank) == 5

    def nobody_knows(view: Any) -> int:
        raise Unknown(f"nobody knows of {view.rank}")

    found = answer_or_reason(rank, nobody_knows)
    assert type(found) is NotApplicable
    assert str(found) == "nobody knows of 5"


def test_ranks_that_have_an_answer_and_a_note_of_each_reason() -> None:
    of = dict.fromkeys((1, 4, 6), NotApplicable("no kernels")) | {
        0: "a",
        2: "c",
        3: NotApplicable("no trace"),
    }
    of = {rank: of[rank] for rank in sorted(of)}
    notes = ["rank 1,4,6 left out: no kernels", "rank 3 left out: no trace"]
    assert answers(of) == ({0: "a", 2: "c"}, notes)
    assert answers(of, [2, 3, 2]) == ({2: "c"}, notes[1:])
    assert list(answers(of, [2, 0])[0]) == [0, 2]
    calls: list[tuple[Any, ...]] = []
    answers({0: "a", 1: "b"}, progress=lambda *told: calls.append(told))
    assert calls[-1] == ("asked", 2, 2)


def test_no_answer_at_all_is_an_error_that_says_why() -> None:
    of = {0: NotApplicable("no kernels"), 1: NotApplicable("no trace"), 2: NotApplicable("no kernels")}
    with pytest.raises(UsageError) as error:
        answers(of)
    assert str(error.value) == "job: no operators: no kernels; no trace"
    with pytest.raises(UsageError) as error:
        answers({})
    assert str(error.value) == "job: no operators: it has no trace"


def row(source: str, value: float | None, **columns: Any) -> Row:
    known = {"status": "not_applicable", "provenance": None} if value is None else {"status": "ok"}
    told = {"metric": "m.x", "unit": "s", "provenance": "measured", "window": "steps", "version": 1, **known}
    return Row(value=value, source=source, **(told | columns))


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(one.value, one.rank, one.step, one.stat, one.source, one.reason) for one in rows]


def test_the_preferred_figures_stand_first_and_each_others_beside_the_plain_ones() -> None:
    """Of the others only plain measured rows of the same rank count."""
    own = [row("a", 2.0, reason="so"), row("a", 3.0, rank=0), row("a", None, rank=1, reason="none")]
    own += [row("a", 4.0, step=1), row("a", 5.0, rank=2)]
    second = [row("b", 6.0), row("b", 60.0, stat="max"), row("b", 7.0, rank=0), row("b", 8.0, rank=1)]
    second += [row("b", 9.0, rank=2, provenance="modelled"), row("b", 10.0, step=1)]
    third = [row("c", None, reason="unknown"), row("c", 0.5, rank=2)]
    assert told(side_by_side(own, {"b": second, "c": third})) == [
        (2, None, None, None, "a", "so; a is preferred; b states 6.00 s"),
        (6, None, None, "b", "b", None),
        (3, 0, None, None, "a", "a is preferred; b states 7.00 s"),
        (7, 0, None, "b", "b", None),
        *((None, 1, None, None, "a", "none"), (4, None, 1, None, "a", None)),
        (5, 2, None, None, "a", "a is preferred; c states 500 ms"),
        (0.5, 2, None, "c", "c", None),
    ]


def test_what_the_preferred_do_not_tell_the_first_that_measured_it_does() -> None:
    own = [row("a", None, reason="no bytes"), row("a", None, rank=0)]
    measured = [row("d", 2.0, reason="so"), row("d", 3.0, rank=0)]
    others = {"b": [row("b", 1.0, provenance="modelled")], "c": [], "d": measured, "e": [row("e", 4.0)]}
    assert told(side_by_side(own, others)) == [
        (2, None, None, None, "d", "so; by d: a has no value (no bytes); d is preferred; e states 4.00 s"),
        (4, None, None, "e", "e", None),
        (3, 0, None, None, "d", None),
    ]
    assert measured[0].reason == "so"
    # Without others the own rows stay.
    assert side_by_side(own[:1], {}) == own[:1]
    assert side_by_side([row("a", 1.0)], {"b": [row("b", None)]}) == [row("a", 1.0)]


def test_the_runs_own_figure_decides_which_source_is_preferred() -> None:
    """Whatever is known of its ranks."""
    own = [row("a", 2.0), row("a", None, rank=0, reason="none")]
    expected = [(2, None, None, None, "a", "a is preferred; b states 6.00 s")]
    expected += [(6, None, None, "b", "b", None), (None, 0, None, None, "a", "none")]
    assert told(side_by_side(own, {"b": [row("b", 6.0), row("b", 7.0, rank=0)]})) == expected
    lacking = [row("a", None, reason="no bytes"), row("a", 3.0, rank=0)]
    wanted = [(6, None, None, None, "b", "by b: a has no value (no bytes)"), (7, None, 1, None, "b", None)]
    assert told(side_by_side(lacking, {"b": [row("b", 6.0), row("b", 7.0, step=1)]})) == wanted
