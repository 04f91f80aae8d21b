# SPDX-License-Identifier: Apache-2.0
"""What is known of the real traces apart from us: counts, durations, payloads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .conftest import Measure, Rows

ELEMENT = {"Float": 4, "Int": 4, "Long": 8, "Byte": 1, "BFloat16": 2, "Half": 2, "Double": 8}


def test_dlrm_exchanges_five_times_and_reduces_three_times_on_each_rank(
    kineto: Path, measure: Measure
) -> None:
    calls = measure(kineto / "dlrm_8xv100").collectives().to_pandas()
    for rank in range(8):
        own = calls[calls["rank"] == rank]
        assert Counter(own["kind"]) == {"all_to_all": 5, "all_reduce": 3}
        assert set(own["step"]) == {10}


def test_nccl_metadata_gives_every_collective_its_bytes_and_group(
    kineto: Path, measure: Measure, complete_rows: Rows
) -> None:
    calls = measure(kineto / "nccl_meta_a100").collectives().sort_by("start_ns")
    (file,) = (kineto / "nccl_meta_a100").iterdir()
    kernels = [row for row in complete_rows(file) if row["cat"] == "kernel" and "nccl" in row["name"]]
    kernels.sort(key=lambda row: row["ts"])
    assert len(kernels) == len(calls) == 21
    for kernel, call in zip(kernels, calls.to_pylist(), strict=True):
        args = kernel["args"]
        assert call["in_bytes"] == args["In msg nelems"] * ELEMENT[args["dtype"]]
        assert call["out_bytes"] == args["Out msg nelems"] * ELEMENT[args["dtype"]]
        assert call["kind"].replace("_", "") == args["Collective name"].strip("_").replace("_", "")
        assert call["end_ns"] - call["start_ns"] == int(kernel["dur"] * 1000)
        assert (call["group"], call["group_size"]) == ("0-1", 2)
        assert call["payload_source"] == "kernel"


def test_two_thirds_of_the_copies_of_an_mi300x_tell_their_size(kineto: Path, measure: Measure) -> None:
    run = measure(kineto / "resnet_mi300x")
    copies = run.events(kinds=["copy"], columns=["bytes", "device", "track"])
    assert len(copies) == 550
    assert len(copies) - copies["bytes"].null_count == 366
    assert run.manifest["ranks"][0]["facts"]["vendor"] == "amd"
    assert 0 in copies["track"].to_pylist()  # stream 0 is a stream


def test_ddp_hides_46_percent_of_its_communication(kineto: Path, measure: Measure) -> None:
    run = measure(kineto / "ddp_a100")
    (ratio,) = (row for row in run.rows if row["metric"] == "overlap.ratio" and row["rank"] is None)
    # 46 % over the whole trace; over the five closed steps:
    assert ratio["value"] == pytest.approx(0.4703, abs=0.0001)
    steps = run.steps().to_pandas()
    assert list(steps[steps["source"] == "device"]["step"]) == list(range(1009, 1015))
    assert set(steps["rank"]) == {3}


def test_a_quarter_of_an_h100s_compute_is_in_kernels_without_an_occupancy(
    kineto: Path, measure: Measure, complete_rows: Rows
) -> None:
    run = measure(kineto / "h100_qwen", "trace")
    (file,) = (kineto / "h100_qwen").iterdir()
    kernels = [row for row in complete_rows(file) if row["cat"] == "kernel"]
    large = [row for row in kernels if row["args"]["shared memory"] > 48 << 10]
    assert {row["args"]["est. achieved occupancy %"] for row in large} == {0}
    assert (len(kernels), len(large)) == (1465, 241)
    known = [row for row in kernels if row not in large]
    filled = sum(row["dur"] * row["args"]["est. achieved occupancy %"] for row in known) / 100
    (own,) = (row for row in run.rows if row["metric"] == "compute.occupancy" and row["rank"] is None)
    assert own["value"] == pytest.approx(float(filled / sum(row["dur"] for row in known)))
    assert (own["value"], own["coverage_time"]) == pytest.approx((0.8887, 0.7185), abs=1e-4)
    assert (own["status"], own["reason"]) == ("partial", "left out: 241 kernels of unknown occupancy")


def test_waiting_for_an_event_is_no_work(kineto: Path, measure: Measure, complete_rows: Rows) -> None:
    run = measure(kineto / "cuda_sync_a100", "trace")
    (file,) = (kineto / "cuda_sync_a100").iterdir()
    waits = [row for row in complete_rows(file) if row["cat"] == "cuda_sync"]
    syncs = run.events(kinds=["sync"], columns=["side", "dur_ns"]).to_pandas()
    on_device = syncs[syncs["side"] == "device"]
    assert sorted(on_device["dur_ns"]) == sorted(int(row["dur"] * 1000) for row in waits)
    busy = run.events(kinds=["kernel", "copy", "memset"], columns=["dur_ns"])["dur_ns"].to_pylist()
    idle = next(row["value"] for row in run.rows if row["metric"] == "time.idle")
    # six rows on the device, none at the same time: what they do not fill is idle, synchronisation or not
    assert len(busy) == 6
    assert round(idle * 1e9) == 19_506_000 - sum(busy)
    assert on_device["dur_ns"].sum() > 0
