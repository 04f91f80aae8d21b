# SPDX-License-Identifier: Apache-2.0
"""What stands above a comparison: unequal work, and what else a reader must know."""

from __future__ import annotations

import pytest
from helpers.compared_subjects import card, parts_of, row, steps_of, subject

from cclbench.analyzers.view.values import ALL_OPEN
from cclbench.comparison.fingerprint import Equality
from cclbench.comparison.standards import common_standard
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import judge_subject
from cclbench.comparison.work import comparison_warnings, is_work_unknown, work_inequalities

STEP = [row("time.step", 1.0)]


def two(**changes: object) -> tuple[ComparisonSubject, ComparisonSubject]:
    return subject("A", STEP, card()), subject("B", STEP, card(**changes))


def test_equal_work_says_nothing() -> None:
    pair = two(parallelism__tp=4, workload__model__name="Tiny_Llama", hardware__accelerator="nvidia-a100")
    assert work_inequalities(*pair) == []
    assert comparison_warnings(pair) == ()
    # tokens per step are compared though no card field differs
    rows = [[*STEP, row("throughput.tokens", rate, "1/s")] for rate in (2048.0, 1024.0)]
    pair = tuple(subject(letter, own, card()) for letter, own in zip("AB", rows, strict=True))
    assert work_inequalities(*pair) == ["tokens per step 1,024 against 2,048"]
    # precision and the number of devices are no other work
    pair = two(workload__precision="fp8", hardware__count=8)
    assert work_inequalities(*pair) == []
    assert comparison_warnings(pair) == ("precision: A bf16, B fp8", "number of devices: A 4, B 8")
    # three subjects stand in one line
    three = [
        subject(x, STEP, card(workload__batch__global=n)) for x, n in zip("ABC", (8, 8, 16), strict=True)
    ]
    assert comparison_warnings(three) == ("the work differs: global batch: A 8, B 8, C 16",)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workload__batch__global": 64}, "global batch: A 16, B 64"),
        ({"workload__batch__sequence_length": 4096}, "sequence length: A 128, B 4,096"),
        ({"workload__model__name": "other"}, "model: A tiny-llama, B other"),
        ({"workload__model__parameters": 8_000_000_000}, "parameters: A 1,000, B 8,000,000,000"),
        ({"workload__phase": "inference"}, "phase: A training, B inference"),
    ],
)
def test_unequal_work_is_a_warning_at_the_top(changes: dict, says: str) -> None:
    pair = two(**changes)
    assert comparison_warnings(pair)[0] == f"the work differs: {says}"
    assert len(work_inequalities(*pair)) == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(1_000_000, 999_999, True), (1_000_000, 1_000_002, False), (999_998, 999_999, False)],
)
def test_counts_that_differ_by_a_millionth_are_one(one: int, other: int, same: bool) -> None:
    pair = (
        subject("A", STEP, card(workload__model__parameters=one)),
        subject("B", STEP, card(workload__model__parameters=other)),
    )
    assert (work_inequalities(*pair) == []) == same
    assert (comparison_warnings(pair) == ()) == same


@pytest.mark.parametrize(
    ("letters", "named"),
    [
        *(("A", "A"), ("AB", "A and B"), ("ABC", "A, B, C"), ("ABCDEF", "A, B, C, D, E, F")),
        *(("ABCDEFG", "A, B, C, D, E, F, 1 more"), ("ABCDEFGH", "A, B, C, D, E, F, 2 more")),
    ],
)
def test_six_are_listed_by_name(letters: str, named: str) -> None:
    silent = [subject(letter, STEP) for letter in letters]
    (first,) = comparison_warnings([*silent, subject("Z", STEP, card())])
    assert first.startswith(f"the work of a step of {named} is unknown")


def test_without_a_card_the_work_is_unknown() -> None:
    pair = subject("A", STEP), subject("B", STEP, card())
    assert work_inequalities(*pair) == []
    assert (is_work_unknown(pair[0]), is_work_unknown(pair[1])) == (True, False)
    (first,) = comparison_warnings(pair)
    assert first.startswith("the work of a step of A is unknown (a workload card can state it)")
    lacking = two(workload__batch__global=None, workload__batch__sequence_length=None)
    (first,) = comparison_warnings(lacking)
    assert first == (
        "the card of B lacks workload.batch.global and workload.batch.sequence_length:"
        " equal work is not certain"
    )
    # the phase alone does not tell the work
    phase = {"version": 2, "id": "x", "workload": {"phase": "training"}}
    assert is_work_unknown(subject("A", STEP, phase))
    assert not is_work_unknown(subject("A", STEP, phase | {"workload": {"model": {"name": "x"}}}))
    assert not is_work_unknown(subject("A", [*STEP, row("throughput.tokens", 10.0, "1/s")], phase))
    # a request of inference has an input length
    made = card(workload__batch__sequence_length=None, workload__batch__input_length=128)
    assert comparison_warnings((subject("A", STEP, card()), subject("B", STEP, made))) == ()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (subject("B", STEP, card(), ranks=1, world=4), "B has traces of 1 of 4 ranks"),
        (subject("B", STEP, card(), truncated=True), "a trace of B is truncated"),
        (subject("B", STEP, card(), reader="nsys"), "kind of trace: A kineto, B nsys"),
        (subject("B", steps_of("time.step", [1.0, 1.0]), card()), "number of steps: A 1, B 2"),
        (subject("B", [STEP[0] | {"window": "annotations"}], card()), "window: A steps, B annotations"),
        (
            subject("B", [STEP[0] | {"window": "trace"}], card()),
            "the window of B is its whole trace, not a step",
        ),
        (
            subject("B", [STEP[0] | {"provenance": "published"}], card(), published={"source": "x"}),
            "the figures of B are published",
        ),
    ],
)
def test_what_weakens_a_comparison_is_said(other: ComparisonSubject, says: str) -> None:
    base = subject("A", steps_of("time.step", [1.0]), card())
    assert any(warning.startswith(says) for warning in comparison_warnings((base, other)))


def test_a_modelled_figure_beside_a_measured_one_is_named() -> None:
    measured = subject("A", [*STEP, row("comm.busbw", 1e9, "B/s"), row("comm.volume", 1.0, "B")], card())
    rows = [row("comm.busbw", 2e9, "B/s", provenance="modelled"), row("comm.volume", 1.0, "B")]
    modelled = subject("B", [*STEP, *rows], card())
    assert comparison_warnings((measured, modelled)) == ("modelled in B but not in the others: comm.busbw",)
    assert comparison_warnings((modelled, modelled)) == ()

    # ends of a band and figures without a number are none; metrics stand in order of their names
    def made(letter: str, *modelled: str) -> ComparisonSubject:
        rows = [
            row(m, 1.0, "B/s", provenance="modelled" if m in modelled else "measured")
            for m in ("comm.volume", "comm.busbw", "comm.algbw")
        ]
        rows += [row("comm.wait", 1.0, stat="low", provenance="modelled")] if letter == "B" else []
        rows += [row("comm.skew", None, provenance="modelled")] if letter == "B" else []
        rows += [row("comm.wait", 1.0), row("comm.skew", 1.0)] if letter == "A" else []
        return subject(letter, [*STEP, *rows], card())

    three = made("A"), made("B", "comm.volume", "comm.busbw"), made("C", "comm.algbw")
    assert comparison_warnings(three) == (
        "modelled in B but not in the others: comm.busbw and comm.volume",
        "modelled in C but not in the others: comm.algbw",
    )


def test_a_lone_open_step_and_a_cut_weaken_each_run_by_itself() -> None:
    open_step = subject("B", [row("time.step", 1.0, reason=f"{ALL_OPEN}: whatever")], card(), truncated=True)
    assert comparison_warnings((open_step,)) == (
        "the only step of B is incomplete: no step follows, so it ends with its last device event",
        "a trace of B is truncated: its figures cover the part before",
    )
    assert comparison_warnings((subject("A", STEP, card(), ranks=3, world=3),)) == ()
    # published metadata stand in where a card is silent
    metadata = {"model_family": "tiny-llama", "phase": "training", "hardware_model": "nvidia_a100"}
    stated = {"metadata": metadata | {"batch_size": 64, "seq_len": "1024", "total_count": 4}}
    bare, base = subject("B", STEP, published=stated), subject("A", STEP, card())
    assert work_inequalities(base, bare) == ["global batch 64 against 16"]
    assert bare.card_field("workload.batch.sequence_length") is None  # a text is no count
    with_card = subject("B", STEP, card(workload__batch__global=None), published=stated)
    assert with_card.card_field("workload.batch.global") is None  # the card has judged that field


def test_parts_that_only_some_can_tell_are_said_with_the_reason() -> None:
    told = subject("A", parts_of(compute=1.0, idle_host=0.1, idle_other=0.1), card())
    rows = parts_of(compute=1.0, idle_other=0.2)
    rows[-1]["reason"] = "the CPU is the device"
    (warning,) = comparison_warnings((told, subject("B", rows, card())))
    assert warning == (
        "B does not show how much of the idle time is host-bound (the CPU is the device):"
        " all of it is in other idle"
    )
    # how much waiting is may be untold too
    told = subject("A", parts_of(compute=1.0, exposed_wait=0.1, exposed_unmatched=0.1), card())
    silent = subject("B", parts_of(compute=1.0, exposed_unmatched=0.2), card())
    without = subject("C", STEP, card())
    assert [w for w in comparison_warnings((told, silent, without)) if "does not show" in w] == [
        "B does not show how much of the exposed communication is waiting: all of it is in exposed unmatched"
    ]
    assert not any("does not show" in w for w in comparison_warnings((silent, silent, without)))


STANDARD = {"workload__model__name": "Llama-3.1-8B", "workload__batch__global": 128}
STANDARD |= {"workload__batch__sequence_length": 1024, "workload__phase": "inference"}
STANDARD["workload__standard"] = "ccl-bench-llama-3.1-8b-inference"


def test_cards_of_one_standard_workload_do_equal_work() -> None:
    a = subject("A", STEP, card(workload__batch__output_length=128, parallelism__tp=1, **STANDARD))
    published = {"workload__model__name": "meta-llama/Llama-3.1-8B", "workload__batch__sequence_length": 1152}
    other = {**STANDARD, **published, "workload__batch__input_length": 1024}
    b = subject("B", STEP, card(workload__batch__output_length=128, parallelism__tp=4, **other))
    assert common_standard(a, b) == STANDARD["workload__standard"]
    assert comparison_warnings((a, b)) == ()
    work = Equality("unknown", "no shapes", common_standard(a, b))
    assert (
        f"By the standard workload {work.standard}, which both cards name" in judge_subject(a, b, work).words
    )
    refuted = Equality("refuted", "8 against 4 calls of aten::mm", work.standard)
    (warning,) = comparison_warnings((a, b), [refuted])
    assert warning.startswith(
        f"the cards of A and B state equal work ({work.standard}), but their traces show"
    )
    assert "By the standard" not in judge_subject(a, b, refuted).words
    # what a standard leaves open is equal only where both state it
    a = subject("A", STEP, card(workload__batch__output_length=128, **STANDARD))
    b, c = (subject("B", STEP, card(**STANDARD)), subject("C", STEP, card()))
    assert (common_standard(a, b), common_standard(a, c)) == (None, None)
    assert comparison_warnings((a, b)) == (
        "ccl-bench-llama-3.1-8b-inference leaves open workload.batch.output_length, A 128, B not stated:"
        " equal work by it is not certain",
    )
