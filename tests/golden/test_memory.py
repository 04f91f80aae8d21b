# SPDX-License-Identifier: Apache-2.0
"""Real memory snapshots against a plain replay, and a trace's [memory] events against its JSON."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from cclbench.analyzers.view.histories import of_run

KNOWN = {
    # by the replay below: bytes live before the first event, at the peak, at the end; reserved
    "training_ctx128": (5_095_321_600, 7_013_335_044, 6_808_535_044, 7_235_174_400),
    "inference_ctx128": (1_701_310_464, 1_736_962_048, 1_701_310_464, 1_763_704_832),
}


def replayed(told: dict[str, Any]) -> tuple[int, int, int, int, dict[int, int]]:
    """Start, peak, end and reserved, backwards from the final blocks; the blocks live at the peak."""
    blocks = [one for segment in told["segments"] for one in segment["blocks"]]
    live = {one["address"]: one["requested_size"] for one in blocks if one["state"] == "active_allocated"}
    end = held = peak = sum(live.values())
    at_peak = dict(live)
    for event in reversed(told["device_traces"][0]):
        if event["action"] == "alloc":
            held -= live.pop(event["addr"])
        elif event["action"] == "free_requested":
            assert event["addr"] not in live
            live[event["addr"]] = event["size"]
            held += event["size"]
        if held >= peak:
            peak, at_peak = held, dict(live)
    reserved = sum(segment["total_size"] for segment in told["segments"])
    assert not any(event["action"].startswith("segment") for event in told["device_traces"][0])
    return held, peak, end, reserved, at_peak


@pytest.mark.parametrize("name", KNOWN)
def test_a_snapshot_is_what_a_plain_replay_of_it_says(name, measure, test_data: Path) -> None:
    path = test_data / "memory" / f"{name}.pickle"
    told = pickle.loads(path.read_bytes())  # noqa: S301 (plain data: the reader has to agree that it is)
    start, peak, end, reserved, live = replayed(told)
    assert (start, peak, end, reserved) == KNOWN[name]
    run = measure(path)
    values = {row["metric"]: row["value"] for row in run.rows if row["stat"] is None}
    assert values["memory.peak_allocated"] == peak
    assert values["memory.peak_reserved"] == reserved
    assert values["memory.fragmentation"] == 1 - peak / reserved
    (history,) = of_run(run)
    assert (history.contradictions, history.allocated[0], history.allocated[-1]) == (0, start, end)
    owners = history.owners
    older, sites = owners.owners_at(history.peak_moment)
    assert older.bytes + sum(site.bytes for _, site in sites) == peak
    assert older.blocks + sum(site.blocks for _, site in sites) == len(live)
    recorded = {event["addr"] for event in told["device_traces"][0] if event["action"] == "alloc"}
    assert older.bytes >= sum(size for address, size in live.items() if address not in recorded)
    inactive = sum(
        one["size"] for segment in told["segments"] for one in segment["blocks"] if one["state"] == "inactive"
    )
    (at_end,) = (row for row in run.rows if row["metric"] == "memory.fragmentation" and row["stat"] == "end")
    assert at_end["value"] == inactive / reserved


def test_what_the_training_step_holds_at_its_peak(measure, test_data: Path) -> None:
    """Gradients are there, the optimizer has just begun: parameters and its moments are older."""
    (history,) = of_run(measure(test_data / "memory" / "training_ctx128.pickle"))
    older, sites = history.owners.owners_at(history.peak_moment)
    assert (older.bytes, older.blocks) == (5_095_321_600, 664)
    _, gradients = sites[0]
    assert (gradients.bytes, gradients.blocks) == (1_651_572_736, 169)
    assert "AccumulateGrad::accumulateGrad" in (gradients.call_site or "")


def test_memory_events_of_a_trace(measure, kineto: Path) -> None:
    (path,) = (kineto / "h100_qwen").glob("*.json.gz")
    own = [
        event["args"]
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if event.get("name") == "[memory]" and event["args"]["Device Type"] == 1
    ]
    (history,) = of_run(measure(path))
    assert history.allocated.tolist() == [args["Total Allocated"] for args in own]
    assert history.reserved.tolist() == [args["Total Reserved"] for args in own]
    assert (history.peak_allocated, history.peak_reserved) == (2_088_508_416, 2_629_828_608)
