# SPDX-License-Identifier: Apache-2.0
"""A profiler plug-in of NCCL: collectives with the times of their kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.changed_bytes import read_or_refused

from cclbench.formats import READERS, Evidence
from cclbench.formats.source_files import required_reader
from cclbench.ground.errors import InputError


def line(kind: str, rank: int, details: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    event = {"recordType": "event", "type": kind, "commId": 861, "rank": rank}
    return event | {"start": {"ts": 8_993.5, "pid": 9}, "duration": 29.17} | more | {"details": details or {}}


def collective(rank: int, func: str, seq: int, count: int) -> dict[str, Any]:
    details = {"func": func, "seq": seq, "count": count, "dtype": "ncclFloat32", "algo": "RING"}
    return line("ncclProfileColl", rank, details, eventAddr="0x1")


def kernel(link: int, duration: object) -> dict[str, Any]:
    return {"recordType": "cuptiActivity", "type": "KERNEL", "extCorrId": link, "duration": duration}


def begin(rank: int) -> dict[str, Any]:
    told = {"type": "ProfilerLifecycle", "func": "ProfilerInit", "commId": 861, "rank": rank}
    return told | {"start": {"ts": 1.5, "pid": 9}, "details": {"nranks": 2}}


LINES = [
    *(begin(0), begin(1)),
    {"recordType": "state", "eventAddr": "0x1", "ts": 1.5, "name": "EndGroupApiStart", "pid": 9},
    *(line("ncclProfileKernelLaunch", 0, extCorrId=1), collective(0, "AllReduce", 0, 1000)),
    *(line("ncclProfileKernelLaunch", 0, extCorrId=2), collective(0, "AllGather", 0, 50)),
    *(line("ncclProfileKernelLaunch", 1, extCorrId=3), collective(1, "AllReduce", 0, 1000)),
    *(collective(1, "AllGather", 0, 50), line("ncclProfileKernelCh", 1, parentObj="0x1"), kernel(2, 7)),
    *(kernel(1, 625.5), kernel(3, 9.25)),
]


def write(folder: Path, lines: list[dict[str, Any]] = LINES) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in lines))
    return path


def read(path: Path) -> Evidence:
    assert required_reader(path) == "nccl_profiler"
    return READERS.get("nccl_profiler").read(path)  # type: ignore[call-arg,return-value]


def rows(found: Evidence) -> list[tuple[Any, ...]]:
    columns = ("kind", "library", "group_size", "seq", "dtype", "bytes", "dur_ns")
    return [tuple(row.values()) for row in found.timings.select(columns).to_pylist()]


def test_rows_by_hand(tmp_path: Path) -> None:
    found = read(write(tmp_path))
    # The second rank has two operations and one launch: its kernel is of neither, or of both.
    assert rows(found) == [
        ("all_reduce", "nccl", 2, 0, "ncclFloat32", 4000, 625_500),
        ("all_gather", "nccl", 2, 0, "ncclFloat32", 400, 7_000),
        ("all_reduce", "nccl", 2, 0, "ncclFloat32", 4000, None),
        ("all_gather", "nccl", 2, 0, "ncclFloat32", 400, None),
    ]
    assert found.notes == ["2 operations have no kernel of their own, and so no time"]
    assert found.left_out == {"state of an event": 1, "event of the host": 1}


def test_an_all_reduce_of_four_ranks(test_data: Path) -> None:
    (path,) = (test_data / "nccl_profiler").rglob("*.jsonl")
    found = read(path)
    # The durations of the file's four CUPTI kernels; the last rank to come waits least.
    times = {14_163_250, 9_597_500, 5_141_500, 625_500}
    assert {row[-1] for row in rows(found)} == times
    assert {row[:-1] for row in rows(found)} == {("all_reduce", "nccl", 4, 0, "ncclFloat32", 1 << 27)}
    assert found.notes == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:-9], "line 14: .*truncated"),
        (lambda text: text.replace('"count":1000', '"count":-1'), "line 5: Expected"),
        (lambda text: text.replace('"nranks":2', '"nranks":0'), "line 1: Expected"),
        (lambda text: text.replace('"rank":1', '"rank":"x"'), "line 2: Expected"),
    ],
)
def test_damaged_files(change: Callable[[str], str], said: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=said):
        read(path)


@pytest.mark.parametrize("duration", [None, "x", True, -1, 1e300])
def test_a_kernel_without_a_time(duration: object, tmp_path: Path) -> None:
    found = read(write(tmp_path, [*LINES[:-2], kernel(1, duration)]))
    assert found.left_out["kernel without a launch or time"] == 1
    assert rows(found)[0][-1] is None


def example_line(name: str, cat: str, ph: str, args: str = "") -> str:
    """A line of NCCL's example, whose README has `datatype` unquoted."""
    args = f', "args": {{{args}}}' if args else ""
    return (
        f'{{"name": "{name}", "cat": "{cat}", "ph": "{ph}", "id": 0, "pid": 7, "tid": 1, "ts": 9.5{args}}},'
    )


def operation(name: str, cat: str, args: str, *channels: tuple[int, int, int]) -> Iterator[str]:
    """The lines of an operation and of its channels: number, begin and end by the GPU's clock."""
    yield example_line(name, f"{cat}_API", "b", '"datatype": ncclFloat32')
    yield example_line(name, cat, "b", args)
    for channel, begin, end in channels:
        clock = f'"StartGpuClk": {SECOND + begin}, "StopGpuClk": {SECOND + end}'
        yield example_line("KernelCh", "GPU", "b", f'"Channel": {channel}, {clock}')
        yield example_line("ProgressSend", "PROXY", "b", '"Channel": 0, "Peer": 1')
        yield example_line("KernelCh", "GPU", "e")
    yield example_line(name, cat, "e")


SECOND = 1_756_135_989_000_000_000
REDUCE = '"SeqNum": 3, "CommHash": 14936139511957389430, "Count": 262144, "Datatype": "ncclFloat32"'
GATHER = '"SeqNum": 0, "CommHash": 1, "Count": 8, "Datatype": "ncclBfloat16"'
SEND = '"CommHash": 1, "Peer": 5, "Count": 16, "Datatype": "ncclInt8", "nChannels": 1'


def write_example(folder: Path) -> Path:
    path = folder / "trace-node-7-4242.txt"
    ring = ', "Algorithm": "RING", "Protocol": "%s", "nChannels": 2'
    lines = [
        *("[", example_line("Group API", "GROUP_API", "b", '"groupApiId": 0')),
        *operation("AllReduce", "COLL", REDUCE + ring % "SIMPLE", (0, 2000, 8_161_232), (1, 0, 8_161_000)),
        *operation("AllGather", "COLL", GATHER + ring % "LL", (0, 0, 1000)),
        *operation("Send", "P2P", SEND, (4, 0, 512)),
        "{}]",
    ]
    path.write_text("\n".join([*lines, ""]))
    return path


def test_the_example_of_nccl_by_hand(tmp_path: Path) -> None:
    found = read(write_example(tmp_path))
    # From channel 1's begin to channel 0's end; one of two channels; one channel.
    assert rows(found) == [
        ("all_reduce", "nccl", None, 3, "ncclFloat32", 1 << 20, 8_161_232),
        ("all_gather", "nccl", None, 0, "ncclBfloat16", None, None),
        ("send", "nccl", None, None, "ncclInt8", 16, 512),
    ]
    assert found.timings["dst_rank"].to_pylist() == [None, None, 5]
    assert found.facts == {"algorithms": ["ring simple", "ring ll"]}
    assert found.left_out == {"event of the host or its proxy": 1 + 3 + 4}
    assert found.notes == ["1 operations lack times of channels by the GPU's clock, and so a time"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{}]\n", "", "line 23: ends before the end"),
        ('"SeqNum": 3', '"SeqNum": -3', "line 4: Expected"),
        ('"GPU", "ph": "e"', '"GPU", "ph": "x"', "line 7: Invalid enum"),
    ],
)
def test_damaged_examples(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = write_example(tmp_path)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=said):
        read(path)


def test_changed_bytes_are_read_or_refused(tmp_path: Path) -> None:
    for path in (write(tmp_path), write_example(tmp_path)):
        read_or_refused(READERS.get("nccl_profiler").read, path, path.read_bytes())  # type: ignore[arg-type]
