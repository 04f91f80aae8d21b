# SPDX-License-Identifier: Apache-2.0
"""What held the host while the device waited for it, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, compute, event, window
from helpers.hand_values import main, values

from cclbench.analyzers.view.host_gaps import CAUSES
from cclbench.analyzers.view.rank_view import RankView

NS = 1e-9
US, MS = 1_000, 1_000_000
THREAD, OTHER = 1, 2


def host(kind: str, start: int, end: int, name: str, track: int = THREAD, **columns: Any) -> dict[str, Any]:
    return event(kind, start, end, name=name, track=track, side="host", **columns)


def launched(start: int, end: int, correlation: int) -> dict[str, Any]:
    return host("launch", start, end, "cudaLaunchKernel", correlation=correlation)


def held(rank: RankView) -> dict[str, float]:
    """ns by what drained the queue, of those that are not 0."""
    found = [value for value in values(rank, "time.idle_host_by") if value.category and value.stat is None]
    assert [value.category for value in found] == list(CAUSES)
    assert sum(value.value or 0 for value in found) == pytest.approx(main(rank, "time.idle_host"))
    assert main(rank, "time.idle_host_by") == main(rank, "time.idle_host")
    return {value.category or "": round((value.value or 0) / NS) for value in found if value.value}


def after_wait(rank: RankView) -> dict[str, int]:
    """ns that follow a wait in the gaps that it began, by what the host did then."""
    found = [value for value in values(rank, "time.idle_host_by") if (value.stat or "").startswith("then_")]
    assert {value.category for value in found} <= {"sync"}
    return {str(v.stat).removeprefix("then_"): round(v.value / NS) for v in found if v.value}


def a_gap(*rows: dict[str, Any], begins: int = 100, launch: int = 180, ends: int = 200) -> RankView:
    """A device that is idle between two kernels, the second one launched late."""
    kernels = [compute(0, begins, correlation=1), compute(ends, ends + 50, correlation=2)]
    calls = [launched(0, 5, 1), launched(launch, launch + 10, 2)]
    return a_rank([*kernels, *calls, *rows], [window(0, ends + 50)])


def test_each_instant_goes_to_what_the_thread_does_then() -> None:
    rows = [
        host("annotation", 101, 120, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
        host("other", 115, 130, "cudaMalloc"),
        host("sync", 128, 140, "cudaDeviceSynchronize"),
        host("op", 135, 160, "aten::mm"),
        host("launch", 158, 165, "cudaMemsetAsync"),
        host("python", 165, 178, "train.py(1): step"),
        host("op", 100, 180, "aten::elsewhere", OTHER),
    ]
    assert held(a_gap(*rows)) == {
        "loader": 14, "allocation": 15, "sync": 10, "launch": 7 + 20, "operators": 18, "python": 13,
        "unrecorded": 1 + 2,
    }  # fmt: skip


def test_operators_that_work_on_the_host_launch_nothing_or_take_1_ms_a_launch() -> None:
    """The gap is 1,000 to 2,000 us; 150 us of it is a norm on the host, which begins before the gap. An
    attention that builds a plan before its one launch works on the host, the mm of 690 us does not."""
    rows = [
        host("op", 900 * US, 1_150 * US, "aten::linalg_vector_norm"),
        host("op", 1_200 * US, 1_299 * US, "aten::view"),
        host("op", 1_300 * US, 1_990 * US, "aten::mm"),  # it launches the next kernel
        host("op", 1_400 * US, 1_900 * US, "aten::randn", OTHER),
    ]
    rank = a_gap(*rows, begins=1_000 * US, launch=1_950 * US, ends=2_000 * US)
    found = {v.stat: v.value for v in values(rank, "time.idle_host_by") if v.category == "operators"}
    assert found == pytest.approx({None: (150 + 99 + 650) * US * NS, "on_host": 150 * US * NS})
    assert not any(v.stat for v in values(a_gap(*rows[1:]), "time.idle_host_by") if v.category)
    for begin, on_host_us in ((1_000, None), (999, 950)):
        attention = host("op", begin * US, 1_999 * US, "aten::_cudnn_attention_forward")
        rank = a_gap(attention, begins=1_000 * US, launch=1_950 * US, ends=2_000 * US)
        found = {v.stat: v.value for v in values(rank, "time.idle_host_by") if v.category == "operators"}
        assert found.get("on_host") == (on_host_us and pytest.approx(on_host_us * US * NS))


def test_what_drained_the_queue_is_a_mean_over_steps() -> None:
    """A gap of 100 to 200 that a wait began, of which the first step has 50."""
    kernels = [compute(0, 100, correlation=1), compute(200, 250, correlation=2)]
    calls = [launched(0, 5, 1), launched(180, 190, 2), host("sync", 70, 102, "cudaStreamSynchronize")]
    rank = a_rank([*kernels, *calls], [window(0, 150, 1), window(150, 250, 2)])
    assert held(rank) == {"sync": 100 / 2}
    assert after_wait(rank) == {"launch": 20 / 2, "unrecorded": 78 / 2}
    steps = {v.step: v.value for v in values(rank, "time.idle_host_by") if v.step}
    assert steps == pytest.approx({1: 50 * NS, 2: 50 * NS})


def in_turns(*rows: dict[str, Any], begins: int = 100) -> RankView:
    """The main thread launches a kernel that ends at 100, the other the next one, which begins at 400."""
    forward, backward = compute(0, begins, correlation=1), compute(400, 450, correlation=2)
    calls = [launched(0, 5, 1), launched(380, 390, 2) | {"track": OTHER}]
    return a_rank([forward, backward, *calls, *rows], [window(0, 450)])


def test_what_other_threads_do_does_not_count_nor_a_thread_that_is_active_at_the_same_time() -> None:
    expected = {"unrecorded": 80, "launch": 20}
    assert held(a_gap(host("sync", 90, 180, "cudaStreamSynchronize", OTHER))) == expected
    # As where a thread of its own copies checkpoints, and waits for them, while others launch.
    rows = [host("sync", 70, 300, "cudaStreamSynchronize"), host("op", 60, 395, "aten::mm", OTHER)]
    assert held(in_turns(*rows)) == {"operators": 280, "launch": 20}


def test_a_thread_that_takes_turns_is_held_by_what_the_other_does() -> None:
    """The main thread reads the loss, works until 300, and the backward pass runs on another thread."""
    rows = [host("sync", 70, 102, "cudaStreamSynchronize"), host("op", 110, 300, "aten::mul")]
    rows += [host("op", 350, 395, "aten::mm", OTHER)]
    rank = in_turns(*rows)
    assert held(rank) == {"sync": 300}
    assert after_wait(rank) == {"operators": 190 + 30, "launch": 20, "unrecorded": 8 + 50}
    # Calls of Python count while their thread was active last: backward() encloses what it waits for.
    rows = [host("op", 90, 150, "aten::mul"), host("python", 150, 600, "train.py(9): step")]
    rows += [host("op", 350, 360, "aten::mm", OTHER)]
    assert held(in_turns(*rows)) == {"operators": 50 + 10, "python": 200, "unrecorded": 20, "launch": 20}


def test_a_gap_that_a_wait_began_is_the_wait_s_whatever_the_host_did_then() -> None:
    """1 ms after the last wait of the device the host loads, allocates and computes."""
    rows = [host("sync", 70, 102, "cudaStreamSynchronize")]
    rows += [host("op", 110, 150, "enumerate(DataLoader)#next"), host("other", 160, 165, "hipMalloc")]
    rows += [host("op", 165, 300 * US, "aten::mm")]
    rank = a_gap(*rows, launch=1 * MS, ends=1 * MS + 20)
    assert held(rank) == {"sync": 1 * MS + 20 - 100}
    rest = 1 * MS - 102 - 40 - 5 - (300 * US - 165)
    assert after_wait(rank) == {
        "loader": 40, "allocation": 5, "operators": 300 * US - 165, "launch": 20, "unrecorded": rest,
    }  # fmt: skip


def copy(start: int, end: int, correlation: int, name: str, direction: str) -> dict[str, Any]:
    own = {"name": name, "copy_direction": direction, "correlation": correlation}
    return event("copy", start, end, **own)


@pytest.mark.parametrize(
    ("call", "name", "direction", "waits"),
    [
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", "d2h", True),
        ("hipMemcpyWithStream", "CopyDeviceToHost", "d2h", True),
        ("cudaMemcpy", "Memcpy DtoH (Device -> Pinned)", "d2h", True),
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", "d2h", False),
        ("cudaMemcpyAsync", "Memcpy DtoD (Device -> Device)", "d2d", False),
        ("cudaMemcpy", "Memcpy DtoD (Device -> Device)", "d2d", False),
    ],
)
def test_a_copy_is_a_wait_where_it_blocks(call: str, name: str, direction: str, waits: bool) -> None:
    """The device ends a kernel and the copy at 100; the copy's call returns at 102."""
    rows = [copy(95, 100, 3, name, direction), host("launch", 60, 102, call, correlation=3)]
    found = held(a_gap(*rows))
    assert found == ({"sync": 100} if waits else {"launch": 2 + 20, "unrecorded": 78})


def test_a_wait_for_what_was_launched_before_the_capture_is_no_sync() -> None:
    """The host waits from before its first launch on; nothing of the capture runs meanwhile."""
    rows = [host("sync", 0, 900, "cudaStreamSynchronize"), compute(50, 60, correlation=8, track=9)]
    rows += [launched(45, 46, 8) | {"track": OTHER}, compute(1000, 1050, correlation=1)]
    rows += [launched(950, 955, 1)]
    assert held(a_rank(rows, [window(50, 1050)])) == {"capture": 940}
    # Its call returns at 115; 1 ms later at most a row begins for its launch's sake.
    rows = [compute(0, 100, correlation=1), launched(0, 5, 1)]
    rows += [compute(8 * MS, 9 * MS, correlation=2, track=9), launched(110, 115, 2)]
    expected = {"capture": 8 * MS - 115 - 1 * MS, "unrecorded": 10, "launch": 5 + 1 * MS}
    assert held(a_rank(rows, [window(0, 9 * MS)])) == expected
    same = [*rows[:2], rows[2] | {"track": 7}, rows[3]]
    wanted = {"unrecorded": 10 + 8 * MS - 115 - 1 * MS, "launch": 5 + 1 * MS}
    assert held(a_rank(same, [window(0, 9 * MS)])) == wanted


def test_a_first_call_that_loads_code_is_a_cold_start_until_it_returns() -> None:
    """One launch of ten takes 5 ms, the first of its kernel; later ones of this do not."""
    rows, at = [compute(0, 10, correlation=0), launched(0, 5, 0)], 100
    for number in range(1, 10):
        length = 5 * MS if number == 3 else 5
        name = "odd" if number in (3, 6) else "usual"
        rows += [launched(at, at + length, number)]
        rows += [compute(at + length, at + length + 10, correlation=number) | {"name": name}]
        at += length + 100
    found = held(a_rank(rows, [window(0, at)]))
    assert found["cold_start"] == 5 * MS
    again = [row | {"name": "odd"} if row["kind"] == "kernel" else row for row in rows]
    assert "cold_start" not in held(a_rank(again, [window(0, at)]))
    # The call of the last kernel begins while the one before runs, and returns 5 ms later.
    rows, at = [], 0
    for number in range(8):
        rows += [launched(at, at + 5, number), compute(at + 10, at + 60, correlation=number)]
        at += 100
    rows += [
        launched(at - 60, at + 5 * MS, 9),
        compute(at + 5 * MS + 20, at + 5 * MS + 50, correlation=9) | {"name": "odd"},
    ]
    rank = a_rank(rows, [window(at - 90, at + 5 * MS + 50)])
    assert held(rank) == {"cold_start": 5 * MS + 40, "launch": 20}
    assert main(rank, "time.idle_device") == 0


@pytest.mark.parametrize(("ends", "waits"), [(99, True), (100 - 1_001, False), (101, True)])
def test_a_wait_returns_when_the_device_has_run_dry_as_far_as_clocks_agree(ends: int, waits: bool) -> None:
    rank = a_gap(host("sync", -2_000, ends, "cudaStreamSynchronize"), launched(-3_000, -2_990, 7),
                 compute(-2_995, -2_000, correlation=7))  # fmt: skip
    assert ("sync" in held(rank)) == waits


def test_a_copy_within_a_gap_and_a_launch_before_it_are_launch() -> None:
    rank = a_gap(host("launch", 120, 130, "cudaMemcpyAsync"), host("op", 95, 110, "aten::Memcpy"))
    assert held(rank) == {"operators": 10, "launch": 10 + 20, "unrecorded": 60}
    # A gap whose launch came before is all launch.
    rows = [compute(0, 100, correlation=1), compute(0, 150, correlation=2, track=8)]
    rows += [compute(200, 250, correlation=3, track=9), *(launched(0, 5, number) for number in (1, 2))]
    rows += [launched(120, 130, 3)]
    assert held(a_rank(rows, [window(0, 250)])) == {"launch": 50}
    # A call that begins after its event leaves the gap to what went before.
    rank = a_gap(host("op", 150, 300, "aten::mm"), launch=210)
    assert held(rank) == {"operators": 50, "unrecorded": 50}


def test_each_thread_holds_up_gaps_of_its_own() -> None:
    """Of two threads each holds up a gap: 100-200 thread 1, 250-400 the other."""
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
    expected = {"allocation": 20, "sync": 10, "launch": 20 + 20, "operators": 40}
    expected |= {"unrecorded": 40 + (150 - 20 - 20 - 10)}
    assert held(a_rank(rows, [window(0, 450)])) == expected


ALLOCATES = "cudaMalloc cudaFree cudaMallocAsync cuMemAlloc_v2 cudaHostAlloc cudaHostRegister"


@pytest.mark.parametrize(
    ("kind", "names", "expected"),
    [
        ("other", f"{ALLOCATES} cuMemHostUnregister hipHostRegister hipFree", "allocation"),
        ("other", "cuModuleLoadData hipModuleLoad", "cold_start"),
        ("other", "my_cudaMalloc cudaEventQuery DataLoader", "unrecorded"),
        *(("op", "cudaMalloc", "operators"), ("op", "DataLoader", "loader")),
        *(("annotation", "DataLoader", "loader"), ("annotation", "forward", "unrecorded")),
        *((kind, "anything", kind) for kind in ("python", "sync", "launch")),
    ],
)
def test_what_a_row_of_the_host_is(kind: str, names: str, expected: str) -> None:
    for name in names.split():
        found = held(a_gap(host(kind, 110, 150, name)))
        assert found[expected] == {"unrecorded": 80, "launch": 60}.get(expected, 40), name
        on_device = held(a_gap(host(kind, 110, 150, name) | {"side": "device"}))
        assert on_device == {"unrecorded": 80, "launch": 20}
