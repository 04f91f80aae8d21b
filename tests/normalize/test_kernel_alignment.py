# SPDX-License-Identifier: Apache-2.0
"""Alignment of two sequences of kernels, against every path through the table of differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground.intervals import Int64
from cclbench.normalize.kernel_alignment import align_kernels

SEQUENCES = st.lists(st.integers(0, 3), max_size=8)


def codes(values: list[int] | str) -> Int64:
    return np.array([ord(value) if isinstance(value, str) else value for value in values], np.int64)


def least_differences(a: list[int], b: list[int]) -> dict[tuple[int, int], int]:
    """Least differences of all pairs of beginnings, by the textbook's recurrence."""
    table: dict[tuple[int, int], int] = {}
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            ways = [table[i - 1, j] + 1] if i else []
            ways += [table[i, j - 1] + 1] if j else []
            ways += [table[i - 1, j - 1]] if i and j and a[i - 1] == b[j - 1] else []
            table[i, j] = min(ways, default=0)
    return table


@given(SEQUENCES, SEQUENCES)
def test_a_pair_is_certain_if_all_best_alignments_have_it(a: list[int], b: list[int]) -> None:
    n, m = len(a), len(b)
    before, after = least_differences(a, b), least_differences(a[::-1], b[::-1])
    least = before[n, m]
    alignment = align_kernels(codes(a), codes(b))
    assert alignment is not None
    assert len(alignment.a) == (n + m - least) // 2
    assert [a[i] for i in alignment.a] == [b[j] for j in alignment.b]
    assert (np.diff(alignment.a) > 0).all()
    assert (np.diff(alignment.b) > 0).all()
    partners: dict[int, set[int | None]] = {j: set() for j in range(m)}
    for j in range(m):
        for i in range(n + 1):
            if before[i, j] + 1 + after[n - i, m - j - 1] == least:
                partners[j].add(None)
            if i < n and a[i] == b[j] and before[i, j] + after[n - i - 1, m - j - 1] == least:
                partners[j].add(i)
    certain = alignment.certain(np.arange(n))
    assert certain.tolist() == [len(partners[j]) == 1 for j in alignment.b.tolist()]
    assert align_kernels(codes(a), codes(b), least - 1) is None or not least


def test_of_equal_kernels_nobody_knows_which_is_missing() -> None:
    """q, k and v have one kernel: of the three one has no row, and the norm before is as it was."""
    alignment = align_kernels(codes("nqqqs"), codes("nqqs"))
    assert alignment is not None
    assert alignment.certain(np.arange(5)).tolist() == [True, False, False, True]
    assert alignment.certain(np.array([0, 1, 1, 1, 2])).tolist() == [True, True, True, True]


@pytest.mark.parametrize("a", ["equal", "periodic", "random"])
def test_long_sequences_take_bounded_work(a: str) -> None:
    length = 100_000
    kernels = {
        "equal": np.zeros(length, np.int64),
        "periodic": np.arange(length) % 20,
        "random": np.random.default_rng(0).integers(0, 50, length),
    }[a]
    alignment = align_kernels(kernels, np.delete(kernels, np.arange(0, length, length // 200)))
    assert alignment is not None
    assert len(alignment.a) == length - 200
    assert align_kernels(kernels, np.flip(kernels) + 1) is None
