# SPDX-License-Identifier: Apache-2.0
"""What metrics see of a rank, and how its time is divided."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, card, collective, comm, compute, event, launch, window
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.metric import NotApplicable, Unknown
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground.intervals import Intervals

STEPS = [window(10 * n, 10 * n + 10, n) for n in range(4)]
NO_HOST = "the trace has only host events, none of the accelerator"


def pieces(found: Intervals) -> list[tuple[int, int]]:
    return list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, (0, 1, 2, 3)), ((None, None), (0, 1, 2, 3)), ((1, None), (1, 2, 3)), ((None, 1), (0,)),
        ((0, 3), (0, 1, 2)), ((3, 9), (3,)),
    ],
)  # fmt: skip
def test_steps_exclude_the_last(
    chosen: tuple[int | None, int | None] | None, expected: tuple[int, ...]
) -> None:
    windows = a_rank([], STEPS, steps=chosen).windows
    assert windows.steps == expected
    assert (windows.starts.tolist(), windows.ends.tolist()) == (
        [10 * n for n in expected],
        [10 * n + 10 for n in expected],
    )
    assert (len(windows), windows.total, windows.open) == (len(expected), 10 * len(expected), False)


def test_an_empty_range_lists_twenty_steps_at_most() -> None:
    many = [window(10 * n, 10 * n + 10, n, still_open=n == 24) for n in range(25)]
    listed = ", ".join(str(n) for n in range(20))
    with pytest.raises(NotApplicable) as why:
        a_rank([], many, steps=(30, None)).windows  # noqa: B018
    assert str(why.value) == f"--steps selects none of this rank's steps: {listed}"
    with pytest.raises(NotApplicable, match="the trace marks no steps to select with --steps"):
        a_rank([], [window(0, 9, source="whole_trace")], steps=(0, None)).windows  # noqa: B018


def test_an_open_window_is_beside_the_others_and_counts_where_no_other_does() -> None:
    steps = [*STEPS, window(40, 45, 4, still_open=True)]
    rank, last = a_rank([], steps), a_rank([], steps, steps=(4, None))
    assert (rank.windows.steps, rank.windows.open) == ((0, 1, 2, 3), False)
    aside = rank.open_windows
    assert (aside.steps, aside.open, aside.policy) == ((4,), True, "steps")
    assert (last.windows.steps, last.windows.open, last.windows.total) == ((4,), True, 5)
    assert (last.open_windows.steps, last.open_windows.open) == ((), False)


def test_annotated_steps_are_those_of_the_host_that_have_an_end() -> None:
    marks = [window(0, 50, 1, "annotation"), window(50, 99, 2, "annotation")]
    rank = a_rank([], [window(20, 60, 1), *marks])
    assert (rank.windows.steps, rank.annotated.steps) == ((1,), (1, 2))
    alone = window(0, 50, 1, "annotation", still_open=True)
    for only in (alone, window(0, 9, source="whole_trace")):
        with pytest.raises(NotApplicable, match="the trace marks no complete steps"):
            a_rank([], [only]).annotated  # noqa: B018


GRAPHS = "7 CUDA graphs were traced as a whole: their kernels are unknown (nsys: --cuda-graph-trace=node)"


@pytest.mark.parametrize(
    ("facts", "words"),
    [({"whole_graphs": 7}, GRAPHS), ({"works_on": None}, NO_HOST), ({}, "the trace has no work")],
)
def test_a_rank_without_windows_says_why(facts: dict[str, Any], words: str) -> None:
    rank = a_rank([], **facts)
    assert rank.no_work == words
    with pytest.raises(Unknown) as why:
        rank.windows  # noqa: B018
    assert str(why.value) == words


def test_busy_time_of_an_accelerator() -> None:
    rows = [
        *(compute(0, 10), comm(5, 20), compute(8, 12, category="other"), event("copy", 11, 13, track=3)),
        *(compute(30, 40), event("memset", 38, 45, track=4), comm(19, 25), event("sync", 0, 99)),
    ]
    rank = a_rank(rows, [window(0, 100)])
    assert pieces(rank.compute) == [(0, 12), (30, 40)]
    assert pieces(rank.communication) == [(5, 25)]
    assert pieces(rank.copies) == [(11, 13), (38, 45)]


def test_busy_time_of_a_cpu() -> None:
    """On gloo's thread 3 nothing computes, and on thread 1 nothing while that calls or transfers itself."""
    spans = [
        *(
            (0, 30, 1, "mm"),
            (40, 50, 1, "add"),
            (5, 12, 2, "relu"),
            (70, 80, 3, "add_"),
            (92, 93, 3, "copy_"),
        ),
        (93, 98, 1, "mul"),
    ]
    rows = [event("op", start, end, track=track, name=f"aten::{name}") for start, end, track, name in spans]
    talk = [(10, 15, 1, "c10d::send", None), (60, 90, 3, "gloo:all_reduce", 0)]
    talk += [(45, 48, 1, "gloo:send", 1), (95, 97, 1, "gloo:recv", 2)]
    rows += [
        event("op", start, end, track=track, name=name, category="communication", collective=number)
        for start, end, track, name, number in talk
    ]
    rows.append(event("op", 91, 99, track=1, name="MulBackward0"))
    rank = a_rank(rows, [window(0, 100)], works_on="host")
    assert pieces(rank.compute) == [(0, 12), (15, 30), (40, 45), (48, 50), (93, 95), (97, 98)]
    assert pieces(rank.communication) == [(45, 48), (60, 90), (95, 97)]
    assert pieces(rank.copies) == []


def test_the_parts_of_a_window_by_hand() -> None:
    """Compute 0-40, communication 30-60, a copy 55-80; the second window is open."""
    rows = [compute(0, 40), comm(30, 60), event("copy", 55, 80, track=3), compute(100, 103)]
    rank = a_rank(rows, [window(0, 100, 1), window(100, 110, 2, still_open=True)])
    names = ("window", "compute_only", "overlapped", "exposed_comm", "exposed_copy", "idle")
    assert [getattr(rank.parts, name).tolist() for name in names] == [[100], [30], [10], [20], [20], [20]]
    assert [getattr(rank.open_parts, name).tolist() for name in names] == [[10], [3], [0], [0], [0], [7]]
    assert rank.inside(rank.communication).tolist() == [30]


def test_the_window_of_an_instant() -> None:
    rank = a_rank([], [window(0, 10, 1), window(10, 20, 2), window(30, 40, 3)])
    at = np.array([-1, 0, 9, 10, 19, 20, 29, 30, 39, 40])
    assert rank.window_of(at).tolist() == [-1, 0, 0, 1, 1, -1, -1, 2, 2, -1]


def test_rows_that_begin_in_a_window() -> None:
    rows = [compute(5, 50), compute(10, 11), compute(20, 21), compute(25, 26), compute(39, 99)]
    found = list(a_rank(rows, [window(10, 20, 1), window(30, 40, 2)]).begun(("kernel",), "name"))
    began = [batch["start_ns"].to_pylist() for batch, _ in found]
    assert (began, [at.tolist() for _, at in found]) == ([[10], [39]], [[0], [1]])
    assert [batch.schema.names for batch, _ in found] == [["start_ns", "dur_ns", "name"]] * 2
    rank = a_rank([], [window(10, 20)], [collective("send", at, 99) for at in (9, 10, 19, 20)])
    assert rank.collectives["start_ns"].to_pylist() == [10, 19]
    assert len(rank.all_collectives) == 4


def test_without_kernels_or_an_accelerator_there_is_a_reason() -> None:
    outside = a_rank([compute(50, 60)], [window(0, 10)])
    with pytest.raises(NotApplicable, match="the rank runs no kernels in the window"):
        list(outside.kernels())
    cpu = a_rank([event("op", 0, 5)], [window(0, 10)], works_on="host")
    with pytest.raises(NotApplicable, match="the CPU is the device: it runs operators, not kernels") as why:
        list(cpu.kernels())
    assert not isinstance(why.value, Unknown)
    with pytest.raises(NotApplicable, match="the CPU is the device: it has no launches"):
        cpu.launched  # noqa: B018
    with pytest.raises(NotApplicable, match="it has no launches, which idle time is attributed by"):
        cpu.idle  # noqa: B018
    assert cpu.blurred is None


def test_the_machine_is_the_runs_or_what_card_and_trace_tell() -> None:
    rank = a_rank(card=card(), device_name="NVIDIA H100 80GB HBM3")
    assert rank.machine.hardware.accelerator == "nvidia-a100-sxm-80gb"
    assert rank.machine.device_names == ("NVIDIA H100 80GB HBM3",)
    other = RankView(rank.tables, rank=3, machine=a_rank().machine)
    assert other.machine.hardware.accelerator is None
    assert (other.rank, other.card) == (3, None)


@pytest.mark.parametrize("what", ["busy", "works", "collectives", "launched", "idle"])
def test_a_trace_without_the_accelerators_rows_tells_of_no_work(what: str) -> None:
    rank = a_rank([event("op", 0, 5)], [window(0, 10)], [collective("send", 0, 5)], works_on=None)
    with pytest.raises(Unknown) as why:
        getattr(rank, what)
    assert str(why.value) == NO_HOST


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
