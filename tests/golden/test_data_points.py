# SPDX-License-Identifier: Apache-2.0
"""The data points of this repository against a sweep over their JSON rows, written apart from the package.

On a CPU the work is that of the operators, `namespace::name`; autograd's nodes are wrappers, and a thread
inside a c10d call starts or awaits a transfer.  gloo's own rows are the communication, with all that their
thread does in them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cclbench.record.run import Run

from .conftest import Measure, Rows

BOTH = {("dp", "all_gather"): 36, ("dp", "reduce_scatter"): 24, ("tp", "all_gather"): 72}
COUNTS = {
    "tiny-llama-ddp4-gloo-cpu": {("0,1,2,3", "all_reduce"): 48},
    "tiny-llama-fsdp4-gloo-cpu": {("0,1,2,3", "all_gather"): 36, ("0,1,2,3", "reduce_scatter"): 24},
    "tiny-llama-fsdp2-tp2-gloo-cpu": BOTH | {("tp", kind): 72 for kind in ("reduce_scatter", "all_reduce")},
    "tiny-llama-operators-ddp2-gloo-cpu": {("default_pg", "all_reduce"): 6},
    "tiny-llama-profile-ddp2-gloo-cpu": {("default_pg", "all_reduce"): 10},
    "tiny-llama-slow-store-cpu": {},
}
"""By group and kind, of each rank, over its steps; `dp` and `tp` are each rank's group of that dimension."""
FIRST = {"tiny-llama-profile-ddp2-gloo-cpu": 11, "tiny-llama-slow-store-cpu": 8}
"""The first step of the trace: 3, but of those that waited longer."""
WRAPPERS = ("autograd::", "torch::autograd::")
CALLS = ("c10d::", "_c10d_functional::")


@pytest.fixture(params=sorted(COUNTS))
def data_point(request: pytest.FixtureRequest, repository: Path, measure: Measure) -> tuple[str, Run]:
    """Name and run of a data point, through its card."""
    return request.param, measure(repository / "workload_cards" / f"{request.param}.yaml")


def role(row: dict[str, Any]) -> str | None:
    """Whether a row is a transfer, a call for one, an operator that works, or a data loader's range."""
    name: str = row["name"]
    if name.startswith("enumerate(DataLoader)#"):
        return "loader"
    if name.startswith("gloo:"):
        return "transfer"
    if row["cat"] != "cpu_op" or "::" not in name or name.startswith(WRAPPERS):
        return None
    return "call" if name.startswith(CALLS) else "work"


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
        transfers = any(t["transfer"] for t in running.values())
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


def test_times_are_those_of_a_sweep_over_the_rows(
    data_point: tuple[str, Run], repository: Path, complete_rows: Rows
) -> None:
    name, run = data_point
    assert run.manifest["card"]["id"] == name
    assert run.card is not None
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


def test_collectives_are_those_annotated_the_same_on_all_ranks(
    data_point: tuple[str, Run], repository: Path, complete_rows: Rows
) -> None:
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
        assert counted == COUNTS[name], rank
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
