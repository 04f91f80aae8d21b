# SPDX-License-Identifier: Apache-2.0
"""The verdict: who is faster, by which measure, how surely, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
from subjects import card, parts_of, row, steps_of, subject

from cclbench.analyzers.view.values import ALL_OPEN
from cclbench.comparison.comparison import Versus
from cclbench.comparison.interval import difference
from cclbench.comparison.subject import Subject
from cclbench.comparison.verdict import signed, versus

TOKENS = "throughput.tokens_per_device"


def test_slower_with_an_interval_and_the_reason() -> None:
    base = subject(
        "A",
        [*steps_of("time.step", [1.0, 1.01, 0.99]), *parts_of(compute=0.8, exposed_wait=0.2)[1:]],
        card(),
    )
    other = subject(
        "B",
        [
            *steps_of("time.step", [1.4, 1.41, 1.39]),
            *parts_of(compute=0.9, compute__gemm=0.1, exposed_wait=0.5, exposed_wait__all_gather=0.4)[1:],
        ],
        card(),
    )
    found = versus(base, other)
    assert (found.measure, found.outcome) == ("time.step", "slower")
    expected = difference(*(np.array([*s.results.steps("time.step").values()]) for s in (base, other)))
    assert (found.ratio, found.low, found.high) == pytest.approx((1.4, expected.low, expected.high))
    assert found.change_ns == sum(change.change_ns for change in found.changes) == 400_000_000
    assert found.words == (
        f"B is 1.40× slower than A (1.40 s against 1.00 s a step; 95 % interval {found.low:.2f} to"
        f" {found.high:.2f} over 3 steps each). A step of B is 400 ms longer: exposed wait +300 ms"
        " (all_gather +400 ms), compute +100 ms (gemm +100 ms)."
    )


def test_faster_is_told_the_other_way_round() -> None:
    found = versus(
        subject("A", steps_of("time.step", [2.0, 2.02, 1.98]), card()),
        subject("B", steps_of("time.step", [0.9, 0.91, 0.89]), card()),
    )
    assert found.outcome == "faster"
    assert found.words.startswith(
        "B is 2.22× faster than A (900 ms against 2.00 s a step; 95 % interval"
        f" {1 / found.high:.2f} to {1 / found.low:.2f} over 3 steps each)."
    )


def test_an_interval_that_holds_one_is_no_difference_and_says_how_many_steps_would_tell() -> None:
    found = versus(
        subject("A", steps_of("time.step", [1.0, 1.1, 0.9, 1.0]), card()),
        subject("B", steps_of("time.step", [1.05, 1.2, 0.9, 1.05]), card()),
    )
    assert found.outcome == "no difference"
    assert found.low < 1 < found.high
    assert found.words.startswith("B and A show no difference (1.05 s against 1.00 s a step, ratio 1.05;")
    assert f"About {found.steps_needed:,} steps of each would tell a difference of that size." in found.words
    assert "In the mean a step of B is 50.0 ms longer." in found.words
    assert 4 < found.steps_needed < 1000


def test_a_run_is_not_different_from_itself() -> None:
    own = subject("A", steps_of("time.step", [1.0, 1.1, 0.9, 1.0]), card())
    found = versus(own, own)
    assert (found.outcome, found.ratio, found.steps_needed) == ("no difference", 1.0, None)
    assert "They are equal." in found.words


def test_a_few_long_steps_move_the_mean_and_not_the_verdict() -> None:
    found = versus(
        subject("A", steps_of("time.step", [1.0, 1.001, 0.999] * 10), card()),
        subject("B", steps_of("time.step", [*[1.0, 1.001, 0.999] * 9, 1.0, 1.001, 200.0]), card()),
    )
    assert found.outcome == "no difference"
    assert found.ratio > found.high
    assert "of typical steps, which a few long ones are not" in found.words


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ([1.0], [1.5], "A has 1 and B has 1; trace 3 or more of each."),
        ([1.0, 1.02], [1.5] * 9, "A has 2 and B has 9; trace"),
        ([1.0, 1.2], [1.1, 1.2], "A has 2 and B has 2; trace about"),
    ],
)
def test_below_three_steps_nothing_is_faster_or_slower(
    before: list[float], after: list[float], says: str
) -> None:
    found = versus(
        subject("A", steps_of("time.step", before), card()),
        subject("B", steps_of("time.step", after), card()),
    )
    assert (found.outcome, found.low, found.high) == ("undecided", None, None)
    assert found.ratio == pytest.approx(sum(after) / len(after) / (sum(before) / len(before)))
    assert found.words.startswith("No difference can be told between B and A (")
    assert f"it takes 3 closed steps of each, {says}" in found.words
    assert "In the mean a step of B is" in found.words


def test_whole_traces_have_lengths_and_no_verdict() -> None:
    """Cards tell what a step works on; how many steps a trace without any holds, nobody knows."""
    base, other = (
        subject(letter, [r | {"window": "trace"} for r in parts_of(compute=s)], card())
        for letter, s in (("A", 1.0), ("B", 1.5))
    )
    assert versus(base, other).words == (
        "No difference can be told between B and A (1.50 s against 1.00 s for the whole trace): a whole trace"
        " is one figure, as long as the capture; mark steps. Whether the two traces hold equal work is"
        " unknown. In the mean the window of B is 500 ms longer: compute +500 ms."
    )


def test_a_partial_figure_is_not_ranked() -> None:
    whole = subject("A", steps_of("time.step", [1.0] * 3), card())
    lacking = row("time.step", 2.0, status="partial", coverage=0.5, reason="1 of 2 ranks left out: no rows")
    found = versus(whole, subject("B", [lacking], card()))
    assert found.outcome == "not comparable"
    assert "time.step of B is partial (1 of 2 ranks left out: no rows)" in found.words


def test_unequal_work_is_ranked_by_tokens_per_second_and_device() -> None:
    small = subject("A", [*steps_of("time.step", [1.0] * 3), *steps_of(TOKENS, [512.0] * 3, "1/s")], card())
    large = subject(
        "B",
        [*steps_of("time.step", [1.5] * 3), *steps_of(TOKENS, [1024.0] * 3, "1/s")],
        card(workload__batch__global=32),
    )
    found = versus(small, large)
    assert (found.measure, found.outcome, found.ratio) == (TOKENS, "faster", 2.0)
    assert (found.low, found.high) == pytest.approx((2.0, 2.0))
    assert "(1,024 against 512 tokens per second and device;" in found.words
    assert "They are ranked so since their work differs: global batch 32 against 16." in found.words
    assert "A step of B is 500 ms longer" in found.words
    back = versus(large, small)
    assert (back.outcome, back.ratio) == ("slower", 0.5)
    assert back.words.startswith("A is 2.00× slower than B")


def test_the_interval_of_a_rate_is_that_of_its_inverse() -> None:
    rates = ((100.0, 104.0, 96.0), (150.0, 170.0, 160.0))
    base, other = (
        subject(
            letter,
            [row("time.step", 1.0), *steps_of(TOKENS, values, "1/s")],
            card(workload__batch__sequence_length=length),
        )
        for letter, values, length in zip("AB", rates, (128, 256), strict=True)
    )
    found = versus(base, other)
    costs = difference(*(1 / np.array(values) for values in rates))
    assert (found.low, found.high) == pytest.approx((1 / costs.high, 1 / costs.low))
    assert found.low < found.ratio < found.high


@pytest.mark.parametrize(
    ("base", "other", "says"),
    [
        (
            subject("A", parts_of(compute=1.0), card()),
            subject("B", [*parts_of(compute=2.0), row(TOKENS, None, "1/s")], card(workload__batch__global=8)),
            "their work differs (global batch 8 against 16) and A has no throughput.tokens_per_device",
        ),
        (
            subject("A", parts_of(compute=1.0), card()),
            subject("B", parts_of(compute=2.0), card(workload__phase="inference")),
            "their steps are of another kind (phase inference against training)",
        ),
        (
            subject("A", [r | {"window": "trace"} for r in parts_of(compute=1.0)]),
            subject("B", parts_of(compute=2.0)),
            "the window of A is its whole trace, no step",
        ),
        (
            subject("A", parts_of(compute=1.0)),
            subject("B", [row("time.step", None, reason="the trace holds no work")]),
            "B has no time.step (the trace holds no work)",
        ),
    ],
)
def test_what_cannot_be_ranked_says_why(base: object, other: object, says: str) -> None:
    found = versus(base, other)  # type: ignore[arg-type]
    assert (found.outcome, found.ratio, found.low, found.high) == ("not comparable", None, None, None)
    assert says in found.words
    if found.change_ns is not None:
        assert sum(change.change_ns for change in found.changes) == found.change_ns == 1_000_000_000


def test_steps_of_unknown_work_are_longer_or_shorter_and_not_slower_or_faster() -> None:
    found = versus(
        subject("A", steps_of("time.step", [1.0] * 3)), subject("B", steps_of("time.step", [3.0] * 3), card())
    )
    assert found.words.startswith("B's step is 3.00× longer than A's (3.00 s against 1.00 s a step;")
    assert "Whether a step of each is equal work is unknown." in found.words


def test_the_work_of_either_may_be_unknown() -> None:
    base = subject("A", steps_of("time.step", [3.0] * 3), card())
    found = versus(base, subject("B", steps_of("time.step", [1.0] * 3)))
    assert found.words.startswith("B's step is 3.00× shorter than A's (1.00 s against 3.00 s a step;")
    assert "Whether a step of each is equal work is unknown." in found.words
    known = versus(base, subject("B", steps_of("time.step", [1.0] * 3), card()))
    assert "unknown" not in known.words


def test_parts_are_told_by_how_much_they_change_either_way() -> None:
    """Compute falls by 400 ms, waiting rises by 100 ms, copies fall by 50 ms; 15 ms are too few to tell."""
    before = parts_of(compute=0.8, exposed_wait=0.1, exposed_copy=0.1, idle_host=0.1)
    after = parts_of(compute=0.4, exposed_wait=0.2, exposed_copy=0.05, idle_host=0.115)
    found = versus(subject("A", before, card()), subject("B", after, card()))
    assert found.words.endswith(
        "a step of B is 335 ms shorter: compute -400 ms, exposed wait +100 ms, exposed copies -50.0 ms."
    )


def of_steps(before: list[float], after: list[float]) -> Versus:
    """B against A, of steps of equal work."""
    return versus(
        subject("A", steps_of("time.step", before), card()),
        subject("B", steps_of("time.step", after), card()),
    )


def test_four_parts_are_told_and_those_of_a_twentieth_of_the_largest() -> None:
    before = parts_of(compute=0.5, exposed_wait=0.5, exposed_copy=0.5, idle_host=0.5, idle_other=0.5)
    after = parts_of(compute=0.9, exposed_wait=0.8, exposed_copy=0.7, idle_host=0.6, idle_other=0.55)
    found = versus(subject("A", before, card()), subject("B", after, card()))
    assert found.words.endswith(
        ": compute +400 ms, exposed wait +300 ms, exposed copies +200 ms, host-bound idle +100 ms."
    )
    for idle, told in ((0.52, ", other idle +20.0 ms."), (0.5199, "compute +400 ms.")):
        after = parts_of(compute=0.9, idle_other=idle)
        found = versus(subject("A", parts_of(compute=0.5, idle_other=0.5)), subject("B", after))
        assert found.words.endswith(told)


@pytest.mark.parametrize(
    ("after", "says"), [(1e-9, "longer: compute +1.00 ns."), (-1e-9, "shorter: compute -1.00 ns.")]
)
def test_a_nanosecond_is_told(after: float, says: str) -> None:
    before, after_ = parts_of(compute=0.5, idle_host=0.25), parts_of(compute=0.5 + after, idle_host=0.25)
    found = versus(subject("A", before, card()), subject("B", after_, card()))
    assert found.words.endswith(f"In the mean a step of B is 1.00 ns {says}")


def test_a_difference_without_parts_is_told_without_them() -> None:
    found = versus(
        subject("A", [row("time.step", 1.0)], card()), subject("B", [row("time.step", 1.2)], card())
    )
    assert found.words.endswith("In the mean a step of B is 200 ms longer.")
    assert (found.outcome, found.ratio, found.low, found.steps_needed) == ("undecided", 1.2, None, None)
    found = versus(
        subject("A", [row("time.step", 1.0)], card()), subject("B", [row("time.step", 1.0)], card())
    )
    assert found.words.endswith("trace 3 or more of each.")


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (1.05, "B is 1.05× slower than A ("),
        (1.049, "B is 4.9 % slower than A ("),
        (1 / 1.05, "B is 1.05× faster than A ("),
        (0.99, "B is 1 % faster than A ("),
    ],
)
def test_from_five_percent_on_a_difference_is_a_factor(after: float, says: str) -> None:
    assert of_steps([1.0] * 3, [after] * 3).words.startswith(says)


def test_a_narrow_interval_has_four_digits() -> None:
    found = of_steps([1.0] * 3, [1.25] * 4)
    assert "; 95 % interval 1.2500 to 1.2500 over 4 and 3 steps)" in found.words
    wide = of_steps([1.0, 1.001, 0.999], [1.25, 1.251, 1.249])
    assert (wide.high or 0) - (wide.low or 0) < 0.02
    assert f"interval {wide.low:.4f} to {wide.high:.4f} over 3 steps each" in wide.words
    wider = of_steps([1.0, 1.01, 0.99], [1.25, 1.26, 1.24])
    assert (wider.high or 0) - (wider.low or 0) > 0.02
    assert f"interval {wider.low:.2f} to {wider.high:.2f} over" in wider.words
    assert "typical steps" not in wider.words


def test_a_few_long_steps_of_a_slower_run_are_told_apart_from_its_typical_ones() -> None:
    before, after = [1.0, 1.001, 0.999] * 10, [2.0, 2.001, 1.999] * 10
    found = of_steps(before, [*after[:-1], 20.0])
    assert found.outcome == "slower"
    assert (found.ratio or 0) > (found.high or 0)
    assert " of typical steps, which a few long ones are not over 30 steps each" in found.words
    back = of_steps([*after[:-1], 20.0], before)
    assert back.outcome == "faster"
    assert " of typical steps, which a few long ones are not over 30 steps each" in back.words


def test_no_number_of_steps_tells_a_hair() -> None:
    found = of_steps([1.0, 1.5, 0.5], [1.0000001, 1.5, 0.5])
    assert (found.outcome, found.steps_needed) == ("no difference", None)
    assert "No number of steps would tell so small a difference." in found.words


def test_runs_without_spread_that_are_equal_are_no_different() -> None:
    found = of_steps([1.0] * 3, [1.0] * 3)
    assert (found.outcome, found.low, found.high, found.change_ns) == ("no difference", 1.0, 1.0, 0)
    assert found.words == (
        "B and A show no difference (1.00 s against 1.00 s a step, ratio 1.00; 95 % interval 1.0000 to 1.0000"
        " over 3 steps each). They are equal."
    )


def test_an_open_step_alone_is_said_to_be_one() -> None:
    reason = f"{ALL_OPEN}: it ends with its last device event"
    found = versus(
        subject("A", [row("time.step", 1.0, reason=reason)], card()),
        subject("B", steps_of("time.step", [1.5] * 2), card()),
    )
    assert (
        "it takes 3 closed steps of each, A has none but an open one and B has 2; trace 3 or more of each"
        in found.words
    )


def test_the_window_that_is_a_whole_trace_is_named() -> None:
    whole = [r | {"window": "trace"} for r in parts_of(compute=1.0)]
    found = versus(subject("A", parts_of(compute=2.0)), subject("B", whole))
    assert found.words == (
        "B and A are not comparable: the window of B is its whole trace, no step. The window of B is 1.00 s"
        " shorter: compute -1.00 s."
    )
    annotated = [r | {"window": "annotations"} for r in steps_of("time.step", [1.5] * 3)]
    found = versus(subject("A", steps_of("time.step", [1.0] * 3)), subject("B", annotated))
    assert found.outcome == "slower"


@pytest.mark.parametrize("lacking", ["A", "B"])
def test_unequal_work_without_tokens_says_which_run_lacks_them_and_why(lacking: str) -> None:
    def made(letter: str, batch: int) -> Subject:
        value, why = (None, "no card") if letter == lacking else (512.0, None)
        rows = [*parts_of(compute=1.0), row(TOKENS, value, "1/s", reason=why)]
        return subject(letter, rows, card(workload__batch__global=batch))

    found = versus(made("A", 16), made("B", 32))
    assert found.words == (
        "B and A are not comparable: their work differs (global batch 32 against 16) and"
        f" {lacking} has no {TOKENS} (no card)."
    )


def test_a_partial_base_is_not_ranked() -> None:
    lacking = row("time.step", 2.0, status="partial", coverage=0.5, reason="1 of 2 ranks left out")
    found = versus(subject("A", [lacking], card()), subject("B", steps_of("time.step", [1.0] * 3), card()))
    assert found.words.startswith(
        "B and A are not comparable: time.step of A is partial (1 of 2 ranks left out)."
    )


def test_what_moved_most_within_a_part_is_told_of_categories_and_collectives() -> None:
    """A group or a dimension is none of the two."""

    def made(letter: str, gather: float) -> Subject:
        rows = parts_of(exposed_wait=1.0 + gather, exposed_wait__all_gather=gather)
        rows.append(row("time.step_parts", 2 * gather, stat="exposed_wait", group="0-1"))
        return subject(letter, rows, card())

    assert versus(made("A", 0.1), made("B", 0.3)).words.endswith("exposed wait +200 ms (all_gather +200 ms).")


def test_a_published_figure_says_so() -> None:
    figure = row("time.step", 2.0, provenance="published")
    found = versus(
        subject("A", parts_of(compute=1.0), card()), subject("B", [figure], card(), published={"source": "x"})
    )
    assert (found.outcome, found.changes, found.change_ns) == ("undecided", (), 1_000_000_000)
    assert "(published 2.00 s against 1.00 s a step)" in found.words


@pytest.mark.parametrize(("seconds", "text"), [(0.08, "+80.0 ms"), (-1.2, "-1.20 s"), (0.0, "0 s")])
def test_a_change_has_its_sign(seconds: float, text: str) -> None:
    assert signed(seconds) == text


def test_a_small_difference_is_told_in_percent() -> None:
    found = versus(
        subject("A", steps_of("time.step", [1.0] * 3), card()),
        subject("B", steps_of("time.step", [1.021] * 3), card()),
    )
    assert found.words.startswith("B is 2.1 % slower than A (1.02 s against 1.00 s a step;")
