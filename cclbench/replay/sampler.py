# SPDX-License-Identifier: Apache-2.0
"""Which points of a grid are looked at for its least one: all, or by descent along its axes from many starts.

Coordinate descent with restarts: from a random point all values along one axis after the other are looked at,
and the best is gone to, until none along any axis is better; then from another point, which is drawn among
those not looked at.  Values of an axis need no order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import inf, prod
from random import Random
from typing import Final

Point = tuple[int, ...]
"""The index of a value along each axis."""
Objective = Callable[[Point], float]
"""What is to be least; `inf` where there is no answer."""

EXHAUSTIVE: Final = 500
"""Points up to which all are looked at."""
_DRAWS: Final = 100


def explore_grid(shape: Sequence[int], objective: Objective, most: int, seed: int) -> dict[Point, float]:
    """The objective at all points of the grid where it has no more than `most`, else at that many at most.

    In the order in which they were looked at; the same ones for a seed.
    """
    if prod(shape) <= most:
        return {point: objective(point) for point in product(*map(range, shape))}
    return _Descent(shape, objective, most, seed).descend()


class _Descent:
    """The state of a descent: what has been looked at."""

    def __init__(self, shape: Sequence[int], objective: Objective, most: int, seed: int) -> None:
        self.shape, self.objective, self.most = shape, objective, most
        self.random = Random(seed)  # noqa: S311 - chance that repeats
        self.found: dict[Point, float] = {}

    def descend(self) -> dict[Point, float]:
        while len(self.found) < self.most:
            at = self._random_start()
            self._evaluate_point(at)
            axes = list(range(len(self.shape)))
            self.random.shuffle(axes)
            tried = turn = 0
            while tried < len(axes) and len(self.found) < self.most:
                best = self._best_of_line(at, axes[turn % len(axes)])
                tried, at = (1, best) if self.found[best] < self.found[at] else (tried + 1, at)
                turn += 1
        return self.found

    def _random_start(self) -> Point:
        """A point that has not been looked at, as far as chance finds one."""
        for _ in range(_DRAWS):
            point = tuple(self.random.randrange(size) for size in self.shape)
            if point not in self.found:
                return point
        return next(p for p in product(*map(range, self.shape)) if p not in self.found)

    def _best_of_line(self, at: Point, axis: int) -> Point:
        """The best point of a line, of those that may still be looked at."""
        line = [(*at[:axis], value, *at[axis + 1 :]) for value in range(self.shape[axis])]
        for point in line:
            if len(self.found) < self.most:
                self._evaluate_point(point)
        return min(line, key=lambda point: self.found.get(point, inf))

    def _evaluate_point(self, point: Point) -> None:
        if point not in self.found:
            self.found[point] = self.objective(point)
