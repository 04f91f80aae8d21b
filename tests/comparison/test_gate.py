# SPDX-License-Identifier: Apache-2.0
"""The regression gate: its grammar, its arithmetic, and that nothing missing passes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.compared_subjects import STEADY, Row, captured, card, row, steps_of, subject

from cclbench.comparison.comparison import GateCheck
from cclbench.comparison.fingerprint import Equality
from cclbench.comparison.gate import check_gate, parse_gate, require_passed
from cclbench.comparison.interval import USUAL_SPREAD, Captures, RatioInterval, compare_captures
from cclbench.comparison.subject import ComparisonSubject as Subject
from cclbench.ground.errors import CheckFailed, UndecidedError, UsageError


def rows_of(seconds: float, p95: float, spread: float, overlap: float, rate: float) -> list[Row]:
    keys = {"collective": "all_reduce"}
    return [
        *(*steps_of("time.step", [seconds] * 3), row("time.step", p95, stat="p95")),
        *(row("time.step", spread, "1", stat="cv"), row("overlap.ratio", overlap, "1")),
        *(row("comm.busbw", rate, "B/s", **keys), row("comm.busbw", 90e9, "B/s", **keys, group="1,3")),
    ]


BASE = subject("A", rows_of(1.0, 1.1, 0.1, 0.5, 100e9))
MODELLED = row("comm.algbw", 1e9, "B/s", provenance="modelled")
LACKING = row("compute.mfu", None, "1", reason="there is no card")
OTHER = subject("B", [*rows_of(1.5, 1.6, 0.3, 0.48, 80e9), MODELLED, LACKING])


def between(base: Sequence[float], other: Sequence[float]) -> RatioInterval:
    return compare_captures([np.array(base)], [np.array(other)])


def pair(
    metric: str, before: float | Sequence[float], after: float | Sequence[float], unit: str = "s"
) -> tuple[Subject, Subject]:
    """A and B with that figure, or with that of their steps."""

    def made(letter: str, value: float | Sequence[float]) -> Subject:
        figure = isinstance(value, float)
        return subject(letter, [row(metric, value, unit)] if figure else steps_of(metric, value, unit))

    return made("A", before), made("B", after)


@pytest.mark.parametrize(
    ("expression", "passed"),
    [
        ("time.step > +51%", True),
        ("time.step>+49%", True),  # of which the interval of one capture each does not tell it
        *(("time.step>+20%", False), ("time.step > +510 ms", True), ("time.step > +490 ms", True)),
        *(("time.step > +200ms", False), ("time.step > 1 s", False), ("time.step > 1499 ms", False)),
        *(("time.step > 1501 ms", True), ("avg_step_time > 1 s", False)),
        *(("time.step[stat=p95] > +5%", False), ("time.step[stat=cv] > 0.2", False)),
        ("time.step[stat=cv] > +0.3", True),
        ("overlap.ratio < -5%", True),  # 0.475
        *(("overlap.ratio < -3%", False), ("overlap.ratio < -0.01", False), ("overlap.ratio < 0.4", True)),
        ("overlap.ratio < 0.48", True),  # what it is
        *(("overlap.ratio <= 0.48", False), ("overlap.ratio > 0.48", True)),
        ("overlap.ratio >= 0.48", False),
        ("comm.busbw[collective=all_reduce] < -10%", False),
        ("comm.busbw[ collective = all_reduce, group = 1,3 ] < -10%", True),
        ("comm.busbw[collective=all_reduce] < 81 GB/s", False),
        ("bandwidth_utilization_allreduce_group_6 < 79 GB/s", True),
        ("comm.algbw < 1 Mb/s", True),
    ],
)
def test_an_expression_that_holds_fails(expression: str, passed: bool) -> None:
    found = check_gate(parse_gate(expression), BASE, OTHER)
    assert (found.expression, found.other, found.is_passed) == (expression, "B", passed), found.reason


def test_the_reason_has_the_figures() -> None:
    found = check_gate(parse_gate("time.step > +2%"), BASE, OTHER)
    sure = between([1.0] * 3, [1.5] * 3)
    assert found.reason == (
        "time.step of B is 1.50 s, of A 1.00 s: +50.00 % (95 % interval"
        f" {100 * (sure.low - 1):+.2f} % to {100 * (sure.high - 1):+.2f} %; captures of one job are"
        f" assumed to differ by up to {100 * USUAL_SPREAD:g} %, since neither job was captured twice)"
    )
    found = check_gate(parse_gate("overlap.ratio < -3%"), BASE, OTHER)
    assert found.reason == "overlap.ratio of B is 48.0 %, of A 50.0 %: -4.00 %"
    found = check_gate(parse_gate("comm.algbw < 1 Mb/s"), BASE, OTHER)
    assert found.reason == "comm.algbw of B is modelled 1.00 GB/s"
    # that of the mean says nothing of it
    found, reason = outcome("time.step[stat=p95] > +5%", BASE, OTHER)
    assert found == "failed"
    assert reason.endswith("is 1.60 s, of A 1.10 s: +45.45 %")
    # a check names the other subject
    third = subject("C", steps_of("time.step", [0.9] * 3))
    found = [check_gate(parse_gate("time.step > +1%"), BASE, other) for other in (OTHER, third)]
    assert [(one.other, one.is_passed) for one in found] == [("B", False), ("C", True)]


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
    found = check_gate(parse_gate(expression), BASE, OTHER)
    assert (found.is_passed, found.reason) == (False, reason)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "not of the form METRIC OP VALUE; write METRIC OP VALUE"),
        ("time.step", "not of the form METRIC OP VALUE"),
        ("time.step = 5 s", "not of the form METRIC OP VALUE"),
        ("time.step > 5 %%", "has no known unit"),
        ("time.step > five", "not of the form METRIC OP VALUE"),
        ("time.step > 1e3 s", "not of the form METRIC OP VALUE"),
        ("time.step > nan", "not of the form METRIC OP VALUE"),
        ("time.step > +5%; rm -rf /", "not of the form METRIC OP VALUE"),
        ("time.stpe > +5%", "no metric is called time.stpe; did you mean time.step"),
        ("bubble > 0.1", "bubble may mean several metrics; choose one: overlap.pipeline_bubble, overlap."),
        ("wall_time_s > +5%", "wall_time_s of CCL-Bench stands for no metric: the length of a capture"),
        ("time.step > 5%", "a percentage needs a sign; write +5% or -5%"),
        ("time.step > 5", "takes a number with a unit (base unit s)"),
        ("time.step > 5 kg", "has no known unit of time; known: s, ms"),
        ("compute.mfu < 0.4 s", "takes a number without a unit"),
        ("comm.busbw[collective] < 1 GB/s", "is not a valid selector; select by stat, collective"),
        ("comm.busbw[rank=0] < 1 GB/s", "is not a valid selector"),
        ("bandwidth_utilization_peertopeer_group_6 < -1%", "choose one: comm.bandwidth_utilization["),
        ("comm.busbw[collective=] < 1 GB/s", '"collective=" is not a valid selector'),
        ("comm.busbw[=all_reduce] < 1 GB/s", '"=all_reduce" is not a valid selector'),
        ("comm.busbw[stat=a,stat=b] < 1 GB/s", '"stat=b" is not a valid selector'),
        ("time.step[stat=cv] > 0.2 s", "time.step takes a number without a unit"),
        ("x" * 100_000, "not of the form METRIC OP VALUE"),
    ],
)
def test_a_wrong_expression_says_what_is_wrong(expression: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_gate(expression)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 700


NOISY = [1.0, 1.1, 0.9, 1.05, 0.95]


def outcome(
    expression: str, base: Subject, other: Subject, repeats: Sequence[Captures] = ()
) -> tuple[str, str]:
    found = check_gate(parse_gate(expression), base, other, repeats=repeats)
    return found.outcome, found.reason


def test_a_change_is_judged_by_its_interval() -> None:
    found, reason = outcome("time.step > +5%", *pair("time.step", NOISY, [1.08 * s for s in NOISY]))
    assert found == "passed"  # 8 % more in the mean, and 5 steps do not tell it from none
    assert reason.startswith("time.step of B is 1.08 s, of A 1.00 s: +8.00 % (95 % interval -")
    assert reason.endswith(", which is not wholly beyond the limit")
    # a change of a rate is judged by its interval too
    rates = "throughput.tokens"
    before = [100.0, 101.0, 99.0]
    found, reason = outcome(f"{rates} < -10%", *pair(rates, before, [50.0, 50.5, 49.5], "1/s"))
    assert found == "failed"
    assert "-50.00 % (95 % interval -5" in reason
    assert outcome(f"{rates} < -10%", *pair(rates, before, [80.0, 101.0, 79.0], "1/s"))[0] == "passed"


@pytest.mark.parametrize(
    ("expression", "factor"),
    [
        *(("time.step > +5%", 1.08), ("time.step >= +5%", 1.08)),
        *(("time.step < -5%", 0.92), ("time.step <= -5%", 0.92)),
    ],
)
def test_the_interval_must_lie_beyond_the_limit_with_its_nearer_end(expression: str, factor: float) -> None:
    """8 % more or less in the mean, which 5 steps do not tell from none; ten times that they do."""
    for times, says in ((factor, "passed"), (factor**10, "failed")):
        assert outcome(expression, *pair("time.step", NOISY, [s * times for s in NOISY]))[0] == says


def test_no_interval_is_refused() -> None:
    found, reason = outcome("time.step > +5%", *pair("time.step", [1.0], [2.0] * 9))
    assert found == "refused"
    why = "but there is no interval: an interval needs 3 complete steps of each, A has 1 and B has 9"
    assert reason.endswith(why)
    assert outcome("time.step > 1.5 s", *pair("time.step", [1.0], [2.0]))[0] == "failed"
    # steps of which one takes no time have no interval
    both = pair("throughput.tokens", [0.0] * 3, [5.0] * 3, "1/s")
    said = "throughput.tokens of B is 5.00 /s, of A 0 /s"
    assert outcome("throughput.tokens > +1", *both) == ("failed", said)


def test_unequal_work_is_refused() -> None:
    small, large = (
        subject(letter, steps_of("time.step", [s] * 3), card(workload__batch__global=batch))
        for letter, s, batch in (("A", 1.0, 256), ("B", 1.01, 512))
    )
    found, reason = outcome("time.step > +5%", small, large)
    assert found == "refused"
    assert reason.endswith("but their work differs (global batch 512 against 256)")
    assert outcome("time.step > 800 ms", small, large)[0] == "failed"  # B's own figure needs no A
    # work that the traces refute is refused
    refuted = Equality("refuted", "8 against 4 calls of aten::mm")
    found = check_gate(parse_gate("time.step > +5%"), BASE, OTHER, refuted)
    assert found.outcome == "refused"
    assert found.reason.endswith("but their work differs (8 against 4 calls of aten::mm)")
    assert check_gate(parse_gate("time.step > +5%"), BASE, OTHER, Equality("proved", "x")).outcome == "failed"
    assert check_gate(parse_gate("time.step > 800 ms"), BASE, OTHER, refuted).outcome == "failed"


def test_captures_that_are_known_to_differ_less_tell_less() -> None:
    """8 %, of which one capture each does not tell 5, and a store of steady ones or three each do."""
    one, longer = pair("time.step", [1.0] * 3, [1.08] * 3)
    found, reason = outcome("time.step > +5%", one, longer)
    assert found == "passed"
    assert reason.endswith("since neither job was captured twice), which is not wholly beyond the limit")
    found, reason = outcome("time.step > +5%", one, longer, STEADY)
    assert found == "failed"
    assert "(95 % interval +7." in reason
    stored = r" %; captures of one job differ by about 0\.0\d+ %, as repeated captures in the store do\)$"
    assert re.search(stored, reason)
    several = [
        captured(*(subject(x, steps_of("time.step", [s + apart] * 3)) for apart in (0.0, 0.001, -0.001)))
        for x, s in (("A", 1.0), ("B", 1.08))
    ]
    found, reason = outcome("time.step > +5%", *several)
    assert found == "failed"
    assert "(95 % interval +7." in reason
    assert re.search(r" %; captures of one job differ by about 0\.\d+ %\)$", reason)


@pytest.mark.parametrize("provenance", ["modelled", "published"])
def test_measured_against_anything_else_is_refused(provenance: str) -> None:
    base = subject("A", [row("comm.transfer", 1.0)])
    other = subject("B", [row("comm.transfer", 1.0, provenance=provenance)])
    found, reason = outcome("comm.transfer > +5%", base, other)
    why = f"A's figure is measured, B's is {provenance}"
    assert (found, reason.rpartition(", but ")[2]) == ("refused", why)
    assert outcome("comm.transfer > +5%", other, other)[0] == "passed"
    derived = subject("B", [row("comm.transfer", 1.0, provenance="derived")])
    assert outcome("comm.transfer > +5%", base, derived)[0] == "passed"


def test_partial_figures_are_refused() -> None:
    whole = subject("A", [row("comm.volume", 5e6, "B")])
    lacking = row("comm.volume", 4e6, "B", status="partial", coverage=1 / 74, reason="left out: 73")
    part = subject("B", [lacking])
    for expression in ("comm.volume > +5%", "comm.volume > 1 MB"):
        assert outcome(expression, whole, part) == ("refused", "comm.volume of B is partial (left out: 73)")
    assert outcome("comm.volume > +5%", part, whole)[0] == "refused"
    assert outcome("comm.volume > 1 GB", part, whole)[0] == "passed"
    # the window of either may be a whole trace
    whole = subject("B", [row("comm.transfer", 2.0, window="trace")])
    steps = subject("A", [row("comm.transfer", 2.0)])
    for base, other in ((steps, whole), (whole, steps)):
        found, reason = outcome("comm.transfer > +5%", base, other)
        why = "the window of B is its whole trace, as long as the capture"
        assert (found, reason.rpartition(", but ")[2]) == ("refused", why)
    stated = row("comm.transfer", 2.0, window="trace", provenance="published")
    published = subject("B", [stated], published={"source": "x"})
    assert outcome("comm.transfer > +5%", published, published)[0] == "passed"


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.2), (0.2, 0.0), (0.0, 0.0)])
def test_figures_of_which_one_is_zero_have_no_percentage(before: float, after: float) -> None:
    both = pair("overlap.ratio", before, after, "1")
    found, reason = outcome("overlap.ratio > +0.1", *both)
    assert found == ("failed" if after > before else "passed")
    assert "(" not in reason
    assert ":" not in reason
    assert outcome("overlap.ratio < -0.1", *both)[0] == ("failed" if after < before else "passed")


@pytest.mark.parametrize(
    ("expression", "failed"), [("> +0.25", False), (">= +0.25", True), ("> +50%", False)]
)
def test_a_change_that_is_the_limit_is_beyond_it_by_the_operator(expression: str, failed: bool) -> None:
    both = pair("overlap.ratio", 0.5, 0.75, "1")
    assert outcome(f"overlap.ratio {expression}", *both)[0] == ("failed" if failed else "passed")


def test_an_interval_at_the_limit_is_beyond_it_by_the_operator() -> None:
    """Of the interval the end that is nearer to passing, to the last digit."""
    base, other = pair("time.step", [1.0] * 3, [2.0] * 3)
    low, high = between([1.0] * 3, [2.0] * 3).low, between([2.0] * 3, [1.0] * 3).high
    assert 1 < low < 2
    assert 0.5 < high < 1
    for compared, one, another, change, inward in (
        (">", base, other, low - 1, -1e-9),
        ("<", other, base, 2 * high - 2, 1e-9),
    ):
        for operator, number, says in (
            (compared, change, "passed"),
            (f"{compared}=", change, "failed"),
            (compared, change + inward, "failed"),
            (f"{compared}=", change - inward, "passed"),
        ):
            gate = replace(parse_gate(f"time.step {operator} +1 s"), number=number)
            assert check_gate(gate, one, another).outcome == says


@pytest.mark.parametrize("metric", ["compute.mfu", "throughput.samples"])
def test_other_figures_of_steps_are_judged_by_their_interval(metric: str) -> None:
    unit = "1" if metric == "compute.mfu" else "1/s"
    both = pair(metric, [0.4, 0.44, 0.36, 0.42, 0.38], [0.39, 0.43, 0.35, 0.41, 0.37], unit)
    found, reason = outcome(f"{metric} < -1%", *both)
    assert found == "passed"
    assert reason.endswith(", which is not wholly beyond the limit")
    assert ": -2.50 % (95 % interval -" in reason


@pytest.mark.parametrize(("failures", "more"), [(3, ""), (4, "; and 1 more")])
def test_three_checks_are_named(failures: int, more: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        require_passed([GateCheck(f"m{n}.x > 1", "B", "failed", "why") for n in range(failures)])
    three = "m0.x > 1: why; m1.x > 1: why; m2.x > 1: why"
    assert caught.value.what == f"{failures} of {failures} checks failed: {three}{more}"


def test_what_an_expression_says() -> None:
    found = parse_gate("time.step[stat=p95]<=-2.5%")
    assert (found.metric, dict(found.keys), found.operator) == ("time.step", {"stat": "p95"}, "<=")
    assert (found.number, found.against, found.percent) == (-0.025, True, True)
    plain = parse_gate("time.step >= 20 ms")
    assert (plain.number, plain.against, plain.percent) == (0.02, False, False)
    assert parse_gate("time.step > +20 ms").against
    assert parse_gate("bandwidth_utilization_allreduce_group_6 > 1 GB/s").keys == {"collective": "all_reduce"}


def test_failed_and_refused_checks_are_errors_that_name_them() -> None:
    failed = [GateCheck(f"m{n}.x > 1", "B", "failed", f"why {n}") for n in range(5)]
    require_passed([GateCheck("a.b > 1", "B", "passed", "fine")])
    with pytest.raises(CheckFailed, match=r"^5 of 5 checks failed: m0.x > 1: why 0; .*; and 2 more$"):
        require_passed(failed)
    # refused checks are said apart from failed ones
    failed, refused = (
        GateCheck("a.b > 1", "B", "failed", "why"),
        GateCheck("c.d > +1%", "B", "refused", "how"),
    )
    with pytest.raises(UndecidedError) as undecided:
        require_passed([refused])
    assert undecided.value.what == "1 of 1 checks refused: c.d > +1%: how"
    assert undecided.value.exit_code == 5
    with pytest.raises(CheckFailed) as caught:
        require_passed([failed, refused])
    assert caught.value.what == ("1 of 2 checks failed: a.b > 1: why. 1 of 2 checks refused: c.d > +1%: how")
