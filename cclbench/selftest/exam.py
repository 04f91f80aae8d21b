# SPDX-License-Identifier: Apache-2.0
"""An exam: jobs drawn from a seed, with a cause, healthy, or of equal ranks; each diagnosed and scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import msgspec

from cclbench.ground.errors import UsageError, near
from cclbench.selftest import causes as _causes
from cclbench.selftest.job import LAWS, Job
from cclbench.selftest.jobs import build_program, draw_job, hide_transfers
from cclbench.selftest.planting import CAUSES, HealthyJob, Planted, PlantedCause
from cclbench.selftest.traces import write_traces
from cclbench.selftest.truth import Truth, simulate_truth

assert _causes.__all__  # noqa: S101  (importing it registers the causes)

Kind = Literal["planted", "healthy", "equal"]
TOLERANCE: Final = 0.01
"""Tolerance of a true gain outside the bounds, as a share of the step: smaller gains are not findings."""
_LEAST, _MOST = 0.10, 0.30
_PILOTS: Final = 9
_DEVELOPMENT_SEED: Final = 0


class ExamItem(msgspec.Struct, frozen=True):
    """One job of an exam."""

    kind: Kind
    cause: str | None
    seed: int


class ExamOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The truth about a job, and its diagnosis."""

    item: ExamItem
    layout: str
    ranks: int
    step_s: float
    expected: list[str] = []
    place: int | None = None
    """Place of the first correct finding, from 1; None if there is none."""
    true_gain_share: float | None = None
    stated_share: tuple[float, float] | None = None
    within: bool | None = None
    """Whether the true gain lies within the correct finding's bounds; None if it states none."""
    largest_gain: float = 0.0
    accused: list[int] = []
    """Ranks that any finding names."""
    found: list[tuple[str, float | None, float | None, list[int]]] = []
    """Name, least and most gain as shares of the step, ranks."""
    errors: dict[str, float] = {}
    """By metric: the difference from the truth, as a share of the step."""
    absent: list[str] = []
    """Metrics without a value."""


@dataclass(frozen=True, slots=True)
class SimulatedItem:
    """A simulated job, its true figures, its cause, and the share of the mean step that the cause costs."""

    job: Job
    truth: Truth
    planted: Planted
    gain: float | None


def development_causes() -> list[str]:
    """Half of the causes, drawn once: the only ones to look at while findings are worked on."""
    import numpy as np

    names = sorted(CAUSES)
    order = np.random.default_rng(_DEVELOPMENT_SEED).permutation(len(names))
    return sorted(names[index] for index in order[: len(names) // 2])


def chosen_causes(asked: Sequence[str]) -> list[str]:
    """The causes of these names; `all`, `development` and `held-out` name sets of causes."""
    names: set[str] = set()
    for one in asked:
        if one == "all":
            names.update(CAUSES)
        elif one == "development":
            names.update(development_causes())
        elif one == "held-out":
            names.update(set(CAUSES) - set(development_causes()))
        elif one in CAUSES:
            names.add(one)
        else:
            raise UsageError(
                f"unknown cause {one!r}", hint=near(one, [*CAUSES, "all", "development", "held-out"])
            )
    return sorted(names)


def draw_items(seed: int, jobs: int, causes: Sequence[str], equal: int, healthy: int) -> list[ExamItem]:
    """The jobs of an exam: `jobs` per cause, `equal` of equal ranks, `healthy` without a cause."""
    listed: list[ExamItem] = []
    for name in sorted(causes):
        number = sorted(CAUSES).index(name)
        listed += [ExamItem("planted", name, seed * 1_000_000 + number * 1_000 + job) for job in range(jobs)]
    listed += [ExamItem("equal", None, seed * 1_000_000 + 900_000 + job) for job in range(equal)]
    listed += [ExamItem("healthy", None, seed * 1_000_000 + 950_000 + job) for job in range(healthy)]
    return listed


def examine_item(item: ExamItem) -> ExamOutcome:
    """Simulate a job, write its traces, diagnose them like any other traces, and compare."""
    from cclbench.api import run
    from cclbench.findings.diagnosis import diagnose_run

    made = simulate_item(item)
    with TemporaryDirectory(prefix="cclbench-selftest-") as folder:
        write_traces(made.planted.sick, made.truth.histories, Path(folder, "traces"))
        computed = run(str(Path(folder, "traces")), store=Path(folder, "store"))
        findings = diagnose_run(computed).findings
        figures = {metric: computed.figures.value(metric) for metric in made.truth.figures}
    step_s = made.truth.step_s
    found = [
        (
            one.name,
            None if one.gain_s is None else one.gain_s[0] / step_s,
            None if one.gain_s is None else one.gain_s[1] / step_s,
            list(one.ranks),
        )
        for one in findings
    ]
    outcome = ExamOutcome(
        item=item,
        layout=made.job.layout,
        ranks=made.job.rank_count,
        step_s=step_s,
        true_gain_share=made.gain,
        largest_gain=max((one[2] or 0.0 for one in found), default=0.0),
        accused=sorted({rank for *_, ranks in found if len(ranks) < made.job.rank_count for rank in ranks}),
        found=found,
        errors={
            metric: (said - made.truth.figures[metric]) / step_s
            for metric, said in figures.items()
            if said is not None
        },
        absent=[metric for metric, said in figures.items() if said is None],
    )
    return outcome if item.cause is None else _score_outcome(outcome, CAUSES[item.cause], made)


def _score_outcome(outcome: ExamOutcome, cause: PlantedCause, made: SimulatedItem) -> ExamOutcome:
    right = None
    for place, (name, least, most, ranks) in enumerate(outcome.found, 1):
        if name in cause.findings or (name in cause.rank_findings and frozenset(ranks) == made.planted.ranks):
            right = place, least, most
            break
    expected = [*cause.findings, *cause.rank_findings]
    if right is None:
        return msgspec.structs.replace(outcome, expected=expected)
    place, least, most = right
    stated = within = None
    if least is not None and most is not None and made.gain is not None:
        stated = least, most
        within = least - TOLERANCE <= made.gain <= most + TOLERANCE
    return msgspec.structs.replace(
        outcome, expected=expected, place=place, stated_share=stated, within=within
    )


def simulate_item(item: ExamItem) -> SimulatedItem:
    """The job of an item: simulated, with and without its cause."""
    import numpy as np

    random = np.random.default_rng([item.seed, 3])
    if item.kind == "equal":
        return _make_unplanted(_equal_job(random, item.seed))
    if item.cause is None:
        return _make_unplanted(hide_transfers(draw_job(random, item.seed)))
    cause = CAUSES[item.cause]
    job = draw_job(random, item.seed, cause.layouts)
    if cause.steps is not None:
        job = replace(job, steps=cause.steps)
    job = hide_transfers(job)
    program = build_program(job)
    healthy = simulate_truth(program)
    target = float(random.uniform(_LEAST, _MOST))
    subject = HealthyJob(job, program, healthy.step_s * 1e9, 0.2, item.seed)
    return _plant_to_target(cause, subject, healthy, target)


def _plant_to_target(
    cause: PlantedCause, subject: HealthyJob, healthy: Truth, target: float
) -> SimulatedItem:
    """The cause at the strength that costs `target` of the step, as nearly as a few pilot runs find."""
    best: SimulatedItem | None = None
    low, high, strength = 0.0, None, subject.strength
    for _ in range(1 if cause.fixed else _PILOTS):
        planted = cause.plant(replace(subject, strength=strength))
        truth = simulate_truth(planted.sick)
        if planted.cured is None:
            return SimulatedItem(subject.job, truth, planted, None)
        cured_s = (
            healthy.period_s if planted.cured is subject.program else simulate_truth(planted.cured).period_s
        )
        gain = 1 - cured_s / truth.period_s
        if (
            best is None
            or best.gain is None
            or _distance_to_target(gain, target) < _distance_to_target(best.gain, target)
        ):
            best = SimulatedItem(subject.job, truth, planted, gain)
        if abs(gain - target) < 0.15 * target:
            break
        if gain < target:
            low = strength
        else:
            high = strength
        strength = 3 * strength if high is None else (low + high) / 2
    assert best is not None  # noqa: S101
    return best


def _distance_to_target(gain: float, target: float) -> float:
    """Distance of a gain from the target; a cause that costs next to nothing does not count as planted."""
    return abs(gain - target) + (1.0 if gain < _LEAST / 2 else 0.0)


def _make_unplanted(job: Job) -> SimulatedItem:
    program = build_program(job)
    return SimulatedItem(job, simulate_truth(program), Planted(program, None), None)


def _equal_job(random: object, seed: int) -> Job:
    import numpy as np

    assert isinstance(random, np.random.Generator)  # noqa: S101
    steps = int(random.choice([6, 10, 20, 40, 60]))
    return Job(
        layout="ddp",
        seed=seed,
        outer=8 if steps <= 10 else 4,
        layers=1,
        hidden=2048,
        tokens=8192,
        steps=steps,
        bus_bytes_per_s=2.4e11,
        law=LAWS[random.integers(len(LAWS))],
        spread=float(random.uniform(0.02, 0.15)),
        logs_loss=bool(random.integers(2)),
    )
