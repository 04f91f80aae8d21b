# SPDX-License-Identifier: Apache-2.0
"""Differences in device time by operator and module: whole nanoseconds that sum, whatever matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from helpers.compared_subjects import captured, row, subject
from hypothesis import given
from hypothesis import strategies as st

import cclbench
import cclbench.comparison.operators as comparison_operators
from cclbench.analyzers.view.operator_rows import OperatorRow
from cclbench.analyzers.view.work_keys import NO_MODULE, By
from cclbench.comparison.build import compare
from cclbench.comparison.comparison import KernelChange, WorkChange
from cclbench.comparison.operators import (
    OperatorTables,
    subject_operator_tables,
    work_difference,
    work_differences,
)
from cclbench.ground.errors import UsageError
from cclbench.operator_table import OperatorTable, operator_costs
from cclbench.present.sections import kernel_notes

Rows = Sequence[OperatorRow]


def a_row(key: str, time_ns: int, **other: Any) -> OperatorRow:
    """A row; modelled where it has FLOPs."""
    unknown = ("flops", "bytes", "flops_per_s", "bytes_per_s", "roofline_s", "gap_s", "why_not")
    values: dict[str, Any] = dict.fromkeys((*unknown, "family", "precision"))
    values |= {"calls": 1, "share": 0.0, "bound": "unknown", "operator": key.partition("(")[0]}
    values["modelled_share"] = 1.0 if other.get("flops") else 0.0
    return OperatorRow(words=other.pop("words", (key,)), time_ns=time_ns, **(values | other))


def a_table(by: By, rows: Rows, steps: int) -> OperatorTable:
    """A table of those rows over that many steps of rank 0."""
    time_ns, shares = sum(row.time_ns for row in rows), (1.0, 1.0)
    return OperatorTable("run", by, "steps", (0,), steps, time_ns, *shares, None, tuple(rows), len(rows), ())


def tables(
    ops: Rows, steps: int = 1, shapes: Rows = (), modules: Rows = (), kernels: Rows = ()
) -> OperatorTables:
    """A run's operators; without modules none of them names one."""
    silent = a_row("none", sum(row.time_ns for row in ops))
    return OperatorTables(
        a_table("op", ops, steps),
        a_table("shape", shapes or ops, steps),
        a_table("module", modules or [silent], steps),
        a_table("program", [silent], steps),
        a_table("shape,kernel", kernels, steps),
    )


def test_calls_with_the_same_shapes_that_run_other_kernels() -> None:
    """mm of x: 60 ns in 2 steps are 30 a step, and 40 in one; what both run alike is absent."""

    def run(*calls: tuple[str, str, int]) -> list[OperatorRow]:
        return [a_row(name, ns, words=(name, kernel)) for name, kernel, ns in calls]

    alike = ("mm(y)", "xmma", 5)
    before = run(("mm(x)", "xmma", 40), ("mm(x)", "zero", 20), alike, ("add(x)", "loop", 7), ("k", "k", 3))
    after = run(("mm(x)", "winograd", 30), ("mm(x)", "zero", 10), alike, ("k", "k", 3))
    ops = [a_row("mm", 60)], [a_row("mm", 40)]
    found = work_difference("A", "B", tables(ops[0], 2, kernels=before), tables(ops[1], kernels=after))
    assert found.kernels == (
        KernelChange("mm(x)", ("xmma",), ("winograd",), before_s=30e-9, after_s=40e-9, change_ns=10),
    )
    assert kernel_notes(found) == [
        "mm(x) runs xmma in A and winograd in B: 30.0 ns to 40.0 ns a step (+10.0 ns)"
    ]


def told(changes: Sequence[WorkChange]) -> list[tuple[str, int]]:
    return [(one.name, one.change_ns) for one in changes]


def test_a_difference_by_operator() -> None:
    """A: 100 ns in 3 steps are 33 1/3 a step, 20 are 6 2/3; B: 90 in 2 are 45, 10 are 5. In all 50 − 40 = 10
    ns longer: mm +11 2/3, add −6 2/3, relu +5, in whole ns 12, −7, 5."""
    before = tables([a_row("mm", 100), a_row("add", 20)], 3)
    after = tables([a_row("mm", 90), a_row("relu", 10)], 2)
    found = work_difference("A", "B", before, after)
    assert (found.before_s, found.after_s) == (pytest.approx(40e-9), pytest.approx(50e-9))
    assert found.change_ns == 10
    assert told(found.operators) == [("mm", 12), ("add", -7), ("relu", 5)]
    mm, add, relu = found.operators
    assert mm.before.time_s == pytest.approx(100 / 3 * 1e-9)
    assert (add.after, relu.before) == (None, None)
    assert found.modules == ()
    # what differs as much is in order of names
    before = tables([a_row("b", 10), a_row("a", 30), a_row("c", 5)])
    after = tables([a_row("b", 20), a_row("a", 20), a_row("c", 20)])
    assert told(work_difference("A", "B", before, after).operators) == [("c", 15), ("a", -10), ("b", 10)]
    # 6e9 FLOP in a step are 12e9 in two; the second pair shares both, and so each stands alone
    before = tables([a_row("cudnn", 50, **CONVOLUTION), a_row("x", 5, family="f", flops=1.0)])
    others = [a_row("y", 5, family="f", flops=2.0), a_row("z", 5, family="f", flops=2.0)]
    after = tables([a_row("miopen", 60, family="convolution", flops=12e9), *others], 2)
    assert matched(before, after) == [
        *(("cudnn", "miopen", -20), ("x", None, -5)),
        *(("y", None, 3), ("z", None, 2)),  # 2.5 and 2.5: 5 in all
    ]


def test_the_roofline_is_that_of_each_machine() -> None:
    """mm takes 40 of 100 ns at least on A; of B's 60 ns in two steps 45 are known, of them 9."""
    before = tables([a_row("mm", 100, roofline_s=40e-9, gap_s=60e-9)])
    after = tables([a_row("mm", 60, roofline_s=9e-9, gap_s=36e-9)], 2)
    (mm,) = work_difference("A", "B", before, after).operators
    assert (mm.before.roofline_s, mm.before.reached) == (pytest.approx(40e-9), pytest.approx(0.4))
    assert (mm.after.roofline_s, mm.after.reached) == (pytest.approx(4.5e-9), pytest.approx(0.2))
    # of y the least time is 0 of 10 ns; of z nothing is known; calls are per step
    rows = [a_row("y", 20, roofline_s=0.0, gap_s=20e-9, calls=6), a_row("z", 10)]
    y, z = work_difference("A", "B", tables(rows, 2), tables(rows, 2)).operators
    assert (y.before.roofline_s, y.before.reached, y.before.calls) == (0.0, 0.0, 3.0)
    assert (z.before.roofline_s, z.before.reached, z.before.calls) == (None, None, 0.5)
    # a work at its roofline has no gap
    run = tables([a_row("mm", 10, roofline_s=10e-9, gap_s=0.0)])
    (mm,) = work_difference("A", "B", run, run).operators
    assert (mm.before.roofline_s, mm.before.reached) == (10e-9, 1.0)


CONVOLUTION = {"family": "convolution", "flops": 6e9}


def matched(before: OperatorTables, after: OperatorTables) -> list[tuple[str, str | None, int]]:
    """Names in A and in B, and whole ns."""
    operators = work_difference("A", "B", before, after).operators
    return [(one.name, one.other_name, one.change_ns) for one in operators]


@pytest.mark.parametrize(
    ("base", "other"),
    [
        *(({}, {"flops": 7e9}), ({}, {"family": "matrix product"}), ({}, {"modelled_share": 0.5})),
        ({}, {"flops": None}),
        # works without a model
        *(({"family": None}, {"family": None}), ({"flops": None}, {"flops": None})),
    ],
)
def test_what_differs_stands_alone(base: dict[str, Any], other: dict[str, Any]) -> None:
    before, after = (tables([a_row(n, 5, **(CONVOLUTION | own))]) for n, own in (("a", base), ("b", other)))
    assert told(work_difference("A", "B", before, after).operators) == [("a", -5), ("b", 5)]


@pytest.mark.parametrize(
    ("flops", "equal"), [(6.000000000004e9, True), (6.00000000004e9, False), (5.99999999996e9, False)]
)
def test_flops_are_compared_by_twelve_digits(flops: float, equal: bool) -> None:
    before = tables([a_row("cudnn", 50, **CONVOLUTION)])
    after = tables([a_row("miopen", 60, family="convolution", flops=flops)])
    found = [one[:2] for one in matched(before, after)]
    assert found == ([("cudnn", "miopen")] if equal else [("miopen", None), ("cudnn", None)])


def test_what_several_of_the_base_share_is_nobodys_match() -> None:
    before = tables([a_row("a", 5, **CONVOLUTION), a_row("b", 4, **CONVOLUTION)])
    after = tables([a_row("c", 3, **CONVOLUTION)])
    assert matched(before, after) == [("a", None, -5), ("b", None, -4), ("c", None, 3)]
    # an operator of one name is not matched by its model too
    before = tables([a_row("mm", 5, **CONVOLUTION), a_row("x", 7)])
    after = tables([a_row("mm", 6, **CONVOLUTION), a_row("y", 3, **CONVOLUTION)])
    assert matched(before, after) == [("x", None, -7), ("y", None, 3), ("mm", None, 1)]


def with_operators(
    monkeypatch: pytest.MonkeyPatch, known: Mapping[str, int | None], steps: int = 1
) -> list[tuple[str, str, int]]:
    """Who is set against whom, and by how much: ns of `mm` by letter, None without windows of it."""
    subjects = [subject(letter, [row("time.step", 1.0)]) for letter in "ABCD"]
    ids = {f"run-{letter.lower()}": ns for letter, ns in known.items()}

    def found(stored: Any, by: Any, *, window: str, **_: Any) -> list[OperatorTable]:
        assert (by, window) == (("op", "shape", "module", "program", "shape,kernel"), "steps")
        ns = ids[stored.id]
        if ns == 0:
            raise UsageError("no rank has work in its windows")
        return [*tables([a_row("mm", ns or 1)], steps if ns else 0).each_table]

    monkeypatch.setattr(comparison_operators, "has_operators", lambda stored: stored.id in ids)
    monkeypatch.setattr(comparison_operators, "operator_costs_by", found)
    return [
        (one.base, one.other, one.change_ns)
        for one in work_differences(subjects, subject_operator_tables(subjects))
    ]


def test_each_run_that_has_operators_is_set_against_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_operators(monkeypatch, {"A": 40, "B": 50, "D": 10}) == [("A", "B", 10), ("A", "D", -30)]
    assert with_operators(monkeypatch, {"A": 40, "B": 0, "C": None, "D": 41}) == [("A", "D", 1)]


@pytest.mark.parametrize(
    "known", [{"A": 40}, {"B": 50, "C": 60}, {"A": 0, "B": 50}, {"A": None, "B": 50}, {}]
)
def test_one_with_operators_has_none(monkeypatch: pytest.MonkeyPatch, known: dict[str, int | None]) -> None:
    assert with_operators(monkeypatch, known) == []


@pytest.mark.parametrize(
    ("window", "asked"), [("trace", "trace"), ("annotations", "annotations"), (None, "steps")]
)
def test_operators_are_of_windows(monkeypatch: pytest.MonkeyPatch, window: str | None, asked: str) -> None:
    seen: list[str] = []

    def found(_: Any, __: Any, *, window: str, **___: Any) -> list[OperatorTable]:
        seen.append(window)
        return [*tables([a_row("mm", 5)]).each_table]

    monkeypatch.setattr(comparison_operators, "has_operators", lambda _: True)
    monkeypatch.setattr(comparison_operators, "operator_costs_by", found)
    rows = [row("time.step", 1.0, window=window)] if window else []
    subjects = [subject(letter, rows) for letter in "AB"]
    assert len(work_differences(subjects, subject_operator_tables(subjects))) == 1
    assert seen == [asked, asked]


@pytest.mark.parametrize("lacking", [False, True])
def test_operators_of_captures_are_of_all_steps(monkeypatch: pytest.MonkeyPatch, lacking: bool) -> None:
    """mm takes 40 ns in the one step of the first and 80 in the two of the second, add 30 in the latter. Of
    both 120 / 3 = 40 and 30 / 3 = 10 ns a step; where one has no operators the job has none."""
    once = tables([a_row("mm", 40, flops=6.0, roofline_s=10e-9, gap_s=30e-9)])
    twice = tables([a_row("mm", 80, flops=12.0, roofline_s=20e-9, gap_s=60e-9), a_row("add", 30, calls=2)], 2)
    made = {"run-a": once, "run-b": twice}

    def found(stored: Any, *_: Any, **__: Any) -> list[OperatorTable]:
        own = made[stored.id]
        return [own.ops, own.shapes, own.modules, own.programs]

    monkeypatch.setattr(
        comparison_operators, "has_operators", lambda stored: not (lacking and stored.id == "run-b")
    )
    monkeypatch.setattr(comparison_operators, "operator_costs_by", found)
    rows = [row("time.step", 1.0)]
    known = subject_operator_tables([captured(subject("A", rows), subject("B", rows))])
    if lacking:
        assert known == {}
        return
    (change, add) = work_difference("A", "B", once, known["A"]).operators[::-1]
    assert told([change, add]) == [("mm", 0), ("add", 10)]
    assert (change.after.calls, change.after.roofline_s) == (pytest.approx(2 / 3), pytest.approx(10e-9))
    ops = known["A"].ops
    assert (ops.windows, ops.time_ns, [one.key for one in ops.rows]) == (3, 150, ["mm", "add"])
    assert [(one.calls, one.flops, one.share) for one in ops.rows] == [(2, 18.0, 0.8), (2, None, 0.2)]


def test_shapes_are_told_where_they_are_equal() -> None:
    shapes = (
        [a_row("mm([2,2])", 30), a_row("mm([4,4])", 70)],
        [a_row("mm([4,4])", 75), a_row("mm([2,2])", 20)],
    )
    before = tables([a_row("mm", 100)], shapes=shapes[0])
    found = work_difference("A", "B", before, tables([a_row("mm", 95)], shapes=shapes[1]))
    assert told(found.operators[0].shapes) == [("[2,2]", -10), ("[4,4]", 5)]
    other = tables([a_row("mm", 95)], shapes=[a_row("mm([4,4])", 75), a_row("mm([3,3])", 20)])
    assert work_difference("A", "B", before, other).operators[0].shapes == ()
    # one shape alone says nothing more
    shapes = [a_row("mm([2,2])", 30)]
    before, after = tables([a_row("mm", 30)], shapes=shapes), tables([a_row("mm", 35)], shapes=shapes)
    assert work_difference("A", "B", before, after).operators[0].shapes == ()
    # shapes of an operator that the other calls otherwise
    shapes = [
        [a_row(f"{name}([2])", 3 + more), a_row(f"{name}([4])", 7)]
        for name, more in (("cudnn", 0), ("miopen", 1))
    ]
    before = tables([a_row("cudnn", 10, **CONVOLUTION)], shapes=shapes[0])
    after = tables([a_row("miopen", 11, **CONVOLUTION)], shapes=shapes[1])
    (found,) = work_difference("A", "B", before, after).operators
    assert told(found.shapes) == [("[2]", 1), ("[4]", 0)]


def test_modules_of_one_class_are_one() -> None:
    """Layers 0 and 1 of A take 10 and 30 ns, B's layer 0 takes 25."""
    ops = [a_row("mm", 40)], [a_row("mm", 25)]
    before = tables(ops[0], modules=[a_row("Net_0/Layer_0", 10, calls=2), a_row("Net_0/Layer_1", 30)])
    after = tables(ops[1], modules=[a_row("Net_3/Layer_0", 25)])
    (layer,) = work_difference("A", "B", before, after).modules
    assert (layer.name, layer.change_ns) == ("Net/Layer", -15)
    assert (layer.before.time_s, layer.before.calls) == (pytest.approx(40e-9), 3)
    # modules of one class add up their rooflines
    modules = [
        a_row("Net_0/Layer_0", 10, roofline_s=4e-9, gap_s=6e-9),
        a_row("Net_0/Layer_12", 30, roofline_s=8e-9, gap_s=22e-9),
        a_row("Net_0/Layer_1b", 5),
    ]
    run = tables([a_row("mm", 45)], modules=modules)
    found = {one.name: one.before for one in work_difference("A", "B", run, run).modules}
    assert set(found) == {"Net/Layer", "Net/Layer_1b"}
    layer = found["Net/Layer"]
    assert (layer.time_s, layer.calls) == (pytest.approx(40e-9), 2)
    assert (layer.roofline_s, layer.reached) == (pytest.approx(12e-9), pytest.approx(0.3))
    # modules need names in both runs
    ops = [a_row("mm", 40)]
    named = tables(ops, modules=[a_row("Net_0", 40)])
    part = tables(ops, modules=[a_row("Net_0", 30), a_row(NO_MODULE, 10)])
    silent = tables(ops, modules=[a_row(NO_MODULE, 40)])
    assert work_difference("A", "B", named, silent).modules == ()
    assert work_difference("A", "B", silent, named).modules == ()
    assert told(work_difference("A", "B", named, part).modules) == [("Net", -10), (NO_MODULE, 10)]


SIDE = st.tuples(
    st.lists(st.integers(1, 10**15), min_size=6, max_size=6), st.integers(1, 1000), st.integers(0, 63)
)


@given(SIDE, SIDE)
def test_they_sum_whatever_the_steps(one: Any, another: Any) -> None:
    """To the difference of the total device time per step and rank, and each is near its exact share."""
    made = []
    for times, steps, chosen in (one, another):
        ops = [a_row(f"op{n}", ns) for n, ns in enumerate(times) if chosen >> n & 1]
        shapes = [
            a_row(f"op{n}([{part}])", ns // 2 + part * (ns % 2))
            for n, ns in enumerate(times)
            if chosen >> n & 1
            for part in (0, 1)
        ]
        made.append(tables(ops, steps, shapes))
    found = work_difference("A", "B", *made)
    whole = [Fraction(side.ops.time_ns, side.ops.windows) for side in made]
    assert found.change_ns == round(whole[1] - whole[0])
    assert sum(change.change_ns for change in found.operators) == found.change_ns
    for change in found.operators:
        if change.shapes:
            assert sum(shape.change_ns for shape in change.shapes) == change.change_ns
        ns = [{row.key: row.time_ns for row in side.ops.rows}.get(change.name, 0) for side in made]
        exact = [Fraction(own, side.ops.windows) for own, side in zip(ns, made, strict=True)]
        assert abs(change.change_ns - (exact[1] - exact[0])) <= 1


def test_real_runs_sum_to_their_tables(test_data: Path, tmp_path: Path) -> None:
    """One rank of an H100 in one step, one of an MI300X in two."""
    paths = [test_data / "kineto" / name for name in ("h100_qwen", "resnet_mi300x")]
    (found,) = compare(*paths, store=tmp_path).operators
    totals = []
    for path in paths:
        table = operator_costs(cclbench.ingest(path, store=tmp_path), "op")
        totals.append(Fraction(table.time_ns, table.windows))
    assert found.change_ns == round(totals[1] - totals[0])
    for changes in (found.operators, found.modules):
        assert sum(one.change_ns for one in changes) == found.change_ns
        sizes = [abs(one.change_ns) for one in changes]
        assert sizes == sorted(sizes, reverse=True)
    assert {one.name for one in found.operators if one.before and one.after} >= {"aten::mm", "aten::mul"}
