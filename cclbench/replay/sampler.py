# SPDX-License-Identifier: Apache-2.0
"""Search of a grid for its minimum: all points, or coordinate descent from many starts.

Coordinate descent with restarts: from a random point, all values along one axis after another are evaluated,
moving to the best, until no axis improves; then from another point that is not evaluated yet. Values of an
axis need no order.
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
"""The function to minimise; `inf` where it has no value."""

EXHAUSTIVE: Final = 500
"""Grids of up to this many points are evaluated completely."""
_DRAWS: Final = 100


def explore_grid(shape: Sequence[int], objective: Objective, most: int, seed: int) -> dict[Point, float]:
    """The objective at all points of the grid, or at no more than `most` of them.

    In the order of evaluation, which depends only on the seed.
    """
    if prod(shape) <= most:
        return {point: objective(point) for point in product(*map(range, shape))}
    return _Descent(shape, objective, most, seed).descend()


class _Descent:
    """State of a descent: the evaluated points."""

    def __init__(self, shape: Sequence[int], objective: Objective, most: int, seed: int) -> None:
        self.shape, self.objective, self.most = shape, objective, most
        self.random = Random(seed)  # noqa: S311 - chance that repeats
        self.found: dict[Point, float] = {}

    def descend(self) -> dict[Point, float]:
        while len(self.found) < self.most:
            point = self._random_start()
            self._evaluate_point(point)
            axes = list(range(len(self.shape)))
            self.random.shuffle(axes)
            tried = turn = 0
            while tried < len(axes) and len(self.found) < self.most:
                best = self._best_of_line(point, axes[turn % len(axes)])
                tried, point = (1, best) if self.found[best] < self.found[point] else (tried + 1, point)
                turn += 1
        return self.found

    def _random_start(self) -> Point:
        """A point that is not evaluated yet, at random."""
        for _ in range(_DRAWS):
            point = tuple(self.random.randrange(size) for size in self.shape)
            if point not in self.found:
                return point
        return next(p for p in product(*map(range, self.shape)) if p not in self.found)

    def _best_of_line(self, origin: Point, axis: int) -> Point:
        """The best point of a line, within the budget."""
        line = [(*origin[:axis], value, *origin[axis + 1 :]) for value in range(self.shape[axis])]
        for point in line:
            if len(self.found) < self.most:
                self._evaluate_point(point)
        return min(line, key=lambda point: self.found.get(point, inf))

    def _evaluate_point(self, point: Point) -> None:
        if point not in self.found:
            self.found[point] = self.objective(point)
