# SPDX-License-Identifier: Apache-2.0
"""Which points of a grid are looked at, and how near its least one they come."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf, prod
from random import Random

import pytest

from cclbench.replay.sampler import Point, explore_grid

LARGEST = 10_000


def made_up(seed: int) -> tuple[tuple[int, ...], Callable[[Point], float]]:
    """A grid of 501 to 10,000 points, and the sum of a part by axis and half as much by pair of axes."""
    random = Random(seed)  # noqa: S311 - chance that repeats
    shape: tuple[int, ...] = ()
    while not 500 < prod(shape) <= LARGEST:
        shape = tuple(random.randint(2, 10) for _ in range(random.randint(3, 7)))
    own = [[random.random() for _ in range(size)] for size in shape]
    pairs = {
        (a, b): [[random.random() / 2 for _ in range(shape[b])] for _ in range(shape[a])]
        for a in range(len(shape))
        for b in range(a)
    }

    def objective(point: Point) -> float:
        alone = sum(own[axis][value] for axis, value in enumerate(point))
        return 0.5 + alone + sum(part[point[a]][point[b]] for (a, b), part in pairs.items())

    return shape, objective


def test_a_tenth_of_the_points_comes_within_two_percent_of_the_least() -> None:
    near = 0
    for seed in range(50):
        shape, objective = made_up(seed)
        most = prod(shape) // 10
        found = explore_grid(shape, objective, most, seed)
        assert len(found) <= most
        assert all(found[point] == objective(point) for point in found)
        least = min(map(objective, product(*map(range, shape))))
        near += min(found.values()) <= 1.02 * least
    assert near >= 45


def test_a_small_grid_is_looked_at_whole() -> None:
    shape, objective = (2, 3, 4), lambda point: float(sum(point))
    assert [*explore_grid(shape, objective, 24, 0)] == [*product(range(2), range(3), range(4))]
    # a grid of exactly as many points is looked at whole
    asked: list[Point] = []
    explore_grid((2, 3), lambda point: asked.append(point) or 1.0, 6, 3)  # type: ignore[func-returns-value]
    assert asked == [*product(range(2), range(3))]


def test_a_seed_gives_the_same_points() -> None:
    shape, objective = made_up(3)
    assert explore_grid(shape, objective, 60, 5) == explore_grid(shape, objective, 60, 5)
    assert explore_grid(shape, objective, 60, 5) != explore_grid(shape, objective, 60, 6)


@pytest.mark.parametrize("most", [1, 2, 7, 23])
def test_no_more_points_are_looked_at_than_allowed_nor_any_twice(most: int) -> None:
    asked: list[Point] = []
    explore_grid((2, 3, 4), lambda point: asked.append(point) or float(sum(point)), most, 1)  # type: ignore[func-returns-value]
    assert len(asked) == len({*asked}) == most


def test_a_descent_ends_at_the_best_of_each_line() -> None:
    """Of 20 x 20 points along lines of 20: the least of all."""
    found = explore_grid((20, 20), lambda point: abs(point[0] - 13) + abs(point[1] - 4.5), 60, 0)
    assert min(found, key=found.__getitem__)[0] == 13
    assert min(found.values()) == 0.5
    assert len(found) == 60
    # one needle along each axis, which no neighbour tells of
    found = explore_grid((30, 30), lambda point: (point[0] != 17) + (point[1] != 3), 62, 4)
    assert min(found.values()) == 0
    # points without an answer are left behind
    shape = (10, 10, 10)
    found = explore_grid(shape, lambda point: inf if sum(point) < 20 else float(sum(point)), 200, 0)
    assert min(found.values()) == 20
