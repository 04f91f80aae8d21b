# SPDX-License-Identifier: Apache-2.0
"""The partition of a window and the split of its idle part, against a count of single nanoseconds."""

from __future__ import annotations

from itertools import pairwise

from helpers.hand_made import a_rank, comm, compute, event, launch, window
from hypothesis import given
from hypothesis import strategies as st

END = 30

device_rows = st.lists(
    st.builds(
        lambda sort, start, length, track, device, correlation: {
            "kind": "kernel" if sort in ("gemm", "communication") else sort,
            "category": sort if sort in ("gemm", "communication") else "copy",
            "start_ns": start,
            "end_ns": start + length,
            "track": track,
            "device": device,
            "correlation": correlation,
        },
        st.sampled_from(["gemm", "communication", "copy", "memset"]),
        st.integers(0, END),
        st.integers(0, 5),
        st.integers(0, 2),
        st.sampled_from([None, 0]),
        st.sampled_from([None, 1, 2, 3, 4]),
    ),
    max_size=9,
)
launches = st.lists(st.builds(launch, st.integers(0, END), st.integers(1, 3)), max_size=4)
bounds = st.lists(st.integers(-3, END + 8), min_size=2, max_size=5, unique=True).map(sorted)


def _running(rows: list[dict], t: int) -> set[str]:
    return {row["category"] for row in rows if row["start_ns"] <= t < row["end_ns"]}


def _cause(rows: list[dict], calls: list[dict], t: int) -> str:
    """Of an idle instant, from the definition: look at the next device event, its launch, its stream."""
    ahead = [row for row in rows if row["start_ns"] > t and row["end_ns"] > row["start_ns"]]
    if not ahead:
        return "unknown"
    following = min(
        ahead, key=lambda row: (row["start_ns"], row["track"], row["device"] or 0, row["device"] is not None)
    )
    begun = [call["start_ns"] for call in calls if call["correlation"] == following["correlation"]]
    if following["correlation"] is None or not begun:
        return "unknown"
    stream = (following["track"], following["device"])
    earlier = [
        row["end_ns"]
        for row in rows
        if (row["track"], row["device"]) == stream
        and row["start_ns"] <= t
        and row["end_ns"] > row["start_ns"]
    ]
    return "device" if earlier and min(begun) <= max(earlier) else "host"


@given(device_rows, launches, bounds)
def test_parts_equal_a_count_of_nanoseconds(rows: list[dict], calls: list[dict], edges: list[int]) -> None:
    windows = [window(start, end, step) for step, (start, end) in enumerate(pairwise(edges))]
    rank = a_rank([*rows, *calls], windows)
    parts, idle = rank.parts, rank.idle
    split = {"host": idle.host, "device": idle.device, "unknown": idle.unknown}
    for n, w in enumerate(windows):
        expected = dict.fromkeys(["compute_only", "overlapped", "exposed_comm", "exposed_copy", "idle"], 0)
        causes = dict.fromkeys(split, 0)
        for t in range(w["start_ns"], w["end_ns"]):
            on = _running(rows, t)
            if "gemm" in on:
                expected["overlapped" if "communication" in on else "compute_only"] += 1
            elif "communication" in on:
                expected["exposed_comm"] += 1
            elif "copy" in on:
                expected["exposed_copy"] += 1
            else:
                expected["idle"] += 1
                causes[_cause(rows, calls, t)] += 1
        assert {name: int(getattr(parts, name)[n]) for name in expected} == expected
        assert sum(expected.values()) == parts.window[n]
        assert {name: int(rank.inside(gaps)[n]) for name, gaps in split.items()} == causes


def test_the_batch_size_changes_nothing() -> None:
    rows = [compute(0, 4, correlation=1), comm(2, 9), event("copy", 12, 14, track=3), launch(0, 1)]
    found = [a_rank(rows, [window(0, 20)], rows_a_batch=n).parts for n in (1, 2, 100)]
    assert [p.idle.tolist() for p in found] == [[9]] * 3
    assert [p.overlapped.tolist() for p in found] == [[2]] * 3
