# SPDX-License-Identifier: Apache-2.0
"""Calls as NCCL and RCCL log them: functions, datatypes, sizes; lines that are torn, cut or impossible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.nccl_job import Process

from cclbench.formats import Evidence
from cclbench.formats.nccl_log import NcclLog

Read = Callable[[str], Evidence]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a log of that text."""

    def read(text: str) -> Evidence:
        path = tmp_path / "job.log"
        path.write_text(text)
        return NcclLog().read(path)

    return read


def a_call(function: str, count: int, datatype: int, *, ranks: int = 4, root: int = 0, more: str = "") -> str:
    one = Process(0)
    one.say(
        f"{function}: opCount 1f sendbuff 0x1 recvbuff (nil) {more}count {count} datatype {datatype} op 0"
        f" root {root} comm 0xab [nranks={ranks}] stream 0x7"
    )
    return one.text


def rows(found: Evidence) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = found.timings.to_pylist()
    return listed


@pytest.mark.parametrize(
    ("function", "count", "datatype", "kind", "dtype", "size"),
    [
        *(("AllReduce", 10, 7, "all_reduce", "float32", 40), ("Broadcast", 10, 0, "broadcast", "int8", 10)),
        ("Reduce", 10, 8, "reduce", "float64", 80),
        # Of one rank's part: four ranks have four.
        ("AllGather", 10, 9, "all_gather", "bfloat16", 80),
        ("ReduceScatter", 10, 6, "reduce_scatter", "float16", 80),
        ("AlltoAll", 10, 2, "all_to_all", "int32", 160),
        ("Gather", 10, 10, "gather", "float8e4m3", 40),
        ("Scatter", 10, 11, "scatter", "float8e5m2", 40),
        *(("Send", 10, 4, "send", "int64", 80), ("Recv", 10, 5, "recv", "uint64", 80)),
        # A datatype that is not known, a function of which no line tells the counts, one that is not known.
        *(
            ("AllReduce", 10, 99, "all_reduce", None, None),
            ("AllToAllv", 0, 7, "all_to_all", "float32", None),
        ),
        *(("PutSignal", 10, 7, None, "float32", None), ("AllReduce", 0, 3, "all_reduce", "uint32", 0)),
    ],
)
def test_functions_and_datatypes(
    read: Read, function: str, count: int, datatype: int, kind: str, dtype: str, size: int | None
) -> None:
    found = read(a_call(function, count, datatype))
    (row,) = rows(found)
    assert (row["kind"], row["dtype"], row["bytes"], row["group_size"]) == (kind, dtype, size, 4)
    assert bool(found.notes) == (size is None)


def test_rccl_has_more_words_and_other_names(read: Read) -> None:
    """As of RCCL 2.22 and later, and of 2.4 with a time of its own."""
    more = a_call("AllReduce", 1, 7, more="acc (nil) ").replace("0x7", "0x7 task 0 globalrank 3")
    (row,) = rows(read(more))
    assert (row["bytes"], row["library"]) == (4, "rccl")
    (row,) = rows(read(a_call("AllReduce", 2, 7).replace(" NCCL", " 1558545003174220 NCCL")))
    assert (row["bytes"], row["library"]) == (8, "nccl")


def test_numbers_of_calls_within_a_communicator(read: Read) -> None:
    """Collectives are numbered together, the transfers of a pair one way by themselves."""
    one = Process(1)
    one.init("a", 1, 4)
    calls = ("AllReduce", 0), ("Send", 2), ("Send", 3), ("AllGather", 0), ("Send", 2), ("Recv", 2)
    for function, root in calls:
        one.call(function, "a", 4, 1, root=root)
    found = read(one.text)
    assert [(row["kind"], row["seq"], row["src_rank"], row["dst_rank"]) for row in rows(found)] == [
        *(("all_reduce", 0, None, None), ("send", 0, 1, 2), ("send", 0, 1, 3), ("all_gather", 1, None, None)),
        *(("send", 1, 1, 2), ("recv", 0, 2, 1)),
    ]
    (communicator,) = found.communicators
    assert (communicator.rank, communicator.size, communicator.process_id) == (1, 4, 4001)
    assert "node-7" not in str((found.facts, found.notes, found.communicators))


def test_torn_and_cut_lines_are_counted(read: Read) -> None:
    """A line in the middle of another one is whole; what is left of that one is not counted as a call."""
    first, second = a_call("AllReduce", 10, 7).rstrip(), a_call("AllGather", 3, 7).rstrip()
    for cut in (20, first.index("count") + 7, first.index("comm") + 6, first.index("[nranks") + 8):
        found = read(f"{first[:cut]}{second}{first[cut:]}\n{second}\n")
        assert [row["kind"] for row in rows(found)][-1] == "all_gather"
        whole = len(rows(found))
        torn = found.left_out.get("calls on torn lines", 0)
        assert (whole, torn) == (2, 1), cut
    found = read(f"{first}\n{first[: first.index('datatype')]}")
    assert (len(rows(found)), found.left_out) == (1, {"calls on torn lines": 1})
    assert found.notes == ["1 calls are not counted: their lines are torn or cut"]


def test_impossible_sizes_are_no_calls_and_a_log_may_have_none(read: Read) -> None:
    found = read(a_call("AllReduce", 10**18, 8) + a_call("AllReduce", 1, 7))
    assert (len(rows(found)), found.left_out) == (1, {"calls on torn lines": 1})
    # A peer outside of its communicator is none.
    (row,) = rows(read(a_call("Send", 1, 7, root=4)))
    assert (row["kind"], row["dst_rank"]) == ("send", None)
    one = Process(0)
    one.init("a", 0, 1)
    found = read(one.text)
    assert (found.timings, found.communicators) == (None, [])


def test_hostile_lines_take_no_time(read: Read) -> None:
    """Names and numbers without end, ranks beyond any job, and calls that all differ."""
    one = Process(0)
    for number in range(70_000):
        one.call("Send", "a", 4, number, root=1)
    endless = "a" * 60_000 + ":" + "1" * 60_000
    found = read(
        f"{endless}:1 [0] NCCL INFO AllReduce: opCount 0 \n"
        + a_call("AllReduce", 1, 7, ranks=9_999_999)
        + a_call("AllReduce", 1, 7, ranks=0)
        + f"node:{'9' * 5000}:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1\n"
        + one.text
    )
    assert len(rows(found)) == 70_000
    assert found.left_out["calls on torn lines"] >= 2
    assert len(found.communicators) == 1
