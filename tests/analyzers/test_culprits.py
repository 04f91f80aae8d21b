# SPDX-License-Identifier: Apache-2.0
"""Which calls hold the host, of gaps worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, compute, event, window
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.view.rank_view import RankView
from cclbench.findings.culprits import Culprit, HostCalls

US = 1_000
THREAD, OTHER = 1, 2


def host(kind: str, start: int, end: int, name: str, track: int = THREAD, **columns: Any) -> dict[str, Any]:
    return event(kind, start * US, end * US, name=name, track=track, side="host", **columns)


def steps(*rows: dict[str, Any], count: int = 4) -> RankView:
    """Steps of 300 µs: a kernel in 0 to 100, and one in 200 to 300, whose launch begins at 180."""
    events = list(rows)
    for step in range(count):
        for correlation, begin, start in ((2 * step, -10, 0), (2 * step + 1, 180, 200)):
            at = 300 * step
            call = (at + begin, at + begin + (5 if begin < 0 else 10))
            events += [
                compute((at + start) * US, (at + start + 100) * US, correlation=correlation),
                host("launch", *call, "cudaLaunchKernel", correlation=correlation),
            ]
    return a_rank(events, [window(n * 300 * US, (n + 1) * 300 * US, step=n) for n in range(count)])


def found(rank: RankView, *causes: str) -> Culprit:
    calls = HostCalls(rank).main_culprit(causes)
    assert calls is not None
    return calls


def test_a_wait_is_named_by_operator_and_line_outside_of_libraries() -> None:
    rank = steps(
        host("python", 20, 170, "train.py(88): step"),
        host("python", 25, 160, "/usr/lib/python3.11/site-packages/torch/_tensor.py(9): item"),
        host("python", 26, 155, "nn.Module: Head_0"),
        *(host("op", 30, 150, "aten::item"), host("op", 31, 148, "aten::_local_scalar_dense")),
        host("sync", 40, 110, "cudaStreamSynchronize"),
        host("sync", 250, 260, "cudaEventSynchronize"),
    )
    calls = found(rank, "sync")
    assert calls == Culprit(
        name="cudaStreamSynchronize", kind="sync", rank=rank.rank, operator="aten::_local_scalar_dense",
        module="Head_0", line="train.py:88", count=1, total_s=70e-6, longest_s=70e-6, share=1.0, steps=1,
        of_steps=4,
    )  # fmt: skip
    assert "of 70.0 µs under aten::_local_scalar_dense at train.py:88" in (calls.culprit_sentence() or "")


AROUND = {
    "aten::item": ("op", "operator", "aten::item"),
    "aten::max": ("op", "operator", "aten::max"),
    "nn.Module: Head_0": ("python", "module", "Head_0"),
    "nn.Module: Block_1": ("python", "module", "Block_1"),
    "train.py(88): step": ("python", "line", "train.py:88"),
    "train.py(88): <lambda>": ("python", "line", "train.py:88"),
    "loss.py(9): forward": ("python", "line", "loss.py:9"),
    "/usr/lib/python3.11/site-packages/torch/_tensor.py(9): item": (
        "python",
        "library",
        "/usr/lib/python3.11/site-packages/torch/_tensor.py:9",
    ),
    "<built-in method item>": ("python", "", ""),
    "ProfilerStep#3": ("annotation", "", ""),
}
"""Rows by name: kind, the part of a place that they state, and how it reads."""


@given(st.lists(st.lists(st.sampled_from([*AROUND]), max_size=6), min_size=2, max_size=2))
def test_a_place_is_that_of_the_innermost_rows_around_a_call(stacks: list[list[str]]) -> None:
    rows, lengths = [], (70, 20)
    for step, (around, length) in enumerate(zip(stacks, lengths, strict=True)):
        at = step * 300
        rows += [
            host(AROUND[name][0], at + 10 + depth, at + 175 - depth, name)
            for depth, name in enumerate(around)
        ]
        rows.append(host("sync", at + 100 - length, at + 102, "cudaStreamSynchronize"))
    calls = found(steps(*rows), "sync")
    places = []
    for around in stacks:
        place = dict[str, str]()
        for name in around:
            _, part, text = AROUND[name]
            place[part] = text
        places.append((place.get("operator"), place.get("module"), place.get("line") or place.get("library")))
    assert (calls.operator, calls.module, calls.line) == places[0]
    assert calls.count == places.count(places[0])


@pytest.mark.parametrize(
    ("where", "when"),
    [
        ((0, 1, 2, 3), ", in every step"),
        ((1, 3, 5), ", every 2 steps since step 1"),
        ((2, 3, 5), ", in 3 of 6 steps since step 2"),
        ((0, 4), ", in 2 of 6 steps"),
    ],
)
def test_steps_and_their_period(where: tuple[int, ...], when: str) -> None:
    waits = [host("sync", 300 * n + 40, 300 * n + 110, "cudaDeviceSynchronize") for n in where]
    calls = found(steps(*waits, count=4 if len(where) == 4 else 6), "sync")
    assert calls.culprit_sentence().endswith(f"{len(where)} × cudaDeviceSynchronize of up to 70.0 µs{when}.")


def test_a_call_counts_in_the_step_in_which_it_ends() -> None:
    """One ends as the second step begins, and held the first one up; one began before it."""
    waits = [host("sync", *span, "cudaDeviceSynchronize") for span in ((240, 300), (540, 710))]
    calls = found(steps(*waits), "sync")
    assert (calls.steps, calls.since) == (1, None)
    assert calls.culprit_sentence().endswith("one cudaDeviceSynchronize of 170 µs, in 1 of 4 steps.")


def test_a_row_counts_with_what_no_row_within_it_covers() -> None:
    """Of the gap of 80 µs before the launch `aten::cat` covers 50, of which `aten::copy_` has 40."""
    rank = steps(host("op", 120, 170, "aten::cat"), host("op", 125, 165, "aten::copy_"), count=1)
    calls = found(rank, "operators")
    assert (calls.name, calls.operator, calls.share) == ("aten::copy_", "aten::cat", 0.8)


def test_where_no_place_takes_much_those_of_a_name_are_one() -> None:
    """Ten copies under ten operators take 5 µs each: no place of them, but the call."""
    rows = [
        row
        for n in range(10)
        for row in (
            host("op", 102 + 7 * n, 108 + 7 * n, f"op{n}"),
            host("op", 102 + 7 * n, 107 + 7 * n, "aten::copy_"),
        )
    ]
    calls = found(steps(*rows, count=1), "operators")
    assert (calls.name, calls.operator, calls.line, calls.count) == ("aten::copy_", None, None, 10)
    assert calls.share == pytest.approx(50 / 60)


def test_a_first_call_is_named_among_others_of_its_function() -> None:
    """One launch of ten takes 5 ms and is the first of its kernel; an operator around it is no call."""
    rows, at = [], 0
    for number in range(10):
        length = 5_000 if number == 3 else 5
        rows += [
            host("op", at, at + length, "aten::first" if number == 3 else "aten::usual"),
            host("launch", at, at + length, "cudaLaunchKernel", correlation=number),
            host("op", at, at + length, "aten::of_the_same_time"),
            compute((at + length) * US, (at + length + 10) * US, correlation=number)
            | {"name": "odd" if number == 3 else "usual"},
        ]
        at += length + 100
    calls = HostCalls(a_rank(rows, [window(0, at * US)])).main_culprit(["cold_start"])
    assert (calls.name, calls.kind, calls.operator) == ("cudaLaunchKernel", "launch", "aten::first")
    assert (calls.count, calls.total_s) == (1, 5e-3)


def test_what_a_thread_does_behind_a_wait_counts_where_it_is_asked_for() -> None:
    """It waits until 110, loads until 160, and launches at 180."""
    rank = steps(
        host("sync", 90, 110, "cudaDeviceSynchronize"),
        host("annotation", 115, 160, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        host("op", 162, 178, "aten::cat"),
        count=1,
    )
    assert found(rank, "sync").name == "cudaDeviceSynchronize"
    assert found(rank, "loader").total_s == pytest.approx(45e-6)
    assert found(rank, "operators").name == "aten::cat"


def test_rows_of_a_thread_that_launches_nothing_hold_nothing() -> None:
    rank = steps(host("python", 100, 180, "queue.py(1): get", OTHER), count=1)
    assert HostCalls(rank).main_culprit(["python"]) is None
    assert HostCalls(rank).main_culprit(["unrecorded"]) is None
    rank = steps(host("op", 130, 160, "aten::cat"), host("op", 101, 179, "aten::pin", OTHER), count=1)
    assert found(rank, "operators").name == "aten::cat"


def test_names_are_quoted_in_sql() -> None:
    rank = steps(host("op", 100, 180, "it's"), count=1)
    assert "name = 'it''s'" in found(rank, "operators").calls_query()
