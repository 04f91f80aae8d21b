# SPDX-License-Identifier: Apache-2.0
"""The innermost operator around a launch: by hand, and against a search through all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.intervals import Int64
from cclbench.normalize.operators import Ranges

Call = tuple[int, int, int, int]


def ordered(calls: list[Call]) -> tuple[Ranges, Int64]:
    """The calls (id, thread, begin, end) in order, and the id of each."""
    number, track, start, end = np.array(calls, np.int64).reshape(-1, 4).T
    order = Ranges.order(track, start, end, number)
    return Ranges(track[order], start[order], end[order]), number[order]


def innermost(calls: list[Call], launches: list[tuple[int, int]]) -> list[int]:
    """Ids for launches (thread, instant) among calls."""
    ranges, number = ordered(calls)
    thread, at = np.array(launches, np.int64).reshape(-1, 2).T
    found: list[int] = np.append(number, -1)[ranges.innermost(thread, at)].tolist()
    return found


def holding(calls: list[Call], launches: list[tuple[int, int]]) -> list[bool]:
    """Whether any call of its thread holds each launch."""
    thread, at = np.array(launches, np.int64).reshape(-1, 2).T
    found: list[bool] = ordered(calls)[0].holding(thread, at).tolist()
    return found


# Thread 1: linear [0, 100) holds t [5, 10) and addmm [20, 90), and that holds copy_ [20, 40).
CALLS = [(4, 1, 20, 40), (1, 1, 0, 100), (3, 1, 20, 90), (2, 1, 5, 10), (9, 2, 30, 31)]


@pytest.mark.parametrize(
    ("at", "expected"),
    [(-1, -1), (0, 1), (5, 2), (9, 2), (10, 1), (20, 4), (39, 4), (40, 3), (89, 3), (90, 1), (100, -1)],
)
def test_the_innermost_call_at_an_instant(at: int, expected: int) -> None:
    assert innermost(CALLS, [(1, at)]) == [expected]


def test_threads_are_apart() -> None:
    assert innermost(CALLS, [(2, 30), (1, 30), (2, 31), (3, 30), (2, 29)]) == [9, 4, -1, -1, -1]


def test_a_call_without_duration_holds_nothing() -> None:
    calls = [(1, 1, 0, 10), (2, 1, 5, 5), (3, 1, 20, 20)]
    assert innermost(calls, [(1, 5), (1, 6), (1, 20)]) == [1, 1, -1]


def test_without_calls_or_launches() -> None:
    assert innermost([], [(1, 5)]) == [-1]
    assert innermost(CALLS, []) == []


@st.composite
def stacks(draw: st.DrawFn) -> list[Call]:
    """Calls that nest: each begins within the last one that is open, and ends with it at the latest."""
    calls: list[Call] = []

    def fill(begin: int, end: int, depth: int) -> None:
        while begin < end and len(calls) < 20 and draw(st.booleans()):
            start = draw(st.integers(begin, end - 1))
            stop = draw(st.integers(start, end))
            calls.append((len(calls) + 1, 1, start, stop))
            if depth < 4:
                fill(start, stop, depth + 1)
            begin = stop

    fill(0, 40, 0)
    return draw(st.permutations(calls))


@given(calls=stacks())
def test_it_is_the_last_that_began_of_those_that_run(calls: list[Call]) -> None:
    """Of calls with equal begins the later id is the inner one."""
    expected = []
    for at in range(-1, 42):
        running = [(start, number) for number, _, start, end in calls if start <= at < end]
        expected.append(max(running)[1] if running else -1)
    instants = range(-1, 42)
    assert innermost(calls, [(1, at) for at in instants]) == expected
    assert holding(calls, [(1, at) for at in instants]) == [number >= 0 for number in expected]


def test_what_holds_an_instant_is_on_its_thread() -> None:
    assert holding(CALLS, [(1, 95), (2, 30), (2, 95), (3, 30)]) == [True, True, False, False]
    assert holding([], [(1, 5)]) == [False]
