# SPDX-License-Identifier: Apache-2.0
"""`cclbench project --step`: a card's job from its measured step, as `project_step` predicts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.neo_card import CARD, neo_card  # noqa: F401 - a fixture
from helpers.replay_subjects import card, degrees

import cclbench
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.replay.step_projection import JobLayout, project_step


def predicted(path: Path, gpus: int = 256, step_s: float = 6.43, **options: Any) -> tuple[float, ...]:
    """Low, expected and high of the projected step, ns, and relative samples of a step."""
    projection = cclbench.project(path, "alps-gh200", gpus, step_s=step_s, **options)
    (outcome,) = projection.result.predicted
    (layout,) = projection.layouts
    return outcome.low_ns, outcome.step_ns or 0.0, outcome.high_ns, layout.samples


@pytest.mark.parametrize(
    ("options", "job"),
    [
        ({"layout": "pp=4", "sets": ["batch=global"]}, JobLayout(degrees(tp=4, dp=16, pp=4), 4, 1024)),
        ({"layout": "pp=4"}, JobLayout(degrees(tp=4, dp=16, pp=4), 4, 2048)),
        ({}, JobLayout(degrees(tp=4, dp=32, pp=2), 4, 4096)),
        (
            {"layout": "pp=4,dp=16", "sets": ["parallelism.schedule=zero_bubble"]},
            JobLayout(degrees(tp=4, dp=16, pp=4), 4, 2048, "zero_bubble"),
        ),
        (
            {"layout": "pp=4", "sets": ["parallelism.interleave=2"]},
            JobLayout(degrees(tp=4, dp=16, pp=4), 4, 2048, turns=2),
        ),
        ({"layout": "cp=2"}, JobLayout(degrees(tp=4, cp=2, dp=16, pp=2), 4, 2048)),
        (
            {"layout": "pp=1", "sets": ["batch=global"], "gpus": 2048},
            JobLayout(degrees(tp=4, dp=512), 2, 1024),
        ),
    ],
)
def test_a_card_s_job_is_projected(neo: Path, options: dict[str, Any], job: JobLayout) -> None:
    """Degrees not stated stay; replicas keep their 128 samples unless the batch stays, then down to two."""
    sizes = card(
        {"parameters": 2_651_307_520, "hidden": 2560, "layers": 32, "vocabulary": 50_257},
        {"sequence_length": 2048},
        "fp16",
    )
    measured = JobLayout(degrees(tp=4, dp=8, pp=2), 4, 1024)
    step, _ = project_step(sizes, catalog.system("alps-gh200"), measured, 6.43, job)
    low, expected, high, samples = predicted(neo, **options)
    assert (low, expected, high) == pytest.approx((step.low, step.expected or 0.0, step.high))
    assert samples == 8 * job.global_batch / 1024


@pytest.mark.parametrize(
    ("old", "new", "options", "error", "says"),
    [
        (
            "system: alps-gh200",
            "system: aws-p5",
            {},
            InputError,
            "measured on aws-p5 .*another machine needs a",
        ),
        ("phase: training", "phase: inference", {}, InputError, "is not training"),
        ("micro: 4, ", "", {}, InputError, r"state workload\.batch\.micro in a card"),
        ("global: 1024, ", "", {}, InputError, r"state workload\.batch\.global in a card"),
        ("pp: 2", "pp: 2, ep: 16", {}, InputError, "do not make the 64 ranks"),
        ("", "", {"sets": ["kernels.time=x0.5"]}, UsageError, r"kernels\.time needs a trace of a rank"),
        ("", "", {"layout": "tp=8"}, InputError, "layers split otherwise"),
        ("", "", {"layout": "dp=2"}, UsageError, "makes 16 ranks, not 256"),
        ("", "", {"layout": "pp=64"}, InputError, "32 layers are too few for 64 parts"),
        ("", "", {"gpus": 100}, UsageError, "not a multiple of the 8 of a replica"),
        ("", "", {"per_node": 8}, UsageError, "alps-gh200 has 4 accelerators a node, not 8"),
        ("", "", {"step_s": 0.1}, InputError, "less than the products of a step take on 64"),
    ],
)
def test_what_a_card_and_a_step_do_not_show(
    neo: Path, old: str, new: str, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    neo.write_text(CARD.replace(old, new, 1) if old else CARD)
    with pytest.raises(error, match=says):
        predicted(neo, **options)


def test_a_machine_that_the_card_does_not_state_is_the_measured_one(neo: Path) -> None:
    before = predicted(neo)
    neo.write_text(CARD.replace("system: alps-gh200, ", ""))
    assert predicted(neo) == before
