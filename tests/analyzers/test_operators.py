# SPDX-License-Identifier: Apache-2.0
"""What operators cost on the device, each figure worked out in its docstring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from helpers.hand_made import a_rank, card, comm, compute, event, window
from helpers.hand_values import in_ns, main, parts, reason, rows_of, run_parts, values

from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.rank_view import RankView

BF16 = '["c10::BFloat16","c10::BFloat16"]'
SQUARE = "[[1000,1000],[1000,1000]]"
WINDOW = [window(0, 100_000)]


def call(number: int, name: str, **columns: Any) -> dict[str, Any]:
    """A call of an operator."""
    return {"operator": number, "name": name, **columns}


# linear holds mm (6 MB, 2 GFLOP); add (12 MB, 2 MFLOP) is recomputed; sort_of has no model.
ADDED = {"shapes": "[[2000,1000],[2000,1000],[]]", "dtypes": '["c10::BFloat16","c10::BFloat16","Scalar"]'}
OPERATORS = [call(1, "aten::linear", end_ns=90)]
OPERATORS += [call(2, "aten::mm", parent=1, shapes=SQUARE, dtypes=BF16, end_ns=80, phase="forward")]
OPERATORS += [call(3, "aten::add", **ADDED, recomputed=True, phase="backward"), call(4, "mine::sort_of")]


BACK = {"phase": "backward"}
ROWS = [
    compute(0, 10_000, operator=2, phase="forward", module="Net_0/Linear_0"),
    compute(20_000, 30_000, operator=3, module="Net_0/Linear_1/Act_0", category="elementwise", **BACK),
    compute(30_000, 45_000, operator=4, category="other", name="sort", **BACK),
    *(compute(50_000, 55_000, name="alone"), comm(50_000, 60_000, **BACK)),
    event("copy", 70_000, 71_000, phase="data"),
]


def rank(rows: Sequence[Any] = ROWS, windows: Sequence[Any] = WINDOW, **changes: Any) -> RankView:
    """The rank of those rows, on an A100: 312 TFLOP/s in bf16, 2.039 TB/s."""
    return a_rank(rows, windows, **{"operators": OPERATORS, "card": card(), **changes})


MM, ADD = 2e9 / 312e12, 12e6 / 2.039e12
"""Least seconds: mm's for its FLOPs (2,943 ns for its bytes), add's for its bytes."""


def test_a_kernel_belongs_to_the_innermost_call_that_has_a_model() -> None:
    """`mine::inner` has none, and so its kernel is mm's: their union is [0, 30)."""
    inner = [*OPERATORS, call(9, "mine::inner", parent=2)]
    works = rank([compute(0, 20, operator=2), compute(10, 30, operator=9)], operators=inner).works
    assert [works.kinds[kind].call.name for kind in works.kind] == ["aten::mm"]
    assert (works.time_ns.tolist(), works.kernels.tolist()) == ([30], [2])
    # What holds a matrix product is not counted again, though it has a model of its own.
    told = {"shapes": SQUARE, "dtypes": BF16}
    operators = [call(1, "aten::linear", **told), call(2, "aten::mm", parent=1, **told)]
    works = rank([compute(0, 10, operator=1), compute(10, 100, operator=2)], operators=operators).works
    assert works.has_cost.tolist() == [False, True]
    assert works.kinds[works.kind[0]].why_not == "the operators that it calls are counted instead"


def test_what_takes_longer_than_its_least_time() -> None:
    """mm 10,000 − 6,410 ns, add 10,000 − 5,885; in two steps half of it each step."""
    above = "compute.above_roofline"
    mm, add = 10e-6 - MM, 10e-6 - ADD
    assert parts(rank(), above) == pytest.approx({None: mm + add, "gemm": mm, "elementwise": add})
    assert values(rank(), above)[0].coverage == Coverage(2, 4, 20_000, 40_000)
    halved = rank(ROWS, [window(0, 15_000, 1), window(15_000, 100_000, 2)])
    assert main(halved, above, "partial") == pytest.approx((mm + add) / 2)
    # One that is faster than the least time takes nothing from the others.
    quick = rank([compute(0, 1_000, operator=2), compute(20_000, 30_000, operator=3, category="elementwise")])
    assert main(quick, above, "partial") == pytest.approx(add)


NOTHING_KNOWN = "no operators in the window with a known roofline time"
SILENT = {"operators": [call(2, "aten::mm")]}


@pytest.mark.parametrize(
    ("metric", "rows", "options", "why"),
    [
        ("above_roofline", ROWS[2:], {}, "no operator in the window has a known roofline time"),
        (*("roofline_efficiency", ROWS[2:], {}),
         f"{NOTHING_KNOWN}: none of 2 operators has a cost model and a peak"),
        ("roofline_efficiency", ROWS[5:], {}, NOTHING_KNOWN),
        ("gemm_efficiency", ROWS[5:], {}, "no matrix products in the window with a known roofline time"),
        ("gemm_efficiency", ROWS, SILENT, "known roofline time"),
        ("achieved_flops", ROWS, SILENT, "FLOPs"),
        ("recompute_share", [comm(0, 10, phase="backward")], {}, "there is no compute time in the window"),
        ("recompute_share", ROWS[:1], {}, "backward"),
        ("model_flops_share", ROWS, {"windows": [window(0, 9, source="whole_trace")]}, "the whole trace"),
        (*("model_flops_share", ROWS[1:2], {}),
         "no matrix product, convolution or attention has recorded arguments"),
    ],
)  # fmt: skip
def test_why_there_is_no_figure(metric: str, rows: list[Any], options: dict[str, Any], why: str) -> None:
    assert why in reason(rank(rows, **options), f"compute.{metric}")


@pytest.mark.parametrize(
    ("metric", "rows", "lengths", "expected"),
    [
        # mm's least time twice, in 10 and in 40 µs
        *(
            (
                name,
                [[compute(0, ns, operator=2)] for ns in (10_000, 40_000)],
                (100_000, 100_000),
                2 * MM / 50e-6,
            )
            for name in ("gemm_efficiency", "roofline_efficiency")
        ),
        ("achieved_flops", [ROWS, ROWS[:1]], (100_000, 300_000), 4.002e9 / 400e-6),
        # add's 10 µs of 40, and 30 of 30
        (
            *("recompute_share", [ROWS, [compute(0, 30_000, operator=3, phase="backward")]]),
            *((100_000, 100_000), 40 / 70),
        ),
    ],
)
def test_ranks_count_by_time(metric: str, rows: list[Any], lengths: tuple[int, int], expected: float) -> None:
    views = [
        rank(own, [window(0, length)], rank=n)
        for n, (own, length) in enumerate(zip(rows, lengths, strict=True))
    ]
    assert rows_of(f"compute.{metric}", *views)[0]["value"] == pytest.approx(expected)


def test_roofline_and_gemm_efficiency() -> None:
    """mm takes 6,410 ns of 10,000, add 5,885 of 10,000: 12,295 of 20,000.

    Of 40 µs of compute half is of works with a model: partial.
    """
    assert main(rank(), "compute.gemm_efficiency") == pytest.approx(MM / 10e-6)
    own = values(rank(), "compute.roofline_efficiency")[0]
    assert (own.status, own.coverage.by_time) == ("partial", 0.5)
    found = parts(rank(), "compute.roofline_efficiency")
    shares = {None: (MM + ADD) / 20e-6, "gemm": MM / 10e-6, "elementwise": ADD / 10e-6}
    assert {about: found[about] for about in shares} == pytest.approx(shares)


def test_what_is_faster_than_the_device_is_no_share() -> None:
    """mm as before, its 2 GFLOP in 6,000 ns: 1.07 of the roofline; add 5,885 ns in 10,000."""
    found = values(rank([compute(0, 6_000, operator=2), *ROWS[1:]]), "compute.roofline_efficiency")
    (gemm,) = (v for v in found if v.category == "gemm")
    assert (gemm.value, gemm.status) == (None, "failed")
    assert (gemm.reason or "").startswith("1.07 of the roofline: a formula, an element type or a peak is")
    # the product is in no total, and counted
    assert found[0].value == pytest.approx(ADD / 10e-6)
    assert found[0].left_out == {"calls faster than their roofline": 1}
    assert (found[0].status, found[0].coverage) == ("partial", Coverage(1, 4, 10_000, 36_000))


@pytest.mark.parametrize(
    ("metric", "expected", "why"),
    [
        # 2.002e9 FLOP in 100 µs
        (*("compute.achieved_flops", 2.002e9 / 100e-6), "by formula from the operators' recorded arguments"),
        # 18 MB of 2.039e12 · 100e-6 B
        (
            *("memory.hbm_utilization", 18e6 / (2.039e12 * 100e-6)),
            "a lower bound: compulsory traffic of operators",
        ),
        # add's 10 µs of 40; mm is right of the ridge
        ("memory.bound_share", 0.25, None),
    ],
)
def test_figures_by_formula(metric: str, expected: float, why: str | None) -> None:
    found = values(rank(), metric)[0]
    assert found.value == pytest.approx(expected)
    assert (found.provenance, found.coverage) == ("derived", Coverage(2, 4, 20_000, 40_000))
    assert why is None or found.reason == why
    if metric == "memory.hbm_utilization":
        assert found.left_out == {"device rows of unknown traffic": 2}
    assert values(rank(**SILENT), metric)[0].status == "not_applicable"


def test_recompute_share_and_traffic_that_a_cache_serves() -> None:
    """add's 10 µs of 40; a copy in the backward pass is one, though none of it is compute."""
    assert main(rank(), "compute.recompute_share") == 0.25
    assert main(rank([*ROWS[:1], event("copy", 50, 60, phase="backward")]), "compute.recompute_share") == 0
    # add's 12 MB in 5,000 ns are more than the memory moves: only the product's 6 MB count.
    view = rank([ROWS[0], compute(20_000, 25_000, operator=3, category="elementwise")])
    assert main(view, "memory.hbm_utilization", "partial") == pytest.approx(6e6 / (2.039e12 * 100e-6))


def test_phases_share_what_runs_at_once_and_modules_are_of_the_first_level_with_several() -> None:
    """[50, 55) is shared by a kernel of no phase and a collective of the backward pass: 2.5 µs each."""
    assert in_ns(parts(rank(), "time.phase")) == pytest.approx(
        {None: 46_000, "forward": 10_000, "backward": 32_500, "data": 1_000, "other": 2_500}
    )
    found = in_ns(parts(rank(), "time.module"))
    assert (found[None], found["Net_0/Linear_0"], found["Net_0/Linear_1"]) == pytest.approx(
        (46_000, 10_000, 10_000)
    )
    assert "with_stack" in reason(a_rank([compute(0, 9)], [window(0, 10)]), "time.module")


def modules(*paths: str | None, ns: int = 10) -> dict[Any, float]:
    """ns by module of kernels of those modules, each one ns longer than the one before."""
    rows = [compute(1000 * n, 1000 * n + ns + n, module=path) for n, path in enumerate(paths)]
    found = in_ns(parts(a_rank(rows, [window(0, 1000 * len(paths))]), "time.module"))
    return {about: round(value, 6) for about, value in found.items()}


def test_a_single_module_is_shown_at_its_first_level_and_the_60_of_most_time_apart() -> None:
    assert modules("Net_0/Block_0/Linear_0") == {None: 10, "Net_0": 10}
    assert modules("Net_0", "Net_0/Block_0") == {None: 21, "Net_0": 21}
    assert modules("N/B/X", "N/B/Y/Z", None) == {None: 33, "N/B/X": 10, "N/B/Y": 11, "none": 12}
    assert modules("N/A/X", "N/B/X", "N/A/Y") == {None: 33, "N/A": 10 + 12, "N/B": 11}
    # The 60 modules of most time are told apart.
    sixty = modules(*(f"N/{n:02}" for n in range(60)))
    assert len(sixty) == 1 + 60
    assert "others" not in sixty
    found = modules(*(f"N/{n:02}" for n in range(62)))
    assert len(found) == 1 + 60 + 1
    assert (found["others"], found["N/02"], found["N/61"]) == (10 + 11, 12, 71)
    assert not {"N/00", "N/01"} & set(found)


def test_one_phase_alone_tells_nothing_apart_unless_it_is_named() -> None:
    assert reason(a_rank([compute(0, 9)], WINDOW), "time.phase") == ("the trace does not distinguish phases")
    named = a_rank([compute(0, 9_000, phase="decode")], [window(0, 10_000, 1), window(10_000, 20_000, 2)])
    assert parts(named, "time.phase") == pytest.approx({None: 4.5e-6, 1: 9e-6, 2: 0, "decode": 4.5e-6})
    assert reason(a_rank([event("op", 0, 1)], WINDOW, works_on=None), "time.phase") == (
        "the trace has only host events, none of the accelerator"
    )


def test_a_cpus_calls_are_its_works_and_its_time_is_of_the_innermost_calls_phase() -> None:
    """Thread 1: forward 0-40, a backward call 10-20 in it, in a wrapper; thread 2: the optimizer 30-60."""
    operators = [
        call(1, "MmBackward0", start_ns=0, end_ns=90, track=1, phase="data"),
        call(2, "aten::mm", start_ns=0, end_ns=40, track=1, phase="forward"),
        call(3, "aten::add", start_ns=10, end_ns=20, track=1, phase="backward"),
        call(4, "aten::mul", start_ns=30, end_ns=60, track=2, phase="optimizer"),
        call(5, "aten::relu", start_ns=70, end_ns=75, track=2, phase=None),
    ]
    rows = [event("op", 0, 40, track=1, name="aten::mm"), event("op", 30, 60, track=2, name="aten::mul")]
    rows += [event("op", 70, 75, track=2, name="aten::relu")]
    rows += [event("op", 80, 84, track=3, name="gloo:all_reduce", category="communication", collective=0)]
    view = a_rank(rows, [window(0, 100)], operators=operators, works_on="host")
    assert in_ns(parts(view, "time.phase")) == pytest.approx(
        {None: 60 + 5 + 4, "forward": 20 + 5, "backward": 10, "optimizer": 20 + 5, "other": 5 + 4}
    )
    # mm's own 60 ns and 10 of `mine::inner` in it; the wrapper around them does not work.
    operators = [
        call(1, "MmBackward0", end_ns=100),
        call(2, "aten::mm", parent=1, shapes=SQUARE, dtypes=BF16, end_ns=70, device_ns=60),
        call(3, "mine::inner", parent=2, end_ns=20, device_ns=10),
    ]
    view = a_rank([event("op", 0, 90)], [window(0, 1000)], operators=operators, works_on="host")
    assert view.works.time_ns.tolist() == [70]
    assert main(view, "compute.achieved_flops") == pytest.approx(2e9 / 1e-6)


def test_the_models_flops_against_those_that_ran() -> None:
    """The card's model takes 6 · 1000 · 40 + 6 · 1 · 2 · 10 · 400 = 288,000 FLOP a step on 2 devices, with
    causal attention 6 · 1 · 2 · 10 · 220 of it; mm runs 4e9 on rank 0, half of them again in the backward
    pass, and 2e9 on rank 1; 20 of 45 and 15 of 25 µs are of no model.
    """
    share = "compute.model_flops_share"
    again = [*OPERATORS, call(8, "aten::mm", shapes=SQUARE, dtypes=BF16, recomputed=True)]
    staged = card(parallelism={"pp": 2}, workload__model__attention="causal")
    halves = [window(0, 50_000, step=1), window(50_000, 100_000, step=2)]
    first = rank([*ROWS, compute(90_000, 95_000, operator=8)], halves, operators=again, card=staged)
    last = rank([ROWS[0], ROWS[2]], [window(0, 100_000, step=1)], rank=1, card=staged)
    expected = {None: 266_400 / 4e9, "recomputed": 0.25, "without_model": 35 / 70, "executed": 2e9}
    expected |= {"needed": 266_400 / 2, "needed_all_pairs": 288_000 / 2}
    (main_row, *_) = rows_of(share, first, last)
    assert run_parts(share, first, last) == pytest.approx(expected)
    assert "device: 2e+09, of which 25.0% recomputed; 50.0% of compute time" in main_row["reason"]
    (alone,) = rows_of(share, first)
    assert alone["reason"].startswith("1 of 2 devices have FLOPs")
    equal = rank([compute(50, 50, operator=2)], [window(0, 100, 1)])
    assert run_parts(share, equal)[None] == 288_000 / 2 / 2e9
    (failed, *_) = rows_of(share, rank(card=card(workload__model__parameters=10**9)))
    assert (failed["status"], failed["value"]) == ("failed", None)
    assert "needs 1.2e+11 FLOPs a step and device, more than ran" in failed["reason"]
