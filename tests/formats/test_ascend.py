# SPDX-License-Identifier: Apache-2.0
"""Ascend's kernel details: tasks with exact times, steps from the column that numbers them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.changed_bytes import read_or_refused

from cclbench.formats import DeviceStep, Rows, Trace, recognise_format, trace_reader
from cclbench.ground.errors import InputError

HEADING = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)"
)
TASKS = """\
1,4294967295,1259,16,MatMul46,MatMul,AI_CORE,1699529622790614.8,607.98,0
1,4294967295,N/A,N/A,hcom_allReduce__445_0,hcom_allReduce_,HCCL,1699529622793969.525,308926.68,2746.77
2,4294967295,1265,16,MatMul66,MatMul,AI_CORE,1699529623106755.2,3.14,261.56
2,4294967295,1266,16,Cast67,Cast,AI_VECTOR_CORE,N/A,1.84,382.11
"""
DETAILS = "ascend/profiler/msprof_analyze/test/ut/advisor/advisor_backend/compute_advice/kernel_details.csv"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "kernel_details.csv"
        path.write_text(text)
        return path

    return write


def read(path: Path) -> tuple[Trace, list[tuple[Any, ...]]]:
    """The trace and its rows: name, start, duration, stream."""
    trace = trace_reader("ascend").read(
        path, part=trace_reader("ascend").parts(path)[0], allow_truncated=False
    )
    found = []
    for rows in trace.batches:
        assert isinstance(rows, Rows)
        names = np.array(list(rows.names))[rows.codes].tolist()
        columns = (rows.start_ns.tolist(), rows.dur_ns.tolist(), rows.track.tolist())
        found += list(zip(names, *columns, strict=True))
    return trace, found


def test_rows_and_steps_by_hand(write: Callable[[str], Path]) -> None:
    path = write(f"{HEADING}\n{TASKS}")
    assert recognise_format(path, path.read_bytes()).name == "ascend"
    trace, rows = read(path)
    first, second = 1_699_529_622_790_614_800, 1_699_529_623_106_755_200
    assert rows == [
        ("MatMul", first, 607_980, 16),
        ("hcom_allReduce_", 1_699_529_622_793_969_525, 308_926_680, -1),
        ("MatMul", second, 3_140, 16),
    ]
    assert trace.device_steps == [
        DeviceStep(name="step 1", number=1, start_ns=first, end_ns=second, closed=True),
        DeviceStep(name="step 2", number=2, start_ns=second, end_ns=second + 3_140, closed=False),
    ]
    assert trace.dropped == {"row without a time or duration": 1}


def test_a_training_step(test_data: Path) -> None:
    _, rows = read(test_data / DETAILS)
    communication = [length for name, _, length, _ in rows if name.startswith("hcom_")]
    # Sums of the column Duration(us), of all rows and of those of HCCL.
    assert (len(rows), sum(length for _, _, length, _ in rows)) == (591, 396_807_040)
    assert (len(communication), sum(communication)) == (19, 346_398_740)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEADING.replace('Duration(us)', 'Length')}\n{TASKS}", "has no column 'Duration"),
        (f"{HEADING}\n{TASKS.replace('607.98', 'x')}", "is damaged after row 0"),
        (f"{HEADING}\n{TASKS.replace('607.98', '-1')}", "impossible time"),
        (f"{HEADING}\n{TASKS.replace('1699529622790614.8', '1' * 30)}", "a time that no clock has"),
        (f"{HEADING}\n{TASKS}1,2", "is damaged after row"),
    ],
)
def test_damaged_tables(text: str, said: str, write: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match=said):
        read(write(text))


def test_mutations_are_read_or_refused(write: Callable[[str], Path]) -> None:
    read_or_refused(read, write(""), f"{HEADING}\n{TASKS}".encode())
