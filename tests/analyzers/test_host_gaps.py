# SPDX-License-Identifier: Apache-2.0
"""What held the host while the device waited for it, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import a_rank, compute, event, main, values, window

from cclbench.analyzers.view.host_gaps import HELD, RESTART_NS
from cclbench.analyzers.view.rank_view import RankView

NS = 1e-9
US = 1_000
THREAD, OTHER = 1, 2


def host(kind: str, start: int, end: int, name: str, track: int = THREAD, **columns: Any) -> dict[str, Any]:
    return event(kind, start, end, name=name, track=track, side="host", **columns)


def launched(start: int, end: int, correlation: int) -> dict[str, Any]:
    return host("launch", start, end, "cudaLaunchKernel", correlation=correlation)


def held(rank: RankView) -> dict[str, float]:
    """ns by what held the host, of those that are not 0."""
    found = [value for value in values(rank, "time.idle_host_by") if value.category and value.stat is None]
    assert [value.category for value in found] == list(HELD)
    assert sum(value.value or 0 for value in found) == pytest.approx(main(rank, "time.idle_host"))
    assert main(rank, "time.idle_host_by") == main(rank, "time.idle_host")
    return {value.category or "": round((value.value or 0) / NS) for value in found if value.value}


def before_launch(rank: RankView) -> int:
    (found,) = [value for value in values(rank, "time.idle_host_by") if value.stat == "before_launch"]
    return round((found.value or 0) / NS)


def a_gap(*rows: dict[str, Any], begins: int = 100, launch: int = 180, ends: int = 200) -> RankView:
    """A device that is idle between two kernels, the second one launched late."""
    kernels = [compute(0, begins, correlation=1), compute(ends, ends + 50, correlation=2)]
    calls = [launched(0, 5, 1), launched(launch, launch + 10, 2)]
    return a_rank([*kernels, *calls, *rows], [window(0, ends + 50)])


def test_each_instant_goes_to_what_the_thread_does_then() -> None:
    rows = [
        host("annotation", 90, 120, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
        host("other", 115, 130, "cudaMalloc"),
        host("sync", 128, 140, "cudaDeviceSynchronize"),
        host("op", 135, 160, "aten::mm"),
        host("launch", 158, 165, "cudaMemsetAsync"),
        host("python", 165, 180, "train.py(1): step"),
        host("op", 100, 180, "aten::elsewhere", OTHER),
    ]
    assert held(a_gap(*rows)) == {
        "loading": 20,
        "allocation": 10,
        "synchronization": 10,
        "launch": 7 + 20,
        "operators": 18,
        "elsewhere": 15,
    }


def test_what_held_the_host_is_a_mean_over_steps() -> None:
    """The launch of the second kernel, 180 to 200, and 80 ns before it, of which the first step has 50."""
    kernels = [compute(0, 100, correlation=1), compute(200, 250, correlation=2)]
    calls = [launched(0, 5, 1), launched(180, 190, 2), host("sync", 70, 102, "cudaStreamSynchronize")]
    rank = a_rank([*kernels, *calls], [window(0, 150, 1), window(150, 250, 2)])
    assert held(rank) == {"synchronization": 32 / 2, "elsewhere": 48 / 2, "launch": 20 / 2}
    assert before_launch(rank) == 100 / 2
    steps = {v.step: v.value for v in values(rank, "time.idle_host_by") if v.step}
    assert steps == pytest.approx({1: 50 * NS, 2: 50 * NS})


def test_what_other_threads_do_does_not_count() -> None:
    assert held(a_gap(host("sync", 90, 180, "cudaStreamSynchronize", OTHER))) == {
        "elsewhere": 80,
        "launch": 20,
    }


def test_a_gap_after_a_wait_is_the_waits_up_to_its_length() -> None:
    waited = host("sync", 70, 102, "cudaStreamSynchronize")
    rank = a_gap(waited)
    # The wait took 32 ns: from 100 on as much is its own, the rest is not.
    assert held(rank) == {"synchronization": 32, "elsewhere": 80 - 32, "launch": 20}
    assert before_launch(rank) == 100


def test_a_gap_after_a_wait_is_the_waits_up_to_a_restart() -> None:
    begins, ends = 1000 * US, 2000 * US
    waited = host("sync", 100 * US, begins + 1 * US, "cudaDeviceSynchronize")
    rank = a_gap(waited, begins=begins, launch=ends, ends=ends)
    own = 200 * US + 1 * US
    assert held(rank) == {"synchronization": own, "elsewhere": 1000 * US - own}
    assert before_launch(rank) == 200 * US == RESTART_NS


def test_loading_and_allocation_go_before_a_wait() -> None:
    rows = [
        host("sync", 10, 101, "cudaStreamSynchronize"),
        host("op", 110, 150, "enumerate(DataLoader)#next"),
        host("other", 160, 165, "hipMalloc"),
    ]
    assert held(a_gap(*rows)) == {
        "loading": 40,
        "allocation": 5,
        "synchronization": 80 - 45,
        "launch": 20,
    }


def test_a_copy_from_pageable_memory_is_a_wait() -> None:
    copied = host("launch", 60, 104, "cudaMemcpyAsync")
    assert held(a_gap(copied)) == {"synchronization": 44, "elsewhere": 80 - 44, "launch": 20}


def test_a_gap_whose_launch_came_before_is_all_launch() -> None:
    rows = [
        compute(0, 100, correlation=1),
        compute(0, 150, correlation=2, track=8),
        compute(200, 250, correlation=3, track=9),
        *(launched(0, 5, number) for number in (1, 2)),
        launched(120, 130, 3),
    ]
    assert held(a_rank(rows, [window(0, 250)])) == {"launch": 50}


def test_a_wait_that_lasts_until_the_launch_is_the_whole_gap() -> None:
    rank = a_gap(host("sync", 10, 178, "cudaStreamSynchronize"), host("op", 178, 300, "aten::mm"))
    assert held(rank) == {"synchronization": 80, "launch": 20}


@pytest.mark.parametrize(("ends", "own"), [(99, 0), (100, 0), (101, 33)])
def test_a_wait_that_ended_when_the_gap_begins_has_no_part_in_it(ends: int, own: int) -> None:
    rank = a_gap(host("sync", 68, ends, "cudaStreamSynchronize"))
    assert held(rank).get("synchronization", 0) == own


def test_a_wait_that_begins_with_the_gap_has_its_length() -> None:
    rank = a_gap(host("launch", 100, 103, "cudaMemcpy"), host("op", 90, 180, "aten::copy_"))
    assert held(rank) == {"synchronization": 3, "operators": 77, "launch": 20}


def test_a_copy_within_a_gap_is_a_launch() -> None:
    rank = a_gap(host("launch", 120, 130, "cudaMemcpyAsync"), host("op", 95, 110, "aten::Memcpy"))
    assert held(rank) == {"operators": 10, "launch": 10 + 20, "elsewhere": 60}


def test_a_call_that_begins_after_its_event_leaves_the_gap_to_what_went_before() -> None:
    rank = a_gap(host("op", 150, 300, "aten::mm"), launch=210)
    assert held(rank) == {"operators": 50, "elsewhere": 50}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], 0),
        ([host("sync", 60, 180, "cudaDeviceSynchronize")], 100),
        # It returns after the launch has begun.
        ([host("sync", 60, 181, "cudaDeviceSynchronize")], 0),
        ([host("sync", 60, 90, "cudaDeviceSynchronize", OTHER)], 0),
        # The launch before, 0-5, was the first one after this wait; or is it this one.
        ([host("sync", 1, 4, "cudaDeviceSynchronize")], 0),
        ([host("sync", 2, 5, "cudaDeviceSynchronize")], 100),
        ([host("sync", 60, 90, "cudaDeviceSynchronize"), launched(95, 97, 0)], 0),
        ([host("sync", 60, 90, "cudaDeviceSynchronize"), launched(80, 90, 9)], 100),
        ([host("sync", 10, 20, "cudaStreamSynchronize"), host("launch", 95, 99, "cudaMemcpyAsync")], 100),
    ],
)
def test_a_gap_that_ends_with_the_first_launch_after_a_wait(
    rows: list[dict[str, Any]], expected: int
) -> None:
    """Launches are of thread 1 at 0-5 and 180-190."""
    assert before_launch(a_gap(*rows)) == expected


def test_the_first_launch_of_a_thread_after_its_only_wait() -> None:
    """Of two threads each holds up a gap of its own: 100-200 thread 1, 250-400 the other."""
    rows = [
        compute(0, 100, correlation=5),
        compute(200, 250, correlation=4),
        compute(400, 450, correlation=3),
        launched(0, 5, 5),
        launched(180, 190, 4),
        launched(380, 385, 3) | {"track": OTHER},
        host("op", 90, 140, "aten::mm"),
        host("op", 240, 300, "aten::add"),
        host("sync", 320, 330, "cudaStreamSynchronize", OTHER),
        host("other", 260, 280, "cudaFree", OTHER),
        host("other", 110, 120, "cudaFree", OTHER),
    ]
    rank = a_rank(rows, [window(0, 450)])
    assert held(rank) == {
        "allocation": 20,
        "synchronization": 10,
        "launch": 20 + 20,
        "operators": 40,
        "elsewhere": 40 + (150 - 20 - 20 - 10),
    }
    assert before_launch(rank) == 150


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("cudaMalloc", "other", "allocation"),
        ("cudaFree", "other", "allocation"),
        ("cudaMallocAsync", "other", "allocation"),
        ("cuMemAlloc_v2", "other", "allocation"),
        ("cudaHostAlloc", "other", "allocation"),
        ("cudaHostRegister", "other", "allocation"),
        ("cuMemHostUnregister", "other", "allocation"),
        ("hipHostRegister", "other", "allocation"),
        ("hipFree", "other", "allocation"),
        ("my_cudaMalloc", "other", "elsewhere"),
        ("cudaEventQuery", "other", "elsewhere"),
        ("cudaMalloc", "op", "operators"),
        ("DataLoader", "op", "loading"),
        ("DataLoader", "annotation", "loading"),
        ("DataLoader", "other", "elsewhere"),
        ("forward", "annotation", "elsewhere"),
        ("anything", "sync", "synchronization"),
        ("anything", "launch", "launch"),
    ],
)
def test_what_a_row_of_the_host_is(name: str, kind: str, expected: str) -> None:
    assert held(a_gap(host(kind, 110, 150, name)))[expected] == {"elsewhere": 80, "launch": 60}.get(
        expected, 40
    )
    on_device = held(a_gap(host(kind, 110, 150, name) | {"side": "device"}))
    assert on_device == {"elsewhere": 80, "launch": 20}


def test_a_threads_first_launch_follows_no_wait_where_it_made_none() -> None:
    kernels = [compute(0, 100, correlation=1), compute(200, 250, correlation=2)]
    calls = [launched(0, 5, 1), launched(180, 190, 2) | {"track": OTHER}]
    assert before_launch(a_rank([*kernels, *calls], [window(0, 250)])) == 0
