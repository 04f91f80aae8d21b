# SPDX-License-Identifier: Apache-2.0
"""Eight ranks of DLRM whose traces name no process group, with a log of NCCL beside them.

The log is made here, of three steps like the one that was traced: what its lines say of that step is what the
execution traces of the same job say of it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers.nccl_job import Process

import cclbench

from .conftest import Measure

DATATYPES = {"float": (7, 4), "int": (2, 4), "long int": (4, 8)}
"""Of NCCL's enumeration the number, and bytes of an element."""


def log_of(rank: int, calls: pd.DataFrame, steps: int = 3, *, larger: int = 0) -> str:
    """Calls of so many steps: all-to-all is a group of sends and receives, as old libraries have it."""
    one = Process(rank)
    one.init("world", rank, 8)
    one.call("Broadcast", "world", 8, 4, dtype=7)
    for step in range(steps):
        for row in calls.sort_values("start_ns").itertuples():
            datatype, size = DATATYPES[str(row.dtype)]
            count = int(str(row.in_bytes)) // size + (larger if step == 1 else 0)
            if row.kind == "all_reduce":
                one.call("AllReduce", "world", 8, count, dtype=datatype)
            for peer in range(8) if row.kind == "all_to_all" else ():
                one.call("Send", "world", 8, count // 8, dtype=datatype, root=peer)
                one.call("Recv", "world", 8, count // 8, dtype=datatype, root=peer)
    return one.text


@pytest.fixture
def traced(test_data: Path, measure: Measure, tmp_path: Path) -> tuple[Path, pd.DataFrame]:
    """The traces without their execution traces, and what these say of the collectives."""
    source, folder = test_data / "kineto" / "dlrm_8xv100", tmp_path / "dlrm"
    folder.mkdir()
    for file in source.glob("*.gz"):
        shutil.copyfile(file, folder / file.name)
    return folder, measure(source).collectives().to_pandas()


def test_a_log_tells_groups_that_no_trace_names(traced: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    folder, known = traced
    for rank, calls in known.groupby("rank"):
        (folder / f"nccl-{rank}.log").write_text(log_of(int(str(rank)), calls))
    run = cclbench.ingest(folder, store=tmp_path / "store", inference=False)
    found = run.collectives().to_pandas()
    assert set(found["group"]) == {"0-7"}
    for column in ("kind", "group_size", "in_bytes", "instance", "wait_ns", "transfer_ns"):
        assert list(found[column]) == list(known[column]), column
    assert set(found["payload_source"]) == {"annotation"}
    assert {note for entry in run.record.ranks for note in entry.notes} == {
        "nccl_log completes 8 of 8 collectives of which the trace does not tell group or payload"
    }
    assert [row["group"] for row in run.groups().to_pylist()] == ["0-7"]


def test_a_log_of_other_sizes_is_not_used(traced: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    """Where one step of several fits, it alone counts; where none does, the log is left and that is said."""
    folder, known = traced
    for rank, calls in known.groupby("rank"):
        wrong = calls.assign(in_bytes=calls["in_bytes"] + (4 if rank == 5 else 0))
        (folder / f"nccl-{rank}.log").write_text(log_of(int(str(rank)), wrong, larger=10))
    run = cclbench.ingest(folder, store=tmp_path / "store", inference=False)
    found = run.collectives().to_pandas()
    assert set(found["rank"][found["group"].isna()]) == {5}
    assert run.record.ranks[5].notes == [
        "the calls that nccl_log lists are not used: its 8 kernels are nowhere among them, in that order and"
        " of these groups and sizes"
    ]


def test_flight_recorder_dumps_tell_the_same(traced: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    """There an all-to-all is one call."""
    folder, known = traced
    call = {"process_group": ["0", "default_pg"], "state": "completed"}
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(8)))}}
    for rank, calls in known.groupby("rank"):
        twice = enumerate([*calls.sort_values("start_ns").itertuples()] * 2)
        own = [{"profiling_name": f"nccl:{row.kind}", "collective_seq_id": n} for n, row in twice]
        dump = {"version": "2.10", "rank": rank, "pg_config": groups, "entries": [call | one for one in own]}
        (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(dump))
    run = cclbench.ingest(folder, store=tmp_path / "store", inference=False)
    found = run.collectives().to_pandas()
    assert set(found["group"]) == {"0-7"}
    assert list(found["instance"]) == list(known["instance"])
    assert {note for entry in run.record.ranks for note in entry.notes} == {
        "flight_recorder completes 8 of 8 collectives of which the trace does not tell group or payload"
    }
