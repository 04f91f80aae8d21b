# SPDX-License-Identifier: Apache-2.0
"""Phases of serving engines' iterations, on hand-made ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hand_made import a_rank, compute, event, launch, main, reason, values, window

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
    assert "tells prefill from decode" in reason(a_rank(rows, WINDOWS[:1]), "serving.iteration")


def test_steps_of_several_iterations_or_none_are_left_out() -> None:
    rows = _step(0, 0, PREFILL) + _step(0, 100, DECODE) + _step(2, 200, DECODE)
    view = a_rank(rows, WINDOWS)
    assert main(view, "serving.iteration", "partial") == pytest.approx(40e-9)
    assert values(view, "serving.iteration")[0].left_out == {"of no one phase": 2}
    assert values(view, "serving.iteration")[0].coverage.by_time == 40 / 240


def test_annotation_windows_hold_themselves() -> None:
    rows = [event("annotation", 0, 40, name=DECODE, side="host"), compute(5, 10)]
    view = a_rank(rows, [window(0, 40, 0, "annotation")], policy="annotations")
    assert [v.category for v in values(view, "serving.iteration")] == [None, "decode", "decode"]


def test_where_nothing_tells() -> None:
    assert "tells prefill from decode" in reason(a_rank([compute(0, 10)], WINDOWS[:1]), "serving.iteration")
    unlinked = [event("annotation", 0, 40, name=DECODE, side="host"), compute(50, 60, step=0)]
    assert "tells prefill from decode" in reason(a_rank(unlinked, WINDOWS[:1]), "serving.iteration")
    whole = a_rank([compute(0, 10)], [window(0, 10, None, "whole_trace")], policy="trace")
    assert "whole trace" in reason(whole, "serving.iteration")


def test_a_real_decode_iteration(test_data: Path, tmp_path: Path) -> None:
    # Of the JSON's own rows: first start to last end of the 558 kernels and copies launched in the
    # annotation `execute_32_context_0(...)_generation_32(...)`, in whose midst is `step[DECODE bs=32]`.
    run = cclbench.run(test_data / "kineto" / "sglang_decode_mi300x", store=tmp_path)
    rows = [row for row in run.rows if row["metric"] == "serving.iteration" and row["rank"] is None]
    assert [(row["category"], row["step"], row["value"]) for row in rows] == [
        (None, None, 0.473749943),
        ("decode", None, 0.473749943),
    ]
