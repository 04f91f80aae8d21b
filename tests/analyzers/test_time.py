# SPDX-License-Identifier: Apache-2.0
"""Time and throughput: hand-made ranks whose answers can be worked out on paper."""

from __future__ import annotations

import pytest
from helpers.hand_made import (
    a_rank,
    card,
    comm,
    compute,
    event,
    launch,
    main,
    reason,
    rows_of,
    values,
    window,
)

NS = 1e-9

# Window 0..100: gemm 10-40, gemm 60-70 (launched at 55, its stream free from 40 on); communication
# 30-50 beside the first; copy 75-80; gemm 90-95 on stream 9, launched at 5, before that stream's memset
# at 71-72 ended.
ROWS = [
    compute(10, 40, correlation=1),
    comm(30, 50, correlation=2),
    compute(60, 70, correlation=3),
    event("memset", 71, 72, track=9, correlation=9),
    event("copy", 75, 80, track=3),
    compute(90, 95, track=9, correlation=4),
    launch(2, 1),
    launch(3, 2),
    launch(55, 3),
    launch(5, 4),
    event("sync", 0, 100, track=7),
    event("annotation", 0, 100, side="device"),
]


def a_step() -> object:
    return a_rank(ROWS, [window(0, 100, 4)])


@pytest.mark.parametrize(
    ("metric", "ns"),
    [
        ("time.step", 100),
        ("time.compute_only", 20 + 10 + 5),
        ("time.overlapped", 10),
        ("time.exposed_comm", 10),
        ("time.exposed_copy", 1 + 5),
        # host 0-10 (its stream is free since ever) and 50-60; device 80-90; unknown 70-71, 72-75, 95-100
        ("time.idle", 39),
        ("time.idle_host", 20),
        ("time.idle_device", 10),
        ("time.idle_unknown", 1 + 3 + 5),
    ],
)
def test_parts_of_a_step(metric: str, ns: int) -> None:
    own, of_step, *_ = values(a_step(), metric)
    assert (own.value, own.step) == (pytest.approx(ns * NS), None)
    assert (of_step.value, of_step.step) == (pytest.approx(ns * NS), 4)


def test_exposed_copies_by_where_they_move_bytes_share_what_runs_at_once() -> None:
    """Pageable 0-40, device to device 30-50 beside it from 30 on; a memset 60-65; the rest is hidden."""
    rows = [
        event("copy", 0, 40, name="Memcpy HtoD (Pageable -> Device)", copy_direction="h2d", track=3),
        event("copy", 30, 50, name="Memcpy DtoD", copy_direction="d2d", track=4),
        event("memset", 60, 65, track=5),
        compute(70, 90),
        event("copy", 75, 85, copy_direction="d2h", track=6),
    ]
    rank = a_rank(rows, [window(0, 60, 1), window(60, 100, 2)])
    found = {(v.step, v.category): v.value for v in values(rank, "time.exposed_copy")}
    assert found == pytest.approx(
        {
            (None, None): 55 / 2 * NS,
            (1, None): 50 * NS,
            (2, None): 5 * NS,
            (None, "h2d pageable"): 35 / 2 * NS,
            (None, "d2d"): 15 / 2 * NS,
            (None, "memset"): 5 / 2 * NS,
        }
    )
    other = a_rank([compute(0, 10)], [window(0, 60, 1)], rank=1)
    run = {
        row["category"]: row["value"]
        for row in rows_of("time.exposed_copy", rank, other)
        if row["rank"] is None
    }
    # A rank without such a copy counts with none of it.
    assert run["memset"] == pytest.approx(5 / 2 / 2 * NS)


def test_of_open_windows_the_longest_rank_counts() -> None:
    ranks = [
        a_rank([compute(0, 1)], [window(0, 10, 1), window(10, 10 + length, 2, still_open=True)], rank=rank)
        for rank, length in enumerate((4, 7, 5))
    ]
    rows = [row for row in rows_of("time.step", *ranks) if row["rank"] is None]
    assert {(row["step"], row["stat"]): row["value"] for row in rows if row["step"]} == pytest.approx(
        {(1, None): 10 * NS, (2, "open"): 7 * NS}
    )
    assert [row["stat"] for row in rows if row["step"] is None] == [None, "max", "p50", "p95"]


def test_a_gap_cut_by_a_windows_edge_belongs_to_the_event_after_the_edge() -> None:
    rows = [compute(0, 4, correlation=1), compute(20, 30, correlation=2), launch(0, 1), launch(18, 2)]
    rank = a_rank(rows, [window(0, 10, 1), window(10, 30, 2)])
    assert [v.value for v in values(rank, "time.idle_host")] == pytest.approx([8 * NS, 6 * NS, 10 * NS])


def test_a_launch_at_the_moment_the_stream_becomes_free_is_not_late() -> None:
    rows = [compute(0, 4, correlation=1), compute(9, 12, correlation=2), launch(0, 1), launch(4, 2)]
    rank = a_rank(rows, [window(0, 12)])
    assert main(rank, "time.idle_device") == pytest.approx(5 * NS)
    assert main(rank, "time.idle_host") == 0


def test_streams_of_two_devices_are_two_though_their_numbers_are_one() -> None:
    """Stream 7 of either device; both gaps end with a kernel launched when its own stream was free.

    50-60 on device 1 is launched at 20, before device 0's stream is free at 40; 70-100 on device 0 at 45,
    before device 1's is free at 60.
    """
    rows = [
        compute(0, 40, correlation=1),
        compute(50, 60, correlation=2, device=1),
        compute(70, 100, correlation=3),
        launch(0, 1),
        launch(20, 2),
        launch(45, 3),
    ]
    rank = a_rank(rows, [window(0, 100)])
    assert main(rank, "time.idle_host") == pytest.approx(20 * NS)
    assert main(rank, "time.idle_device") == 0


def test_a_stream_is_the_same_one_in_every_batch() -> None:
    """Stream 9 of device 1, beside stream 7 of device 0 in one batch and alone in the next.

    It is busy until 50, so that its kernel at 60, launched at 30, waited for the device.
    """
    rows = [
        compute(0, 40, correlation=1),
        compute(10, 50, correlation=2, device=1, track=9),
        compute(60, 70, correlation=3, device=1, track=9),
        launch(0, 1),
        launch(5, 2),
        launch(30, 3),
    ]
    rank = a_rank(rows, [window(0, 70)], rows_a_batch=2)
    assert main(rank, "time.idle_device") == pytest.approx(10 * NS)
    assert main(rank, "time.idle_host") == 0


def test_one_launch_of_a_graph_stands_for_all_its_kernels() -> None:
    rows = [compute(10, 20, correlation=1), compute(25, 30, correlation=1), launch(5, 1)]
    rank = a_rank(rows, [window(10, 30)])
    assert main(rank, "time.idle_device") == pytest.approx(5 * NS)


def test_without_launch_records_idle_time_is_unknown_and_not_zero() -> None:
    rank = a_rank([compute(0, 4), compute(9, 12)], [window(0, 12)])
    assert "no launch" in reason(rank, "time.idle_host")
    assert "no launch" in reason(rank, "time.idle_device")
    assert main(rank, "time.idle_unknown") == pytest.approx(5 * NS)


def test_the_run_steps_as_slowly_as_its_slowest_rank() -> None:
    ranks = [
        a_rank([compute(0, 1)], [window(0, 10, 1), window(10, 40, 2)], rank=0),
        a_rank([compute(0, 1)], [window(0, 20, 1), window(20, 40, 2)], rank=1),
    ]
    rows = rows_of("time.step", *ranks)
    own = {(row["stat"], row["step"]): row for row in rows if row["rank"] is None}
    too_few = own.pop(("p95", None))
    assert (too_few["status"], too_few["value"]) == ("not_applicable", None)
    assert too_few["reason"] == "a 95th percentile needs 20 values, there are 2: see the maximum"
    run = {key: row["value"] for key, row in own.items()}
    assert run == pytest.approx(
        {
            (None, None): 25 * NS,
            ("p50", None): 25 * NS,
            ("max", None): 30 * NS,
            ("cv", None): 50**0.5 / 25,
            (None, 1): 20 * NS,
            (None, 2): 30 * NS,
        }
    )
    assert [row["unit"] for row in rows if row["stat"] == "cv"] == ["1"]
    assert [row["value"] for row in rows if row["rank"] == 1 and row["step"] is None] == [20 * NS]


def test_from_20_steps_on_there_is_a_95th_percentile() -> None:
    windows = [window(100 * n, 100 * n + 10 + n, n) for n in range(20)]
    rows = rows_of("time.step", a_rank([compute(0, 1)], windows))
    (p95,) = (row for row in rows if row["stat"] == "p95")
    # Steps of 10 to 29 ns: position 0.95 · 19 = 18.05 of the sorted lengths.
    assert p95["value"] == pytest.approx(28.05 * NS)


def test_an_open_window_is_shown_and_in_no_mean() -> None:
    # Steps 1 and 2 take 10 and 30 ns; step 3 is open after 5 ns, 4 of them busy.
    windows = [window(0, 10, 1), window(10, 40, 2), window(40, 45, 3, still_open=True)]
    rank = a_rank([compute(0, 1), compute(10, 12), compute(40, 44)], windows)
    found = {(v.step, v.stat): v.value for v in values(rank, "time.step")}
    assert found == pytest.approx(
        {(None, None): 20 * NS, (1, None): 10 * NS, (2, None): 30 * NS, (3, "open"): 5 * NS}
    )
    idle = {(v.step, v.stat): v.value for v in values(rank, "time.idle")}
    assert idle == pytest.approx(
        {(None, None): 18.5 * NS, (1, None): 9 * NS, (2, None): 28 * NS, (3, "open"): 1 * NS}
    )
    parts = {
        name: {v.step: v.value for v in values(rank, f"time.{name}") if v.stat == "open"}
        for name in ("compute_only", "overlapped", "exposed_comm", "exposed_copy")
    }
    assert parts == {
        "compute_only": {3: 4 * NS},
        "overlapped": {3: 0},
        "exposed_comm": {3: 0},
        "exposed_copy": {3: 0},
    }
    assert main(rank, "compute.kernel_count") == 1
    run = [row for row in rows_of("time.step", rank) if row["rank"] is None]
    assert next(row["value"] for row in run if row["stat"] == "max") == pytest.approx(30 * NS)
    (still_open,) = (row for row in run if row["stat"] == "open")
    assert (still_open["step"], still_open["reason"].partition(":")[0]) == (3, "incomplete step")


def test_an_open_window_counts_where_it_is_alone_and_says_so() -> None:
    rank = a_rank([compute(0, 4)], [window(0, 5, 7, still_open=True)])
    whole, step = values(rank, "time.step")
    assert whole.value == step.value == 5 * NS
    assert (step.step, step.stat) == (7, None)
    assert whole.reason.startswith("the only step is incomplete")
    assert rows_of("time.step", rank)[0]["reason"].startswith("the only step is incomplete")


def test_host_rows_alone_give_no_time() -> None:
    rank = a_rank([event("op", 0, 10)], [window(0, 10, source="annotation")], works_on=None)
    assert reason(rank, "time.idle") == "the trace has only host events, none of the accelerator"


def test_a_cpu_is_a_device_of_its_own() -> None:
    rows = [
        event("op", 0, 30, track=1, name="aten::mm"),
        event("op", 5, 10, track=1, name="aten::copy_"),
        event("op", 20, 26, track=1, name="c10d::allreduce_", category="communication"),
        event("op", 22, 50, track=2, name="gloo:all_reduce", category="communication", collective=0),
    ]
    rank = a_rank(rows, [window(0, 60)], works_on="host")
    assert main(rank, "time.compute_only") == pytest.approx(20 * NS)
    assert main(rank, "time.overlapped") == pytest.approx(4 * NS)
    assert main(rank, "time.exposed_comm") == pytest.approx(24 * NS)
    assert main(rank, "time.exposed_copy") == 0
    assert main(rank, "time.idle") == pytest.approx(12 * NS)
    assert "the CPU is the device" in reason(rank, "time.idle_host")


def test_windows_fall_back_and_say_so() -> None:
    whole = window(0, 30, source="whole_trace")
    rank = a_rank([compute(0, 30)], [window(0, 10, 1, "annotation"), whole])
    assert rank.windows.policy == "annotations"
    assert a_rank([compute(0, 30)], [whole]).windows.policy == "trace"
    assert {row["window"] for row in rows_of("time.step", rank)} == {"annotations"}


def test_steps_narrow_and_an_empty_range_says_so() -> None:
    windows = [window(10 * n, 10 * n + 10, n) for n in range(4)]
    assert a_rank([compute(0, 40)], windows, steps=(1, 3)).windows.steps == (1, 2)
    assert reason(a_rank([compute(0, 40)], windows, steps=(7, None)), "time.step") == (
        "--steps selects none of this rank's steps: 0, 1, 2, 3"
    )
    whole = [window(0, 40, source="whole_trace")]
    assert "no steps" in reason(a_rank([compute(0, 40)], whole, steps=(1, None)), "time.step")


# Throughput: 4 samples of 10 tokens a step on 2 devices; steps of 20 ns and 30 ns on the slower rank.


def _two_ranks(**changes: object) -> list:
    ours = card(**changes)
    return [
        a_rank([compute(0, 1)], [window(0, 10, 1), window(10, 40, 2)], card=ours, rank=0),
        a_rank([compute(0, 1)], [window(0, 20, 1), window(20, 40, 2)], card=ours, rank=1),
    ]


@pytest.mark.parametrize(
    ("metric", "a_step"),
    [("throughput.samples", 4), ("throughput.tokens", 40), ("throughput.tokens_per_device", 20)],
)
def test_throughput_is_a_steps_work_over_the_step_time(metric: str, a_step: int) -> None:
    rows = rows_of(metric, *_two_ranks())
    assert {row["step"]: row["value"] for row in rows} == pytest.approx(
        {None: a_step / 25e-9, 1: a_step / 20e-9, 2: a_step / 30e-9}
    )
    assert {row["rank"] for row in rows} == {None}


def test_throughput_names_the_lacking_field() -> None:
    (without_card,) = rows_of("throughput.tokens", a_rank([compute(0, 1)], [window(0, 10, 1)]))
    assert without_card["reason"] == "needs a workload card with workload.phase"
    (without_length,) = rows_of("throughput.tokens", *_two_ranks(workload__batch__sequence_length=None))
    assert without_length["reason"] == "the workload card lacks workload.batch.sequence_length"
    (without_batch,) = rows_of("throughput.samples", *_two_ranks(workload__batch__global=None))
    assert without_batch["reason"] == "the workload card lacks workload.batch.global"


def test_no_throughput_of_a_whole_trace_or_of_generation() -> None:
    rank = a_rank([compute(0, 1)], [window(0, 10, source="whole_trace")], card=card())
    assert "whole trace" in reason(rank, "throughput.samples")
    serving = a_rank([compute(0, 1)], [window(0, 10, 1)], card=card(workload__phase="serving"))
    assert "prefill or a decode" in reason(serving, "throughput.samples")


def test_what_has_no_length_ends_no_gap() -> None:
    """A copy of 0 ns begins with the kernel that was launched late, on a stream before its own."""
    rows = [
        compute(0, 10, correlation=1),
        event("copy", 60, 60, track=2),
        compute(60, 70, correlation=2),
        launch(0, 1),
        launch(50, 2),
    ]
    rank = a_rank(rows, [window(0, 70)])
    assert main(rank, "time.idle_host") == pytest.approx(50 * NS)
    assert main(rank, "time.idle_unknown") == 0
