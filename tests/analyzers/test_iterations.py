# SPDX-License-Identifier: Apache-2.0
"""Phases of serving engines' iterations, on hand-made ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.hand_made import a_rank, compute, event, launch, main, reason, rows_of, values, window

import cclbench
from cclbench.classify.serving_steps import serving_phase

PREFILL = "execute_context_2(512)_generation_0(0)"
DECODE = "execute_context_0(0)_generation_6(6)"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (PREFILL, "prefill"),
        (DECODE, "decode"),
        ("execute_context_10(5)_generation_20(20)", "mixed"),
        ("execute_context_0(0)_generation_0(0)", None),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)", "decode"),
        ("step[EXTEND bs=2 toks=512]", "prefill"),
        ("step[DECODE bs=32]", "decode"),
        ("step[MIXED bs=3]", "mixed"),
        ("step[TARGET_VERIFY bs=3]", None),
        ("execute_model", None),
        ("ProfilerStep#3", None),
    ],
)
def test_phase_by_the_engines_own_name(name: str, expected: str | None) -> None:
    assert serving_phase(name) == expected


def _step(number: int, begin: int, name: str) -> list[dict[str, Any]]:
    """Annotated on the host for 40 ns from `begin`; two kernels are launched in it and run 50 ns later."""
    first, second = begin, begin + 1
    return [
        event("annotation", begin, begin + 40, name=name, side="host"),
        launch(begin + 1, first),
        launch(begin + 30, second),
        compute(begin + 50, begin + 60, correlation=first, step=number),
        compute(begin + 80, begin + 90, correlation=second, step=number),
    ]


# Windows as they run on the device, behind the annotations that launched them.
WINDOWS = [window(50, 150, 0), window(150, 250, 1), window(250, 290, 2)]


def test_iterations_by_phase() -> None:
    rows = _step(0, 0, PREFILL) + _step(1, 100, DECODE) + _step(2, 200, DECODE)
    found = values(a_rank(rows, WINDOWS), "serving.iteration")
    means = {value.category: value.value for value in found if value.step is None}
    assert means == pytest.approx({None: 80e-9, "decode": 70e-9, "prefill": 100e-9})
    steps = {value.step: (value.category, value.value) for value in found if value.step is not None}
    assert steps == {0: ("prefill", 100e-9), 1: ("decode", 100e-9), 2: ("decode", 40e-9)}


def test_where_both_engines_names_nest_the_outer_ones_count() -> None:
    rows = [*_step(0, 0, DECODE), event("annotation", 5, 20, name="step[EXTEND bs=1]", side="host")]
    assert [v.category for v in values(a_rank(rows, WINDOWS[:1]), "serving.iteration")] == [
        None,
        "decode",
        "decode",
    ]


def test_an_outer_step_that_tells_no_phase_is_not_told_by_the_inner_one() -> None:
    outer = "execute_context_0(0)_generation_0(0)"
    rows = [*_step(0, 0, outer), event("annotation", 0, 40, name="step[DECODE bs=1]", side="host")]
    assert "distinguishes prefill from decode" in reason(a_rank(rows, WINDOWS[:1]), "serving.iteration")


def test_steps_of_several_iterations_or_none_are_left_out() -> None:
    rows = _step(0, 0, PREFILL) + _step(0, 100, DECODE) + _step(2, 200, DECODE)
    view = a_rank(rows, WINDOWS)
    assert main(view, "serving.iteration", "partial") == pytest.approx(40e-9)
    assert values(view, "serving.iteration")[0].left_out == {"of no single phase": 2}
    assert values(view, "serving.iteration")[0].coverage.by_time == 40 / 240


@pytest.mark.parametrize(
    ("first", "last", "held"),
    [(100, 139, True), (99, 139, False), (100, 140, False), (140, 141, False), (130, 105, True)],
)
def test_a_steps_launches_lie_within_one_annotation(first: int, last: int, held: bool) -> None:
    """From its begin on and before its end; in whatever order the kernels run."""
    rows = [
        event("annotation", 100, 140, name=DECODE, side="host"),
        event("annotation", 0, 40, name=PREFILL, side="host"),
        event("annotation", 10, 300, name=PREFILL, side="device"),
        *(launch(first, 1), launch(last, 2), launch(10, 3)),
        compute(150, 160, correlation=1, step=1),
        compute(160, 170, correlation=2, step=1),
        compute(50, 60, correlation=3, step=0),
    ]
    view = a_rank(rows, [window(50, 120, 0), window(120, 200, 1)])
    found = {v.step: v.category for v in values(view, "serving.iteration") if v.step is not None}
    assert found == ({0: "prefill", 1: "decode"} if held else {0: "prefill"})


@pytest.mark.parametrize(("begin", "launches"), [(100, [50, 60]), (-10, [])])
def test_a_step_launched_before_the_first_annotation_or_nobody_knows_when_is_of_no_phase(
    begin: int, launches: list[int]
) -> None:
    rows = [event("annotation", begin, begin + 240, name=DECODE, side="host")]
    rows += [launch(at, n) for n, at in enumerate(launches)]
    rows += [compute(150 + n, 151 + n, correlation=n, step=0) for n in range(2)]
    assert "distinguishes prefill from decode" in reason(a_rank(rows, WINDOWS[:1]), "serving.iteration")


def test_launches_before_the_clocks_zero_tell_as_others_do() -> None:
    rows = [
        event("annotation", -40, -5, name=DECODE, side="host"),
        *(launch(-30, 1), launch(-20, 2)),
        compute(50, 60, correlation=1, step=0),
        compute(60, 70, correlation=2, step=0),
    ]
    assert [v.category for v in values(a_rank(rows, WINDOWS[:1]), "serving.iteration")][1:] == ["decode"] * 2


def test_iterations_without_numbers_have_a_mean_alone() -> None:
    rows = [event("annotation", 0, 40, name=DECODE, side="host"), compute(5, 10)]
    view = a_rank(rows, [window(0, 40, None, "annotation")], policy="annotations")
    assert [(v.step, v.category) for v in values(view, "serving.iteration")] == [
        (None, None),
        (None, "decode"),
    ]


def test_an_annotation_of_one_nanosecond_holds_itself() -> None:
    rows = [event("annotation", 7, 8, name=DECODE, side="host"), compute(7, 8)]
    view = a_rank(rows, [window(7, 8, 0, "annotation")], policy="annotations")
    assert main(view, "serving.iteration") == pytest.approx(1e-9)


def test_what_is_not_linked_or_of_no_step_tells_no_phase() -> None:
    """A kernel of no correlation, of no step, of a step without a window, of a launch nobody recorded."""
    rows = [
        event("annotation", 0, 40, name=DECODE, side="host"),
        *(launch(at, n) for n, at in ((2, 5), (9, 70), (4, 80), (6, 90))),
        compute(50, 55, correlation=2, step=0),
        compute(55, 56, step=0),
        compute(56, 57, correlation=9),
        compute(57, 58, correlation=4, step=7),
        compute(58, 59, correlation=3, step=0),
        compute(59, 60, correlation=99, step=0),
    ]
    view = a_rank(rows, [window(50, 90, 0)])
    assert [v.category for v in values(view, "serving.iteration")] == [None, "decode", "decode"]


def test_ranks_iterations_count_one_by_one() -> None:
    views = [
        a_rank(_step(0, 0, DECODE) + _step(1, 100, DECODE), WINDOWS[:2], rank=0),
        a_rank(_step(0, 0, DECODE), [window(50, 110, 0)], rank=1),
    ]
    run = {
        row["category"]: row["value"] for row in rows_of("serving.iteration", *views) if row["rank"] is None
    }
    assert run == pytest.approx({None: 260e-9 / 3, "decode": 260e-9 / 3})


def test_where_nothing_tells() -> None:
    assert "distinguishes prefill from decode" in reason(
        a_rank([compute(0, 10)], WINDOWS[:1]), "serving.iteration"
    )
    unlinked = [event("annotation", 0, 40, name=DECODE, side="host"), compute(50, 60, step=0)]
    assert "distinguishes prefill from decode" in reason(a_rank(unlinked, WINDOWS[:1]), "serving.iteration")
    whole = a_rank([compute(0, 10)], [window(0, 10, None, "whole_trace")], policy="trace")
    assert "whole trace" in reason(whole, "serving.iteration")


def test_a_real_decode_iteration(test_data: Path, evidence_store: Path) -> None:
    # Of the JSON's own rows: first start to last end of the 558 kernels and copies launched in the
    # annotation `execute_32_context_0(...)_generation_32(...)`, in whose midst is `step[DECODE bs=32]`.
    run = cclbench.run(test_data / "kineto" / "sglang_decode_mi300x", store=evidence_store)
    rows = [row for row in run.rows if row["metric"] == "serving.iteration" and row["rank"] is None]
    assert [(row["category"], row["step"], row["value"]) for row in rows] == [
        (None, None, 0.473749943),
        ("decode", None, 0.473749943),
    ]
