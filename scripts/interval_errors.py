# SPDX-License-Identifier: Apache-2.0
"""Prints how often `cclbench compare` tells two runs apart where the truth is known, as a Markdown table.

    python scripts/interval_errors.py [PAIRS]

Step times are drawn with AR(1) noise of lag-1 correlation ρ on their logarithms, 5 % of standard deviation.
Equal runs that are called different are errors; runs of which one is 10 % slower should be told apart.
docs/compare.md shows what it prints.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

from cclbench.comparison.interval import difference

Floats = npt.NDArray[np.float64]

STEPS = (3, 5, 10, 30)
CORRELATIONS = (0.0, 0.3, 0.5)
SPREAD = 0.05
SLOWER = 1.1
PAIRS = 5_000


def noise(random: np.random.Generator, steps: int, rho: float, spread: float = SPREAD) -> Floats:
    """Times of consecutive steps around 1, shape (steps,)."""
    drawn = random.standard_normal(steps)
    drawn[1:] *= (1 - rho**2) ** 0.5
    for step in range(1, steps):
        drawn[step] += rho * drawn[step - 1]
    return np.asarray(np.exp(spread * drawn))


def told_apart(steps: int, rho: float, ratio: float, pairs: int) -> float:
    """Share of pairs of runs, the second `ratio` times as slow, whose interval does not hold 1."""
    random = np.random.default_rng([steps, round(100 * rho)])
    count = 0
    for _ in range(pairs):
        found = difference(noise(random, steps, rho), ratio * noise(random, steps, rho))
        count += found.low is not None and found.high is not None and not found.low <= 1 <= found.high
    return count / pairs


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    print("| steps of each | ρ | equal runs called different | 10 % slower told |")
    print("| ---: | ---: | ---: | ---: |")
    for steps in STEPS:
        for rho in CORRELATIONS:
            equal, slower = (told_apart(steps, rho, ratio, pairs) for ratio in (1.0, SLOWER))
            print(f"| {steps} | {rho:g} | {100 * equal:.1f} % | {100 * slower:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
