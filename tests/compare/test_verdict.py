# SPDX-License-Identifier: Apache-2.0
"""The verdict: who is faster, by which measure, how surely, and in which words."""

from __future__ import annotations

import pytest
from subjects import card, parts_of, row, steps_of, subject

from cclbench.compare.verdict import signed, versus

TOKENS = "throughput.tokens_per_device"


def test_slower_with_an_interval_and_the_reason() -> None:
    base = subject(
        "A",
        [*steps_of("time.step", [1.0, 1.0]), *parts_of(compute=0.8, exposed_wait=0.2)[1:]],
        card(),
    )
    other = subject(
        "B",
        [
            *steps_of("time.step", [1.2, 1.6]),
            *parts_of(compute=0.9, compute__gemm=0.1, exposed_wait=0.5, exposed_wait__all_gather=0.4)[1:],
        ],
        card(),
    )
    found = versus(base, other)
    assert (found.measure, found.outcome) == ("time.step", "slower")
    # B's mean is 1.2, 1.4 or 1.6 with 1/4, 1/2, 1/4
    assert (found.ratio, found.low, found.high) == pytest.approx((1.4, 1.2, 1.6))
    assert found.change_ns == sum(change.change_ns for change in found.changes) == 400_000_000
    assert found.words == (
        "B is 1.40× slower than A (1.40 s against 1.00 s a step; 95 % interval 1.20 to 1.60 over 2 steps"
        " each). A step of B is 400 ms longer: exposed wait +300 ms (all_gather +400 ms), compute +100 ms"
        " (gemm +100 ms)."
    )


def test_faster_is_told_the_other_way_round() -> None:
    found = versus(
        subject("A", steps_of("time.step", [2.0, 2.0]), card()),
        subject("B", steps_of("time.step", [0.8, 1.0]), card()),
    )
    assert found.outcome == "faster"
    assert (found.ratio, found.low, found.high) == pytest.approx((0.45, 0.4, 0.5))
    assert found.words.startswith(
        "B is 2.22× faster than A (900 ms against 2.00 s a step; 95 % interval 2.00 to 2.50"
    )


def test_an_interval_that_holds_one_is_no_difference() -> None:
    found = versus(
        subject("A", steps_of("time.step", [1.0, 1.0]), card()),
        subject("B", steps_of("time.step", [0.9, 1.2]), card()),
    )
    assert (found.outcome, found.low, found.high) == ("no difference", 0.9, 1.2)
    assert found.words.startswith("B and A show no difference (1.05 s against 1.00 s a step, ratio 1.05;")
    assert "In the mean a step of B is 50.0 ms longer." in found.words


def test_a_single_step_is_ranked_without_an_interval() -> None:
    found = versus(
        subject("A", steps_of("time.step", [1.0]), card()), subject("B", steps_of("time.step", [1.5]), card())
    )
    assert (found.outcome, found.low, found.high) == ("slower", None, None)
    assert "no interval: it takes two numbered steps of each" in found.words
    same = versus(
        subject("A", [row("time.step", 1.0)], card()), subject("B", [row("time.step", 1.0)], card())
    )
    assert same.outcome == "no difference"
    assert same.change_ns == 0


def test_whole_traces_have_lengths_and_no_speed() -> None:
    """Cards tell what a step works on; how many steps a trace without any holds, nobody knows."""
    base, other = (
        subject(letter, [r | {"window": "trace"} for r in parts_of(compute=s)], card())
        for letter, s in (("A", 1.0), ("B", 1.5))
    )
    assert versus(base, other).words == (
        "B's trace is 1.50× longer than A's (1.50 s against 1.00 s for the whole trace; no interval: it takes"
        " two numbered steps of each). Whether the two traces hold equal work is unknown. The window of B is"
        " 500 ms longer: compute +500 ms."
    )
    same = versus(base, base)
    assert same.words.startswith(
        "A and A show no difference (1.00 s against 1.00 s for the whole trace, ratio"
    )


def test_unequal_work_is_ranked_by_tokens_per_second_and_device() -> None:
    small = subject(
        "A", [*steps_of("time.step", [1.0, 1.0]), *steps_of(TOKENS, [512.0, 512.0], "1/s")], card()
    )
    large = subject(
        "B",
        [*steps_of("time.step", [1.5, 1.5]), *steps_of(TOKENS, [1024.0, 1024.0], "1/s")],
        card(workload__batch__global=32),
    )
    found = versus(small, large)
    assert (found.measure, found.outcome, found.ratio) == (TOKENS, "faster", 2.0)
    assert (found.low, found.high) == (2.0, 2.0)
    assert "(1,024 against 512 tokens per second and device;" in found.words
    assert "They are ranked so since their work differs: global batch 32 against 16." in found.words
    assert "A step of B is 500 ms longer" in found.words
    back = versus(large, small)
    assert (back.outcome, back.ratio) == ("slower", 0.5)
    assert back.words.startswith("A is 2.00× slower than B")


def test_the_interval_of_a_rate_is_that_of_its_inverse() -> None:
    base = subject("A", [row("time.step", 1.0), *steps_of(TOKENS, [100.0, 100.0], "1/s")], card())
    rows = [row("time.step", 1.0), row(TOKENS, 160.0, "1/s")]
    rows += [row(TOKENS, rate, "1/s", step=n) for n, rate in enumerate((100.0, 400.0))]
    found = versus(base, subject("B", rows, card(workload__batch__sequence_length=256)))
    # steps of 1/100 and 1/400: resampled mean rates 100, 160, 400
    assert (found.ratio, found.low, found.high) == pytest.approx((1.6, 1.0, 4.0))
    assert found.outcome == "no difference"


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
    found = versus(subject("A", [row("time.step", 1.0)]), subject("B", [row("time.step", 3.0)], card()))
    assert found.words.startswith("B's step is 3.00× longer than A's (3.00 s against 1.00 s a step;")
    assert "Whether a step of each is equal work is unknown." in found.words


def test_a_published_figure_says_so() -> None:
    figure = row("time.step", 2.0, provenance="published")
    found = versus(
        subject("A", parts_of(compute=1.0), card()), subject("B", [figure], card(), published={"source": "x"})
    )
    assert (found.outcome, found.changes, found.change_ns) == ("slower", (), 1_000_000_000)
    assert "(published 2.00 s against 1.00 s a step;" in found.words


@pytest.mark.parametrize(("seconds", "text"), [(0.08, "+80.0 ms"), (-1.2, "-1.20 s"), (0.0, "0 s")])
def test_a_change_has_its_sign(seconds: float, text: str) -> None:
    assert signed(seconds) == text


def test_a_small_difference_is_told_in_percent() -> None:
    found = versus(
        subject("A", [row("time.step", 1.0)], card()), subject("B", [row("time.step", 1.021)], card())
    )
    assert found.words.startswith("B is 2.1 % slower than A (1.02 s against 1.00 s a step;")
