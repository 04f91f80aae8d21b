# SPDX-License-Identifier: Apache-2.0
"""Steps of published layouts of GPT-Neo 2.7B on Alps, each predicted from another one.

`pipelines.py JOBS.csv` prints each layout from the nearest other one with its micro-batch, then how many
pairs of layouts hold, and the errors of twice the nodes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import NamedTuple

from cclbench.card.model import card_of
from cclbench.hardware import catalog
from cclbench.replay.change import TimeBounds
from cclbench.replay.layout import DIMENSIONS, Layout
from cclbench.replay.step_projection import JobLayout, project_step

SYSTEM = catalog.system("alps-gh200")
MODEL = {"parameters": 2_651_307_520, "hidden": 2560, "layers": 32, "vocabulary": 50_257}
CARD = card_of(
    {
        "version": 2,
        "id": "gpt-neo-2.7b",
        "description": "sizes of the published configuration (EleutherAI)",
        "workload": {
            "phase": "training",
            "precision": "fp16",
            "model": MODEL,
            "batch": {"sequence_length": 2048},
        },
    },
    Path(),
)


NAME = "GPT-Neo-2.7"
"""The model's name in tables of jobs."""


class MeasuredJob(NamedTuple):
    """A published layout with its measured step."""

    nodes: int
    layout: JobLayout
    step_s: float

    def __str__(self) -> str:
        layout = self.layout
        return f"{layout.degrees}, {layout.microbatches} of {layout.micro_batch}"


class JobScore(NamedTuple):
    """Steps of jobs, each from the nearest other one: errors of all, and of twice the nodes; the bounds'
    upper / lower end of those that hold."""

    errors: list[float]
    doubled: list[float]
    widths: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", type=Path)
    jobs = read_jobs(parser.parse_args().jobs)
    print("| nodes | layout, micro-batches | from | measured s | predicted s | bounds s | error |")
    print("| ---: | --- | --- | ---: | ---: | ---: | ---: |")
    for asked in jobs:
        base = nearest(asked, jobs)
        step, error, holds = compare(base, asked)
        bounds = f"{step.low / 1e9:.3f} to {step.high / 1e9:.3f}{'' if holds else ' (missed)'}"
        print(
            f"| {asked.nodes} | {asked} | {base} | {asked.step_s:.3f} | {(step.expected or 0) / 1e9:.3f} |"
            f" {bounds} | {error:+.1%} |"
        )
    score = score_jobs(jobs)
    print(
        f"\n{len(score.widths)} of {len(jobs)} within bounds at most {max(score.widths):.2f} times wide,"
        f" median error {median(score.errors):.1%}"
    )
    pairs = [compare(*pair) for pair in permutations(jobs, 2) if are_comparable(*pair)]
    print(f"all {len(pairs)} pairs: {sum(holds for *_, holds in pairs)} within bounds")
    twice = score.doubled
    print(f"twice the nodes: {len(twice)} pairs, error {median(twice):.1%}, at most {max(twice):.1%}")


def score_jobs(jobs: list[MeasuredJob]) -> JobScore:
    """Each job from the nearest other one with its micro-batch."""
    found = [compare(nearest(asked, jobs), asked) for asked in jobs]
    return JobScore(
        [abs(error) for _, error, _ in found],
        list(doubled(jobs)),
        [step.high / step.low for step, _, holds in found if holds],
    )


def read_jobs(path: Path) -> list[MeasuredJob]:
    """The jobs of a table."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [
        MeasuredJob(
            int(row["nodes"]),
            JobLayout(
                Layout({name: int(row.get(name) or 1) for name in DIMENSIONS}),
                int(row["micro_batch"]),
                int(row["global_batch"]),
            ),
            float(row["seconds"]),
        )
        for row in csv.DictReader(lines)
    ]


def are_comparable(one: MeasuredJob, other: MeasuredJob) -> bool:
    """Whether the micro-batch is the same."""
    return one.layout.micro_batch == other.layout.micro_batch


def nearest(asked: MeasuredJob, jobs: list[MeasuredJob]) -> MeasuredJob:
    """The nearest other job with the same micro-batch."""
    others = [job for job in jobs if job is not asked and are_comparable(job, asked)]
    return min(others, key=lambda job: job.layout.distance(asked.layout))


def compare(base: MeasuredJob, asked: MeasuredJob) -> tuple[TimeBounds, float, bool]:
    """The predicted step, its relative error, and whether the bounds hold."""
    step, _ = project_step(CARD, SYSTEM, base.layout, base.step_s, asked.layout)
    holds = step.low <= asked.step_s * 1e9 <= step.high
    return step, (step.expected or 0) / 1e9 / asked.step_s - 1, holds


def doubled(jobs: list[MeasuredJob]) -> Iterator[float]:
    """Error of the step on twice the nodes, stages and batches being the same, from that on half of them."""
    for half, twice in permutations(jobs, 2):
        one, other = half.layout, twice.layout
        same = (one.degrees.degrees["pp"], one.micro_batch, one.global_batch)
        if twice.nodes == 2 * half.nodes and same == (
            other.degrees.degrees["pp"],
            other.micro_batch,
            other.global_batch,
        ):
            yield abs(compare(half, twice)[1])


if __name__ == "__main__":
    main()
