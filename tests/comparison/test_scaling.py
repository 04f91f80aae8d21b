# SPDX-License-Identifier: Apache-2.0
"""Scaling efficiency of two runs: strong, weak, and where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.compared_subjects import STEADY, card, row, steps_of, subject

from cclbench.comparison.fingerprint import UNKNOWN, Equality
from cclbench.comparison.interval import compare_captures
from cclbench.comparison.lines import metric_lines
from cclbench.comparison.scaling import METRIC, scaling_of, scaling_words, with_scaling
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import captures_of, judge_subject

RATE = "throughput.tokens_per_device"
REFUTED = Equality("refuted", "4 against 2 calls")
PROVED = Equality("proved", "1.00 TFLOP a step each")


def a_run(letter: str, devices: int, batch: int, rates: list[float], **changes: Any) -> ComparisonSubject:
    """A run of that global batch on so many devices, with the rates of its steps."""
    told = card(hardware__count=devices, workload__batch__global=batch, **changes)
    rows = [*steps_of(RATE, rates, "1/s"), row(METRIC, None, "1")]
    return subject(letter, rows, told, ranks=devices)


FEW = a_run("A", 2, 16, [100.0, 101.0, 99.0])
STRONG = a_run("B", 4, 16, [80.0, 81.0, 79.0])
WEAK = a_run("B", 4, 32, [95.0, 96.0, 94.0])


def test_strong_scaling_with_the_interval_of_the_ratio() -> None:
    found = scaling_of(FEW, STRONG, UNKNOWN, STEADY)
    expected = compare_captures(captures_of(FEW, RATE), captures_of(STRONG, RATE), STEADY)
    assert (found.kind, found.fewer, found.more, found.devices) == ("strong", "A", "B", (2, 4))
    assert found.efficiency == pytest.approx(0.8, rel=1e-3)
    assert (found.low, found.high) == (expected.low, expected.high)
    assert scaling_words(found).startswith(
        "Strong scaling from 2 to 4 devices: 80.0 % of the tokens per second and device (95 % interval 7"
    )
    # weak scaling whichever run comes first
    found, other = scaling_of(FEW, WEAK, REFUTED, ()), scaling_of(WEAK, FEW, REFUTED, ())
    assert found == other
    assert (found.kind, found.efficiency) == ("weak", pytest.approx(0.95, rel=1e-3))
    # two steps have an efficiency without an interval
    found = scaling_of(FEW, a_run("B", 4, 16, [80.0, 80.0]), UNKNOWN, ())
    assert (found.low, found.high) == (None, None)
    assert scaling_words(found).endswith("80.0 % of the tokens per second and device.")


@pytest.mark.parametrize(
    ("other", "work"),
    [
        (STRONG, REFUTED),
        (WEAK, PROVED),
        (a_run("B", 4, 24, [95.0] * 3), UNKNOWN),  # neither batch is the same
        (a_run("B", 2, 16, [95.0] * 3), UNKNOWN),  # as many devices
        (a_run("B", 4, 16, [95.0] * 3, workload__batch__sequence_length=256), UNKNOWN),
        (a_run("B", 4, 16, [95.0] * 3, workload__model__parameters=2000), UNKNOWN),
        (subject("B", [row(RATE, 9.0, "1/s", status="partial")], card(), ranks=4), UNKNOWN),
        (subject("B", [], card(), ranks=4), UNKNOWN),
    ],
)
def test_other_work_or_no_rate_is_no_scaling(other: ComparisonSubject, work: Equality) -> None:
    assert scaling_of(FEW, other, work, ()) is None


def test_the_line_of_the_metric_has_the_figure_of_the_other() -> None:
    scaling = scaling_of(FEW, STRONG, UNKNOWN, ())
    verdict = replace(judge_subject(FEW, STRONG), scaling=scaling)
    (line,) = with_scaling(metric_lines((FEW, STRONG), [METRIC]), [verdict])
    assert (line.figures["A"].value, line.figures["B"].value) == (None, scaling.efficiency)
