# SPDX-License-Identifier: Apache-2.0
"""Memory and data loading: hand-made ranks whose answers can be worked out on paper."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from helpers.hand_made import a_rank, card, comm, compute, event, main, reason, rows_of, values, window

from cclbench.analyzers.metric import Coverage

NS = 1e-9


def test_copy_bandwidth_by_direction_counts_what_states_no_bytes() -> None:
    rows = [
        event("copy", 0, 10, bytes=1000, copy_direction="h2d"),
        event("copy", 10, 20, bytes=500, copy_direction="h2d"),
        event("copy", 20, 70, bytes=1500, copy_direction="d2d"),
        event("copy", 70, 90, copy_direction="d2h"),
        event("memset", 90, 95, bytes=4096),
        event("copy", 100, 110, bytes=9999, copy_direction="h2d"),
    ]
    rank = a_rank(rows, [window(0, 100)])
    found = values(rank, "memory.copy_bandwidth")
    assert {v.category: v.value for v in found} == pytest.approx(
        {None: 3000 / 70e-9, "h2d": 1500 / 20e-9, "d2d": 1500 / 50e-9}
    )
    assert (found[0].status, found[0].words) == ("partial", "left out: 1 of unknown bytes")
    assert (found[0].coverage.by_count, found[0].coverage.by_time) == (3 / 4, 70 / 90)


def test_a_copy_in_no_stated_direction_counts_in_all_and_one_without_duration_in_none() -> None:
    rows = [
        event("copy", 0, 10, bytes=1000, copy_direction="h2d"),
        event("copy", 10, 11, bytes=700),
        event("copy", 20, 20, bytes=5000, copy_direction="d2h"),
        event("copy", 30, 30, copy_direction="d2h"),
    ]
    found = values(a_rank(rows, [window(0, 100)]), "memory.copy_bandwidth")
    assert {v.category: v.value for v in found} == pytest.approx({None: 1700 / 11e-9, "h2d": 1000 / 10e-9})
    assert (found[0].status, found[0].words) == ("ok", None)


def test_ranks_copies_count_by_their_time() -> None:
    ranks = [
        a_rank([event("copy", 0, ns, bytes=1000, copy_direction="h2d")], [window(0, 100)], rank=n)
        for n, ns in enumerate((10, 40))
    ]
    run = {
        row["category"]: row["value"]
        for row in rows_of("memory.copy_bandwidth", *ranks)
        if row["rank"] is None
    }
    assert run == pytest.approx({None: 2000 / 50e-9, "h2d": 2000 / 50e-9})


def test_copies_without_bytes_have_no_bandwidth() -> None:
    rank = a_rank([event("copy", 0, 10)], [window(0, 100)])
    assert reason(rank, "memory.copy_bandwidth") == "none of the 1 copies in the window states its size"
    assert "no copies" in reason(a_rank([compute(0, 1)], [window(0, 9)]), "memory.copy_bandwidth")


def test_real_copies_count_as_transfer_overhead_and_copying_kernels_do_not() -> None:
    rows = [
        compute(0, 20),
        event("copy", 10, 30, track=3),
        event("memset", 25, 35, track=4),
        comm(34, 50),
        event("kernel", 50, 60, category="copy", name="direct_copy_kernel"),
    ]
    rank = a_rank(rows, [window(0, 100)])
    assert main(rank, "memory.copy_time") == pytest.approx(25 * NS)
    assert main(rank, "memory.transfer_overhead") == pytest.approx(0.14)


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator of 1e12 FLOP/s and 1e11 B/s: its ridge is at 10 FLOP/B."""
    made = SimpleNamespace(id="chip", peak_flops_per_s={"bf16": 1e12}, hbm_bytes_per_s=1e11, sm_count=None)
    monkeypatch.setattr("cclbench.hardware.catalog.accelerators", lambda: {"nvidia-a100-sxm-80gb": made})


@pytest.mark.usefixtures("chip")
def test_hbm_utilization_from_stated_traffic() -> None:
    rank = a_rank([compute(0, 10, hbm_bytes=2000), compute(10, 20)], [window(0, 100)], card=card())
    assert main(rank, "memory.hbm_utilization", "partial") == pytest.approx(0.2)
    silent = a_rank([compute(0, 10)], [window(0, 100)], card=card())
    assert "states no device-memory traffic" in reason(silent, "memory.hbm_utilization")
    (impossible,) = values(
        a_rank([compute(0, 10, hbm_bytes=20_000)], [window(0, 100)], card=card()), "memory.hbm_utilization"
    )
    assert impossible.status == "failed"
    assert impossible.reason == "the traffic is 2 of the peak of the accelerator's memory"


@pytest.mark.usefixtures("chip")
def test_traffic_of_all_device_rows_up_to_all_that_memory_can_carry() -> None:
    """100 ns at 100 B/ns; of five rows, one of which ends outside, one states nothing."""
    rows = [
        compute(0, 10, hbm_bytes=4000),
        event("copy", 10, 20, hbm_bytes=3000),
        event("memset", 20, 30, hbm_bytes=2000),
        comm(90, 120, hbm_bytes=1000),
        compute(40, 45),
        compute(100, 110, hbm_bytes=99_999),
    ]
    own = values(a_rank(rows, [window(0, 100)], card=card()), "memory.hbm_utilization")[0]
    assert own.value == pytest.approx(1)
    assert own.coverage == Coverage(4, 5, 10 + 10 + 10 + 30, 65)
    assert (own.words, own.provenance) == ("left out: 1 device rows of unknown traffic", "measured")


@pytest.mark.usefixtures("chip")
def test_ranks_traffic_counts_by_what_their_memory_could_move() -> None:
    ranks = [
        a_rank([compute(0, 10, hbm_bytes=size)], [window(0, ns)], card=card(), rank=n)
        for n, (size, ns) in enumerate(((2000, 100), (9000, 300)))
    ]
    assert rows_of("memory.hbm_utilization", *ranks)[0]["value"] == pytest.approx(11_000 / 40_000)


@pytest.mark.usefixtures("chip")
def test_bound_share_is_left_of_the_ridge() -> None:
    rows = [
        compute(0, 30, flops=900.0, hbm_bytes=100),
        compute(30, 90, flops=1100.0, hbm_bytes=100),
        compute(90, 100),
    ]
    own = values(a_rank(rows, [window(0, 200)], card=card()), "memory.bound_share")[0]
    assert own.value == pytest.approx(0.3)
    assert own.status == "partial"
    assert own.words == "left out: 1 kernels of unknown FLOPs or traffic"
    assert "states both" in reason(a_rank([compute(0, 1)], [window(0, 9)], card=card()), "memory.bound_share")


@pytest.mark.usefixtures("chip")
def test_a_kernel_on_the_ridge_is_not_bound_by_memory() -> None:
    rows = [
        compute(0, 10, flops=1000.0, hbm_bytes=100),
        compute(10, 40, flops=999.0, hbm_bytes=100),
        comm(40, 60, flops=1.0, hbm_bytes=100),
        compute(150, 160, flops=1.0, hbm_bytes=100),
    ]
    rank = a_rank(rows, [window(0, 20, 1), window(20, 100, 2)], card=card())
    found = values(rank, "memory.bound_share")
    assert {v.step: v.value for v in found} == pytest.approx({None: 30 / 40, 1: 10 / 20, 2: 1})
    assert [(v.status, v.words) for v in found] == [("ok", None)] * 3
    assert {v.provenance for v in found} == {"derived"}


def test_peak_allocated_is_of_the_device_and_of_the_window() -> None:
    def allocator(at: int, held: int, device: int | None) -> dict:
        return event("other", at, at, name="[memory]", bytes=held, device=device)

    rows = [
        allocator(5, 700, 0),
        allocator(6, 900, 0),
        allocator(7, 5000, None),
        allocator(200, 8000, 0),
        event("other", 8, 8, name="else", bytes=9999, device=0),
    ]
    assert main(a_rank(rows, [window(0, 100)]), "memory.peak_allocated") == 900
    assert main(a_rank(rows, [window(0, 100)], works_on="host"), "memory.peak_allocated") == 5000
    assert "allocator" in reason(a_rank([compute(0, 1)], [window(0, 9)]), "memory.peak_allocated")


def test_data_stall_is_loading_while_the_device_is_idle() -> None:
    rows = [
        compute(0, 30),
        event(
            "annotation", 20, 50, track=1, name="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        ),
        event("op", 45, 60, track=1, name="save_checkpoint"),
        event("copy", 55, 70, track=3),
        event("annotation", 70, 99, side="device", name="enumerate(DataLoader)"),
        event("annotation", 70, 99, track=1, name="activation_checkpoint"),
    ]
    assert main(a_rank(rows, [window(0, 100)]), "data.stall") == pytest.approx(0.25)


def test_data_stall_is_waiting_for_an_infeed() -> None:
    """A TPU waits for input for 20 ns, of which a copy runs in 5; other waits are for no input."""
    rows = [
        compute(0, 30),
        event("sync", 30, 50, side="device", name="infeed"),
        event("copy", 45, 55, track=3),
        event("sync", 60, 90, side="device", name="outfeed"),
        event("sync", 60, 90, side="host", name="infeed"),
        compute(90, 100),
    ]
    assert main(a_rank(rows, [window(0, 100)]), "data.stall") == pytest.approx(0.15)


def test_loading_before_the_first_kernel_counts_for_its_step() -> None:
    """Two host steps of 50 ns; each loads for 20 ns, then a kernel runs for 10 ns, 25 ns after its step."""
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    rows = [
        event("annotation", 0, 20, track=1, name=loader),
        compute(25, 35),
        event("annotation", 50, 70, track=1, name=loader),
        compute(75, 85),
    ]
    marks = [window(0, 50, 1, "annotation"), window(50, 100, 2, "annotation")]
    both = a_rank(rows, [*marks, window(25, 75, 1), window(75, 85, 2, still_open=True)])
    # Step 1's 20 ns of loading lie before its window of 50 ns; step 2 is open and in no mean.
    found = {v.step: v.value for v in values(both, "data.stall")}
    assert found == pytest.approx({None: 20 / 70, 1: 20 / 70})
    one = a_rank(rows[:2], [marks[0], window(25, 35, 1, still_open=True)])
    assert main(one, "data.stall") == pytest.approx(20 / 30)
    # By the host's own windows each step's loading lies in its own.
    found = {v.step: v.value for v in values(a_rank(rows, marks), "data.stall")}
    assert found == pytest.approx({None: 40 / 100, 1: 20 / 50, 2: 20 / 50})


def test_loading_between_two_annotations_is_the_next_steps() -> None:
    rows = [compute(10, 20), event("annotation", 40, 50, track=1, name="data_loader"), compute(65, 70)]
    marks = [window(0, 30, 1, "annotation"), window(60, 90, 2, "annotation")]
    rank = a_rank(rows, [*marks, window(10, 65, 1), window(65, 110, 2)])
    found = {v.step: v.value for v in values(rank, "data.stall")}
    assert found == pytest.approx({None: 10 / 100, 1: 0, 2: 10 / 55})


def test_loading_without_marks_is_the_windows_that_holds_it() -> None:
    """Loading 30-50 and 95-105, kernels 0-30 and 60-90: 20 ns in the first window, 5 in the second."""
    rows = [
        compute(0, 30),
        event("annotation", 20, 50, track=1, name="data_loader"),
        compute(60, 90),
        event("op", 95, 105, track=1, name="data_loader"),
        event("annotation", 150, 170, track=1, name="data_loader"),
    ]
    rank = a_rank(rows, [window(0, 50, 1), window(50, 100, 2)])
    found = {v.step: v.value for v in values(rank, "data.stall")}
    assert found == pytest.approx({None: 30 / 105, 1: 20 / 50, 2: 10 / 55})
    whole = a_rank(rows, [window(0, 110, source="whole_trace")], policy="trace")
    assert [(v.step, v.value) for v in values(whole, "data.stall")] == [(None, pytest.approx(30 / 110))]
    empty = a_rank(rows, [window(0, 50, 1), window(50, 50, 2)])
    assert [v.step for v in values(empty, "data.stall")] == [None, 1]
    idle = a_rank([*rows[:1], event("annotation", 0, 20, track=1, name="data_loader")], [window(50, 50, 1)])
    assert reason(idle, "data.stall") == "there is no time in the window"
    marks = [window(0, 40, 1, "annotation"), window(40, 110, 2, "annotation")]
    asked = a_rank(rows, [*marks, window(0, 100, source="whole_trace")], policy="trace")
    assert main(asked, "data.stall") == pytest.approx(30 / 105)


def test_ranks_loading_counts_by_their_time() -> None:
    loading = event("annotation", 30, 50, track=1, name="data_loader")
    ranks = [a_rank([compute(0, 30), loading], [window(0, end)], rank=n) for n, end in enumerate((50, 150))]
    assert rows_of("data.stall", *ranks)[0]["value"] == pytest.approx(40 / 200)


def test_loading_that_ends_as_a_step_ends_is_the_steps_and_what_begins_then_is_the_nexts() -> None:
    rows = [
        compute(0, 10),
        event("annotation", 20, 30, track=1, name="data_loader"),
        event("annotation", 40, 45, track=1, name="data_loader"),
        compute(60, 70),
        event("annotation", 80, 85, track=1, name="data_loader"),
    ]
    marks = [window(0, 40, 1, "annotation"), window(40, 80, 2, "annotation")]
    rank = a_rank(rows, [*marks, window(0, 60, 1), window(60, 100, 2)])
    found = {v.step: v.value for v in values(rank, "data.stall")}
    # What begins when the last step has ended is nobody's.
    assert found == pytest.approx({None: 15 / 100, 1: 10 / 60, 2: 5 / 45})


def test_no_loader_annotation_is_no_stall_of_zero() -> None:
    rank = a_rank([compute(0, 30), event("annotation", 0, 9, track=1, name="forward")], [window(0, 100)])
    assert "no annotation" in reason(rank, "data.stall")
