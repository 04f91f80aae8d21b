# SPDX-License-Identifier: Apache-2.0
"""Calls of two runs in place of each other: aligned in the order of a step; changes sum to the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cclbench
import cclbench.comparison.replaced_calls as module_under_test
from cclbench.analyzers.view.ordered_calls import CallPlace, PlacedCalls, merge_ordered_calls
from cclbench.comparison.comparison import CallCount, ReplacedCalls, WorkDifference
from cclbench.comparison.replaced_calls import replaced_calls
from cclbench.operator_table import OperatorTable
from cclbench.present.sections import replaced_rows

Call = tuple[str, str, int]
"""Module, operator with sizes, and ns; a product is `mm:FLOPs`."""


def a_run(calls: Sequence[Call], steps: int = 1, phase: str = "forward") -> OperatorTable:
    """A run of one step with those calls; of several, with as many times those ns in all."""
    placed: dict[CallPlace, PlacedCalls] = {}
    for index, (module, work, ns) in enumerate(calls):
        name, _, flops = work.partition(":")
        family = "matrix product" if flops else None
        work = f"product {flops}" if flops else work
        number = sum(1 for at in placed if (at.module, at.work) == (module, work))
        sums = PlacedCalls(name.partition("(")[0], family, steps, ns, steps * (index + 0.5) / len(calls))
        placed[CallPlace(phase, module, work, number)] = sums
    total = sum(sums.time_ns for sums in placed.values())
    return OperatorTable(
        "run", "op", "steps", (0,), steps, total, 1, 1, None, (), 0, (), calls_in_order=placed
    )


def compared(before: OperatorTable, after: OperatorTable) -> tuple[ReplacedCalls, ...]:
    change = round(after.time_ns / after.windows - before.time_ns / before.windows)
    found = replaced_calls(before, after, change)
    assert sum(one.change_ns for one in found) == change
    return found


def words(one: ReplacedCalls) -> tuple[str | None, str, str, int]:
    """Module, both sides' calls, and ns."""
    sides = (" ".join(f"{c.name}*{c.calls:g}" for c in side) for side in (one.before, one.after))
    return one.module, *sides, one.change_ns  # type: ignore[return-value]


def test_the_rows_of_a_page() -> None:
    """The largest changes, the others and equal calls as sums; nothing where all calls are equal."""
    compiled = [("none", "mm:8", 10), ("none", "fused(x)", 3), ("none", "mm:16", 21)]
    runs = a_run([*EAGER, ("A", "relu(x)", 1)]), a_run(compiled)
    rows = replaced_rows(WorkDifference("A", "B", 41e-9, 34e-9, -7, (), replaced=compared(*runs)), 1)
    assert [(row.label, row.calls, row.change_ns) for row in rows] == [
        ("forward M/L_*/A_*", ("1 × cat, 1 × mul", "1 × fused"), -7),
        ("1 other", ("", ""), -1),
        ("equal calls", ("", ""), 1),
    ]
    nothing_aligned = a_run([("A", "x", 5)]), a_run([("B", "y", 5)])
    for same in ((runs[0], runs[0]), nothing_aligned):
        assert replaced_rows(WorkDifference("A", "B", 0, 0, 0, (), replaced=compared(*same)), 1) == []


EAGER = [("M/L_*/A_*", work, ns) for work, ns in (("mm:8", 10), ("mul(x)", 4), ("cat(x)", 6))]
EAGER.append(("M/L_*/F_*", "mm:16", 20))


def test_a_fused_kernel_in_place_of_two_operators_of_each_layer() -> None:
    """Two layers: mul and cat, 2 · 10 ns, against one kernel of 3 ns each; the products are 1 ns longer."""
    compiled = [("none", "mm:8", 10), ("none", "fused(x, y)", 3), ("none", "mm:16", 21)]
    found = compared(a_run(EAGER * 2), a_run(compiled * 2))
    assert [words(one) for one in found] == [
        *(("M/L_*/A_*", "cat*2 mul*2", "fused*2", -14), ("M/L_*/F_*", "mm*2", "mm*2", 2)),
        ("M/L_*/A_*", "mm*2", "mm*2", 0),
    ]
    assert [one.is_equal for one in found] == [False, True, True]
    assert {one.phase for one in found} == {"forward"}
    fused = found[0]
    assert (fused.before_s, fused.after_s) == (pytest.approx(20e-9), pytest.approx(6e-9))


def test_the_same_operators_of_other_sizes_are_aligned_by_their_products() -> None:
    """A batch twice as large: no call has equal work, and both have as many products in the same order."""
    larger = [
        (m, w.replace(":8", ":80").replace(":16", ":160").replace("x", "xx"), 2 * ns) for m, w, ns in EAGER
    ]
    found = compared(a_run(EAGER), a_run(larger))
    assert [words(one) for one in found] == [
        ("M/L_*/F_*", "mm*1", "mm*1", 20),
        ("M/L_*/A_*", "mm*1", "mm*1", 10),
        ("M/L_*/A_*", "cat*1 mul*1", "cat*1 mul*1", 10),
    ]
    assert all(one.is_equal for one in found)
    # `mm` and `_scaled_mm` of 8 FLOPs: what is between them stays between them
    found = compared(a_run(EAGER), a_run([("none", "_scaled_mm:8", 5), ("none", "mm:16", 20)]))
    assert [words(one) for one in found] == [
        *(("M/L_*/A_*", "cat*1 mul*1", "", -10), ("M/L_*/A_*", "mm*1", "_scaled_mm*1", -5)),
        ("M/L_*/F_*", "mm*1", "mm*1", 0),
    ]


def test_products_are_aligned_before_what_lies_between() -> None:
    """A normalises before its product and B after it: the norm stands in two rows, the product in one."""
    before = [("A", "view(x)", 1), ("A", "norm(x)", 2), ("A", "mm:8", 9)]
    after = [("A", "mm:8", 9), ("A", "view(x)", 1), ("A", "norm(x)", 2)]
    assert [words(one) for one in compared(a_run(before), a_run(after))] == [
        *(("A", "norm*1 view*1", "", -3), ("A", "", "norm*1 view*1", 3), ("A", "mm*1", "mm*1", 0))
    ]
    # Q, K and V apart against one product of all: three products and one are not aligned one to one
    apart = [("A", "mm:1", 3), ("A", "mm:2", 3), ("A", "mm:4", 3), ("A", "add(x)", 1)]
    found = compared(a_run(apart), a_run([("A", "mm:7", 5), ("A", "add(x)", 1)]))
    assert words(found[0]) == ("A", "mm*3", "mm*1", -4)
    assert not found[0].is_equal
    # B lacks the norm of the first module; its add is aligned with that of A's second
    before = [("N_1", "add(x)", 1), ("N_1", "norm(x)", 5), ("N_2", "add(x)", 2)]
    found = compared(a_run(before), a_run([("N_2", "add(x)", 2)]))
    assert [words(one) for one in found] == [("N_1", "norm*1 add*1", "", -6), ("N_2", "add*1", "add*1", 0)]


def test_different_numbers_of_steps_are_compared_per_step() -> None:
    """30 ns in 3 steps are 10 a step, against 8 in one."""
    (found,) = compared(a_run([("A", "x", 30)], steps=3), a_run([("A", "x", 8)]))
    assert words(found) == ("A", "x*1", "x*1", -2)
    assert found.before == (CallCount("x", 1.0),)
    # calls of several phases have no phase
    one, other = a_run([("A", "x", 1)]), a_run([("B", "y", 1)], phase="backward")
    before = replace(one, calls_in_order=one.calls_in_order | other.calls_in_order, time_ns=2)
    (found,) = compared(before, a_run([("none", "z", 1)]))
    assert (found.phase, found.module) == (None, None)
    # no work at all
    assert compared(a_run([]), a_run([])) == ()


@pytest.mark.parametrize("empty", [0, 1])
def test_a_run_without_work(empty: int) -> None:
    runs = [a_run([("A", "x", 3)])] * 2
    runs[empty] = a_run([])
    (found,) = compared(*runs)
    assert found.change_ns == (3, -3)[empty]


MODULES = st.sampled_from(["none", "M/L_*", "M/L_*/A_*"])
WORKS = st.sampled_from(["mm:8", "mm:9", "add(x)", "add(y)", "cat(x)"])
CALLS = st.lists(st.tuples(MODULES, WORKS, st.integers(0, 100)), max_size=12)


@given(CALLS, CALLS, st.integers(1, 3), st.integers(1, 3))
def test_every_call_is_in_one_row(before: list[Call], after: list[Call], a: int, b: int) -> None:
    """Times and calls of the rows are those of the runs, whatever they call."""
    runs = a_run(before, a), a_run(after, b)
    found = compared(*runs)
    for side, run in zip(("before", "after"), runs, strict=True):
        calls = sum(each.calls for one in found for each in getattr(one, side))
        assert calls == pytest.approx(len(run.calls_in_order))
        assert sum(getattr(one, f"{side}_s") for one in found) == pytest.approx(
            run.time_ns / run.windows / 1e9
        )


@given(CALLS)
def test_a_run_against_itself_is_equal(calls: list[Call]) -> None:
    run = a_run(calls)
    assert all(one.is_equal and one.change_ns == 0 for one in compared(run, run))


def test_merged_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls, times and positions of a place add up; its name stays."""
    place = CallPlace("forward", "A", "x", 0)
    merged = merge_ordered_calls(
        [{place: PlacedCalls("x", None, 1, 5, 0.25)}, {place: PlacedCalls("x", None, 3, 7, 2.25)}]
    )
    assert merged == {place: PlacedCalls("x", None, 4, 12, 2.5)}
    assert merged[place].position == 0.625
    # each kind of call is one then, and the whole remains exact
    monkeypatch.setattr(module_under_test, "_MOST_CELLS", 10)
    found = compared(a_run(EAGER * 3), a_run(EAGER[:1] * 2 + EAGER[3:] * 2))
    assert {words(one)[1:3] for one in found} == {("mm*3", "mm*2"), ("cat*3 mul*3", "")}


def test_a_compiled_run_against_the_eager_one(tmp_path: Path) -> None:
    """Rotary embeddings of four layers on an H100: 18 operators of a layer against one kernel. Per layer and
    step the trace of A has for queries and keys each 2 copy_, 4 mul, sub, add and cat."""
    cards = [f"workload_cards/llama-train{name}-h100.yaml" for name in ("", "-compiled")]
    (found,) = cclbench.compare(*cards, store=tmp_path).operators
    assert sum(one.change_ns for one in found.replaced) == found.change_ns
    for side, whole in (("before_s", found.before_s), ("after_s", found.after_s)):
        assert sum(getattr(one, side) for one in found.replaced) == pytest.approx(whole)
    (rotary,) = [one for one in found.replaced if one.phase == "forward" and "aten::cat" in str(one.before)]
    assert rotary.module == "TinyLlama_*/Layer_*/Attention_*"
    calls = {one.name.removeprefix("aten::"): one.calls for one in rotary.before}
    assert calls == {"copy_": 16, "mul": 32, "sub": 8, "add": 8, "cat": 8}
    (kernel,) = rotary.after
    assert kernel.name.startswith("triton_poi_fused__to_copy__unsafe_view_add_cat_mul_split_sub")
    assert kernel.calls == 4
