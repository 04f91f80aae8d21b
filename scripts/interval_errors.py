# SPDX-License-Identifier: Apache-2.0
"""Print error rates of `cclbench compare` for simulated pairs of jobs, in Markdown.

    python scripts/interval_errors.py [PAIRS] [--processes N]

Captures of two jobs are drawn.  Their mean steps vary from capture to capture by the run effect (normal, of
the logarithm), and steps within a capture by noise.  False positives are equal jobs that are reported as
different; the others are the coverage, since an interval contains 1 for equal jobs if and only if it contains
1.1 for jobs with that ratio.  Power is the share of pairs with one job 10 % slower that are reported as
different.  A cell is a number of captures, a run effect, a kind of noise and a number of steps; a row has the
median and the worst cell of all kinds and steps.  docs/compare.md shows the output.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.comparison.interval import compare_captures

Floats = npt.NDArray[np.float64]

PAIRS: Final = 2_000
SLOWER: Final = 1.1
EFFECTS: Final = (0.0, 0.01, 0.03)
NOISES: Final = ("independent", "AR 0.5", "AR 0.8", "heavy tails", "two modes", "5 % outliers")
STEPS: Final = ((3, 3), (10, 10), (30, 30), (100, 100), (10, 100), (100, 10))
CAPTURES: Final = (
    (1, 1, 0),
    (1, 1, 3),
    (1, 1, 5),
    (1, 2, 0),
    (1, 5, 0),
    (2, 2, 0),
    (2, 5, 0),
    (3, 3, 0),
    (5, 5, 0),
)
"""Captures of each job, and of another job in the store."""
SINGLE: Final = ((3, 3, 0), (5, 5, 0))
"""Captures of which each may be of one step."""
CV: Final = 0.05
HEADS: Final = ("run effect", "false positives: median", "worst cell", "coverage", "10 % slower told", "±")


@dataclass(frozen=True)
class Cell:
    """One cell and its results."""

    captures: tuple[int, int, int]
    effect: float
    noise: str
    steps: tuple[int, int]
    false_positives: float = 0.0
    power: float = 0.0
    reach: float = 0.0
    """Half the width of the median interval."""


def draw_steps(random: np.random.Generator, noise: str, steps: int) -> Floats:
    """Times of the consecutive steps of a capture around a mean, shape (steps,)."""
    drawn = random.standard_normal(steps)
    if noise.startswith("AR"):
        rho = float(noise.split()[1])
        drawn[1:] *= (1 - rho**2) ** 0.5
        for step in range(1, steps):
            drawn[step] += rho * drawn[step - 1]
    elif noise == "heavy tails":
        drawn = np.clip(random.standard_t(3, steps), -20, 40)
    elif noise == "two modes":
        return np.asarray((1 + 0.2 * (random.random(steps) < 0.3)) * np.exp(0.02 * drawn))
    elif noise == "5 % outliers":
        long = random.random(steps) < CV
        return np.asarray(np.exp(0.03 * drawn) * (1 + long * random.uniform(0, 1.5, steps)))
    return np.asarray(np.exp(CV * drawn))


def draw_job(random: np.random.Generator, cell: Cell, captures: int, steps: int) -> list[Floats]:
    """Captures of a job."""
    return [
        draw_steps(random, cell.noise, steps) * np.exp(cell.effect * random.standard_normal())
        for _ in range(captures)
    ]


def judge_cell(cell: Cell, pairs: int) -> Cell:
    """The cell with its shares of pairs."""
    random = np.random.default_rng(
        [*cell.captures, int(1000 * cell.effect), NOISES.index(cell.noise), *cell.steps]
    )
    wrong, detected, reaches = 0, 0, []
    for _ in range(pairs):
        base, other = (
            draw_job(random, cell, *counts) for counts in zip(cell.captures[:2], cell.steps, strict=True)
        )
        repeats = [draw_job(random, cell, cell.captures[2], 30)] if cell.captures[2] else []
        found = compare_captures(base, other, repeats)
        if found.low is None or found.high is None:
            continue
        wrong += not found.low <= 1 <= found.high
        detected += not found.low * SLOWER <= 1 <= found.high * SLOWER
        reaches.append(found.high / found.ratio - 1)
    return Cell(
        cell.captures,
        cell.effect,
        cell.noise,
        cell.steps,
        wrong / pairs,
        detected / pairs,
        median(reaches or [0]),
    )


def rows(cells: list[Cell]) -> Iterator[str]:
    """A row for each number of captures and run effect."""
    for captures, effect in dict.fromkeys((cell.captures, cell.effect) for cell in cells):
        same = [cell for cell in cells if (cell.captures, cell.effect) == (captures, effect)]
        worst = max(same, key=lambda cell: cell.false_positives)
        before, after, stored = captures
        label = f"{before} and {after}" + (f", {stored} of another in the store" if stored else "")
        usual = [cell for cell in same if min(cell.steps) >= 10 or max(cell.steps) == 1]
        wrong = median(cell.false_positives for cell in same)
        yield (
            f"| {label} | {100 * effect:g} % | {100 * wrong:.1f} % | {100 * worst.false_positives:.1f} %"
            f" ({worst.noise}, {worst.steps[0]} and {worst.steps[1]} steps) | {100 - 100 * wrong:.1f} % |"
            f" {100 * median(cell.power for cell in usual):.0f} % |"
            f" {100 * median(cell.reach for cell in usual):.1f} % |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=int, nargs="?", default=PAIRS, help="pairs of jobs in each cell")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    tables = {
        "captures": [Cell(*key) for key in product(CAPTURES, EFFECTS, NOISES, STEPS)],
        "captures of one step": [Cell(*key) for key in product(SINGLE, EFFECTS, NOISES, [(1, 1)])],
    }
    with ProcessPoolExecutor(asked.processes) as processes:
        for name, cells in tables.items():
            found = list(processes.map(partial(judge_cell, pairs=asked.pairs), cells, chunksize=4))
            print(
                f"| {name} | {' | '.join(HEADS)} |",
                "| --- | ---: | ---: | --- | ---: | ---: | ---: |",
                sep="\n",
            )
            print(*rows(found), "", sep="\n", flush=True)


if __name__ == "__main__":
    main()
