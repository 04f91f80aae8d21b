# SPDX-License-Identifier: Apache-2.0
"""The keys of works, products and what is not fused, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, compute, window
from helpers.hand_values import reason, values
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.view.durations import Durations, durations_by_code
from cclbench.analyzers.view.operator_sums import (
    SEVERAL_KERNELS,
    OperatorSums,
    RankSums,
    UnmodelledKernel,
    rank_sums,
)
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.work_keys import WorkFilter, module_class, parse_keys, row_entries
from cclbench.ground.errors import UsageError

BF16 = '["c10::BFloat16","c10::BFloat16"]'
SQUARE = "[[100,100],[100,100]]"
NO_MODEL = "no cost model for this operator"
MM = {"name": "aten::mm", "shapes": SQUARE, "dtypes": BF16}
OPERATORS: list[dict[str, Any]] = [{"operator": 1, **MM}, {"operator": 2, **MM}]
OPERATORS += [{"operator": 3, **MM, "shapes": "[[100,100],[100,50]]"}, {"operator": 4, "name": "mine::sort"}]
OPERATORS += [{"operator": 5, **MM}]
# mm of Q (100 + 300 ns) and K (200), sort in the attention (40), mm in the net (10 + 5), outside (7).
ROWS = [
    compute(0, 100, operator=1, name="gemm<64>", phase="forward", module="Net_0/Attn_1/Q_0"),
    compute(1000, 1300, operator=2, name="gemm<64>", phase="backward", module="Net_0/Attn_1/Q_0"),
    compute(2000, 2200, operator=3, name="gemm<32>", phase="forward", module="Net_0/Attn_2/K_1"),
    compute(3000, 3040, operator=4, name="sort_k", phase="forward", module="Net_0/Attn_2"),
    compute(4000, 4010, operator=5, name="gemm<64>", phase="backward", module="Net_0"),
    compute(4010, 4015, operator=5, name="split_k", phase="backward", module="Net_0"),
    compute(5000, 5007, name="alone"),
]


def a_step() -> RankView:
    return a_rank(ROWS, [window(0, 50_000, 1)], operators=OPERATORS)


def found(*keys: str, where: tuple[str, ...] = (), tree: bool = False) -> RankSums:
    return rank_sums(a_step(), keys, tuple(map(WorkFilter.parse, where)), tree=tree)


def times(by: str, where: tuple[str, ...] = (), *, tree: bool = False) -> dict[Any, tuple[int, int]]:
    """Calls and time of each row; a single word as itself."""
    rows = found(by, where=where, tree=tree).sums[by]
    return {words if len(words) > 1 else words[0]: (own.calls, own.time_ns) for words, own in rows.items()}


def test_several_keys() -> None:
    expected = {("aten::mm", "forward"): (2, 300), ("aten::mm", "backward"): (2, 315)}
    expected |= {("mine::sort", "forward"): (1, 40), ("alone", "other"): (1, 7)}
    assert times("op,phase") == expected
    # By kernel launches count, not calls.
    gemms = {("gemm<64>", "forward"): (1, 100), ("gemm<64>", "backward"): (2, 310)}
    gemms |= {("gemm<32>", "forward"): (1, 200), ("split_k", "backward"): (1, 5)}
    wanted = {**{(*words, "aten::mm"): own for words, own in gemms.items()}}
    wanted |= {("sort_k", "forward", "mine::sort"): (1, 40), ("alone", "other", "alone"): (1, 7)}
    assert times("kernel,phase,op") == wanted


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        (("phase=backward",), {"aten::mm": (2, 315)}),
        (("module~attn",), {"aten::mm": (3, 600), "mine::sort": (1, 40)}),
        (("module~attn", "phase=forward"), {"aten::mm": (2, 300), "mine::sort": (1, 40)}),
        (("class=Net_*/Attn_*",), {"mine::sort": (1, 40)}),
        (("shape~[100,50]",), {"aten::mm": (1, 200)}),
        (("op=aten::m",), {}),
        # launches, as a filter is by kernel
        (("kernel~GEMM",), {"aten::mm": (4, 610)}),
    ],
)
def test_filters_choose_work(where: tuple[str, ...], rows: dict[str, tuple[int, int]]) -> None:
    assert times("op", where) == rows
    totals = found("op", where=where)
    assert totals.time_ns == 662
    assert totals.chosen_ns == sum(ns for _, ns in rows.values())


KEYS = "op, shape, module, class, phase, kernel, category"


@pytest.mark.parametrize(
    ("parse", "written", "message"),
    [
        (WorkFilter.parse, "modul~attn", f"'modul' in 'modul~attn' is no key.*{KEYS}"),
        (WorkFilter.parse, "module", "'module' is no filter.*KEY=VALUE"),
        (WorkFilter.parse, "module~", "is no filter"),
        (WorkFilter.parse, "=forward", "'' in '=forward' is no key"),
        (parse_keys, "op,nam", "'nam' is no key"),
        *((parse_keys, "op,op", "named twice"), (parse_keys, "", "'' is")),
    ],
)
def test_wrong_filters_and_keys(parse: Callable[[str], Any], written: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(written)


def test_a_filter_keeps_what_follows_its_sign() -> None:
    assert WorkFilter.parse("kernel~a=b~c") == ("kernel", "a=b~c", False)
    assert str(WorkFilter.parse(" op = x")) == "op= x"
    assert parse_keys("op, module") == ("op", "module")


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("TinyLlama_0/Layer_13/Attention_2", "TinyLlama_*/Layer_*/Attention_*"),
        ("model.layers.3.attention", "model.layers.*.attention"),
        ("Conv2d_7/conv3x3/12", "Conv2d_*/conv3x3/*"),
        ("none", "none"),
    ],
)
def test_the_class_of_a_module(path: str, own: str) -> None:
    assert module_class(path) == own


def test_a_tree_has_inclusive_and_own_time() -> None:
    """Net: 100 + 300 + 200 + 40 + 15 = 655, of which 15 are its own; Attn_2: 200 + 40."""
    rows = found("module", tree=True).sums["module"]
    assert {words[0]: (own.calls, own.time_ns, own.own_ns) for words, own in rows.items()} == {
        "Net_0": (5, 655, 15), "none": (1, 7, 7), "Net_0/Attn_1": (2, 400, 0), "Net_0/Attn_2": (2, 240, 40),
        "Net_0/Attn_1/Q_0": (2, 400, 400), "Net_0/Attn_2/K_1": (1, 200, 200),
    }  # fmt: skip
    assert times("class", tree=True)["Net_*/Attn_*"] == (4, 640)
    expected = {"Net_*": (2, 315), "Net_*/Attn_*": (1, 300), "Net_*/Attn_*/Q_*": (1, 300)}
    assert times("class", ("phase=backward",), tree=True) == expected


def test_kernels_without_a_model_and_the_modelled_share_of_time() -> None:
    """Attn_2: 200 of 240 ns have a model; of mm's launches all but those of the last call."""
    own = found("module", tree=True).sums["module"]["Net_0/Attn_2",]
    assert (own.modelled_ns, own.time_ns, own.why_not) == (200, 240, NO_MODEL)
    kernels = found("kernel").sums["kernel"]
    gemm, split = kernels["gemm<64>",], kernels["split_k",]
    assert (gemm.modelled_ns, gemm.time_ns) == (400, 410)
    assert (split.modelled_ns, split.why_not) == (0, SEVERAL_KERNELS)
    # Kernels without a model.
    totals = found("op")
    assert totals.compute_ns - totals.modelled_ns == 47
    assert totals.unmodelled == {
        UnmodelledKernel("sort_k", "mine::sort", NO_MODEL): (1, 40),
        UnmodelledKernel("alone", None, "no operator call is linked to it"): (1, 7),
    }
    assert found("op", where=("phase=backward",)).unmodelled == {}
    sort = {"operator": 1, "name": "mine::sort", "start_ns": 10, "device_ns": 5}
    host = a_rank([], [window(0, 1000)], works_on="host", operators=[sort])
    assert rank_sums(host, ("op",)).unmodelled == {UnmodelledKernel(None, "mine::sort", NO_MODEL): (1, 5)}


@pytest.mark.parametrize(
    ("by", "words", "tree", "calls"),
    [
        ("op", ("aten::mm",), False, [1, 2, 3, 5]),
        ("op,module", ("aten::mm", "Net_0/Attn_1/Q_0"), False, [1, 2]),
        ("kernel", ("split_k",), False, [5]),
        ("module", ("Net_0/Attn_2",), False, [4]),
        ("module", ("Net_0/Attn_2",), True, [3, 4]),
        ("module", ("Net_1",), True, []),
    ],
)
def test_the_calls_of_a_row(by: str, words: tuple[str, ...], tree: bool, calls: list[int]) -> None:
    works = a_step().works
    entries = row_entries(works, parse_keys(by), (), words, tree=tree)
    assert works.operator[np.unique(entries.work)].tolist() == calls


ALONE = (np.array([5]), np.array([9]))


def test_durations_per_call() -> None:
    """10, 20, 20, 30, 100: median 20; the 90th percentile lies 0.6 of the way from 30 to 100."""
    codes, ns = np.array([1, 1, 0, 1, 1, 1]), np.array([20, 10, 7, 100, 20, 30])
    single, several, none = durations_by_code(codes, ns, 3)
    for own, expected in ((single, (7, 7, 7)), (several, (20, 72, 100))):
        assert (own.quantile_ns(0.5), own.quantile_ns(0.9), own.max_ns) == pytest.approx(expected)
    assert [part.tolist() for part in several.joined] == [[10, 20, 30, 100], [1, 2, 1, 1]]
    assert (none.quantile_ns(0.5), none.max_ns) == (None, None)
    both = several + single + none
    assert (both.joined[0].tolist(), both.quantile_ns(0.5)) == ([7, 10, 20, 30, 100], 20)
    # Sums of ranks join their durations.
    one, other = (OperatorSums(calls=1, durations=durations_by_code(codes[:1] * 0, ns, 1)[0]) for ns in ALONE)
    one.add_sums(other)
    assert (one.durations.quantile_ns(0.5), one.durations.max_ns) == (7, 9)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=30), min_size=1, max_size=4), st.floats(0, 1)
)
def test_quantiles_of_ranks_are_those_of_all_calls(ranks: list[list[int]], share: float) -> None:
    parts = [durations_by_code(np.zeros(len(ns), np.int64), np.array(ns), 1)[0] for ns in ranks]
    whole = sum(parts, Durations())
    assert whole.quantile_ns(share) == pytest.approx(np.quantile(np.concatenate(ranks), share), abs=1e-6)


NS = 1e-9
FLOAT, DOUBLE = "float", "double"


def call(name: str, ns: int, *shapes: str, dtype: str = FLOAT) -> dict[str, Any]:
    """A call of so many ns on tensors of those shapes, `""` for a number."""
    types = ",".join(f'"{dtype}"' if one else '"Scalar"' for one in shapes)
    listed = ",".join(one or "[]" for one in shapes)
    return {"name": f"aten::{name}", "device_ns": ns, "shapes": f"[{listed}]", "dtypes": f"[{types}]"}


def a_cpu(*calls: dict[str, Any]) -> RankView:
    rows = [{"operator": n, "start_ns": n, "end_ns": n + 1, **one} for n, one in enumerate(calls)]
    return a_rank([], [window(0, 1_000)], operators=rows, works_on="host")


def parts(rank: RankView, metric: str) -> dict[tuple[str | None, str | None], float]:
    """ns by category and stat."""
    return {(one.category, one.stat): (one.value or 0) / NS for one in values(rank, metric)}


V = "[1000]"

UPDATE = [
    *(call("mul_", 1_000, V, ""), call("copy_", 5, "[]", "[]", ""), call("lerp_", 1_000, V, V, "")),
    *(call("mul_", 1_000, V, ""), call("addcmul_", 1_000, V, V, V, ""),
      {"name": "aten::item", "device_ns": 5}),
    *(call("sqrt", 1_000, V), call("div", 1_000, V, ""), call("detach", 5, V),
      call("add_", 1_000, V, "", "")),
    call("addcdiv_", 1_000, V, V, V, ""),
]  # fmt: skip


def test_an_update_in_passes_moves_three_times_what_one_kernel_moves() -> None:
    """84 kB: 8, 12, 8, 16, 8, 8, 8 and 16; one kernel reads 16 kB and writes 12."""
    found = parts(a_cpu(*UPDATE), "compute.unfused")
    assert found[None, None] == found["optimizer", None] == pytest.approx(8_000)
    assert found["optimizer", "fused"] == pytest.approx(8_000 * 28 / 84)
    # What moves unknown bytes gains nothing.
    unknown = [{**one, "shapes": None, "dtypes": None} for one in UPDATE if one["name"] != "aten::copy_"]
    unknown = [one for one in unknown if one["name"] != "aten::detach"]
    found = parts(a_cpu(*unknown), "compute.unfused")
    assert found["optimizer", "fused"] == found["optimizer", None] == pytest.approx(8_000)
    # An operator between breaks the chain.
    broken = [*UPDATE[:4], call("mm", 50, "[10,10]", "[10,10]"), *UPDATE[4:]]
    assert parts(a_cpu(*broken), "compute.unfused") == {(None, None): 0.0}


def test_the_time_of_a_precision_is_that_of_operators_whose_types_are_recorded() -> None:
    rank = a_cpu(
        call("mm", 300, "[10,10]", "[10,10]", dtype=DOUBLE),
        call("mm", 100, "[10,10]", "[10,10]"),
        call("view", 10, V, dtype=DOUBLE),
        {"name": "mine::sort_of", "device_ns": 50},
    )
    assert parts(rank, "compute.precision_time") == pytest.approx(
        {(None, None): 400.0, ("fp64", None): 300.0, ("fp32", None): 100.0}
    )
    untyped = a_cpu({"name": "aten::mm", "device_ns": 50})
    assert "record_shapes" in reason(untyped, "compute.precision_time")
