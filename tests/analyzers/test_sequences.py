# SPDX-License-Identifier: Apache-2.0
"""Kernel sequences: hand-made streams, and all streams of random kernels against a plain loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from helpers.hand_made import a_rank, comm, event, window
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.sequences import SUMS, merge_sequences, rank_sequences

Found = dict[tuple[str, ...], tuple[int, int, int]]


def kernel(name: str, start: int, end: int, **columns: Any) -> dict[str, Any]:
    """A kernel that computes."""
    return event("kernel", start, end, **{"name": name, "category": "elementwise", **columns})


def found(table: Any, length: int) -> Found:
    """By names: count, time and gaps in ns."""
    rows = table.to_pylist()
    return {tuple(row[str(n)] for n in range(length)): tuple(row[name] for name in SUMS) for row in rows}


def sequences(rank: RankView, length: int) -> Found:
    return found(rank_sequences(rank, length).table, length)


# a 10 ns, gap 5, b 5 ns, gap 10, a 10 ns, gap 0, b 20 ns; a and b without their template arguments.
TURNS = [
    *(kernel("void a<float>(int)", 0, 10), kernel("b", 15, 20)),
    *(kernel("void a<half>(int)", 30, 40), kernel("b", 40, 60)),
]
# Four kernels of 1, 2, 3 and 4 ns with gaps of 9, 8 and 7: three pairs, two triples.
ALIKE = [kernel("a", 10 * n, 11 * n + 1) for n in range(4)]
A, B = kernel("a", 0, 10), kernel("b", 20, 30)


@pytest.mark.parametrize(
    ("rows", "length", "expected"),
    [
        (TURNS, 2, {("a", "b"): (2, 45, 5), ("b", "a"): (1, 15, 10)}),
        *((TURNS, 4, {("a", "b", "a", "b"): (1, 45, 15)}), (TURNS, 5, {})),
        # Kernels and gaps of overlapping occurrences count once.
        *((ALIKE, 2, {("a", "a"): (3, 10, 24)}), (ALIKE, 3, {("a", "a", "a"): (2, 10, 24)})),
        # A copy or memset ends a run; a communication kernel is one of it, and no sequence alone.
        *(([A, event(kind, 12, 13), B], 2, {}) for kind in ("copy", "memset")),
        ([A, comm(12, 13, track=7), B], 2, {("a", "nccl"): (1, 11, 2), ("nccl", "b"): (1, 11, 7)}),
        ([comm(0, 10), comm(20, 30), kernel("a", 40, 50, track=20)], 2, {("nccl", "a"): (1, 20, 10)}),
        # Kernels of a graph may overlap on the stream that stands for it: until 100 there is no gap.
        (
            [kernel("a", 0, 100), kernel("b", 10, 20), kernel("c", 104, 110)],
            *(2, {("a", "b"): (1, 110, 0), ("b", "c"): (1, 16, 4)}),
        ),
    ],
)
def test_sequences_of_a_stream(rows: list[dict[str, Any]], length: int, expected: Found) -> None:
    assert sequences(a_rank(rows, [window(0, 200)]), length) == expected


def test_a_sequence_lies_on_one_stream_in_one_window() -> None:
    """Stream 7 has a, b in the first window and c in the second; stream 9 of either device has a kernel."""
    rows = [A, kernel("x", 5, 15, track=9), B, kernel("y", 32, 38, track=9, device=1)]
    rows += [kernel("c", 50, 60), kernel("d", 110, 120)]
    rank = a_rank(rows, [window(0, 40, 1), window(40, 100, 2)])
    assert sequences(rank, 2) == {("a", "b"): (1, 20, 10)}


def test_ranks_add_up() -> None:
    one = rank_sequences(a_rank(TURNS[:2], [window(0, 100)]), 2)
    assert (one.kernels, one.kernel_ns, one.windows, one.policy) == (2, 15, 1, "steps")
    other = rank_sequences(a_rank([*TURNS[:2], kernel("c", 30, 31)], [window(0, 100)], rank=1), 2)
    both = found(merge_sequences([one.table, other.table]), 2)
    assert both == {("a", "b"): (2, 30, 10), ("b", "c"): (1, 6, 10)}


def test_without_kernels_there_are_none_and_a_reason() -> None:
    with pytest.raises(NotApplicable, match="the rank runs no kernels in the window"):
        rank_sequences(a_rank([event("copy", 0, 10)], [window(0, 100)]), 2)
    with pytest.raises(NotApplicable, match="the CPU is the device"):
        rank_sequences(a_rank([event("op", 0, 10)], [window(0, 100)], works_on="host"), 2)


ROW = st.tuples(
    st.sampled_from("abcM"), st.integers(0, 4), st.integers(0, 5), st.sampled_from((7, 9))
)  # name (M a copy), gap before, duration, stream


def by_a_loop(rows: Sequence[dict[str, Any]], length: int) -> Found:
    """Looks at every place, and holds its kernels and gaps in sets, each once."""
    count: dict[tuple[str, ...], int] = defaultdict(int)
    kernel_ns: dict[tuple[str, ...], dict[tuple[int, int], int]] = defaultdict(dict)
    gap_ns: dict[tuple[str, ...], dict[tuple[int, int], int]] = defaultdict(dict)
    for track in (7, 9):
        own = [row for row in rows if row["track"] == track]
        for first in range(len(own) - length + 1):
            part = own[first : first + length]
            one_window = len({row["start_ns"] // 40 for row in part}) == 1
            if not one_window or any(row["kind"] != "kernel" for row in part):
                continue
            names = tuple(row["name"] for row in part)
            count[names] += 1
            for n, row in enumerate(part, first):
                kernel_ns[names][track, n] = row["end_ns"] - row["start_ns"]
                if n > first:
                    gap_ns[names][track, n] = row["start_ns"] - own[n - 1]["end_ns"]
    return {
        names: (number, sum(kernel_ns[names].values()), sum(gap_ns[names].values()))
        for names, number in count.items()
    }


@given(st.lists(ROW, min_size=1, max_size=30), st.integers(2, 5))
def test_every_sequence_of_any_streams(drawn: list[tuple[str, int, int, int]], length: int) -> None:
    """In windows of 40 ns."""
    at = {7: 0, 9: 0}
    rows = []
    for name, gap, duration, track in drawn:
        start = at[track] + gap
        at[track] = start + max(duration, 1)
        made = kernel(name, start, at[track], track=track)
        rows.append(made | {"kind": "copy"} if name == "M" else made)
    windows = [window(40 * n, 40 * n + 40, n) for n in range(max(at.values()) // 40 + 1)]
    expected = by_a_loop(rows, length)
    if any(row["kind"] == "kernel" for row in rows):
        assert sequences(a_rank(rows, windows), length) == expected
