# SPDX-License-Identifier: Apache-2.0
"""Shipped data points: first screens, known facts, and nothing that is invented."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cclbench.analyzers.metric import METRICS
from cclbench.record.run import Run

from .conftest import Measure, Rows

BOTH = {("dp", "all_gather"): 36, ("dp", "reduce_scatter"): 24, ("tp", "all_gather"): 72}
COUNTS = {
    "tiny-llama-ddp4-gloo-cpu": {("0,1,2,3", "all_reduce"): 48},
    "tiny-llama-fsdp4-gloo-cpu": {("0,1,2,3", "all_gather"): 36, ("0,1,2,3", "reduce_scatter"): 24},
    "tiny-llama-fsdp2-tp2-gloo-cpu": BOTH | {("tp", kind): 72 for kind in ("reduce_scatter", "all_reduce")},
    "tiny-llama-operators-ddp2-gloo-cpu": {("default_pg", "all_reduce"): 6},
    "tiny-llama-profile-ddp2-gloo-cpu": {("default_pg", "all_reduce"): 10},
    "tiny-llama-pp4-gloo-cpu": {("0,1,2,3", "send"): 18, ("0,1,2,3", "recv"): 18},
    "tiny-llama-slow-store-cpu": {},
    "tiny-moe-ep4-gloo-cpu": {("0,1,2,3", "all_to_all"): 60, ("0,1,2,3", "all_reduce"): 12},
}
"""By group and kind, of each rank, over its steps; `dp` and `tp` are each rank's group of that dimension."""
INNER_STAGES = {("tiny-llama-pp4-gloo-cpu", 1), ("tiny-llama-pp4-gloo-cpu", 2)}
"""Ranks with two neighbours, and twice as many transfers."""
FIRST = {"tiny-llama-profile-ddp2-gloo-cpu": 11, "tiny-llama-slow-store-cpu": 8}
"""The first step of the trace: 3, but of those that waited longer."""
WRAPPERS = ("autograd::", "torch::autograd::")
CALLS = ("c10d::", "_c10d_functional::", "_AlltoAllSingle")


@pytest.fixture(params=sorted(COUNTS))
def data_point(request: pytest.FixtureRequest, repository: Path, measure: Measure) -> tuple[str, Run]:
    """Name and run of a data point, through its card."""
    return request.param, measure(repository / "workload_cards" / f"{request.param}.yaml")


def role(row: dict[str, Any]) -> str | None:
    """Whether a row is a transfer, one in flight beside its thread's work (request), a call for one, an
    operator that works, or a data loader's range."""
    name: str = row["name"]
    if name.startswith("enumerate(DataLoader)#"):
        return "loader"
    if name.startswith("gloo:"):
        return "request" if name in ("gloo:send", "gloo:recv") else "transfer"
    if row["cat"] == "cpu_op" and name.startswith(CALLS):
        return "call"
    return "work" if row["cat"] == "cpu_op" and "::" in name and not name.startswith(WRAPPERS) else None


def sweep(rows: list[dict[str, Any]]) -> dict[int, Counter[str]]:
    """By step, the ns of each part: every instant of the step is looked at once, between two changes."""
    changes: list[tuple[int, int, object, str]] = []
    for row in rows:
        begin, length = (int(row[key] * 1000) for key in ("ts", "dur"))
        what = "step " + row["name"][13:] if row["name"].startswith("ProfilerStep#") else role(row)
        if what is not None and length:
            changes += [(begin, 1, row["tid"], what), (begin + length, -1, row["tid"], what)]
    changes.sort(key=lambda change: change[:2])
    running: dict[object, Counter[str]] = defaultdict(Counter)
    steps: Counter[int] = Counter()
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for (at, sign, thread, what), (until, *_) in pairwise([*changes, (changes[-1][0], 0, None, "")]):
        if what.startswith("step "):
            steps[int(what[5:])] += sign
        else:
            running[thread][what] += sign
        computes = any(t["work"] and not t["call"] + t["transfer"] for t in running.values())
        transfers = any(t["transfer"] + t["request"] for t in running.values())
        part = {
            (True, True): "time.overlapped",
            (True, False): "time.compute_only",
            (False, True): "time.exposed_comm",
            (False, False): "time.idle",
        }[computes, transfers]
        loads = part == "time.idle" and any(t["loader"] for t in running.values())
        for step in +steps:
            found[step]["loader"] += (until - at) * loads
            found[step][part] += until - at
            found[step]["time.step"] += until - at
    return found


def files(run: Run, repository: Path) -> dict[int, Path]:
    """Each rank's trace, of as many as the card says."""
    found = {entry["rank"]: repository / entry["files"][0]["name"] for entry in run.manifest["ranks"]}
    assert sorted(found) == list(range(run.card.hardware.count))
    return found


def test_times_are_a_sweeps_over_rows(data_point, repository, complete_rows):
    name, run = data_point
    assert run.manifest["card"]["id"] == name
    for rank, file in files(run, repository).items():
        by_hand = sweep(complete_rows(file))
        loader = sum(parts.pop("loader") for parts in by_hand.values())
        assert sorted(by_hand) == list(range(FIRST.get(name, 3), run.card.workload.steps))
        for step, parts in by_hand.items():
            measured = {
                row["metric"]: round(row["value"] * 1e9)
                for row in run.rows
                if (row["rank"], row["step"]) == (rank, step) and row["metric"].startswith("time.")
            }
            assert measured.pop("time.phase") == parts["time.step"] - parts["time.idle"], (rank, step)
            assert measured.pop("time.idle_host_by") == parts["time.idle"], (rank, step)
            split = [measured.pop(f"time.exposed_{part}") for part in ("wait", "transfer", "unmatched")]
            # concurrent collectives share an instant in equal parts, which need not be whole nanoseconds
            assert abs(sum(split) - measured["time.exposed_comm"]) <= 1, (rank, step)
            none = dict.fromkeys(("time.exposed_comm", "time.exposed_copy", "time.overlapped"), 0)
            assert measured == none | parts, (rank, step)
        busy = sum(parts["time.step"] - parts["time.idle"] for parts in by_hand.values())
        of_rank = [row for row in run.rows if row["metric"] == "time.phase" and row["rank"] == rank]
        held = {
            row["category"]: row["value"] * len(by_hand) * 1e9
            for row in run.rows
            if row["metric"] == "time.idle_host_by" and row["rank"] == rank and row["category"]
        }
        assert abs(sum(held.values()) - sum(parts["time.idle"] for parts in by_hand.values())) < 1e-3, rank
        assert abs(held["loader"] - loader) < 1e-3, rank
        phases = [row["value"] for row in of_rank if row["category"] and row["step"] is None]
        assert len(phases) >= 4, rank
        assert abs(sum(phases) * len(by_hand) * 1e9 - busy) < 1e-3, rank


def test_collectives_are_those_annotated_the_same_on_all_ranks(data_point, repository, complete_rows):
    """And every row of gloo is one."""
    name, run = data_point
    calls = run.collectives().to_pandas()
    assert calls["group"].notna().all()
    members = {group["group"]: group["ranks"] for group in run.groups().to_pylist()}
    for rank, file in files(run, repository).items():
        own = calls[calls["rank"] == rank]
        rows = complete_rows(file)
        dimension = {"0,1,2,3": "0,1,2,3"}
        annotated = []
        for row in rows:
            if not row["name"].startswith("cclbench::collective "):
                continue
            words, _, description = row["name"].partition(" desc=")
            said = dict(word.split("=") for word in words.split()[1:])
            dimension.setdefault(said["ranks"], description.removeprefix("mesh_"))
            sizes = (int(said["in_bytes"]), int(said["out_bytes"]))
            annotated.append((said["ranks"], int(said["seq"]), said["kind"], *sizes))
        columns = (
            [",".join(map(str, members[group])) for group in own["group"]],
            *(own[column] for column in ("seq", "kind", "in_bytes", "out_bytes")),
        )
        assert sorted(zip(*columns, strict=True)) == sorted(annotated)
        counted = Counter((dimension[ranks], kind) for ranks, _, kind, *_ in annotated)
        times = 2 if (name, rank) in INNER_STAGES else 1
        assert counted == {key: number * times for key, number in COUNTS[name].items()}, rank
        lengths = sorted(int(row["dur"] * 1000) for row in rows if row["name"].startswith("gloo:"))
        assert len(lengths) >= sum(COUNTS[name].values())
        assert sorted(own["end_ns"] - own["start_ns"]) == lengths


def test_the_profilers_overhead_is_that_of_the_files(repository: Path, measure: Measure) -> None:
    name = "tiny-llama-profile-ddp2-gloo-cpu"
    run = measure(repository / "workload_cards" / f"{name}.yaml")
    overheads = []
    for rank in range(2):
        told = json.loads((repository / "traces" / name / f"rank{rank}_step_times.json").read_text())
        without, under = (told[phase]["each"] for phase in ("unprofiled", "profiled"))
        # Of the nine steps that waited the first is left out; the trace has five.
        assert (len(without), len(under)) == (8, 5)
        overheads.append((sum(under) / 5) / (sum(without) / 8) - 1)
    (found,) = (one for one in run.findings if one.name == "profiler_overhead")
    assert f"a step takes {100 * min(overheads):.1f} % longer" in found.claim
    assert (found.confidence, found.gain_s) == ("low", None)


def test_a_server_did_what_its_client_counts(repository: Path, measure: Measure, complete_rows: Rows) -> None:
    """A prefill reads a prompt and gives a token, a decode gives one for each request in it; the server's
    steps take as long as the client, but for a request's way to the server and a token's way back."""
    name = "tiny-llama-serving-cpu"
    run = measure(repository / "workload_cards" / f"{name}.yaml")
    client = json.loads((repository / "traces" / name / "client.json").read_text())
    rows = complete_rows(repository / "traces" / name / "rank0_trace.json.gz")
    steps = [row for row in rows if row["name"].startswith("execute_context_")]
    numbers = [[*map(int, re.findall(r"\d+", row["name"]))] for row in steps]
    prefills, decodes = ([n for n in numbers if n[at]] for at in (0, 2))
    assert sum(n[1] for n in prefills) == sum(client["input_lens"])
    assert len(prefills) + sum(n[3] for n in decodes) == sum(client["output_lens"])
    (requests,) = (row for row in run.rows if row["metric"] == "serving.request_throughput")
    assert round(requests["value"] * client["duration"]) == len(prefills) == client["completed"]

    phases = {
        row["category"]: row["value"]
        for row in run.rows
        if (row["metric"], row["rank"], row["step"]) == ("serving.iteration", None, None)
    }
    length = sum(phases[phase] * len(of) for phase, of in (("prefill", prefills), ("decode", decodes)))
    assert phases[None] * len(steps) == pytest.approx(length)
    assert 0.9 * client["duration"] < length < client["duration"]


ELEMENT = {"Float": 4, "Int": 4, "Long": 8, "Byte": 1, "BFloat16": 2, "Half": 2, "Double": 8}


def test_nccl_metadata_gives_bytes_and_groups(kineto: Path, measure: Measure, complete_rows: Rows) -> None:
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


def test_a_quarter_of_an_h100s_compute_is_in_kernels_without_an_occupancy(kineto, measure, complete_rows):
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


CAPTURES = ("h100_qwen", "cpu_only", "gpu_only_mi210", "distributed_info_missing")


@pytest.mark.parametrize("window", ["steps", "annotations", "trace"])
@pytest.mark.parametrize("capture", [*CAPTURES, "cuda_sync_a100", "sglang_decode_mi300x", "dlrm_8xv100"])
def test_rows_have_a_finite_value_or_reason(kineto, measure, capture, window):
    run = measure(kineto / capture, window)
    assert {row["metric"] for row in run.rows} == set(METRICS)
    for row in run.rows:
        if row["status"] in ("ok", "partial"):
            assert math.isfinite(row["value"]), row
            assert (row["status"] == "partial") == (row["coverage"] is not None), row
            assert row["provenance"] in ("measured", "derived", "modelled"), row
            # the lower end of an interval may lie below what the figure itself can be, and kernels may be
            # faster beside communication than without
            assert row["value"] >= 0 or row["stat"] in ("low", "excess"), row
        else:
            said = (row["status"], row["value"], row["provenance"])
            assert said == ("not_applicable", None, None), row
            assert len(row["reason"]) > 10, row


def status(run: Run, metric: str) -> tuple[str, str]:
    """Status and reason of the run's own row of a metric."""
    row = next(row for row in run.rows if row["metric"] == metric and row["rank"] is None)
    return row["status"], row["reason"] or ""


def test_one_accelerator_does_not_communicate(kineto: Path, measure: Measure) -> None:
    run = measure(kineto / "h100_qwen")
    assert status(run, "time.step")[0] == "ok"
    for metric in ("overlap.ratio", "comm.algbw", "comm.busbw", "balance.load_imbalance"):
        assert status(run, metric)[0] == "not_applicable"


def test_without_host_operators_there_are_no_steps_and_no_loader(kineto: Path, measure: Measure) -> None:
    """Device rows and their launches tell the times and why the device idles, and no more."""
    run = measure(kineto / "gpu_only_mi210")
    assert run.window == "trace"
    for metric in ("time.step", "time.idle", "time.idle_host", "time.idle_device"):
        assert status(run, metric)[0] == "ok"
    for metric in ("data.stall", "memory.copy_bandwidth", "memory.peak_allocated", "comm.busbw"):
        assert status(run, metric)[0] == "not_applicable"
    assert "the trace does not say its rank: taken as rank 0" in run.manifest["ranks"][0]["notes"]


def test_host_rows_of_a_job_with_accelerators_give_no_time(kineto: Path, measure: Measure) -> None:
    run = measure(kineto / "distributed_info_missing")
    assert {row["status"] for row in run.rows} == {"not_applicable"}
    assert "only host events" in status(run, "time.step")[1]
    (entry,) = run.manifest["ranks"]
    assert entry["rank"] == 0
    assert "the trace does not say its rank: taken as rank 0" in entry["notes"]


def test_a_rank_without_accelerators_has_no_kernels(kineto: Path, measure: Measure) -> None:
    run = measure(kineto / "cpu_only")
    assert status(run, "time.step")[0] == "ok"
    for metric in ("compute.kernel_count", "compute.sm_coverage", "time.idle_host", "memory.copy_bandwidth"):
        found, reason = status(run, metric)
        assert found == "not_applicable"
        assert "CPU" in reason
    calls = run.collectives()
    assert calls["kind"].unique().to_pylist() == ["all_reduce"]
    assert len(calls) == 10
