# SPDX-License-Identifier: Apache-2.0
"""A run of two ranks made by hand, of which every view of the SQL library has an answer on paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cclbench.ground.schema import COLLECTIVES, EVENTS, GROUPS, OPERATORS, STEPS
from cclbench.record.files import EventFile, write_table
from cclbench.record.results import Results
from cclbench.record.run import Run
from helpers.report_run import by_rank, filled, manifest, table
from helpers.typed import rewrite_manifest

Row = dict[str, Any]


def device_row(rank: int, kind: str, name: str, track: int, start: int, end: int, **other: Any) -> Row:
    row = {"device": 0, "side": "device", "category": "other"}
    return row | {"rank": rank, "kind": kind, "name": name, "track": track} | times(start, end) | other


def host_row(rank: int, kind: str, name: str, start: int, end: int, **other: Any) -> Row:
    row = {"side": "host", "category": "other", "track": 100}
    return row | {"rank": rank, "kind": kind, "name": name} | times(start, end) | other


def times(start: int, end: int) -> Row:
    return {"start_ns": start, "dur_ns": end - start}


GEMM = {"category": "gemm", "phase": "forward", "module": "layer"}
DEVICE_EVENTS = (
    device_row(0, "kernel", "void gemm<1>(int)", 7, 1000, 1300, correlation=1, operator=1, **GEMM),
    device_row(0, "kernel", "ncclAllReduce", 9, 1200, 1600, correlation=3, category="communication"),
    device_row(0, "copy", "HtoD", 8, 1300, 1400, bytes=1000, copy_direction="h2d"),
    device_row(0, "kernel", "void gemm<1>(int)", 7, 2100, 2300, correlation=4, operator=2, **GEMM),
    device_row(0, "memset", "set", 8, 2350, 2400),
    device_row(1, "kernel", "void gemm<1>(int)", 7, 1000, 1400, correlation=1, category="gemm"),
    device_row(1, "kernel", "ncclAllReduce", 9, 1500, 1600, category="communication"),
)
HOST_EVENTS = (
    host_row(0, "launch", "cudaLaunchKernel", 900, 920, correlation=1),
    host_row(0, "launch", "cudaLaunchKernel", 1100, 1110, correlation=3),
    host_row(0, "launch", "cudaLaunchKernel", 2050, 2080, correlation=4),
    host_row(1, "launch", "cudaLaunchKernel", 950, 970, correlation=1),
    host_row(0, "sync", "cudaStreamSynchronize", 1610, 2000),
    host_row(0, "other", "cudaMalloc", 500, 600),
    host_row(0, "other", "[memory]", 900, 900, device=0, bytes=100, reserved=400),
    host_row(0, "other", "[memory]", 950, 950, device=0, bytes=300, reserved=400),
    host_row(0, "annotation", "forward", 800, 1250),
    host_row(0, "annotation", "forward", 1900, 2000),
    host_row(0, "op", "aten::mm", 850, 1000, operator=1),
    host_row(0, "op", "aten::mm", 2000, 2100, operator=2),
)
CALL = {"name": "aten::mm", "shapes": "[[16,8],[8,4]]", "dtypes": '["float","float"]', "track": 100}
CALL |= {"phase": "forward", "module": "layer", "recomputed": False}
BLOCK = {"name": "my::block", "shapes": None, "dtypes": None}
CALLS = (
    {"rank": 0, "operator": 1, "parent": 9, "start_ns": 850, "end_ns": 1000, "kernels": 1, "device_ns": 300},
    {"rank": 0, "operator": 2, "start_ns": 2000, "end_ns": 2100, "kernels": 1, "device_ns": 200},
    {"rank": 0, "operator": 9, "start_ns": 840, "end_ns": 1010, "kernels": 0, "device_ns": 0} | BLOCK,
)
PART = {"collective": 0, "instance": 5, "kind": "all_reduce", "library": "nccl", "group": "0-1", "step": 1}
PART |= {"group_size": 2, "seq": 1, "in_bytes": 800, "out_bytes": 800, "end_ns": 1600, "transfer_ns": 100}
PARTS = (
    PART | {"rank": 0, "start_ns": 1200, "arrival_ns": 1200, "wait_ns": 300},
    PART | {"rank": 1, "start_ns": 1500, "arrival_ns": 1500, "wait_ns": 0},
)


def stored(
    path: Path, events: Sequence[Row], calls: Sequence[Row] = (), parts: Sequence[Row] = (), **facts: Any
) -> Run:
    """A run of two ranks with those rows; each has the steps 1 and 2, which begin at 1000 and 2000 ns."""
    for rank in (0, 1):
        own = [event for event in events if event["rank"] == rank]
        for kind in sorted({event["kind"] for event in own}):
            file = EventFile(path / "events" / f"rank={rank}", kind, 0)
            rows = [event for event in own if event["kind"] == kind]
            file.write(filled(columns(rows, EVENTS.names), EVENTS, len(rows)))
            file.close()
        windows = [
            {"rank": rank, "step": step, "start_ns": step * 1000, "end_ns": step * 1000 + 1000}
            | {"source": "device", "open": step == 3}
            for step in (1, 2, 3)
        ]
        rank_calls = [CALL | call for call in calls if call["rank"] == rank]
        rank_parts = [part for part in parts if part["rank"] == rank]
        for name, schema, rows in (
            ("steps", STEPS, windows),
            ("operators", OPERATORS, rank_calls),
            ("collectives", COLLECTIVES, rank_parts),
        ):
            made = filled(columns(rows, schema.names), schema, len(rows))
            write_table(path / name / f"rank={rank}.parquet", made)
    write_table(path / "groups.parquet", GROUPS.empty_table())
    document = manifest(path.name)
    for entry in document["ranks"]:
        entry["facts"] = entry["facts"] | facts
        entry["operators"] = sum(call["rank"] == entry["rank"] for call in calls)
    rewrite_manifest(path, document)
    return Run(path)


def columns(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in names}


def hand_made(path: Path) -> Run:
    """The run: kernels, a copy, launches, a collective of both ranks, operators, memory, two results."""
    facts = {"device_name": "NVIDIA H100 80GB HBM3", "hbm_bytes_per_s": 1e9}
    run = stored(path, (*DEVICE_EVENTS, *HOST_EVENTS), CALLS, PARTS, **facts)
    run.save_results(Results(table(by_rank("time.step", [0.1, 0.3]))))
    return run


def answers(run: Run, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in run.sql(query).to_pylist()]
