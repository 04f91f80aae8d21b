# SPDX-License-Identifier: Apache-2.0
"""A rank's works and what they add up to by each key, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, an_accelerator, card, comm, compute, event, window

from cclbench.analyzers.view.device_works import NO_CALLS, NOT_LINKED
from cclbench.analyzers.view.operator_sums import SEVERAL_KERNELS, OperatorSums, rank_sums
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.work_keys import BY
from cclbench.ground.errors import UsageError
from cclbench.operators.product_sizes import ProductSizes

BF16 = '["c10::BFloat16","c10::BFloat16"]'
SQUARE = "[[100,100],[100,100]]"
CACHE = 30_000
"""Bytes of the accelerator's cache."""
NO_MODEL = "no cost model for this operator"


@pytest.fixture(autouse=True)
def _chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator of 1e12 FLOP/s in bf16, 1e11 in fp32, and 1e11 B/s."""
    an_accelerator(
        monkeypatch,
        peak_flops_per_s={"bf16": 1e12, "fp32": 1e11},
        hbm_bytes_per_s=1e11,
        cache_bytes=CACHE,
        attainable_flops_per_s={"bf16": 8e11},
    )


def call(number: int, name: str, **columns: Any) -> dict[str, Any]:
    """A call of an operator."""
    return {"operator": number, "name": name, **columns}


# mm is 2e6 FLOP (2,000 ns at the peak) and 60,000 B (600 ns); add 1e4 FLOP in fp32 (100 ns), as many bytes.
OPERATORS = [
    call(1, "aten::mm", shapes=SQUARE, dtypes=BF16),
    call(2, "mine::inner", parent=1),
    call(3, "aten::add", shapes=SQUARE, dtypes=BF16, recomputed=True),
    call(4, "mine::sort"),
    call(5, "aten::mm", shapes=SQUARE, dtypes=BF16),
    call(6, "mine::cat", shapes="[[[10,10],[20,10]],[]]", dtypes='[["float","float"],"Scalar"]'),
]
ROWS = [
    compute(3000, 9000, operator=2, name="void split<float>(int)", category="elementwise", phase="backward")
    | {"module": "Net_0/Lin_1"},
    compute(0, 3000, operator=1, name="gemm_a", phase="forward", module="Net_0/Lin_0"),
    compute(10_000, 11_000, operator=3, name="add_k", category="elementwise", phase="backward"),
    compute(12_000, 12_500, operator=4, name="sort_k", category="other"),
    compute(13_000, 17_000, operator=5, name="gemm_a", phase="forward"),
    compute(20_000, 20_300, name="void alone<int>(x)"),
    comm(21_000, 22_000, operator=2, phase="backward"),
    event("copy", 23_000, 23_100, phase="data"),
    compute(24_000, 24_010, operator=6, name="cat_k", category=None),
    compute(60_000, 61_000, operator=5, name="gemm_a"),
]


def a_step(**changes: Any) -> RankView:
    told: dict[str, Any] = {"operators": OPERATORS, "card": card()}
    return a_rank(ROWS, [window(0, 50_000, 1)], **(told | changes))


def sums_of(view: RankView, *keys: str, **how: Any) -> dict[str, dict[str, OperatorSums]]:
    """Sums by each of the keys, by their words."""
    sums = rank_sums(view, keys, **how).sums
    return {by: {" | ".join(words): own for words, own in rows.items()} for by, rows in sums.items()}


# Each work of the step: its call, ns, the kernels that this launched, why it has no cost, and what it is.
# A transfer stays its own caller's, though a model counts what holds that.
WORKS: list[tuple[str, int, tuple[str, ...], str | None, str]] = [
    ("aten::mm", 9000, ("gemm_a", "void split<float>(int)"), None, "computes linked cost product"),
    ("mine::inner", 1000, ("nccl",), NO_MODEL, "communication linked"),
    ("aten::add", 1000, ("add_k",), None, "computes linked cost recomputed"),
    ("mine::sort", 500, ("sort_k",), NO_MODEL, "computes linked"),
    ("aten::mm", 4000, ("gemm_a",), None, "computes linked cost product"),
    ("mine::cat", 10, ("cat_k",), NO_MODEL, "computes linked"),
    ("void alone<int>(x)", 300, (), NOT_LINKED, "computes"),
    ("copy", 100, (), NOT_LINKED, ""),
]


def test_works_are_calls_in_order_and_then_what_none_launched() -> None:
    works = a_step().works
    kinds = [works.kinds[kind] for kind in works.kind]
    told = zip((kind.call.name for kind in kinds), works.time_ns.tolist(), strict=True)
    assert list(told) == [(name, ns) for name, ns, *_ in WORKS]
    assert [kind.call.kernels for kind in kinds] == [kernels for _, _, kernels, _, _ in WORKS]
    assert [kind.why_not for kind in kinds] == [why for *_, why, _ in WORKS]
    assert works.kernels.tolist() == [2, 1, 1, 1, 1, 1, 1, 1]
    products = works.of_family("matrix product")
    for word, found in {
        "communication": works.is_communication, "computes": works.computes, "linked": works.is_linked,
        "cost": works.has_cost, "recomputed": works.recomputed, "product": products,
    }.items():  # fmt: skip
        assert found.tolist() == [word in what.split() for *_, what in WORKS], word
    assert not works.stated.any()
    chosen = works.intervals_of(products)
    assert (chosen.starts.tolist(), chosen.ends.tolist()) == ([0, 13_000], [9000, 17_000])
    silent = a_step(operators=[]).works
    assert {kind.why_not for kind in silent.kinds} == {NO_CALLS}
    assert len(silent) == 9


def times(view: RankView, *keys: str) -> dict[str, dict[str, int]]:
    """ns by each of the keys, by their words."""
    return {
        by: {word: own.time_ns for word, own in rows.items()} for by, rows in sums_of(view, *keys).items()
    }


def test_a_work_is_what_its_longest_row_is() -> None:
    works = a_step().works
    assert [works.modules[n] for n in works.module[:2]] == ["Net_0/Lin_1", None]
    phases = {"backward": 9000 + 1000 + 1000, "forward": 4000, "data": 100, "other": 500 + 10 + 300}
    categories = {"elementwise": (2, 10_000), "communication": (1, 1000), "other": (2, 510)}
    categories |= {"gemm": (2, 4300), "copy": (1, 100)}
    assert times(a_step(), "phase") == {"phase": phases}
    found = sums_of(a_step(), "category")["category"]
    assert {key: (own.calls, own.time_ns) for key, own in found.items()} == categories
    # the longest may come first
    rows = [
        compute(0, 50, operator=4, phase="forward", category="gemm"),
        compute(60, 70, operator=4, phase="backward", category="other"),
        compute(80, 120, operator=3, phase="loss"),
    ]
    assert times(a_rank(rows, [window(0, 200)], operators=OPERATORS), "phase") == {
        "phase": {"forward": 60, "loss": 40}
    }


STATED = [compute(0, 10, flops=5000.0, hbm_bytes=100), compute(20, 30, flops=7000.0)]
STATED += [compute(40, 50, flops=0.0, hbm_bytes=2000), compute(60, 70, hbm_bytes=3000)]


def test_what_the_trace_states_goes_by_the_stated_peak_and_adds_up_where_all_rows_have_it() -> None:
    """5,000 FLOP at 1e12 FLOP/s are 5 ns and 100 B 1 ns; no arithmetic takes no time, 2,000 B take 20 ns."""
    works = a_rank(STATED, [window(0, 100)]).works
    assert works.stated.tolist() == [True, True, True, False]
    assert works.has_cost.tolist() == [True, False, True, False]
    assert works.compute_ns({}, 1e12)[:3] == pytest.approx([5, 7, 0], rel=1e-12)
    assert works.roofline_ns({}, 1e12, 1e11)[[0, 2]] == pytest.approx([5, 20], rel=1e-12)
    assert np.isnan(works.roofline_ns({}, 1e12, 1e11)[[1, 3]]).all()
    unknown = works.compute_ns({"bf16": 1e12}, None)
    assert np.isnan(unknown[:2]).all()
    assert unknown[2] == 0
    # Stated figures of a works rows add up where all have them.
    rows = [compute(0, 10, operator=1, flops=5000.0, hbm_bytes=100)]
    rows += [compute(10, 20, operator=1, flops=1000.0, hbm_bytes=10)]
    rows += [compute(20, 30, operator=3, flops=9.0, hbm_bytes=9), compute(30, 40, operator=3)]
    works = a_rank(rows, [window(0, 100)], operators=OPERATORS).works
    assert (works.flops.tolist(), works.bytes.tolist()) == ([6000, 1e4], [110, 6e4])
    assert works.stated.tolist() == [True, False]


def test_sums_by_operator() -> None:
    found = sums_of(a_step(), "op")["op"]
    mm, add = found.pop("aten::mm"), found.pop("aten::add")
    assert mm == OperatorSums(
        calls=2, time_ns=13_000, own_ns=13_000, modelled_ns=13_000, rooflined_ns=13_000, compute_ns=13_000,
        flops=4e6, done_flops=4e6, bytes=1.2e5, roofline_ns=pytest.approx(4000),
        possible_flops=pytest.approx(13e-6 * 1e12), precisions=frozenset({"bf16"}),
        operators=frozenset({"aten::mm"}), families=frozenset({"matrix product"}),
        products=frozenset({ProductSizes(1, 100, 100, 100)}),
    )  # fmt: skip
    assert add == OperatorSums(
        calls=1, time_ns=1000, own_ns=1000, modelled_ns=1000, rooflined_ns=1000, memory_ns=1000,
        flops=1e4, done_flops=1e4, bytes=6e4, roofline_ns=pytest.approx(600),
        possible_flops=pytest.approx(1e-6 * 1e11), precisions=frozenset({"fp32"}),
        operators=frozenset({"aten::add"}), families=frozenset({"elementwise"}), products=frozenset({None}),
    )  # fmt: skip
    expected = {"mine::inner": (1, 1000, None), "mine::sort": (1, 500, NO_MODEL)}
    expected |= {"mine::cat": (1, 10, NO_MODEL), "alone": (1, 300, NOT_LINKED), "copy": (1, 100, None)}
    assert {key: (own.calls, own.time_ns, own.why_not) for key, own in found.items()} == expected
    for own in found.values():
        nothing = (own.modelled_ns, own.flops, own.bytes, own.rooflined_ns, own.roofline_ns)
        assert (*nothing, own.compute_ns, own.memory_ns) == (0,) * 7
        assert (own.families, own.precisions) == (frozenset(), frozenset())


WHOLE = ("calls", "time_ns", "modelled_ns", "rooflined_ns", "compute_ns", "memory_ns")
SPLIT = ("flops", "bytes", "roofline_ns")


def test_a_ranks_totals() -> None:
    found = rank_sums(a_step(), BY)
    assert tuple(found.sums) == BY
    assert (found.policy, found.windows) == ("steps", 1)
    assert (found.time_ns, found.linked_ns) == (15_910, 15_510)
    assert (found.compute_ns, found.modelled_ns) == (15_910 - 1000 - 100, 14_000)
    assert found.no_roofline is None
    assert (found.roof.memory, found.roof.peaks) == (1e11, {"bf16": 1e12, "fp32": 1e11})
    assert found.roof.attainable == {"bf16": 8e11}


def test_sums_by_shape_and_module() -> None:
    found = sums_of(a_step(), "shape", "module")
    shape = "bf16[100,100], bf16[100,100]"
    assert {key: own.time_ns for key, own in found["shape"].items()} == {
        f"aten::mm({shape})": 13_000, f"aten::add({shape})": 1000, "mine::cat(2 x fp32[10,10])": 10,
        "mine::inner": 1000, "mine::sort": 500, "alone": 300, "copy": 100,
    }  # fmt: skip
    others = {"mine::inner", "aten::add", "mine::sort", "aten::mm", "mine::cat", "alone", "copy"}
    assert {key: (own.time_ns, own.operators) for key, own in found["module"].items()} == {
        "Net_0/Lin_1": (9000, {"aten::mm"}), "none": (6910, others)
    }  # fmt: skip
    assert found["module"]["none"].why_not == NO_MODEL


def test_sums_by_kernel_have_the_cost_of_calls_that_launched_nothing_else() -> None:
    found = sums_of(a_step(), "kernel")["kernel"]
    assert {key: (own.calls, own.time_ns) for key, own in found.items()} == {
        "gemm_a": (2, 7000), "split<float>": (1, 6000), "add_k": (1, 1000), "sort_k": (1, 500),
        "alone<int>": (1, 300), "nccl": (1, 1000), "copy": (1, 100), "cat_k": (1, 10),
    }  # fmt: skip
    costs = {key: (own.modelled_ns, own.flops, own.bytes) for key, own in found.items()}
    known = {"gemm_a": (4000, 2e6, 6e4), "add_k": (1000, 1e4, 6e4)}
    assert costs == dict.fromkeys(found, (0, 0, 0)) | known
    gemm, add = found["gemm_a"], found["add_k"]
    assert (gemm.roofline_ns, gemm.compute_ns, gemm.memory_ns) == (pytest.approx(2000), 4000, 0)
    assert (add.roofline_ns, add.compute_ns, add.memory_ns) == (pytest.approx(600), 0, 1000)
    assert (gemm.operators, gemm.why_not) == (frozenset({"aten::mm"}), SEVERAL_KERNELS)


def test_without_an_accelerator_there_is_no_roofline_and_a_reason() -> None:
    found = rank_sums(a_step(card=None), ("op",))
    assert found.roof is None
    assert found.no_roofline
    mm = found.sums["op"]["aten::mm",]
    assert (mm.modelled_ns, mm.flops, mm.rooflined_ns, mm.roofline_ns) == (13_000, 4e6, 0, 0)
    assert (mm.compute_ns, mm.memory_ns) == (0, 0)
    # Without a peak of the cards precision stated flops have the memorys time.
    for precision, least in (("bf16", 5 + 20), ("fp32", 50 + 20), ("fp8", 1 + 20)):
        view = a_rank(STATED, [window(0, 100)], card=card(workload__precision=precision))
        gemm = sums_of(view, "op")["op"]["gemm"]
        assert gemm.roofline_ns + gemm.beaten_ns == pytest.approx(least)


def test_ranks_add_up() -> None:
    def a_part(scale: int, *names: str, **more: Any) -> OperatorSums:
        numbers = {name: scale * n for n, name in enumerate((*WHOLE, *SPLIT), start=1)}
        sets = dict(zip(("operators", "families", "precisions", "assumptions"), names, strict=True))
        return OperatorSums(**numbers, **{name: frozenset(word) for name, word in sets.items()}, **more)

    one = a_part(1, "a", "x", "p", "u")
    one.add_sums(a_part(10, "b", "x", "q", "v", why_not="so"))
    one.add_sums(OperatorSums(why_not="else"))
    assert [getattr(one, name) for name in (*WHOLE, *SPLIT)] == [11 * n for n in range(1, 10)]
    assert (one.operators, one.families, one.precisions, one.assumptions) == tuple(
        map(set, ("ab", "x", "pq", "uv"))
    )
    assert one.why_not == "so"


def test_gradients_of_a_function_have_the_operands_of_the_call_of_their_number() -> None:
    """Two layers of Transformer Engine: 2·2·4·3 and 2·2·8·3 FLOPs; each backward call has twice its layer's.

    The third backward call has no forward call in the trace; two calls of one number are none either.
    """
    numbered = [("_Linear", 7, "[[4,3],[2,3],[]]"), ("_Linear", 8, "[[8,3],[2,3],[]]")]
    twice = [("_Linear", 5, "[[4,3],[2,3],[]]")] * 2
    backward = [("_LinearBackward", number, "[[2,4]]") for number in (8, 7, 6, 5)]
    calls = [
        call(n, name, sequence=sequence, shapes=shapes, dtypes=str(["c10::BFloat16"] * 3).replace("'", '"'))
        for n, (name, sequence, shapes) in enumerate((*numbered, *twice, *backward))
    ]
    rows = [compute(10 * n, 10 * n + 5, operator=n, name="nvjet_tst_64") for n in range(8)]
    rows += [compute(10 * n + 5, 10 * n + 9, operator=n, name="nvjet_tst_64") for n in range(4, 8)]
    works = a_rank(rows, [window(0, 100)], operators=calls, card=card()).works
    assert works.flops.tolist() == pytest.approx([48, 96, 48, 48, 192, 96, np.nan, np.nan], nan_ok=True)
    assert "no forward call" in (works.kinds[works.kind[6]].why_not or "")


@pytest.mark.parametrize(
    ("by_call", "mark"),
    [
        # 60,000 B take 600 ns: no less than it
        ((600, 600), None),
        # one call is slower by as much as the other is faster
        ((500, 700), None),
        # of 40,000 B read and 20,000 written the cache may hold 30,000 and 20,000: 10,000 take 100 ns
        *(((500, 600), "cache"), ((100, 100), "cache"), ((100, 99), "above")),
    ],
)
def test_what_is_above_its_roofline_is_marked_in_no_sum(by_call: tuple[int, int], mark: str | None) -> None:
    """Two additions alike, and a third of other sizes, 3 B in 1,000 ns."""
    tiny = call(3, "aten::add", shapes="[[1],[1]]", dtypes=BF16)
    calls = [*(call(n, "aten::add", shapes=SQUARE, dtypes=BF16) for n in (1, 2)), tiny]
    rows = [compute(1000 * n, 1000 * n + ns, operator=n) for n, ns in enumerate((*by_call, 1000), start=1)]
    view = a_rank(rows, [window(0, 50_000)], operators=calls, card=card())
    (found,) = rank_sums(view, ("op",)).sums["op"].values()
    marked = dict.fromkeys(("cache", "above"), 0) | ({mark: sum(by_call)} if mark else {})
    assert {"cache": found.cached_ns, "above": found.above_ns} == marked
    assert found.beaten_ns == pytest.approx(1200 if mark else 0)
    assert found.rooflined_ns == sum(by_call) + 1000 - sum(marked.values())
    assert found.roofline_ns == pytest.approx(0.06 if mark else 1200.06)
    assert found.memory_ns == found.modelled_ns == found.time_ns == sum(by_call) + 1000


def test_arithmetic_faster_than_the_peak_is_no_work_of_a_cache_and_has_no_wasted_flops() -> None:
    """4e6 FLOP in bf16 take 4,000 ns, however small the operands; of 5e6 in 5,000 ns 2e6 are done."""
    rows = [compute(0, 3_900, operator=1), compute(4_000, 9_000, operator=5)]
    calls = [{**OPERATORS[0], "shapes": "[[100,200],[200,100]]"}, *OPERATORS[1:]]
    view = a_rank(rows, [window(0, 50_000)], operators=calls, card=card())
    (found,) = rank_sums(view, ("op",)).sums["op"].values()
    assert (found.calls, found.cached_ns, found.above_ns, found.rooflined_ns) == (2, 0, 3_900, 5_000)
    assert (found.possible_flops, found.done_flops) == (pytest.approx(5e6), 2e6)


def kinds_of(*calls: dict[str, Any]) -> list[int]:
    """The kind of each of those calls of one kernel."""
    rows = [compute(10 * n, 10 * n + 5, operator=n) for n in range(len(calls))]
    return a_rank(rows, [window(0, 100)], operators=calls).works.kind.tolist()


def test_kinds_are_told_apart_by_all_that_a_call_is_called_with() -> None:
    """The first two are alike; each of the others differs in one thing, the last in its kernels."""
    same = {"shapes": SQUARE, "dtypes": BF16, "strides": "[[100,1],[100,1]]", "values": '["",""]'}
    calls = [
        *(call(0, "aten::mm", **same), call(1, "aten::mm", **same, annotation="step 2")),
        call(2, "aten::matmul", **same),
        call(3, "aten::mm", **same | {"shapes": "[[100,100],[100,50]]"}),
        call(4, "aten::mm", **same | {"dtypes": '["float","float"]'}),
        call(5, "aten::mm", **same | {"strides": None}),
        call(6, "aten::mm", **same | {"values": '["1",""]'}),
    ]
    kinds = kinds_of(*calls)
    assert kinds[0] == kinds[1]
    assert len(set(kinds)) == 6
    told = {"shapes": "[[1,2,3,4],[1,2,3,4],[1,2,3,4]]", "dtypes": '["float","float","float"]'}
    attention = "aten::_scaled_dot_product_flash_attention"
    kinds = kinds_of(*(call(n, attention, **told, annotation=word) for n, word in enumerate("aba")))
    assert kinds[0] == kinds[2] != kinds[1]
    kinds = kinds_of(*(call(n, attention, **told, annotation=word) for n, word in enumerate(("a", None))))
    assert kinds[0] != kinds[1]


def test_calls_are_told_apart_by_the_calls_that_their_model_reads() -> None:
    """x (9, 4) at 3, 3 and 2 indices: 24 + 48 + 48 B, and 16 + 32 + 32; a product's calls are not read."""
    x = {"shapes": "[[9,4],[]]", "dtypes": '["float",""]', "strides": "[[4,1],[]]"}
    calls = [call(n, "aten::index", **x) for n in range(3)]
    for n, rows in enumerate((3, 3, 2)):
        viewed = x | {"values": f'["","[{rows}, 4]"]'}
        calls.append(call(10 + n, "aten::as_strided", parent=n, **viewed))
        index = {"shapes": f"[[{rows}],[]]", "dtypes": '["long int",""]'}
        calls.append(call(20 + n, "aten::reshape", parent=n, **index))
    product = {"shapes": SQUARE, "dtypes": BF16}
    calls += [call(30, "aten::mm", **product), call(31, "aten::mm", **product)]
    calls.append(call(32, "aten::as_strided", parent=30, **x))
    rows = [compute(10 * n, 10 * n + 5, operator=number) for n, number in enumerate((0, 1, 2, 30, 31))]
    works = a_rank(rows, [window(0, 100)], operators=calls).works
    assert works.bytes.tolist() == [120, 120, 80, 60_000, 60_000]
    assert [int(works.kind[0]), int(works.kind[3])] == [int(works.kind[1]), int(works.kind[4])]


def test_kernels_are_a_kind_in_their_order() -> None:
    calls = [call(n, "aten::mm", shapes=SQUARE, dtypes=BF16) for n in range(4)]
    orders = ("xy", "yx", "xy", "xx")
    rows = [
        compute(20 * n + 5 * k, 20 * n + 5 * k + 4, operator=n, name=name)
        for n, names in enumerate(orders)
        for k, name in enumerate(names)
    ]
    kinds = a_rank(rows, [window(0, 100)], operators=calls).works.kind.tolist()
    assert kinds[0] == kinds[2]
    assert len(set(kinds)) == 3


def on_cpu(*operators: dict[str, Any], start: int = 0) -> RankView:
    return a_rank([event("op", 0, 9)], [window(start, 1000)], operators=operators, works_on="host")


def test_a_cpus_works_are_calls_with_time_of_their_own() -> None:
    """Of the sum's 7 ns 2 are of a call in it that has no model; a call of no time and a wrapper are none."""
    told = {"shapes": SQUARE, "dtypes": BF16}
    view = on_cpu(
        call(1, "aten::mm", **told, start_ns=10, device_ns=5, phase="forward", module="Net_0"),
        call(2, "mine::inner", parent=1, start_ns=11, device_ns=2),
        call(3, "AddBackward0", start_ns=12, device_ns=50),
        call(4, "mine::none", start_ns=13, device_ns=0),
        call(5, "c10d::allreduce_", start_ns=14, device_ns=4, recomputed=True),
        call(6, "mine::one", start_ns=15, device_ns=1),
        call(7, "mine::late", start_ns=1000, device_ns=9),
    )
    works = view.works
    names = [works.kinds[kind].call.name for kind in works.kind]
    assert names == ["aten::mm", "c10d::allreduce_", "mine::one"]
    assert works.time_ns.tolist() == [7, 4, 1]
    assert (works.flops[0], works.bytes[0]) == (2e6, 6e4)
    assert works.computes.tolist() == [True, False, True]
    assert works.recomputed.tolist() == [False, True, False]
    assert (works.kernels.tolist(), works.stated.tolist()) == ([0] * 3, [False] * 3)
    expected = {"phase": {"forward": 7, "other": 5}, "module": {"Net_0": 7, "none": 5}}
    expected |= {"category": {"gemm": 7, "communication": 4, "other": 1}}
    assert times(view, "phase", "module", "category") == expected
    with pytest.raises(UsageError, match="a CPU runs no kernels: ask --by op"):
        rank_sums(view, ("kernel",))
    # A call within another begins with it: of a product from before the window nothing is in it.
    product, inner = call(1, "aten::mm", **told, start_ns=10, device_ns=5), call(2, "mine::inner", parent=1)
    inner |= {"start_ns": 30, "device_ns": 2}
    later = on_cpu(product, inner, call(3, "mine::other", start_ns=30, device_ns=3), start=20)
    assert later.works.time_ns.tolist() == [3]


def test_a_rank_without_work_has_no_works() -> None:
    idle = a_rank([], [window(0, 10)])
    assert len(on_cpu().works) == len(idle.works) == 0
    assert rank_sums(idle, BY).sums == {by: {} for by in BY}


def test_what_the_peak_allows_in_the_time() -> None:
    """P·t is 1e12 FLOP/s of bf16 or 1e11 of fp32; a copy of 100 ns is compared with bf16, as most FLOPs are.

    Neither a collective's FLOPs are known nor those of kernels without a model.
    """
    found = sums_of(a_step(), "op")["op"]
    known = {"aten::mm": 13e6, "aten::add": 1e5, "copy": 1e5}
    assert {key: own.possible_flops for key, own in found.items()} == pytest.approx(
        dict.fromkeys(found, 0) | known
    )
    assert {key: own.done_flops for key, own in found.items() if own.done_flops} == {
        "aten::mm": 4e6, "aten::add": 1e4
    }  # fmt: skip


BESIDE = [
    compute(0, 100, name="fusion", program="jit_f"),
    event("copy", 0, 110, name="copy-start.1", category="copy", awaited_ns=10, program="jit_f", track=9),
    event("copy", 20, 150, name="copy-start.2", category="copy", awaited_ns=40, program="jit_f", track=9),
    comm(30, 90, name="all-reduce-start", awaited_ns=0, program="jit_g"),
]


@pytest.mark.parametrize("key", ["op", "kernel"])
def test_transfers_beside_the_core_count_with_its_time_for_them(key: str) -> None:
    """The core computes for 100 ns and awaits copies for 50, of the 300 that they and a collective run."""
    whole = rank_sums(a_rank(BESIDE, [window(0, 200)]), (key,))
    assert (whole.time_ns, whole.hidden_ns) == (150, 110 + 130 + 60 - 50)
    found = {words[0]: own.time_ns for words, own in whole.sums[key].items()}
    assert found == {"fusion": 100, "copy-start.1": 10, "copy-start.2": 40, "all-reduce-start": 0}
    rows = [compute(100, 160, operator=4), compute(150, 180, operator=4)]
    awaited = event("copy", 0, 500, operator=4, awaited_ns=7)
    (ns,) = a_rank([awaited, *rows], [window(0, 600)], operators=OPERATORS).works.time_ns.tolist()
    assert ns == 80 + 7


def test_a_tree_by_several_keys_has_a_level_for_each_and_parts_that_sum_to_the_whole() -> None:
    for rows, keys in ((BESIDE, ("program", "category", "kernel")), (ROWS, ("phase", "category", "op"))):
        view = a_rank(rows, [window(0, 50_000, 1)], operators=OPERATORS, card=card())
        found = rank_sums(view, (",".join(keys),), tree=True).sums[",".join(keys)]
        flat = rank_sums(view, (",".join(keys),)).sums[",".join(keys)]
        assert {words: own for words, own in found.items() if len(words) == 3} == flat
        for words in (words for words in found if len(words) < 3):
            below = [own for other, own in found.items() if other[:-1] == words]
            for name in ("calls", "time_ns", "modelled_ns", "flops", "bytes", "possible_flops", "done_flops"):
                assert sum(getattr(own, name) for own in below) == pytest.approx(getattr(found[words], name))
    view = a_rank(BESIDE, [window(0, 200)])
    found = rank_sums(view, ("program,category",), tree=True).sums["program,category"]
    assert {words: own.time_ns for words, own in found.items()} == {
        ("jit_f",): 150, ("jit_f", "gemm"): 100, ("jit_f", "copy"): 50,
        ("jit_g",): 0, ("jit_g", "communication"): 0,
    }  # fmt: skip
