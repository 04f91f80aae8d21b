# SPDX-License-Identifier: Apache-2.0
"""Ascend's Chrome JSON: exact times from texts, rows by their process, launches by connection."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cclbench
from cclbench.formats import HEAD_BYTES, Rows, Trace, trace_reader
from cclbench.formats.source_files import required_reader
from cclbench.formats.unread import UnreadFormatError
from cclbench.ground.errors import InputError

FIRST_US = 1_699_529_622_790_614
PROCESSES = {1: "Python", 2: "CANN", 3: "Ascend Hardware", 4: "Communication", 5: "Overlap Analysis"}


def event(name: str, pid: int, begin: str, length: float, tid: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": f"{FIRST_US}{begin}",
        "dur": length,
        **more,
    }


def label(pid: int) -> dict[str, Any]:
    return {"name": "process_name", "pid": pid, "tid": 0, "args": {"name": PROCESSES[pid]}, "ph": "M"}


def task(kind: str, connection: int) -> dict[str, Any]:
    return {"args": {"Task Type": kind, "Physic Stream Id": 7, "connection_id": connection}}


ROWS = [
    event("ProfilerStep#5", 1, ".000", 1000, 100),
    event("aten::mm", 1, ".001", 2.5, 100, cat="cpu_op"),
    event("Enqueue", 1, ".002", 1, 100, cat="enqueue"),
    event("Node@launch", 2, ".003", 1.25, 101, args={"Thread Id": 101, "connection_id": 31}),
    event("Node@launch", 2, ".010", 1, 101, args={"Thread Id": 101, "connection_id": 34}),
    event("AscendCL@aclrtSynchronizeStream", 2, ".004", 900, 101, args={"connection_id": 33}),
    event("aclnnMatmul_MatMulV2", 3, ".125", 100.375, **task("AI_CORE", 31)),
    event("EVENT_WAIT", 3, ".250", 5, **task("EVENT_WAIT", 32)),
    event("hcom_allReduce__445_0_1", 3, ".500", 300, 9, **task("HCCL", 34)),
    event("hcom_allReduce__445_0_1", 4, ".500", 300, 2, args={"connection_id": "34", "count": "9"}),
    event("Notify_Wait", 4, ".600", 300, 3),
    event("Computing", 5, ".125", 100.375, 1),
    {"ph": "C", "name": "HBM", "pid": 6, "ts": f"{FIRST_US}.1", "args": {"Read(MB/s)": 1}},
]


def write(folder: Path, events: list[dict[str, Any]] | None = None) -> Path:
    path = folder / "trace_view.json"
    path.write_text(json.dumps([*(label(pid) for pid in PROCESSES), *ROWS] if events is None else events))
    return path


def read(path: Path, *, allow_truncated: bool = False) -> tuple[Trace, list[tuple[Any, ...]]]:
    reader = trace_reader("ascend_trace")
    trace = reader.read(path, part=reader.parts(path)[0], allow_truncated=allow_truncated)
    found = []
    for rows in trace.batches:
        assert isinstance(rows, Rows)
        names = np.array(list(rows.names))[rows.codes].tolist()
        links = rows.correlation or [None] * len(rows)
        columns = (rows.start_ns.tolist(), rows.dur_ns.tolist(), rows.track.tolist(), links)
        found += [(rows.kind, *row) for row in zip(names, *columns, strict=True)]
    return trace, found


def test_rows_by_hand(tmp_path: Path) -> None:
    trace, rows = read(path := write(tmp_path))
    assert required_reader(path) == "ascend_trace"
    first = FIRST_US * 1000
    assert sorted(rows) == [
        ("annotation", "ProfilerStep#5", first, 1_000_000, 100, None),
        ("kernel", "aclnnMatmul_MatMulV2", first + 125, 100_375, 7, 31),
        ("kernel", "hcom_allReduce_", first + 500, 300_000, 2, 34),
        ("launch", "Node@launch", first + 3, 1_250, 101, 31),
        ("launch", "Node@launch", first + 10, 1_000, 101, 34),
        ("op", "aten::mm", first + 1, 2_500, 100, None),
        ("other", "Enqueue", first + 2, 1_000, 100, None),
        ("sync", "AscendCL@aclrtSynchronizeStream", first + 4, 900_000, 101, 33),
    ]
    assert trace.dropped == {
        "label": 5,
        "task of type EVENT_WAIT": 1,
        "collective listed twice": 1,
        "task within a collective": 1,
        "row of another process": 1,
        "counter": 1,
    }


def test_processes_named_behind_their_rows(tmp_path: Path) -> None:
    many = [event("aten::mm", 1, f".{i % 1000:03d}", 1, cat="cpu_op") for i in range(2000)]
    path = write(tmp_path, [*many, *ROWS, *(label(pid) for pid in PROCESSES)])
    assert path.read_bytes().find(b"Ascend Hardware") > 2 * HEAD_BYTES
    assert required_reader(path) == "ascend_trace"
    assert len(read(path)[1]) == 2008
    run = cclbench.run(path, store=tmp_path / "store")
    table = run.results
    step = table[(table.step == 5) & table["rank"].notna() & table.category.isna()].set_index("metric").value
    # The product takes 125 to 100,500 ns, the reduction 500 to 300,500 ns, of which 100,000 ns overlap.
    assert step["time.compute_only"] == pytest.approx(375e-9)
    assert step["time.overlapped"] == pytest.approx(100_000e-9)
    assert step["time.exposed_comm"] == pytest.approx(200_000e-9)


def test_text_times_alone_are_no_mark_of_this_tool(tmp_path: Path) -> None:
    with pytest.raises(UnreadFormatError, match="is a Chrome trace without rows of PyTorch's profiler"):
        required_reader(write(tmp_path, [event("draw", 1, ".001", 1, cat="gui")]))


def test_a_cut_file_is_read_up_to_the_cut(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b"Notify_Wait")])
    with pytest.raises(InputError, match="truncated"):
        read(path)
    trace, rows = read(path, allow_truncated=True)
    assert (len(rows), trace.cut is not None) == (8, True)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([event("aten::mm", 1, "", 1)], "has no process 'Ascend Hardware'"),
        ([label(3), event("k", 3, "x", 1, **task("AI_CORE", 1))], "impossible time"),
        ([label(3), event("k", 3, "", -1, **task("AI_CORE", 1))], "impossible time"),
        ([label(3), event("k", 3, "0" * 20, 1, **task("AI_CORE", 1))], "a time that no clock has"),
    ],
)
def test_damaged_files(events: list[dict[str, Any]], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read(write(tmp_path, events))


def test_mutations_are_read_or_refused(tmp_path: Path) -> None:
    path, chance = write(tmp_path), random.Random(3)  # noqa: S311 - no secret
    whole = path.read_bytes()
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content[: chance.choice([len(content), chance.randrange(len(content))])])
        with suppress(InputError):
            read(path)
