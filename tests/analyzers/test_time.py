# SPDX-License-Identifier: Apache-2.0
"""Times of steps and of calls in their order: hand-made ranks with answers on paper."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, card, comm, compute, event, launch, window
from helpers.hand_values import in_ns, main, parts, reason, rows_of, run_parts, values

from cclbench.analyzers.view.ordered_calls import CallPlace, PlacedCalls, ordered_calls
from cclbench.analyzers.view.rank_view import RankView

NS = 1e-9


# Window 0..100: gemm 10-40, gemm 60-70 (launched at 55, its stream free from 40 on); communication
# 30-50 beside the first; copy 75-80; gemm 90-95 on stream 9, launched at 5, before that stream's memset
# at 71-72 ended.
ROWS = [
    *(compute(10, 40, correlation=1), comm(30, 50, correlation=2), compute(60, 70, correlation=3)),
    *(event("memset", 71, 72, track=9, correlation=9), event("copy", 75, 80, track=3)),
    compute(90, 95, track=9, correlation=4),
    *(launch(2, 1), launch(3, 2), launch(55, 3), launch(5, 4)),
    *(event("sync", 0, 100, track=7), event("annotation", 0, 100, side="device")),
]


def test_exposed_copies_by_where_they_move_bytes_share_what_runs_at_once() -> None:
    """Pageable 0-40, device to device 30-50 beside it from 30 on; a memset 60-65; the rest is hidden."""
    rows = [
        event("copy", 0, 40, name="Memcpy HtoD (Pageable -> Device)", copy_direction="h2d", track=3),
        event("copy", 30, 50, name="Memcpy DtoD", copy_direction="d2d", track=4),
        *(event("memset", 60, 65, track=5), compute(70, 90)),
        event("copy", 75, 85, copy_direction="d2h", track=6),
    ]
    rank = a_rank(rows, [window(0, 60, 1), window(60, 100, 2)])
    assert in_ns(parts(rank, "time.exposed_copy")) == pytest.approx(
        {None: 55 / 2, 1: 50, 2: 5, "h2d pageable": 35 / 2, "d2d": 15 / 2, "memset": 5 / 2}
    )
    # A rank without such a copy counts with none of it.
    other = a_rank([compute(0, 10)], [window(0, 60, 1)], rank=1)
    assert run_parts("time.exposed_copy", rank, other)["memset"] == pytest.approx(5 / 2 / 2 * NS)


@pytest.mark.parametrize(
    ("metric", "ns"),
    [
        *(("step", 100), ("compute_only", 20 + 10 + 5), ("overlapped", 10), ("exposed_comm", 10)),
        ("exposed_copy", 1 + 5),
        # host 0-10 (its stream is free since ever) and 50-60; device 80-90; unknown 70-71, 72-75, 95-100
        *(("idle", 39), ("idle_host", 20), ("idle_device", 10), ("idle_unknown", 1 + 3 + 5)),
    ],
)
def test_parts_of_a_step(metric: str, ns: int) -> None:
    found = in_ns(parts(a_rank(ROWS, [window(0, 100, 4)]), f"time.{metric}"))
    assert (found[None], found[4]) == pytest.approx((ns, ns))


def idle(*kernels: tuple[Any, ...], ends: int, begins: int = 0, **options: Any) -> dict[str, float]:
    """ns idle by cause, of kernels of begin, end, launch and more columns, one correlation to a launch."""
    numbers = {at: n for n, at in enumerate(dict.fromkeys(at for _, _, at, *_ in kernels))}
    rows = [launch(at, n) for at, n in numbers.items()]
    for start, end, at, *more in kernels:
        rows.append(compute(start, end, correlation=numbers[at], **(more[0] if more else {})))
    rank = a_rank(rows, [window(begins, ends)], **options)
    return {cause: (main(rank, f"time.idle_{cause}") or 0) * 1e9 for cause in ("host", "device", "unknown")}


OTHER = {"device": 1}
NINTH = {"device": 1, "track": 9}


@pytest.mark.parametrize(
    ("found", "host", "device"),
    [
        # A launch at the moment the stream becomes free is not late.
        (idle((0, 4, 0), (9, 12, 4), ends=12), 0, 5),
        # Stream 7 of two devices; both gaps end with a kernel launched when its own stream was free: 50-60 on
        # device 1 at 20, before device 0's is free at 40; 70-100 on device 0 at 45, before device 1's at 60.
        (idle((0, 40, 0), (50, 60, 20, OTHER), (70, 100, 45), ends=100), 20, 0),
        # Stream 9 of device 1, beside stream 7 of device 0 in one batch and alone in the next: it is busy
        # until 50, so that its kernel at 60, launched at 30, waited for the device.
        (idle((0, 40, 0), (10, 50, 5, NINTH), (60, 70, 30, NINTH), ends=70, rows_a_batch=2), 0, 10),
        # One launch of a graph stands for all its kernels.
        (idle((10, 20, 5), (25, 30, 5), begins=10, ends=30), 0, 5),
    ],
)
def test_what_leaves_a_device_idle(found: dict[str, float], host: int, device: int) -> None:
    assert found == pytest.approx({"host": host, "device": device, "unknown": 0})


def test_without_launch_records_idle_time_is_unknown_and_not_zero() -> None:
    rank = a_rank([compute(0, 4), compute(9, 12)], [window(0, 12)])
    assert "no launch" in reason(rank, "time.idle_host")
    assert "no launch" in reason(rank, "time.idle_device")
    assert main(rank, "time.idle_unknown") == pytest.approx(5 * NS)
    # Host rows alone give no time.
    rank = a_rank([event("op", 0, 10)], [window(0, 10, source="annotation")], works_on=None)
    assert reason(rank, "time.idle") == "the trace has only host events, none of the accelerator"


def test_the_run_steps_as_slowly_as_its_slowest_rank() -> None:
    ranks = [
        a_rank([compute(0, 1)], [window(0, edge, 1), window(edge, 40, 2)], rank=rank)
        for rank, edge in enumerate((10, 20))
    ]
    rows = rows_of("time.step", *ranks)
    found = in_ns(run_parts("time.step", *ranks))
    assert found.pop("p95") is None
    assert found == pytest.approx({None: 25, "p50": 25, "max": 30, "cv": 50**0.5 / 25 * 1e9, 1: 20, 2: 30})
    (too_few,) = [row for row in rows if row["stat"] == "p95"]
    assert too_few["status"] == "not_applicable"
    assert too_few["reason"] == "a 95th percentile needs 20 values, there are 2: see the maximum"
    assert [row["unit"] for row in rows if row["stat"] == "cv"] == ["1"]
    assert [row["value"] for row in rows if row["rank"] == 1 and row["step"] is None] == [20 * NS]
    # Of open windows the longest rank counts.
    ranks = [
        a_rank([compute(0, 1)], [window(0, 10, 1), window(10, 10 + length, 2, still_open=True)], rank=rank)
        for rank, length in enumerate((4, 7, 5))
    ]
    found = in_ns(run_parts("time.step", *ranks))
    assert (found.pop(1), found.pop((2, "open"))) == pytest.approx((10, 7))
    assert list(found) == [None, "max", "p50", "p95"]


def test_an_open_window_is_shown_and_in_no_mean() -> None:
    """Steps 1 and 2 take 10 and 30 ns; step 3 is open after 5 ns, 4 of them busy."""
    windows = [window(0, 10, 1), window(10, 40, 2), window(40, 45, 3, still_open=True)]
    rank = a_rank([compute(0, 1), compute(10, 12), compute(40, 44)], windows)
    steps = {None: 20, 1: 10, 2: 30, (3, "open"): 5}
    assert in_ns(parts(rank, "time.step")) == pytest.approx(steps)
    assert in_ns(parts(rank, "time.idle")) == pytest.approx({None: 18.5, 1: 9, 2: 28, (3, "open"): 1})
    busy = {"compute_only": 4, "overlapped": 0, "exposed_comm": 0, "exposed_copy": 0}
    found = {name: in_ns(parts(rank, f"time.{name}"))[3, "open"] for name in busy}
    assert found == pytest.approx(busy)
    assert main(rank, "compute.kernel_count") == 1
    assert run_parts("time.step", rank)["max"] == pytest.approx(30 * NS)
    (still_open,) = (
        row for row in rows_of("time.step", rank) if row["rank"] is None and row["stat"] == "open"
    )
    assert (still_open["step"], still_open["reason"].partition(":")[0]) == (3, "incomplete step")


def test_an_open_window_counts_where_it_is_alone_and_a_95th_percentile_from_20_steps_on() -> None:
    rank = a_rank([compute(0, 4)], [window(0, 5, 7, still_open=True)])
    whole, step = values(rank, "time.step")
    assert whole.value == step.value == 5 * NS
    assert (step.step, step.stat) == (7, None)
    assert whole.reason.startswith("the only step is incomplete")
    assert rows_of("time.step", rank)[0]["reason"].startswith("the only step is incomplete")
    # From 20 steps on there is a 95th percentile.
    windows = [window(100 * n, 100 * n + 10 + n, n) for n in range(20)]
    rows = rows_of("time.step", a_rank([compute(0, 1)], windows))
    (p95,) = (row for row in rows if row["stat"] == "p95")
    # Steps of 10 to 29 ns: position 0.95 · 19 = 18.05 of the sorted lengths.
    assert p95["value"] == pytest.approx(28.05 * NS)


def test_a_cpu_is_a_device_of_its_own() -> None:
    rows = [event("op", 0, 30, track=1, name="aten::mm"), event("op", 5, 10, track=1, name="aten::copy_")]
    rows += [event("op", 20, 26, track=1, name="c10d::allreduce_", category="communication")]
    rows += [event("op", 22, 50, track=2, name="gloo:all_reduce", category="communication", collective=0)]
    rank = a_rank(rows, [window(0, 60)], works_on="host")
    expected = {"compute_only": 20, "overlapped": 4, "exposed_comm": 24, "exposed_copy": 0, "idle": 12}
    found = {name: main(rank, f"time.{name}") for name in expected}
    assert in_ns(found) == pytest.approx(expected)
    assert "the CPU is the device" in reason(rank, "time.idle_host")


def test_windows_fall_back_and_say_so_and_steps_narrow_them() -> None:
    whole = window(0, 30, source="whole_trace")
    rank = a_rank([compute(0, 30)], [window(0, 10, 1, "annotation"), whole])
    assert rank.windows.policy == "annotations"
    assert a_rank([compute(0, 30)], [whole]).windows.policy == "trace"
    assert {row["window"] for row in rows_of("time.step", rank)} == {"annotations"}
    # Steps narrow and an empty range says so.
    windows = [window(10 * n, 10 * n + 10, n) for n in range(4)]
    assert a_rank([compute(0, 40)], windows, steps=(1, 3)).windows.steps == (1, 2)
    assert reason(a_rank([compute(0, 40)], windows, steps=(7, None)), "time.step") == (
        "--steps selects none of this rank's steps: 0, 1, 2, 3"
    )
    whole = [window(0, 40, source="whole_trace")]
    assert "no steps" in reason(a_rank([compute(0, 40)], whole, steps=(1, None)), "time.step")


# Throughput: 4 samples of 10 tokens a step on 2 devices; steps of 20 ns and 30 ns on the slower rank.


def _two_ranks(**changes: object) -> list[RankView]:
    return [
        a_rank([compute(0, 1)], [window(0, edge, 1), window(edge, 40, 2)], card=card(**changes), rank=rank)
        for rank, edge in enumerate((10, 20))
    ]


@pytest.mark.parametrize(("metric", "a_step"), [("samples", 4), ("tokens", 40), ("tokens_per_device", 20)])
def test_throughput_is_a_steps_work_over_the_step_time(metric: str, a_step: int) -> None:
    rows = rows_of(f"throughput.{metric}", *_two_ranks())
    assert {row["step"]: row["value"] for row in rows} == pytest.approx(
        {None: a_step / 25e-9, 1: a_step / 20e-9, 2: a_step / 30e-9}
    )
    assert {row["rank"] for row in rows} == {None}


WHOLE = [a_rank([compute(0, 1)], [window(0, 10, source="whole_trace")], card=card())]
NO_CARD = [a_rank([compute(0, 1)], [window(0, 10, 1)])]
NO_LENGTH = _two_ranks(workload__batch__sequence_length=None)


@pytest.mark.parametrize(
    ("metric", "ranks", "why"),
    [
        ("tokens", NO_CARD, "needs a workload card with workload.phase"),
        ("tokens", NO_LENGTH, "the workload card lacks workload.batch.sequence_length"),
        ("samples", _two_ranks(workload__batch__global=None),
         "the workload card lacks workload.batch.global"),
        ("samples", WHOLE, "whole trace"),
        ("samples", _two_ranks(workload__phase="serving"), "prefill or a decode"),
    ],
)  # fmt: skip
def test_why_there_is_no_throughput(metric: str, ranks: list[RankView], why: str) -> None:
    (row,) = rows_of(f"throughput.{metric}", *ranks)
    assert (row["status"], row["value"]) == ("not_applicable", None)
    assert why in row["reason"]


MM = {"name": "aten::mm", "shapes": "[[10,10],[10,10]]", "dtypes": '["float","float"]'}
ADD = {"name": "aten::add", "shapes": "[[10]]", "dtypes": '["float"]'}


def test_places_of_two_steps() -> None:
    """Step 1: mm, add, add; step 2: mm, add.  The second add of step 1 is a place of its own.

    mm of 10 x 10 x 10 is 2,000 FLOPs; it is at 1/6 of step 1 and 1/4 of step 2.
    """
    operators: list[dict[str, Any]] = [
        {"operator": number, **kind} for number, kind in enumerate((MM, ADD, ADD, MM, ADD), start=1)
    ]
    layers = ("Net_0/Layer_0", "Net_0/Layer_0", "Net_0/Layer_1", "Net_0/Layer_0", "Net_0/Layer_0")
    spans = ((0, 10), (20, 25), (30, 37), (100, 112), (120, 121))
    rows = [
        compute(*span, operator=number, name="k", phase="forward", module=layer)
        for number, (span, layer) in enumerate(zip(spans, layers, strict=True), start=1)
    ]
    found = ordered_calls(a_rank(rows, [window(0, 99, 1), window(100, 199, 2)], operators=operators))
    layer = "Net_*/Layer_*"
    assert found == {
        CallPlace("forward", layer, "matrix product 2000", 0): PlacedCalls(
            "aten::mm", "matrix product", 2, 22, pytest.approx(1 / 6 + 1 / 4)
        ),
        CallPlace("forward", layer, "aten::add(fp32[10])", 0): PlacedCalls(
            "aten::add", None, 2, 6, pytest.approx(1 / 2 + 3 / 4)
        ),
        CallPlace("forward", layer, "aten::add(fp32[10])", 1): PlacedCalls(
            "aten::add", None, 1, 7, pytest.approx(5 / 6)
        ),
    }


def test_a_kernel_without_a_call_or_no_work() -> None:
    """It has its own name, and no module."""
    (item,) = ordered_calls(a_rank([compute(0, 5, name="alone")], [window(0, 9, 1)])).items()
    assert item == (CallPlace("other", "none", "alone", 0), PlacedCalls("alone", None, 1, 5, 0.5))
    # No work.
    assert ordered_calls(a_rank([], [window(0, 9, 1)])) == {}
