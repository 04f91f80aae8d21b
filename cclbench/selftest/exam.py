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
from cclbench.selftest.job import LAWS, JobShape
from cclbench.selftest.jobs import build_program, draw_job, hide_transfers
from cclbench.selftest.planting import CAUSES, HealthyJob, PlantedCause, PlantedJob
from cclbench.selftest.traces import write_traces
from cclbench.selftest.truth import Truth, simulate_truth

assert _causes.__all__  # noqa: S101  (importing it registers the causes)

Kind = Literal["planted", "healthy", "equal"]
TOLERANCE: Final = 0.01
"""Tolerance of a true gain outside the bounds, as a share of the step: smaller gains are not findings."""
_LEAST_GAIN, _MOST_GAIN = 0.10, 0.30
"""Range of the gain, as a share of the step, that a cause is planted for."""
_PILOT_RUNS: Final = 9
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

    job: JobShape
    truth: Truth
    planted: PlantedJob
    gain: float | None


def development_causes() -> list[str]:
    """Half of the causes, drawn once: those that may be used while findings are developed."""
    import numpy as np

    names = sorted(CAUSES)
    order = np.random.default_rng(_DEVELOPMENT_SEED).permutation(len(names))
    return sorted(names[index] for index in order[: len(names) // 2])


def chosen_causes(requested: Sequence[str]) -> list[str]:
    """The causes of these names; `all`, `development` and `held-out` name sets of causes."""
    names: set[str] = set()
    for name in requested:
        if name == "all":
            names.update(CAUSES)
        elif name == "development":
            names.update(development_causes())
        elif name == "held-out":
            names.update(set(CAUSES) - set(development_causes()))
        elif name in CAUSES:
            names.add(name)
        else:
            raise UsageError(
                f"unknown cause {name!r}", hint=near(name, [*CAUSES, "all", "development", "held-out"])
            )
    return sorted(names)


def draw_items(seed: int, jobs: int, causes: Sequence[str], equal: int, healthy: int) -> list[ExamItem]:
    """The jobs of an exam: `jobs` per cause, `equal` of equal ranks, `healthy` without a cause."""
    items: list[ExamItem] = []
    for name in sorted(causes):
        number = sorted(CAUSES).index(name)
        items += [ExamItem("planted", name, seed * 1_000_000 + number * 1_000 + job) for job in range(jobs)]
    items += [ExamItem("equal", None, seed * 1_000_000 + 900_000 + job) for job in range(equal)]
    items += [ExamItem("healthy", None, seed * 1_000_000 + 950_000 + job) for job in range(healthy)]
    return items


def examine_item(item: ExamItem) -> ExamOutcome:
    """Simulate a job, write its traces, diagnose them like any other traces, and compare."""
    from cclbench.api import run
    from cclbench.findings.diagnosis import diagnose_run

    simulated = simulate_item(item)
    with TemporaryDirectory(prefix="cclbench-selftest-") as folder:
        write_traces(simulated.planted.with_cause, simulated.truth.histories, Path(folder, "traces"))
        computed = run(str(Path(folder, "traces")), store=Path(folder, "store"))
        findings = diagnose_run(computed).findings
        figures = {metric: computed.figures.value(metric) for metric in simulated.truth.figures}
    step_s, ranks = simulated.truth.step_s, simulated.job.rank_count
    finding_rows = [
        (
            finding.name,
            None if finding.gain_s is None else finding.gain_s[0] / step_s,
            None if finding.gain_s is None else finding.gain_s[1] / step_s,
            list(finding.ranks),
        )
        for finding in findings
    ]
    outcome = ExamOutcome(
        item=item,
        layout=simulated.job.layout,
        ranks=ranks,
        step_s=step_s,
        true_gain_share=simulated.gain,
        largest_gain=max((most or 0.0 for _, _, most, _ in finding_rows), default=0.0),
        accused=sorted({rank for *_, named in finding_rows if len(named) < ranks for rank in named}),
        found=finding_rows,
        errors={
            metric: (value - simulated.truth.figures[metric]) / step_s
            for metric, value in figures.items()
            if value is not None
        },
        absent=[metric for metric, value in figures.items() if value is None],
    )
    return outcome if item.cause is None else _score_outcome(outcome, CAUSES[item.cause], simulated)


def _score_outcome(outcome: ExamOutcome, cause: PlantedCause, simulated: SimulatedItem) -> ExamOutcome:
    correct = None
    for place, (name, least, most, ranks) in enumerate(outcome.found, 1):
        names_ranks = frozenset(ranks) == simulated.planted.ranks
        if name in cause.findings or (name in cause.rank_findings and names_ranks):
            correct = place, least, most
            break
    expected = [*cause.findings, *cause.rank_findings]
    if correct is None:
        return msgspec.structs.replace(outcome, expected=expected)
    place, least, most = correct
    stated = within = None
    if least is not None and most is not None and simulated.gain is not None:
        stated = least, most
        within = least - TOLERANCE <= simulated.gain <= most + TOLERANCE
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
    target = float(random.uniform(_LEAST_GAIN, _MOST_GAIN))
    subject = HealthyJob(job, program, healthy.step_s * 1e9, 0.2, item.seed)
    return _plant_to_target(cause, subject, healthy, target)


def _plant_to_target(
    cause: PlantedCause, subject: HealthyJob, healthy: Truth, target: float
) -> SimulatedItem:
    """The cause at the strength that costs `target` of the step, as nearly as a few pilot runs find."""
    best: SimulatedItem | None = None
    low, high, strength = 0.0, None, subject.strength
    for _ in range(1 if cause.fixed else _PILOT_RUNS):
        planted = cause.plant(replace(subject, strength=strength))
        truth = simulate_truth(planted.with_cause)
        if planted.without_cause is None:
            return SimulatedItem(subject.job, truth, planted, None)
        unchanged = planted.without_cause is subject.program
        without_cause = healthy if unchanged else simulate_truth(planted.without_cause)
        gain = 1 - without_cause.period_s / truth.period_s
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
    return abs(gain - target) + (1.0 if gain < _LEAST_GAIN / 2 else 0.0)


def _make_unplanted(job: JobShape) -> SimulatedItem:
    program = build_program(job)
    return SimulatedItem(job, simulate_truth(program), PlantedJob(program, None), None)


def _equal_job(random: object, seed: int) -> JobShape:
    import numpy as np

    assert isinstance(random, np.random.Generator)  # noqa: S101
    steps = int(random.choice([6, 10, 20, 40, 60]))
    return JobShape(
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
