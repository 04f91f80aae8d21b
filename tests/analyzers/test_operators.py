# SPDX-License-Identifier: Apache-2.0
"""What operators cost on the device, each figure worked out in its docstring."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, card, comm, compute, event, main, reason, rows_of, values, window

from cclbench.analyzers.metric import Coverage

BF16 = '["c10::BFloat16","c10::BFloat16"]'
SQUARE = "[[1000,1000],[1000,1000]]"
WINDOW = [window(0, 100_000)]


def call(number: int, name: str, **columns: Any) -> dict[str, Any]:
    """A call of an operator."""
    return {"operator": number, "name": name, **columns}


# linear holds mm (6 MB, 2 GFLOP); add (12 MB, 2 MFLOP) is recomputed; sort_of has no model.
OPERATORS = [
    call(1, "aten::linear", end_ns=90),
    call(2, "aten::mm", parent=1, shapes=SQUARE, dtypes=BF16, end_ns=80, phase="forward"),
    call(
        3,
        "aten::add",
        shapes="[[2000,1000],[2000,1000],[]]",
        dtypes='["c10::BFloat16","c10::BFloat16","Scalar"]',
        recomputed=True,
        phase="backward",
    ),
    call(4, "mine::sort_of"),
]
ROWS = [
    compute(0, 10_000, operator=2, phase="forward", module="Net_0/Linear_0"),
    compute(
        20_000, 30_000, operator=3, phase="backward", module="Net_0/Linear_1/Act_0", category="elementwise"
    ),
    compute(30_000, 45_000, operator=4, phase="backward", category="other", name="sort"),
    compute(50_000, 55_000, name="alone"),
    comm(50_000, 60_000, phase="backward"),
    event("copy", 70_000, 71_000, phase="data"),
]


def rank(**changes: Any) -> Any:
    """The rank of those rows, on an A100: 312 TFLOP/s in bf16, 2.039 TB/s."""
    return a_rank(ROWS, WINDOW, operators=OPERATORS, card=card(), **changes)


def test_the_works_of_a_rank() -> None:
    works = rank().works
    found = [(works.kinds[kind].call.name, ns) for kind, ns in zip(works.kind, works.time_ns, strict=True)]
    assert found == [
        ("aten::mm", 10_000),
        ("aten::add", 10_000),
        ("mine::sort_of", 15_000),
        ("alone", 5_000),
        ("nccl", 10_000),
        ("copy", 1_000),
    ]
    assert works.is_linked.tolist() == [True, True, True, False, False, False]
    assert works.has_cost.tolist() == [True, True, False, False, False, False]
    assert works.flops[:2].tolist() == [2e9, 2e6]
    assert works.bytes[:2].tolist() == [6e6, 12e6]
    assert works.kinds[works.kind[2]].why_not == "no cost model for this operator"


def test_a_kernel_belongs_to_the_innermost_call_that_has_a_model() -> None:
    """`mine::inner` has none, and so its kernel is mm's: their union is [0, 30)."""
    inner = [*OPERATORS, call(9, "mine::inner", parent=2)]
    rows = [compute(0, 20, operator=2), compute(10, 30, operator=9)]
    works = a_rank(rows, [window(0, 100)], operators=inner, card=card()).works
    assert [works.kinds[kind].call.name for kind in works.kind] == ["aten::mm"]
    assert (works.time_ns.tolist(), works.kernels.tolist()) == ([30], [2])


def test_what_takes_longer_than_its_least_time() -> None:
    """mm 10,000 − 6,410 ns, add 10,000 − 5,885; in two steps half of it each step."""
    mm, add = 10e-6 - 2e9 / 312e12, 10e-6 - 12e6 / 2.039e12
    found = {v.category: v for v in values(rank(), "compute.above_roofline")}
    assert {category: v.value for category, v in found.items()} == {
        None: pytest.approx(mm + add),
        "gemm": pytest.approx(mm),
        "elementwise": pytest.approx(add),
    }
    assert found[None].coverage == Coverage(2, 4, 20_000, 40_000)
    steps = [window(0, 15_000, 1), window(15_000, 100_000, 2)]
    halved = a_rank(ROWS, steps, operators=OPERATORS, card=card())
    assert main(halved, "compute.above_roofline", "partial") == pytest.approx((mm + add) / 2)
    # One that is faster than the least time takes nothing from the others.
    quick = [compute(0, 1_000, operator=2), compute(20_000, 30_000, operator=3, category="elementwise")]
    both = a_rank(quick, WINDOW, operators=OPERATORS, card=card())
    assert main(both, "compute.above_roofline", "partial") == pytest.approx(add)
    alone = a_rank(ROWS[2:], WINDOW, operators=OPERATORS, card=card())
    assert reason(alone, "compute.above_roofline") == "no operator in the window has a known roofline time"


def test_an_efficiency_says_why_there_is_none() -> None:
    unknown = a_rank(ROWS[2:], WINDOW, operators=OPERATORS, card=card())
    assert reason(unknown, "compute.roofline_efficiency") == (
        "no operators in the window with a known roofline time: none of 2 operators has a cost model and"
        " a peak"
    )
    copied = a_rank(ROWS[5:], WINDOW, operators=OPERATORS, card=card())
    assert reason(copied, "compute.roofline_efficiency") == (
        "no operators in the window with a known roofline time"
    )
    assert reason(copied, "compute.gemm_efficiency") == (
        "no matrix products in the window with a known roofline time"
    )


def test_ranks_count_by_the_time_of_their_operators() -> None:
    """mm's least time twice, in 10 and in 40 µs."""
    views = [
        a_rank([compute(0, ns, operator=2)], WINDOW, operators=OPERATORS, card=card(), rank=n)
        for n, ns in enumerate((10_000, 40_000))
    ]
    for metric in ("compute.gemm_efficiency", "compute.roofline_efficiency"):
        assert rows_of(metric, *views)[0]["value"] == pytest.approx(2 * 2e9 / 312e12 / 50e-6)


def test_gemm_efficiency() -> None:
    """2e9 / 312e12 s = 6,410 ns, in 10,000."""
    assert main(rank(), "compute.gemm_efficiency") == pytest.approx(2e9 / 312e12 / 10e-6)


def test_roofline_efficiency() -> None:
    """mm takes 6,410 ns for its FLOPs (2,943 for its bytes), add 5,885 for its bytes: 12,295 of 20,000.

    Of 40 µs of compute half is of works with a model: partial.
    """
    found = values(rank(), "compute.roofline_efficiency")
    assert found[0].value == pytest.approx((2e9 / 312e12 + 12e6 / 2.039e12) / 20e-6)
    assert (found[0].status, found[0].coverage.by_time) == ("partial", 0.5)
    by_category = {v.category: v.value for v in found[1:]}
    assert by_category["gemm"] == pytest.approx(2e9 / 312e12 / 10e-6)
    assert by_category["elementwise"] == pytest.approx(12e6 / 2.039e12 / 10e-6)


def test_what_is_faster_than_the_device_is_no_share() -> None:
    """mm as before, its 2 GFLOP in 6,000 ns: 1.07 of the roofline; add 5,885 ns in 10,000."""
    fast = [compute(0, 6_000, operator=2), *ROWS[1:]]
    found = values(a_rank(fast, WINDOW, operators=OPERATORS, card=card()), "compute.roofline_efficiency")
    (gemm,) = (v for v in found if v.category == "gemm")
    assert (gemm.value, gemm.status) == (None, "failed")
    assert gemm.reason == (
        "1.07 of the roofline: a formula, an element type or a peak is wrong, or a cache served all of these"
        " operators"
    )
    # the product is in no total, and counted
    assert found[0].value == pytest.approx(12e6 / 2.039e12 / 10e-6)
    assert found[0].left_out == {"calls faster than their roofline": 1}
    assert (found[0].status, found[0].coverage) == ("partial", Coverage(1, 4, 10_000, 36_000))


def test_achieved_flops_by_formula() -> None:
    """2.002e9 FLOP in 100 µs."""
    found = values(rank(), "compute.achieved_flops")[0]
    assert found.value == pytest.approx(2.002e9 / 100e-6)
    assert (found.provenance, found.coverage) == ("derived", Coverage(2, 4, 20_000, 40_000))
    assert found.reason == "by formula from the operators' recorded arguments"
    ranks = [rank(), a_rank(ROWS[:1], [window(0, 300_000)], operators=OPERATORS, card=card(), rank=1)]
    both = rows_of("compute.achieved_flops", *ranks)[0]
    assert both["value"] == pytest.approx(4.002e9 / 400e-6)


def test_traffic_that_a_cache_serves_is_none_of_the_memory() -> None:
    """add's 12 MB in 5,000 ns are more than the memory moves: only the product's 6 MB count."""
    rows = [ROWS[0], compute(20_000, 25_000, operator=3, category="elementwise")]
    view = a_rank(rows, WINDOW, operators=OPERATORS, card=card())
    assert main(view, "memory.hbm_utilization", "partial") == pytest.approx(6e6 / (2.039e12 * 100e-6))


def test_traffic_by_formula_is_a_lower_bound() -> None:
    """18 MB of 2.039e12 · 100e-6 B."""
    found = values(rank(), "memory.hbm_utilization")[0]
    assert found.value == pytest.approx(18e6 / (2.039e12 * 100e-6))
    assert found.reason == "a lower bound: compulsory traffic of operators"
    assert (found.provenance, found.coverage) == ("derived", Coverage(2, 4, 20_000, 40_000))
    assert found.left_out == {"device rows of unknown traffic": 2}


def test_bound_share_by_formula() -> None:
    """add's 10 µs of 40; mm is right of the ridge."""
    found = values(rank(), "memory.bound_share")[0]
    assert (found.value, found.coverage) == (pytest.approx(0.25), Coverage(2, 4, 20_000, 40_000))


def test_recompute_share() -> None:
    """add's 10 µs of 40."""
    assert main(rank(), "compute.recompute_share") == 0.25
    copied = a_rank([*ROWS[:1], event("copy", 50, 60, phase="backward")], WINDOW, operators=OPERATORS)
    assert main(copied, "compute.recompute_share") == 0
    talk = a_rank([comm(0, 10, phase="backward")], WINDOW, operators=OPERATORS)
    assert reason(talk, "compute.recompute_share") == "there is no compute time in the window"
    again = [compute(0, 30_000, operator=3, phase="backward")]
    ranks = [rank(), a_rank(again, WINDOW, operators=OPERATORS, rank=1)]
    assert rows_of("compute.recompute_share", *ranks)[0]["value"] == pytest.approx(40 / 70)
    forward = a_rank(ROWS[:1], WINDOW, operators=OPERATORS)
    assert "backward" in reason(forward, "compute.recompute_share")


def test_phases_share_what_runs_at_once() -> None:
    """[50, 55) is shared by a kernel of no phase and a collective of the backward pass: 2.5 µs each."""
    found = {v.category: v.value for v in values(rank(), "time.phase") if v.step is None}
    assert found == {
        None: pytest.approx(46e-6),
        "forward": pytest.approx(10e-6),
        "backward": pytest.approx(32.5e-6),
        "data": pytest.approx(1e-6),
        "other": pytest.approx(2.5e-6),
    }


def test_modules_to_the_first_level_with_several() -> None:
    found = {v.category: v.value for v in values(rank(), "time.module") if v.step is None}
    assert found[None] == pytest.approx(46e-6)
    assert (found["Net_0/Linear_0"], found["Net_0/Linear_1"]) == (pytest.approx(10e-6), pytest.approx(10e-6))
    assert "with_stack" in reason(a_rank([compute(0, 9)], [window(0, 10)]), "time.module")


def modules(*paths: str | None, ns: int = 10) -> dict[str | None, float]:
    """ns by module of kernels of those modules, each one ns longer than the one before."""
    rows = [compute(1000 * n, 1000 * n + ns + n, module=path) for n, path in enumerate(paths)]
    found = values(a_rank(rows, [window(0, 1000 * len(paths))]), "time.module")
    return {v.category: round((v.value or 0) * 1e9, 6) for v in found}


def test_a_single_module_is_shown_at_its_first_level_and_deeper_ones_at_that_of_several() -> None:
    assert modules("Net_0/Block_0/Linear_0") == {None: 10, "Net_0": 10}
    assert modules("Net_0", "Net_0/Block_0") == {None: 21, "Net_0": 21}
    assert modules("N/B/X", "N/B/Y/Z", None) == {None: 33, "N/B/X": 10, "N/B/Y": 11, "none": 12}
    assert modules("N/A/X", "N/B/X", "N/A/Y") == {None: 33, "N/A": 10 + 12, "N/B": 11}


def test_the_60_modules_of_most_time_are_told_apart() -> None:
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
    found = {(v.step, v.category): v.value for v in values(named, "time.phase")}
    assert found == pytest.approx(
        {(None, None): 4.5e-6, (1, None): 9e-6, (2, None): 0, (None, "decode"): 4.5e-6}
    )
    assert reason(a_rank([event("op", 0, 1)], WINDOW, works_on=None), "time.phase") == (
        "the trace has only host events, none of the accelerator"
    )


def test_a_cpus_time_is_of_its_innermost_calls_phase() -> None:
    """Thread 1: forward 0-40, a backward call 10-20 in it, in a wrapper; thread 2: the optimizer 30-60."""
    operators = [
        call(1, "MmBackward0", start_ns=0, end_ns=90, track=1, phase="data"),
        call(2, "aten::mm", start_ns=0, end_ns=40, track=1, phase="forward"),
        call(3, "aten::add", start_ns=10, end_ns=20, track=1, phase="backward"),
        call(4, "aten::mul", start_ns=30, end_ns=60, track=2, phase="optimizer"),
        call(5, "aten::relu", start_ns=70, end_ns=75, track=2, phase=None),
    ]
    rows = [
        event("op", 0, 40, track=1, name="aten::mm"),
        event("op", 30, 60, track=2, name="aten::mul"),
        event("op", 70, 75, track=2, name="aten::relu"),
        event("op", 80, 84, track=3, name="gloo:all_reduce", category="communication", collective=0),
    ]
    view = a_rank(rows, [window(0, 100)], operators=operators, works_on="host")
    found = {v.category: round((v.value or 0) * 1e9, 6) for v in values(view, "time.phase")}
    assert found == {None: 60 + 5 + 4, "forward": 20 + 5, "backward": 10, "optimizer": 20 + 5, "other": 5 + 4}


def test_nothing_is_guessed_without_arguments() -> None:
    silent = a_rank(ROWS, WINDOW, operators=[call(2, "aten::mm")], card=card())
    for metric in ("compute.gemm_efficiency", "compute.achieved_flops", "memory.bound_share"):
        assert values(silent, metric)[0].status == "not_applicable"


def test_a_cpus_calls_are_its_works() -> None:
    """mm's own 60 ns and 10 of `mine::inner` in it; the wrapper around them does not work."""
    operators = [
        call(1, "MmBackward0", end_ns=100),
        call(2, "aten::mm", parent=1, shapes=SQUARE, dtypes=BF16, end_ns=70, device_ns=60),
        call(3, "mine::inner", parent=2, end_ns=20, device_ns=10),
    ]
    view = a_rank([event("op", 0, 90)], [window(0, 1000)], operators=operators, works_on="host")
    assert view.works.time_ns.tolist() == [70]
    assert main(view, "compute.achieved_flops") == pytest.approx(2e9 / 1e-6)


def test_what_holds_a_matrix_product_is_not_counted_again() -> None:
    """`linear` runs 10 ns beside those of its `mm`, and has a model of its own."""
    operators = [
        call(1, "aten::linear", shapes=SQUARE, dtypes=BF16),
        call(2, "aten::mm", parent=1, shapes=SQUARE, dtypes=BF16),
    ]
    rows = [compute(0, 10, operator=1), compute(10, 100, operator=2)]
    works = a_rank(rows, [window(0, 100)], operators=operators, card=card()).works
    assert works.has_cost.tolist() == [False, True]
    assert works.kinds[works.kind[0]].why_not == "the operators that it calls are counted instead"


def test_the_models_flops_against_those_that_ran() -> None:
    """The card's model takes 6 · 1000 · 40 + 6 · 1 · 2 · 10 · 400 = 288,000 FLOP a step, half on each of 2
    devices; mm runs 4e9, half of them again in the backward pass; 20 of 45 µs are of no model.
    """
    again = [*OPERATORS, call(8, "aten::mm", shapes=SQUARE, dtypes=BF16, recomputed=True)]
    rows = [*ROWS, compute(90_000, 95_000, operator=8)]
    view = a_rank(rows, [window(0, 100_000, step=1)], operators=again, card=card())
    found = {v.stat: v.value for v in values(view, "compute.model_flops_share")}
    assert found[None] == pytest.approx(288_000 / 2 / 4e9)
    assert found["recomputed"] == 0.5
    assert found["without_model"] == pytest.approx(20 / 45)
    assert values(view, "compute.model_flops_share")[0].reason == (
        "operators' FLOPs a step: 4e+09, of which 50.0% recomputed;"
        " 44.4% of compute time is in operators without FLOPs"
    )
    halves = [window(0, 50_000, step=1), window(50_000, 100_000, step=2)]
    view = a_rank(rows, halves, operators=again, card=card())
    assert main(view, "compute.model_flops_share") == pytest.approx(288_000 / 2 / 2e9)
    assert (values(view, "compute.model_flops_share")[0].reason or "").startswith(
        "operators' FLOPs a step: 2e+09"
    )


def test_without_steps_or_products_the_models_share_says_so() -> None:
    instant = a_rank([compute(50, 50, operator=2)], [window(0, 100, 1)], operators=OPERATORS, card=card())
    found = {v.stat: v.value for v in values(instant, "compute.model_flops_share")}
    assert found == {None: 288_000 / 2 / 2e9, "recomputed": 0, "without_model": 0}
    whole = a_rank(ROWS, [window(0, 100_000, source="whole_trace")], operators=OPERATORS, card=card())
    assert (
        reason(whole, "compute.model_flops_share")
        == "FLOPs per step need steps: the window is the whole trace"
    )
    added = a_rank(ROWS[1:2], WINDOW, operators=OPERATORS, card=card())
    assert reason(added, "compute.model_flops_share") == (
        "no matrix product, convolution or attention has recorded arguments"
    )
