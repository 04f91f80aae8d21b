# SPDX-License-Identifier: Apache-2.0
"""The regression gate: its grammar, its arithmetic, and that nothing missing passes."""

from __future__ import annotations

import pytest
from subjects import row, subject

from cclbench.compare.comparison import Check
from cclbench.compare.gate import check, parse, require
from cclbench.errors import CheckFailed, UsageError

BASE = subject(
    "A",
    [
        row("time.step", 1.0),
        row("time.step", 1.1, stat="p95"),
        row("time.step", 0.1, "1", stat="cv"),
        row("overlap.ratio", 0.5, "1"),
        row("comm.busbw", 100e9, "B/s", collective="all_reduce"),
        row("comm.busbw", 90e9, "B/s", collective="all_reduce", group="1,3"),
    ],
)
OTHER = subject(
    "B",
    [
        row("time.step", 1.05),
        row("time.step", 1.5, stat="p95"),
        row("time.step", 0.3, "1", stat="cv"),
        row("overlap.ratio", 0.48, "1"),
        row("comm.busbw", 80e9, "B/s", collective="all_reduce"),
        row("comm.busbw", 90e9, "B/s", collective="all_reduce", group="1,3"),
        row("comm.algbw", 1e9, "B/s", provenance="modelled"),
        row("compute.mfu", None, "1", reason="there is no card"),
    ],
)


@pytest.mark.parametrize(
    ("expression", "passed"),
    [
        ("time.step > +5%", True),  # 1.05 is no more than 1.05
        ("time.step >= +5%", False),
        ("time.step>+4.9%", False),
        ("time.step > +0.05 s", True),
        ("time.step > +49ms", False),
        ("time.step > 1 s", False),
        ("time.step > 1100 ms", True),
        ("avg_step_time > 1 s", False),
        ("time.step[stat=p95] > +5%", False),
        ("time.step[stat=cv] > 0.2", False),
        ("time.step[stat=cv] > +0.3", True),
        ("overlap.ratio < -5%", True),  # 0.475
        ("overlap.ratio < -3%", False),
        ("overlap.ratio < -0.01", False),
        ("overlap.ratio < 0.4", True),
        ("comm.busbw[collective=all_reduce] < -10%", False),
        ("comm.busbw[ collective = all_reduce, group = 1,3 ] < -10%", True),
        ("comm.busbw[collective=all_reduce] < 81 GB/s", False),
        ("bandwidth_utilization_allreduce_group_6 < 79 GB/s", True),
        ("comm.algbw < 1 Mb/s", True),
    ],
)
def test_an_expression_that_holds_fails(expression: str, passed: bool) -> None:
    (found,) = check(parse(expression), [BASE, OTHER])
    assert (found.expression, found.other, found.passed) == (expression, "B", passed), found.reason


def test_the_reason_has_the_figures() -> None:
    (found,) = check(parse("time.step > +2%"), [BASE, OTHER])
    assert found.reason == "time.step of B is 1.05 s, of A 1.00 s: +5.00 %"
    (found,) = check(parse("comm.algbw < 1 Mb/s"), [BASE, OTHER])
    assert found.reason == "comm.algbw of B is modelled 1.00 GB/s"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("compute.mfu < 0.4", "B has no compute.mfu: there is no card"),
        ("comm.algbw < -5%", "A has no comm.algbw"),
        ("comm.busbw < -5%", "B has no comm.busbw"),
        ("time.step[stat=p99] > +5%", "B has no time.step[stat=p99]"),
    ],
)
def test_a_missing_figure_fails(expression: str, reason: str) -> None:
    (found,) = check(parse(expression), [BASE, OTHER])
    assert (found.passed, found.reason) == (False, reason)


def test_every_other_subject_is_checked_against_the_first() -> None:
    third = subject("C", [row("time.step", 0.9)])
    assert [(c.other, c.passed) for c in check(parse("time.step > +1%"), [BASE, OTHER, third])] == [
        ("B", False),
        ("C", True),
    ]


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "not understood; write METRIC OP VALUE"),
        ("time.step", "not understood"),
        ("time.step = 5 s", "not understood"),
        ("time.step > 5 %%", "has no known unit"),
        ("time.step > five", "not understood"),
        ("time.step > 1e3 s", "not understood"),
        ("time.step > nan", "not understood"),
        ("time.step > +5%; rm -rf /", "not understood"),
        ("time.stpe > +5%", "no metric is called time.stpe; did you mean time.step"),
        ("time.step > 5%", "a percentage needs a sign; write +5% or -5%"),
        ("time.step > 5", "takes a unit: it is in s"),
        ("time.step > 5 kg", "has no known unit of time; known: s, ms"),
        ("compute.mfu < 0.4 s", "takes a plain number"),
        ("comm.busbw[collective] < 1 GB/s", "selects nothing; select by stat, collective"),
        ("comm.busbw[rank=0] < 1 GB/s", "selects nothing"),
        ("bandwidth_utilization_peertopeer_group_6 < -1%", "choose one: comm.busbw[collective=send]"),
        ("x" * 100_000, "not understood"),
    ],
)
def test_a_wrong_expression_says_what_is_wrong(expression: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(expression)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 700


def test_failed_checks_are_an_error_that_names_them() -> None:
    failed = [Check(f"m{n}.x > 1", "B", passed=False, reason=f"why {n}") for n in range(5)]
    require([Check("a.b > 1", "B", passed=True, reason="fine")])
    with pytest.raises(CheckFailed, match=r"5 of 5 checks failed: m0.x > 1: why 0; .*; and 2 more"):
        require(failed)
