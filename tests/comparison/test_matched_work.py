# SPDX-License-Identifier: Apache-2.0
"""Work matched by what it computes: with the unmatched it sums to all device time; who loses and wins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.compared_subjects import steps_of, subject
from helpers.hand_made import a_rank, collective, comm, compute, window
from helpers.parsed_page import Page
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.view.device_works import NOT_LINKED
from cclbench.analyzers.view.equal_work import EqualWork, WorkKey, WorkTimes, equal_work, merge_equal_work
from cclbench.analyzers.view.values import ALL_OPEN
from cclbench.comparison.build import compare
from cclbench.comparison.comparison import MatchedWork
from cclbench.comparison.document import comparison_document
from cclbench.comparison.matched_work import match_work
from cclbench.present.markdown import comparison_markdown
from cclbench.present.page import comparison_page
from cclbench.present.sections import family_rows

Works = Mapping[WorkKey, WorkTimes]


def times(ns: Sequence[int], calls: int, model: str | None = None, **other: Any) -> WorkTimes:
    values: dict[str, Any] = {"name": "work", "category": "other", "computes": True}
    values |= {"roofline_ns": 0.0, "rooflined_ns": 0}
    return WorkTimes(model=model, calls=calls, step_ns=np.array(ns, np.int64), **(values | other))


def capture(works: Works, steps: int = 3) -> EqualWork:
    return EqualWork(tuple(range(steps)), 1, steps, works)


def matched(before: Works, after: Works, steps: int = 3) -> MatchedWork:
    """A against B, whose accelerators differ."""
    found = match_work(subject("A", []), subject("B", []), [capture(before, steps)], [capture(after, steps)])
    assert found is not None
    return found


MM, ADD, NORM = WorkKey("matrix product 2e6"), WorkKey("aten::add(bf16[8])"), WorkKey("batch_norm 3 FLOP")
REDUCE = WorkKey("all_reduce of 8 B (8 B) on 2 ranks")


def test_a_pair_by_hand() -> None:
    """Three steps each.  mm: 9 calls take 900 ns in A, 300 a step; 12 take 2,400 in B, of which 3 of 4 match:
    600 of 800 ns a step, and 200 are left.  add: 60 against 20 a step.  A's kernel without an operator and
    B's norm are unmatched.  A: 300 + 60 + 10 + 30 = 400; B: 600 + 20 + 10 + 200 + 70 = 900."""
    before = {
        MM: times([300] * 3, 9, "matrix product", roofline_ns=450.0, rooflined_ns=900),
        ADD: times([60] * 3, 3, "elementwise"),
        REDUCE: times([10] * 3, 3, category="communication", computes=False),
        WorkKey("k", NOT_LINKED): times([30] * 3, 3, name="k"),
    }
    after = {
        MM: times([800] * 3, 12, "matrix product", roofline_ns=480.0, rooflined_ns=2400),
        ADD: times([20] * 3, 3, "elementwise"),
        REDUCE: times([10] * 3, 3, category="communication", computes=False),
        NORM: times([70] * 3, 3, "normalisation", name="norm"),
        WorkKey("k", NOT_LINKED): times([0] * 3, 3, name="k"),
    }
    found = matched(before, after)
    assert (found.before_ns, found.after_ns) == (400, 900)
    assert [(one.family, one.before_ns, one.after_ns, one.outcome) for one in found.families] == [
        ("GEMM", 300, 600, "slower"),
        ("memory-bound kernels", 60, 20, "faster"),
        ("communication (waiting included)", 10, 10, "undecided"),  # below 5 % of both
    ]
    assert [(u.subject, u.name, u.calls, u.time_ns, u.reason) for u in found.unmatched] == [
        ("B", "work", 1.0, 200, "A makes 3 of 4 such calls a step"),
        ("B", "norm", 1.0, 70, "A has no call of equal work"),
        ("A", "k", 1.0, 30, NOT_LINKED),
    ]
    gemm, add = found.families[:2]
    assert (gemm.before_reached, gemm.after_reached, add.before_reached) == (0.5, 0.2, None)
    assert (gemm.ratio, add.ratio) == (pytest.approx(2), pytest.approx(1 / 3))
    assert gemm.low is not None and 1 < gemm.low < 2 < gemm.high  # noqa: PT018
    assert found.words == (
        "Of the work that both do (92.5 % of A's device time, 70.0 % of B's) B loses 300 ns in GEMM (75.0 %,"
        f" 2.00×, {gemm.low:.2f} to {gemm.high:.2f}; 50.0 % against 20.0 % of the roofline) and wins 40.0 ns"
        f" in memory-bound kernels (10.0 %, 0.333×, {add.low:.2f} to {add.high:.2f}). Without a match:"
        " 30.0 ns in other kernels of A and 200 ns in GEMM of B."
    )


def test_without_an_interval_nothing_is_won_or_lost() -> None:
    """One step: the times are those of these captures.  Noise within the interval is no difference."""
    slow = {MM: times([300], 1, "matrix product")}, {MM: times([600], 1, "matrix product")}
    found = matched(*slow, steps=1)
    assert (found.families[0].outcome, found.families[0].low) == ("undecided", None)
    assert "B takes 300 ns more in GEMM (100.0 %, 2.00×) in these captures." in found.words
    near = {MM: times([300] * 3, 3, "matrix product")}, {MM: times([303] * 3, 3, "matrix product")}
    assert matched(*near).families[0].outcome == "no difference"
    assert matched(*near).words.endswith("B differs from A in no family beyond the intervals.")
    # a step whose end is not in the trace has no interval
    cut = [row | {"reason": f"{ALL_OPEN}: it ends early"} for row in steps_of("time.step", [1.0])]
    sides = [[capture({MM: times([ns] * 3, 3, "matrix product")})] for ns in (3, 9)]
    is_open = match_work(subject("A", cut), subject("B", []), *sides)
    assert is_open is not None
    assert is_open.families[0].outcome == "undecided"
    # most of B's time has no match: the families say little of it
    assert matched(slow[0], {**slow[1], NORM: times([700], 1, "normalisation")}, steps=1).words == ""
    assert match_work(subject("A", []), subject("B", []), [capture({})], [capture(slow[0])]) is None


KEYS = [MM, ADD, NORM, REDUCE, WorkKey("k", NOT_LINKED)]
SIDES = st.dictionaries(
    st.sampled_from(KEYS),
    st.tuples(st.lists(st.integers(0, 10**12), min_size=3, max_size=3), st.integers(1, 50)),
    min_size=1,
)


@given(SIDES, SIDES, st.integers(1, 7))
def test_works_sum_to_all_time(before: dict[WorkKey, Any], after: dict[WorkKey, Any], ranks: int) -> None:
    sides = [
        merge_equal_work([capture({key: times(*value) for key, value in side.items()})] * number)
        for side, number in ((before, 1), (after, ranks))
    ]
    found = match_work(subject("A", []), subject("B", []), *([side] for side in sides))
    totals = [round(sum(map(sum, (ns for ns, _ in side.values()))) / 3) for side in (before, after)]
    if found is None:
        assert 0 in totals
        return
    for letter, name, total in (("A", "before_ns", totals[0]), ("B", "after_ns", totals[1])):
        assert getattr(found, name) == pytest.approx(total, abs=1)
        matched_ns = sum(getattr(family, name) for family in found.families)
        assert matched_ns + found.unmatched_ns(letter) == getattr(found, name)
    assert all(one.time_ns >= 0 for one in found.unmatched)
    assert all(one.change_ns == one.after_ns - one.before_ns for one in found.families)


def test_keys_of_work() -> None:
    """Equal FLOPs are equal products; a collective has its payload; libraries of one operator are one."""
    mm = {"shapes": "[[8,4],[4,8]]", "dtypes": '["c10::BFloat16","c10::BFloat16"]'}
    norm = {"shapes": "[[2,3],[3]]", "dtypes": None}
    works = [compute(0, 10, operator=1), compute(10, 30, operator=2, name="Cijk")]
    works += [compute(30, 40, operator=3, category="normalization")]
    works += [compute(40, 55, operator=4, category="normalization")]
    works += [compute(60, 70, operator=5, category="elementwise"), compute(70, 80, name="alone")]
    works += [comm(80, 95, operator=6), comm(95, 97)]
    named = {"aten::mm": mm, "aten::linear": mm | {"shapes": "[[8,4],[8,4]]"}, "aten::cudnn_batch_norm": norm}
    named |= {"aten::miopen_batch_norm": norm, "aten::add": {}, "nccl:all_reduce": {}}
    operators = [{"operator": at, "name": name} | more for at, (name, more) in enumerate(named.items(), 1)]
    reduced = collective("all_reduce", 80, 95, in_bytes=16, out_bytes=16, group_size=2)
    view = a_rank(works, [window(0, 50, 1), window(50, 100, 2)], [reduced], operators=operators)
    nothing = np.zeros(len(view.works), np.bool_)
    found = equal_work(view, nothing, np.zeros(len(nothing)))
    assert (found.steps, found.windows) == ((1, 2), 2)
    assert {(*key, one.calls, *one.step_ns.tolist()) for key, one in found.works.items()} == {
        ("matrix product 512 FLOP", None, 2, 30, 0),  # 2 · 8 · 4 · 8
        ("aten::batch_norm ([2,3], [3])", None, 2, 25, 0),
        ("aten::add", "its shapes are not recorded", 1, 0, 10),
        ("alone", NOT_LINKED, 1, 0, 10),
        ("all_reduce of 16 B (16 B) on 2 ranks", None, 1, 0, 15),
        ("nccl", "its kind, payload or group is not recorded, or it is several collectives", 1, 0, 2),
    }


def test_steps_and_ranks_that_differ_are_merged_by_number() -> None:
    one = EqualWork((1, 2), 1, 2, {MM: times([5, 7], 2, roofline_ns=1.0, rooflined_ns=12)})
    two = EqualWork((2, 3), 1, 2, {MM: times([1, 2], 2), ADD: times([4, 4], 2)})
    merged = merge_equal_work([one, two])
    assert (merged.steps, merged.ranks, merged.windows) == ((1, 2, 3), 2, 4)
    assert merged.works[MM].step_ns.tolist() == [5, 8, 2]
    assert merged.works[ADD].step_ns.tolist() == [0, 4, 4]
    product = merged.works[MM]
    assert (product.calls, product.roofline_ns, product.rooflined_ns) == (4, 1.0, 12)


def test_one_answer_in_text_page_and_json_of_two_vendors(test_data: Path, tmp_path: Path) -> None:
    """Qwen 0.5B on an H100 and an MI300X. The sums of GEMM and attention were computed apart: in the JSON,
    durations of kernels by the `External id` of `aten::mm`, `aten::addmm` and
    `aten::_flash_attention_forward`."""
    other = Path(test_data, "kineto_pairs", "mi300x_qwen.json.gz")
    if not other.exists():
        pytest.skip(f"{other} is missing: scripts/fetch_fixtures.py downloads it")
    found = compare(test_data / "kineto" / "h100_qwen", other, store=tmp_path / "store")
    (difference,) = found.operators
    work = difference.matched
    assert work is not None
    families = {one.family: (one.before_ns, one.after_ns) for one in work.families}
    assert families["GEMM"] == (9_001_274, 11_645_722)
    assert families["attention"] == (2_722_705, 3_908_798)
    assert families["memory-bound kernels"] == (20_179_126, 14_081_113)
    assert [(one.subject, one.name) for one in work.unmatched] == [("B", "aten::fill_(int[1])")]
    assert "takes 2.64 ms more in GEMM" in work.words
    assert "6.10 ms less in memory-bound kernels" in work.words
    document = comparison_document(found)
    assert json.loads(json.dumps(document))["operators"][0]["matched"]["words"] == work.words
    assert document["versus"][0]["words"].endswith(work.words)
    markdown, page = comparison_markdown(found), Page(comparison_page(found))
    for row in family_rows(difference):
        assert " | ".join((row.label, *row.cells)) in markdown
        assert "".join((row.label, *row.cells[:2])) in page.text
