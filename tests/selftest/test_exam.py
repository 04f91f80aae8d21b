# SPDX-License-Identifier: Apache-2.0
"""Exams: what is drawn, what a planted cause costs, what counts as right, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cclbench.cli import cli
from cclbench.ground.errors import UsageError
from cclbench.selftest import exam
from cclbench.selftest.job import JobShape
from cclbench.selftest.jobs import build_program
from cclbench.selftest.planting import CAUSES, HealthyJob
from cclbench.selftest.program import Program
from cclbench.selftest.score import Score
from cclbench.selftest.truth import simulate_truth

JOB = JobShape(layout="ddp", seed=3, layers=1, hidden=1024, steps=3)


def planted(name: str, program: Program, strength: float) -> float:
    made = CAUSES[name].plant(
        HealthyJob(JOB, program, simulate_truth(program).step_s * 1e9, strength, seed=3)
    )
    assert made.without_cause is not None
    return simulate_truth(made.with_cause).step_s - simulate_truth(made.without_cause).step_s


def test_a_cause_of_no_strength_costs_nothing_and_more_strength_costs_more() -> None:
    program = build_program(JOB)
    for name in ("slow_device", "late_thread_of_one_rank", "copies_on_the_device"):
        costs = [planted(name, program, strength) for strength in (0.1, 0.3)]
        assert 0 < costs[0] < costs[1], name
    assert planted("slow_device", program, 0.0) == 0
    # one rank waits for its device and then pauses half a step, which the others wait for
    late = planted("late_thread_of_one_rank", program, 0.5)
    assert late == pytest.approx(0.5 * simulate_truth(program).step_s, rel=0.1)


def test_half_of_the_causes_are_held_out_and_a_seed_draws_one_job() -> None:
    half = exam.development_causes()
    assert len(half) == len(CAUSES) // 2
    assert set(exam.chosen_causes(["held-out"])) == set(CAUSES) - set(half)
    listed = exam.draw_items(5, 2, half[:1], equal=1, healthy=1)
    assert [one.kind for one in listed] == ["planted", "planted", "equal", "healthy"]
    assert len({one.seed for one in listed}) == 4
    assert build_program(JOB) == build_program(JOB) != build_program(replace(JOB, seed=4))
    with pytest.raises(UsageError, match="unknown cause 'slow_devise'"):
        exam.chosen_causes(["slow_devise"])


def outcome(cause: str | None, kind: str = "planted", **fields: object) -> exam.ExamOutcome:
    item = exam.ExamItem(kind, cause, 1)  # type: ignore[arg-type]
    return exam.ExamOutcome(item=item, layout="ddp", ranks=4, step_s=1.0, **fields)  # type: ignore[arg-type]


def test_a_score_counts() -> None:
    score = Score(
        1,
        [
            outcome("heat", place=1, true_gain_share=0.2, stated_share=(0.1, 0.3), within=True),
            outcome("heat", place=3, true_gain_share=0.2, stated_share=(0.1, 0.1), within=False),
            outcome("heat", true_gain_share=0.1),
            outcome(None, "equal", accused=[2]),
            outcome(None, "equal"),
            outcome(None, "healthy", largest_gain=0.03, errors={"time.idle": -0.25}),
        ],
    )
    row = score.cause_rows()[-1]
    assert (row["jobs"], row["first"], row["first_three"], row["gains"], row["within"]) == (3, 1, 2, 2, 1)
    assert (row["width"], row["true_gain"]) == (2.0, 0.2)
    unplanted = score.unplanted_scores()
    assert (unplanted["equal_jobs"], unplanted["equal_accused"]) == (2, 1)
    assert (unplanted["healthy_above_limit"], unplanted["healthy_largest_gain"]) == (1, 0.03)
    assert score.metric_errors() == [
        {"metric": "time.idle", "jobs": 1, "absent": 0, "median_error": 0.25, "largest_error": 0.25}
    ]


def test_figures_of_a_simulated_job_are_those_of_its_simulation() -> None:
    """Read from its traces, a step and its parts differ from what ran by less than 0.1 %."""
    seen = exam.examine_item(exam.ExamItem("healthy", None, 12))
    assert seen.absent == []
    assert max(abs(error) for error in seen.errors.values()) < 1e-3


def test_the_command_prints_and_writes_a_score(tmp_path: Path) -> None:
    path = tmp_path / "score.json"
    words = ["selftest", "--cause", "slow_device", "--equal", "0", "--healthy", "1", "--jobs", "1"]
    answer = CliRunner().invoke(cli, [*words, "--json", "--output", str(path)], obj=None)
    assert answer.exit_code == 0, answer.output
    printed = json.loads(answer.stdout)
    assert printed == json.loads(path.read_text())
    assert printed["schema"] == "selftest.v1"
    assert [row["cause"] for row in printed["causes"]] == ["slow_device", "all"]
    assert [job["item"]["kind"] for job in printed["jobs"]] == ["planted", "healthy"]
