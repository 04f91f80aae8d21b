# SPDX-License-Identifier: Apache-2.0
"""What held a rank whose device is its CPU while it neither computed nor communicated, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, event, window
from helpers.hand_values import main, reason, values

from cclbench.analyzers.view.rank_view import RankView

US = 1_000
MAIN, GLOO, LOADS = 1, 2, 3
NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def host(kind: str, start: int, end: int, name: str, track: int = MAIN, **columns: Any) -> dict[str, Any]:
    """A row in µs."""
    return event(kind, start * US, end * US, name=name, track=track, side="host", **columns)


def op(start: int, end: int, name: str = "aten::mm", track: int = MAIN) -> dict[str, Any]:
    return host("op", start, end, name, track)


def call(start: int, end: int) -> dict[str, Any]:
    return host("op", start, end, "c10d::allreduce_", category="communication")


def transfer(start: int, end: int) -> dict[str, Any]:
    return host("op", start, end, "gloo:all_reduce", GLOO, category="communication", collective=0)


def a_step(*rows: dict[str, Any], ends: int) -> RankView:
    """One step from 0 on, which the main thread's annotation marks."""
    mark = host("annotation", 0, ends, "ProfilerStep#3")
    return a_rank([mark, *rows], [window(0, ends * US, 3, "annotation")], works_on="host")


def held(rank: RankView) -> dict[str, int]:
    """µs by cause, of those that are not 0; all of them are the rank's idle time."""
    found = [value for value in values(rank, "time.idle_host_by") if value.category]
    idle = main(rank, "time.idle")
    assert main(rank, "time.idle_host_by") == idle
    assert sum(value.value or 0 for value in found) == pytest.approx(idle)
    return {value.category or "": round((value.value or 0) * 1e6) for value in found if value.value}


def test_each_instant_goes_to_what_the_thread_of_the_steps_does_then() -> None:
    node = "autograd::engine::evaluate_function: MmBackward0"
    rank = a_step(
        *(host("annotation", 0, 1_000, NEXT), op(900, 1_000, "aten::randint"), op(1_020, 2_000)),
        *(op(2_000, 2_100, node), op(2_060, 2_100, "aten::mul")),
        *(call(2_100, 2_200), transfer(2_150, 3_000), op(3_400, 4_000, "aten::add_")),
        *(host("python", 4_000, 5_000, "train.py(88): log"), op(5_000, 6_000)),
        ends=10_000,
    )
    expected = {"loader": 900, "launch": 20, "operators": 60, "sync": 50 + 400, "python": 1_000}
    assert held(rank) == expected | {"unrecorded": 4_000}


def test_a_rank_that_waits_for_a_collective_is_not_held_by_its_host() -> None:
    """It goes on 1 ms after the transfer's end at the latest; what is longer is its own."""
    rows = (op(0, 100), call(100, 130), transfer(120, 9_000))
    assert held(a_step(*rows, op(9_900, 10_000), ends=10_000)) == {"sync": 20 + 900}
    assert held(a_step(*rows, op(10_500, 10_600), ends=10_600)) == {"sync": 20 + 1_000, "unrecorded": 500}
    # Without transfers waits cannot be told from the hosts own time.
    rank = a_step(op(0, 100), call(100, 130), op(9_900, 10_000), ends=10_000)
    assert "no transfers" in reason(rank, "time.idle_host_by")


def test_a_loader_on_another_thread_holds_nobody_and_operators_named_like_one_compute() -> None:
    rows = [op(0, 1_000), host("python", 1_000, 2_000, "train.py(9): tokenise"), op(2_000, 3_000)]
    beside = host("annotation", 0, 3_000, NEXT, LOADS)
    assert held(a_step(*rows, beside, ends=3_000)) == {"python": 1_000}
    # Operators named like a loader compute.
    rows = [op(0, 1_000, "mine::data_loading_decode"), op(1_030, 2_000)]
    assert held(a_step(*rows, ends=2_000)) == {"launch": 30}


def test_what_the_first_step_alone_takes_is_a_cold_start() -> None:
    """Between the same two operators: 5 ms once, then 60 µs; as long once more, it is no cold start."""

    def rank(second: int, *more: dict[str, Any]) -> RankView:
        rows, windows, at = [], [], 0
        for step, gap in enumerate([5_000, 60, 60, second, 60, 60]):
            begun, at = at, at + 2_000 + gap
            rows += [
                host("annotation", begun, at, f"ProfilerStep#{step}"),
                op(begun, begun + 1_000, "aten::linear"),
                op(at - 1_000, at, "aten::silu"),
            ]
            windows.append(window(begun * US, at * US, step, "annotation"))
        return a_rank([*rows, *more], windows, works_on="host")

    assert held(rank(60)) == {"cold_start": round(5_000 / 6), "unrecorded": round(5 * 60 / 6)}
    assert held(rank(4_000)) == {"unrecorded": round((5_000 + 4_000 + 4 * 60) / 6)}
    # where other time is as long in a later step, something else holds the core now and then
    stalled = rank(60, op(17_000, 17_010, "aten::add"), op(23_100, 23_110, "aten::add"))
    assert "cold_start" not in held(stalled)


def test_without_annotations_the_thread_that_computes_longest_counts() -> None:
    rows = [op(0, 1_000), host("python", 1_000, 2_000, "a.py(1): f"), op(2_000, 3_000)]
    rows += [op(0, 10, track=LOADS)]
    assert held(a_rank(rows, [window(0, 3_000 * US)], works_on="host")) == {"python": 1_000}
