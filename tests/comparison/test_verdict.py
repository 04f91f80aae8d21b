# SPDX-License-Identifier: Apache-2.0
"""The verdict: who is faster, by which measure, how surely, and in which words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from helpers.compared_subjects import STEADY, Row, captured, card, parts_of, row, steps_of, subject

from cclbench.analyzers.view.values import ALL_OPEN
from cclbench.comparison.comparison import Versus
from cclbench.comparison.fingerprint import Equality
from cclbench.comparison.interval import USUAL_SPREAD, Captures, RatioInterval, compare_captures
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import CLIENT, judge_subject, signed_seconds

TOKENS = "throughput.tokens_per_device"
ONCE = (
    f"captures of one job are assumed to differ by up to {100 * USUAL_SPREAD:g} %,"
    " since neither job was captured twice"
)
"""Of two captures, where no other job was captured more often."""


def judged(before: list[Row], after: list[Row]) -> Versus:
    """B against A, with cards that state equal work."""
    return judge_subject(subject("A", before, card()), subject("B", after, card()))


def between(base: Sequence[float], other: Sequence[float]) -> RatioInterval:
    return compare_captures([np.array(base)], [np.array(other)])


def test_slower_with_an_interval_and_the_reason() -> None:
    before, after = (
        parts_of(compute=0.8, exposed_wait=0.2)[1:],
        parts_of(compute=0.9, compute__gemm=0.1, exposed_wait=0.5, exposed_wait__all_gather=0.4)[1:],
    )
    steps = [steps_of("time.step", s) for s in ([1.0, 1.01, 0.99], [1.4, 1.41, 1.39])]
    found = judged([*steps[0], *before], [*steps[1], *after])
    assert (found.measure, found.outcome) == ("time.step", "slower")
    expected = between([1.0, 1.01, 0.99], [1.4, 1.41, 1.39])
    assert (found.ratio, found.low, found.high) == pytest.approx((1.4, expected.low, expected.high))
    assert (found.spread, found.captures_needed) == (expected.spread, expected.captures_needed)
    assert 1 < found.low < found.ratio < found.high
    assert found.change_ns == sum(change.change_ns for change in found.changes) == 400_000_000
    assert found.words == (
        f"B is 1.40× slower than A (1.40 s against 1.00 s a step; 95 % interval {found.low:.2f} to"
        f" {found.high:.2f} over 3 steps of each; {ONCE}). A step of B is 400 ms longer: exposed wait +300 ms"
        " (all_gather +400 ms), compute +100 ms (gemm +100 ms)."
    )


def test_faster_is_told_the_other_way_round() -> None:
    found = step_verdict([2.0, 2.02, 1.98], [0.9, 0.91, 0.89])
    assert found.outcome == "faster"
    assert found.words.startswith(
        "B is 2.22× faster than A (900 ms against 2.00 s a step; 95 % interval"
        f" {1 / found.high:.2f} to {1 / found.low:.2f} over 3 steps of each; {ONCE})."
    )
    # a small difference is told in percent
    found = step_verdict([1.0] * 3, [1.021] * 3, STEADY)
    assert found.words.startswith("B is 2.1 % slower than A (1.02 s against 1.00 s a step;")


def test_an_interval_that_holds_one_is_no_difference_and_says_how_many_captures_would_tell() -> None:
    found = step_verdict([1.0, 1.1, 0.9, 1.0], [1.05, 1.2, 0.9, 1.05])
    assert found.outcome == "no difference"
    assert found.low < 1 < found.high
    assert found.words.startswith(
        "B's step is 1.05× longer than A's in these captures, which may be chance (1.05 s against 1.00 s a"
        f" step; 95 % interval {found.low:.2f} to {found.high:.2f} over 4 steps of each; {ONCE})."
    )
    expected = between([1.0, 1.1, 0.9, 1.0], [1.05, 1.2, 0.9, 1.05])
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    needed = found.captures_needed
    said = f"). About {needed} captures of each would resolve a difference of this size. In the"
    assert said in found.words
    assert "In the mean a step of B is 50.0 ms longer." in found.words
    assert 2 < needed == expected.captures_needed < 100
    back = step_verdict([1.05, 1.2, 0.9, 1.05], [1.0, 1.1, 0.9, 1.0])
    assert back.words.startswith(
        "B's step is 1.05× shorter than A's in these captures, which may be chance (1.00 s against 1.05 s a"
        f" step; 95 % interval {1 / back.high:.2f} to {1 / back.low:.2f} over 4 steps of each;"
    )


def test_a_few_long_steps_move_the_mean_and_widen_its_interval() -> None:
    """By one step of 200 s the mean is 7.6 times as long; whether such steps are usual, nobody knows."""
    found = step_verdict([1.0, 1.001, 0.999] * 10, [*[1.0, 1.001, 0.999] * 9, 1.0, 1.001, 200.0])
    assert found.outcome == "no difference"
    assert found.ratio == pytest.approx(229.001 / 30)
    assert found.low < 1 < found.ratio < found.high
    assert "7.63× longer than A's in these captures, which may be chance (7.63 s against" in found.words
    assert step_verdict([1.0, 1.001, 0.999] * 10, [7.0, 7.001, 6.999] * 10).outcome == "slower"
    # A step in thirty takes ten times as long: the mean and its interval are 2.6, what most take 2
    before, after = [1.0, 1.001, 0.999] * 100, [*([2.0, 2.001, 1.999] * 10)[:-1], 20.0]
    found = step_verdict(before, after * 10)
    assert found.outcome == "slower"
    assert found.ratio == pytest.approx(2.6, rel=1e-3)
    assert math.sqrt((found.low or 0) * (found.high or 0)) == pytest.approx(found.ratio)
    assert found.words.startswith("B is 2.60× slower than A (2.60 s against 1.00 s a step;")
    back = step_verdict(after * 10, before)
    assert back.outcome == "faster"
    assert (back.low, back.high) == pytest.approx((1 / (found.high or 0), 1 / (found.low or 0)))
    assert back.words.startswith("B is 2.60× faster than A (1.00 s against 2.60 s a step;")
    assert "over 300 steps of each;" in back.words


@pytest.mark.parametrize(
    ("before", "after", "estimate", "doubt"),
    [
        ([1.0], [1.5], "1.50× longer than A's in these captures (1.50 s against", "A has 1 and B has 1"),
        ([1.0, 1.02], [1.5] * 9, "1.49× longer than A's in these captures (", "A has 2 and B has 9"),
        ([1.0, 1.2], [1.1, 1.2], "4.5 % longer than A's in these captures (", "A has 2 and B has 2"),
        ([1.5] * 9, [1.0, 1.0], "1.50× shorter than A's in these captures (", "A has 9 and B has 2"),
    ],
)
def test_below_three_steps_the_estimate_is_told_and_then_the_doubt(
    before: list[float], after: list[float], estimate: str, doubt: str
) -> None:
    found = step_verdict(before, after)
    assert (found.outcome, found.low, found.high) == ("undecided", None, None)
    assert found.captures_needed is None
    assert found.ratio == pytest.approx(sum(after) / len(after) / (sum(before) / len(before)))
    assert found.words.startswith(f"B's step is {estimate}")
    unknown = "Whether it is in others is unknown: an interval needs 3 complete steps of each,"
    assert f" a step). {unknown} {doubt}. In" in found.words
    assert "In the mean a step of B is" in found.words


def test_whole_traces_have_lengths_and_no_verdict() -> None:
    """Cards tell what a step works on; how many steps a trace without any holds, nobody knows."""
    base, other = (
        subject(letter, [r | {"window": "trace"} for r in parts_of(compute=s)], card())
        for letter, s in (("A", 1.0), ("B", 1.5))
    )
    assert judge_subject(base, other).words == (
        "B's trace is 1.50× longer than A's in these captures (1.50 s against 1.00 s for the whole trace)."
        " Whether it is in others is unknown: a whole trace is one figure, as long as the capture: mark"
        " steps, or capture each job three times. Whether the two traces contain equal work is unknown. In"
        " the mean the window of B is 500 ms longer: compute +500 ms."
    )
    assert "equal work" not in judge_subject(base, other, Equality("proved", "1.00 TFLOP a step each")).words
    # the window that is a whole trace is named
    whole = [r | {"window": "trace"} for r in parts_of(compute=1.0)]
    found = judge_subject(subject("A", parts_of(compute=2.0)), subject("B", whole))
    assert found.words == (
        "B and A are not comparable: the window of B is its whole trace, not a step. The window of B is 1.00"
        " s shorter: compute -1.00 s."
    )
    annotated = [r | {"window": "annotations"} for r in steps_of("time.step", [1.5] * 3)]
    found = judge_subject(subject("A", steps_of("time.step", [1.0] * 3)), subject("B", annotated))
    assert found.outcome == "slower"


def test_a_partial_figure_is_not_ranked() -> None:
    whole = subject("A", steps_of("time.step", [1.0] * 3), card())
    lacking = row("time.step", 2.0, status="partial", coverage=0.5, reason="1 of 2 ranks left out: no rows")
    found = judge_subject(whole, subject("B", [lacking], card()))
    assert found.outcome == "not comparable"
    assert "time.step of B is partial (1 of 2 ranks left out: no rows)" in found.words
    # a partial base is not ranked
    lacking = row("time.step", 2.0, status="partial", coverage=0.5, reason="1 of 2 ranks left out")
    found = judged([lacking], steps_of("time.step", [1.0] * 3))
    assert found.words.startswith(
        "B and A are not comparable: time.step of A is partial (1 of 2 ranks left out)."
    )


def test_unequal_work_is_ranked_by_tokens_per_second_and_device() -> None:
    small = subject("A", [*steps_of("time.step", [1.0] * 3), *steps_of(TOKENS, [512.0] * 3, "1/s")], card())
    rows = [*steps_of("time.step", [1.5] * 3), *steps_of(TOKENS, [1024.0] * 3, "1/s")]
    large = subject("B", rows, card(workload__batch__global=32))
    found = judge_subject(small, large)
    assert (found.measure, found.outcome, found.ratio) == (TOKENS, "faster", 2.0)
    expected = between([512.0] * 3, [1024.0] * 3)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert 1 < found.low < 2 < found.high
    assert "(1,024 against 512 tokens per second and device;" in found.words
    said = (
        "They are ranked by tokens per second and device because their work differs: global batch 32 against"
    )
    assert f"{said} 16." in found.words
    assert "A step of B is 500 ms longer" in found.words
    back = judge_subject(large, small)
    assert (back.outcome, back.ratio) == ("slower", 0.5)
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))
    assert back.words.startswith("A is 2.00× slower than B")
    # rates of few steps are higher or lower
    rows = [[row("time.step", 1.0), *steps_of(TOKENS, [rate], "1/s")] for rate in (512.0, 1024.0)]
    cards = card(), card(workload__batch__global=32)
    base, other = (subject(x, own, c) for x, own, c in zip("AB", rows, cards, strict=True))
    assert judge_subject(base, other).words.startswith(
        "B's rate is 2.00× higher than A's in these captures (1,024 against 512 tokens per second and device)"
    )
    assert judge_subject(other, base).words.startswith("A's rate is 2.00× lower than B's in these captures (")


def test_the_interval_of_a_rate_is_that_of_its_inverse() -> None:
    rates = ((100.0, 104.0, 96.0), (150.0, 170.0, 160.0))
    rows = [[row("time.step", 1.0), *steps_of(TOKENS, values, "1/s")] for values in rates]
    cards = [card(workload__batch__sequence_length=length) for length in (128, 256)]
    base, other = (subject(x, own, c) for x, own, c in zip("AB", rows, cards, strict=True))
    found = judge_subject(base, other)
    costs = between(*(1 / np.array(values) for values in rates))
    assert found.ratio == pytest.approx(1 / costs.ratio)
    assert (found.low, found.high) == pytest.approx((1 / costs.high, 1 / costs.low))
    assert found.low < found.ratio < found.high


ONE, TWO = parts_of(compute=1.0), parts_of(compute=2.0)
STATED, SERVING = subject("A", ONE, card()), subject("B", TWO, card(workload__phase="inference"))
FEWER = subject("B", [*TWO, row(TOKENS, None, "1/s")], card(workload__batch__global=8))
WHOLE = subject("A", [r | {"window": "trace"} for r in ONE])
IDLE = subject("B", [row("time.step", None, reason="the trace has no work")])


@pytest.mark.parametrize(
    ("base", "other", "says"),
    [
        (STATED, FEWER, f"their work differs (global batch 8 against 16) and A has no {TOKENS}"),
        (STATED, SERVING, "their steps are of different kinds (phase inference against training)"),
        (WHOLE, subject("B", TWO), "the window of A is its whole trace, not a step"),
        (subject("A", ONE), IDLE, "B has no time.step (the trace has no work)"),
    ],
)
def test_what_cannot_be_ranked_says_why(base: object, other: object, says: str) -> None:
    found = judge_subject(base, other)  # type: ignore[arg-type]
    assert (found.outcome, found.ratio, found.low, found.high) == ("not comparable", None, None, None)
    assert says in found.words
    if found.change_ns is not None:
        assert sum(change.change_ns for change in found.changes) == found.change_ns == 1_000_000_000


def test_steps_of_unknown_work_are_longer_or_shorter_and_not_slower_or_faster() -> None:
    found = judge_subject(
        subject("A", steps_of("time.step", [1.0] * 3)), subject("B", steps_of("time.step", [3.0] * 3), card())
    )
    assert found.words.startswith("B's step is 3.00× longer than A's (3.00 s against 1.00 s a step;")
    assert "Whether their steps do equal work is unknown." in found.words
    # the work of either may be unknown
    base = subject("A", steps_of("time.step", [3.0] * 3), card())
    found = judge_subject(base, subject("B", steps_of("time.step", [1.0] * 3)))
    assert found.words.startswith("B's step is 3.00× shorter than A's (1.00 s against 3.00 s a step;")
    assert "Whether their steps do equal work is unknown." in found.words
    known = judge_subject(base, subject("B", steps_of("time.step", [1.0] * 3), card()))
    assert "unknown" not in known.words


def test_parts_are_told_by_how_much_they_change_either_way() -> None:
    """Compute falls by 400 ms, waiting rises by 100 ms, copies fall by 50 ms; 15 ms are too few to tell."""
    before = parts_of(compute=0.8, exposed_wait=0.1, exposed_copy=0.1, idle_host=0.1)
    after = parts_of(compute=0.4, exposed_wait=0.2, exposed_copy=0.05, idle_host=0.115)
    found = judged(before, after)
    assert found.words.endswith(
        "a step of B is 335 ms shorter: compute -400 ms, exposed wait +100 ms, exposed copies -50.0 ms."
    )
    # four parts are told and those of a twentieth of the largest
    before = parts_of(compute=0.5, exposed_wait=0.5, exposed_copy=0.5, idle_host=0.5, idle_other=0.5)
    after = parts_of(compute=0.9, exposed_wait=0.8, exposed_copy=0.7, idle_host=0.6, idle_other=0.55)
    found = judged(before, after)
    assert found.words.endswith(
        ": compute +400 ms, exposed wait +300 ms, exposed copies +200 ms, host-bound idle +100 ms."
    )
    for idle, told in ((0.52, ", other idle +20.0 ms."), (0.5199, "compute +400 ms.")):
        after = parts_of(compute=0.9, idle_other=idle)
        found = judge_subject(subject("A", parts_of(compute=0.5, idle_other=0.5)), subject("B", after))
        assert found.words.endswith(told)

    # A group or a dimension is none of the two
    def made(letter: str, gather: float) -> ComparisonSubject:
        rows = parts_of(exposed_wait=1.0 + gather, exposed_wait__all_gather=gather)
        rows.append(row("time.step_parts", 2 * gather, stat="exposed_wait", group="0-1"))
        return subject(letter, rows, card())

    assert judge_subject(made("A", 0.1), made("B", 0.3)).words.endswith(
        "exposed wait +200 ms (all_gather +200 ms)."
    )


def step_verdict(before: list[float], after: list[float], repeats: Sequence[Captures] = ()) -> Versus:
    """B against A, of steps of equal work; `repeats` are captures of other jobs."""
    return judge_subject(
        subject("A", steps_of("time.step", before), card()),
        subject("B", steps_of("time.step", after), card()),
        repeats=repeats,
    )


@pytest.mark.parametrize(
    ("after", "says"), [(1e-9, "longer: compute +1.00 ns."), (-1e-9, "shorter: compute -1.00 ns.")]
)
def test_a_nanosecond_is_told(after: float, says: str) -> None:
    before, after_ = parts_of(compute=0.5, idle_host=0.25), parts_of(compute=0.5 + after, idle_host=0.25)
    assert judged(before, after_).words.endswith(f"In the mean a step of B is 1.00 ns {says}")


def test_a_difference_without_parts_is_told_without_them() -> None:
    found = judged([row("time.step", 1.0)], [row("time.step", 1.2)])
    assert found.words.endswith("In the mean a step of B is 200 ms longer.")
    assert (found.outcome, found.ratio, found.low, found.captures_needed) == ("undecided", 1.2, None, None)
    found = judged([row("time.step", 1.0)], [row("time.step", 1.0)])
    assert found.words == (
        "B's step is as long as A's in these captures (1.00 s against 1.00 s a step). Whether it is in others"
        " is unknown: an interval needs 3 complete steps of each, A has 0 and B has 0."
    )
    # an open step alone is said to be one
    reason = f"{ALL_OPEN}: it ends with its last device event"
    found = judged([row("time.step", 1.0, reason=reason)], steps_of("time.step", [1.5] * 2))
    assert (
        "an interval needs 3 complete steps of each, A has only an incomplete one and B has 2." in found.words
    )
    # a published figure says so
    figure = row("time.step", 2.0, provenance="published")
    found = judge_subject(
        subject("A", parts_of(compute=1.0), card()), subject("B", [figure], card(), published={"source": "x"})
    )
    assert (found.outcome, found.changes, found.change_ns) == ("undecided", (), 1_000_000_000)
    assert "(published 2.00 s against 1.00 s a step)" in found.words


@pytest.mark.parametrize(
    ("after", "says"),
    [
        *((1.05, "B is 1.05× slower than A ("), (1.049, "B is 4.9 % slower than A (")),
        *((1 / 1.05, "B is 1.05× faster than A ("), (0.99, "B is 1 % faster than A (")),
    ],
)
def test_from_five_percent_on_a_difference_is_a_factor(after: float, says: str) -> None:
    """Where captures of one job are known to differ by less than a thousandth."""
    assert step_verdict([1.0] * 3, [after] * 3, STEADY).words.startswith(says)


def test_runs_without_spread_that_are_equal_are_no_different() -> None:
    found = step_verdict([1.0] * 3, [1.0] * 3)
    assert (found.outcome, found.ratio, found.change_ns) == ("no difference", 1.0, 0)
    assert 0.8 < found.low < 1 < found.high == pytest.approx(1 / found.low)
    assert found.words == (
        "B's step is as long as A's in these captures (1.00 s against 1.00 s a step; 95 %"
        f" interval {found.low:.2f} to {found.high:.2f} over 3 steps of each; {ONCE})."
    )
    # a hundred captures do not tell a hair
    found = step_verdict([1.0, 1.5, 0.5], [1.0000001, 1.5, 0.5])
    assert (found.outcome, found.captures_needed) == ("no difference", None)
    assert "It would take more than 100 captures of each to resolve so small a difference." in found.words
    # a run is not different from itself
    own = subject("A", steps_of("time.step", [1.0, 1.1, 0.9, 1.0]), card())
    found = judge_subject(own, own)
    assert (found.outcome, found.ratio, found.captures_needed) == ("no difference", 1.0, None)
    assert found.words.startswith("A's step is as long as A's in these captures (1.00 s against")
    assert "chance" not in found.words
    assert "would" not in found.words


@pytest.mark.parametrize("lacking", ["A", "B"])
def test_unequal_work_without_tokens_says_which_run_lacks_them_and_why(lacking: str) -> None:
    def made(letter: str, batch: int) -> ComparisonSubject:
        value, why = (None, "no card") if letter == lacking else (512.0, None)
        rows = [*parts_of(compute=1.0), row(TOKENS, value, "1/s", reason=why)]
        return subject(letter, rows, card(workload__batch__global=batch))

    found = judge_subject(made("A", 16), made("B", 32))
    assert found.words == (
        "B and A are not comparable: their work differs (global batch 32 against 16) and"
        f" {lacking} has no {TOKENS} (no card)."
    )


@pytest.mark.parametrize(("seconds", "text"), [(0.08, "+80.0 ms"), (-1.2, "-1.20 s"), (0.0, "0 s")])
def test_a_change_has_its_sign(seconds: float, text: str) -> None:
    assert signed_seconds(seconds) == text


def test_what_captures_of_one_job_differ_by_decides_and_is_said() -> None:
    """2.1 % of one capture each: chance by the prior, a difference on a system as steady as the store's."""
    once = step_verdict([1.0] * 3, [1.021] * 3)
    assert (once.outcome, once.spread and once.spread.basis_words) == ("no difference", "prior")
    assert f"over 3 steps of each; {ONCE})." in once.words
    stored = step_verdict([1.0] * 3, [1.021] * 3, STEADY)
    assert (stored.outcome, stored.spread and stored.spread.basis_words) == ("slower", "store")
    some = f"captures of one job differ by about {100 * stored.spread.value:.2g} %"
    assert f"over 3 steps of each; {some}, as repeated captures in the store do)." in stored.words
    assert stored.spread.value < 0.001 < 0.01 < once.spread.value
    # a narrow interval has four digits
    found = step_verdict([1.0] * 3, [1.25] * 4, STEADY)
    assert (found.high or 0) - (found.low or 0) < 0.02
    assert f"; 95 % interval {found.low:.4f} to {found.high:.4f} over 4 and 3 steps; captures" in found.words
    noisy = step_verdict([1.0, 1.001, 0.999], [1.25, 1.251, 1.249], STEADY)
    assert (noisy.high or 0) - (noisy.low or 0) < 0.02
    assert f"interval {noisy.low:.4f} to {noisy.high:.4f} over 3 steps of each;" in noisy.words
    wide = step_verdict([1.0, 1.01, 0.99], [1.25, 1.26, 1.24], STEADY)
    assert (wide.high or 0) - (wide.low or 0) > 0.02
    assert f"interval {wide.low:.2f} to {wide.high:.2f} over 3 steps of each;" in wide.words


def job(letter: str, *steps: float) -> ComparisonSubject:
    """Captures of three such steps each, of one job."""
    return captured(*(subject(letter, steps_of("time.step", [s] * 3), card()) for s in steps))


def test_of_several_captures_their_number_is_the_evidence() -> None:
    found = judge_subject(job("A", 1.0, 1.001, 0.999), job("B", 1.021, 1.022, 1.02))
    assert (found.outcome, found.spread.basis_words, found.spread.repeated) == ("slower", "captures", 4)
    assert found.ratio == pytest.approx(1.021)
    some = f"captures of one job differ by about {100 * found.spread.value:.2g} %"
    assert f" over 3 captures of each; {some})." in found.words
    unlike = judge_subject(job("A", 1.0, 1.3), job("B", 1.0, 1.1, 1.5))
    assert unlike.outcome == "no difference"
    assert "over 3 and 2 captures; captures of one job differ by about" in unlike.words
    both = judge_subject(job("A", 1.0, 1.001, 0.999), job("B", 1.021), repeats=STEADY)
    assert both.spread.basis_words == "captures and store"
    assert "over 1 and 3 captures; captures of one job differ by about" in both.words
    assert "of the store" not in both.words


def test_proved_work_is_slower_or_faster_though_no_card_tells() -> None:
    proved = Equality("proved", "1.00 TFLOP a step each")
    found = judge_subject(
        *(subject(x, steps_of("time.step", [s] * 3)) for x, s in (("A", 1.0), ("B", 3.0))), proved
    )
    assert found.work == proved
    assert found.words.startswith("B is 3.00× slower than A (3.00 s against 1.00 s a step;")
    assert found.words.endswith(" Their work is equal: 1.00 TFLOP a step each. A step of B is 2.00 s longer.")
    # refuted work is ranked by tokens or not at all
    refuted = Equality("refuted", "8 against 4 calls of aten::mm")
    rows = [[*steps_of("time.step", [s] * 3), *steps_of(TOKENS, [512.0 * s] * 3, "1/s")] for s in (1.0, 2.0)]
    found = judge_subject(*(subject(x, own) for x, own in zip("AB", rows, strict=True)), refuted)
    assert (found.measure, found.outcome, found.work) == (TOKENS, "faster", refuted)
    assert "because their work differs: 8 against 4 calls of aten::mm." in found.words
    found = judge_subject(*(subject(x, own[:4]) for x, own in zip("AB", rows, strict=True)), refuted)
    assert found.outcome == "not comparable"
    assert found.words.startswith(
        "B and A are not comparable: their work differs (8 against 4 calls of aten::mm) and A has no"
        f" {TOKENS}."
    )


def served(letter: str, *rates: float) -> ComparisonSubject:
    """Benchmarks of one server, as its client measured them: no trace, no step."""
    return captured(*(subject(letter, [row(CLIENT, rate, "1/s")]) for rate in rates))


def test_servers_are_compared_by_what_their_client_measured() -> None:
    """A benchmark's one figure is of all its requests, and has an interval though it has no steps."""
    proved = Equality("proved", "80 requests, 8,000 input and 4,000 output tokens each")
    found = judge_subject(served("A", 1000.0), served("B", 1500.0), proved)
    assert (found.measure, found.outcome, found.ratio) == (CLIENT, "faster", 1.5)
    assert found.words == (
        "B is 1.50× faster than A (1,500 against 1,000 output tokens per second; 95 % interval"
        f" {found.low:.2f} to {found.high:.2f} over one benchmark each; {ONCE}). Their work is equal: 80"
        " requests, 8,000 input and 4,000 output tokens each."
    )
    less = judge_subject(served("A", 1500.0, 1510.0), served("B", 1000.0, 1005.0), proved)
    assert less.outcome == "slower"
    assert "over 2 captures of each;" in less.words
    lacking = judge_subject(served("A", 1000.0), subject("B", [row("time.step", 1.0)]))
    assert (lacking.measure, lacking.outcome) == ("time.step", "not comparable")
