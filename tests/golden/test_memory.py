# SPDX-License-Identifier: Apache-2.0
"""Real memory snapshots against a plain replay, and a trace's [memory] events against its JSON."""

from __future__ import annotations

import gzip
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cclbench.analyzers.view.histories import run_histories
from cclbench.analyzers.view.memory_categories import CATEGORIES, block_categories, bytes_by_category
from cclbench.analyzers.view.memory_changes import MemoryAccount, with_batch
from cclbench.analyzers.view.memory_scenarios import predict_memory
from cclbench.analyzers.view.out_of_memory import failed_requests

KNOWN = {
    # by the replay below: bytes live before the first event, at the peak, at the end; reserved
    "training_ctx128": (5_095_321_600, 7_013_335_044, 6_808_535_044, 7_235_174_400),
    "inference_ctx128": (1_701_310_464, 1_736_962_048, 1_701_310_464, 1_763_704_832),
}
UNUSED_AT_PEAK = {
    # Reserved bytes in free blocks at the peak, and the share of them outside the largest one.
    "training_ctx128": (208_567_808, 1 - 20_971_520 / 208_567_808),
    "inference_ctx128": (24_776_704, 1 - 6_291_456 / 24_776_704),
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
    assert (values["memory.reserved_unused"], values["memory.fragmentation"]) == UNUSED_AT_PEAK[name]
    assert values["memory.reserved_unused"] < reserved - peak
    (history,) = run_histories(run)
    assert (history.contradictions, history.allocated[0], history.allocated[-1]) == (0, start, end)
    owners = history.owners
    older, sites = owners.owners_at(history.peak_moment)
    assert older.bytes + sum(site.bytes for _, site in sites) == peak
    assert older.blocks + sum(site.blocks for _, site in sites) == len(live)
    recorded = {event["addr"] for event in told["device_traces"][0] if event["action"] == "alloc"}
    assert older.bytes >= sum(size for address, size in live.items() if address not in recorded)
    inactive = [
        one["size"] for segment in told["segments"] for one in segment["blocks"] if one["state"] == "inactive"
    ]
    at_end = {row["metric"]: row["value"] for row in run.rows if row["stat"] == "end"}
    assert at_end["memory.reserved_unused"] == sum(inactive)
    assert at_end["memory.fragmentation"] == 1 - max(inactive) / sum(inactive)


def test_what_the_training_step_holds_at_its_peak(measure, test_data: Path) -> None:
    """Gradients are there, the optimizer has just begun: parameters and its moments are older."""
    (history,) = run_histories(measure(test_data / "memory" / "training_ctx128.pickle"))
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
    (history,) = run_histories(measure(path))
    assert history.allocated.tolist() == [args["Total Allocated"] for args in own]
    assert history.reserved.tolist() == [args["Total Reserved"] for args in own]
    assert (history.peak_allocated, history.peak_reserved) == (2_088_508_416, 2_629_828_608)


def test_an_h100_out_of_memory_is_what_pytorch_says(measure, repository: Path, tmp_path: Path) -> None:
    """PyTorch's message: 128 MiB asked, 3.73 GiB allowed, 3.31 GiB allocated, 313.49 MiB free in blocks."""
    path = unpacked(repository, "out_of_memory_snapshot", tmp_path)
    (history,) = run_histories(measure(path))
    (failure,) = failed_requests(history)
    free, usable = failure.free, failure.usable
    assert (failure.request.bytes, failure.request.call_site.split(" < ")[:2]) == (
        128 << 20,
        ["cross_entropy torch/nn/functional.py:3504", "out_of_memory one_gpu.py:223"],
    )
    assert (free.bytes, round(free.bytes / (1 << 20), 2)) == (328_718_336, 313.49)
    assert round((free.reserved - free.bytes) / (1 << 30), 2) == 3.31
    least, most = failure.limit
    assert least <= 4_000_000_000 < most
    assert (usable.largest, failure.missing, failure.largest_served) == (18_874_368, 0, least - free.reserved)
    assert failure.verdict == "fragmentation: enough is free, but no block is large enough"
    assert sum(site.bytes for site in failure.sites) == failure.allocated == 3_550_992_828


def unpacked(repository: Path, name: str, folder: Path) -> Path:
    path = folder / f"{name}.pickle"
    path.write_bytes(gzip.decompress((repository / f"tests/golden/h100/{name}.pickle.gz").read_bytes()))
    return path


def test_categories_are_pytorchs(measure, repository: Path, tmp_path: Path) -> None:
    """PyTorch's split of the same model and step (`export_memory_timeline`), to the byte at its peak.

    PyTorch counts blocks, multiples of 512 B, where a snapshot states what was asked for; of what is older
    than its recording, as the batch was (65,664 B), it counts the tensors' sizes. What it calls an
    input depends on no parameter: also the tables of rotations that each layer converts, 2 each for queries
    and keys, here activations. The snapshot's job keeps the losses of two steps before, and has a gradient
    of the loss. Older than the recording, and so unknown: parameters, states, tables, and two logits of
    33.5 MB that PyTorch's split leaves out.
    """
    packed = (repository / "tests/golden/h100/memory_timeline.json.gz").read_bytes()
    _, sizes = json.loads(gzip.decompress(packed))
    names = "parameter", "state", "input", "temporary", "activation", "gradient", "detail", "none"
    stated = dict(zip(names, max(sizes, key=sum)[1:], strict=True))
    (training,) = run_histories(measure(unpacked(repository, "memory_snapshot", tmp_path)))
    held = bytes_by_category(training.owners, training.peak_moment)
    assert held.keys() == {"autograd detail", "activations", "inputs", "unknown"}
    blocks = -(-training.owners.bytes // 512) * 512
    held = bytes_by_category(replace(training.owners, bytes=blocks), training.peak_moment)
    converted = 4 * 4 * 512 * 32 * 2  # layers, tables, positions, half of a head's dimension, bytes
    older_tables = 2 * 512 * 32 * 4
    assert held["inputs"] - 384 == stated["input"] - converted - older_tables == 65_664
    assert held["activations"] - 2 * 512 == stated["activation"] + converted
    assert held["autograd detail"] - 512 == stated["detail"]
    assert (stated["temporary"], stated["gradient"], stated["none"]) == (0, 0, 0)
    (step,) = run_histories(measure(repository / "tests/golden/h100/memory_step_trace.json.gz"))
    held = bytes_by_category(step.owners, step.peak_moment)
    # The step itself, by its trace: PyTorch counts the loss's gradient, which no backward operator makes, as
    # an activation. What is older than the trace it knows by the tensors of modules and optimizers.
    assert held == {
        "unknown": step.allocated[0] - 65_536,  # all but the targets, the first event
        "activations": stated["activation"] + converted - 512,
        "autograd detail": stated["detail"] + 512,
    }
    (failing,) = run_histories(measure(unpacked(repository, "out_of_memory_snapshot", tmp_path)))
    held = bytes_by_category(failing.owners, failing.peak_moment)
    assert (held["parameters"], held["optimizer states"]) == (stated["parameter"], stated["state"])


NAMES = "parameters, optimizer states, inputs, temporary, activations, gradients, autograd detail"
TORCHS = NAMES.split(", ")


def test_the_split_of_a_trace_is_pytorchs(measure, repository: Path) -> None:
    """To the byte: all categories at the peak, and optimizer states and gradients at every moment.

    At other moments PyTorch has activations that are freed within the forward pass (workspace here), and
    temporary tensors of operators.
    """
    folder = repository / "tests/golden/cpu_memory"
    times, sizes = json.loads(gzip.decompress((folder / "memory_timeline.json.gz").read_bytes()))
    stated = np.array(sizes)[:, 1:]
    (history,) = run_histories(measure(folder / "rank0_trace.json.gz"))
    peak = dict(zip(TORCHS, stated[stated.sum(axis=1).argmax()].tolist(), strict=False))
    assert bytes_by_category(history.owners, history.peak_moment) == {
        name: size for name, size in peak.items() if size
    }
    micros = history.time_ns // 1000
    place = np.searchsorted(times, micros, side="right") - 1
    # PyTorch cuts times to microseconds: of several events in one only the last state is known.
    alone = np.append(micros[1:] != micros[:-1], True) & (stated[place].sum(axis=1) == history.allocated)
    assert alone.sum() > 1_000
    by_category = block_categories(history.owners)
    for name in ("optimizer states", "gradients"):
        chosen = by_category == CATEGORIES.index(name)
        blocks = replace(history.owners, bytes=np.where(chosen, history.owners.bytes, 0))
        assert (blocks.allocated() == stated[place, TORCHS.index(name)])[alone].all()


def test_modelled_peaks_are_those_of_the_job_with_these_settings(measure, repository: Path) -> None:
    """Measured peaks are in the folder's README; PyTorch's checkpoint also keeps 5,056 B a call on a CPU."""
    run = measure(repository / "tests/golden/cpu_memory/rank0_trace.json.gz")
    (history,) = run_histories(run)
    assert predict_memory(run, history, ["checkpoint=Block"]).peak == 1_375_012 - 2 * 5_056
    account, share = with_batch(MemoryAccount.from_owners(history.owners), 8, 9)
    assert account.owners.allocated().max() == 2_333_164
    assert 0.9999 < share < 1  # all but scalars
