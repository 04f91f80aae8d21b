# SPDX-License-Identifier: Apache-2.0
"""Flex's traces of IBM Spyre: rows by what the card does, exact times, files of several cards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.refused import refused

from cclbench.api import run
from cclbench.classify import collective_name
from cclbench.formats import Rows, Trace, recognise_format, trace_reader
from cclbench.record.metric_name import metric_name
from cclbench.record.selection import Selection
from cclbench.results import full_results

Event = dict[str, Any]
FOLDER = "spyre/tests/test_data"


def pair(name: str, begin: float, end: float, pid: int = 0, tid: int = 7, **attributes: str) -> list[Event]:
    attributes = {"TS1": f"0x{int(begin * 560):x}", "TS2": "0x2", **attributes}
    row = {"attr": attributes, "name": name, "pid": pid, "tid": tid}
    return [{**row, "ph": "B", "ts": begin}, {**row, "ph": "E", "ts": end}]


@pytest.fixture
def write(written: Callable[..., Path]) -> Callable[..., Path]:
    return lambda *events: written(json.dumps([event for own in events for event in own]), "job.json")


def read(path: Path) -> tuple[Trace, list[tuple[Any, ...]]]:
    """The trace and its rows: kind, name, begin, length, bytes, direction."""
    reader = trace_reader("spyre")
    trace = reader.read(path, part=reader.parts(path)[0], allow_truncated=False)
    found = []
    for rows in trace.batches:
        assert isinstance(rows, Rows)
        names = np.array(list(rows.names))[rows.codes].tolist()
        nothing = [None] * len(names)
        columns = (rows.start_ns.tolist(), rows.dur_ns.tolist(), rows.bytes or nothing)
        found += [
            (rows.kind, *row) for row in zip(names, *columns, rows.copy_direction or nothing, strict=True)
        ]
    return trace, found


def test_rows_by_what_the_card_does(write: Callable[..., Path]) -> None:
    group = {"CollGroup": "AllReduce_all_reduce_4", "Bytes": "524288"}
    add = pair("add_11 Cmpt Exec", 10.001, 12.0, pid=3)
    path = write(
        pair("add_11 Cmpt Prep", 9, 10.001, pid=3),
        [*add, {"ph": "X", "name": "Flex RoundTrip", "pid": 3, "tid": 1, "ts": 1, "dur": 30}],
        pair("AllReduce_all_reduce_4_Add_1 Cmpt Exec", 15, 16, pid=3, **group),
        pair("SenRdmaSend_82237 [sync=AllReduce_s1_r2_2] DmaO", 12, 14, pid=3, tid=8, **group),
        pair("input_3 DmaI", 1, 2, pid=3, tid=9, Bytes="4096"),
        [{**add[0], "ts": 90}, {**add[1], "name": "mul Cmpt Exec"}, {"ph": "M", "name": "process_name"}],
    )
    assert recognise_format(path, path.read_bytes()).name == "spyre"
    trace, rows = read(path)
    assert sorted(rows, key=lambda row: row[2]) == [
        ("copy", "input", 1000, 1000, 4096, "h2d"),
        ("kernel", "add", 10_001, 1999, None, None),
        ("kernel", "SenRdmaSend", 12_000, 2000, None, None),
        ("kernel", "Add", 15_000, 1000, None, None),
    ]
    assert (trace.facts.rank, trace.facts.vendor) == (3, "ibm")
    assert trace.dropped == {
        "preparation of a computation": 1,
        "row of the runtime on the host": 1,
        "row without a begin, or a length": 1,
        "begin without an end": 1,
        "label": 1,
    }
    assert collective_name("SenRdmaSend") == ("send", "spyre")
    assert collective_name("SenRdmaReceive") == ("recv", "spyre")
    assert collective_name("Add") is None


def test_files_of_several_cards_are_refused(write: Callable[..., Path], test_data: Path) -> None:
    """One operation runs twice at a time, or rows have several ranks; an overlap of clocks is neither."""
    says = "rows of several cards"
    twice = (pair("add_1 Cmpt Exec", 1, 3), pair("add_1 Cmpt Exec", 1.5, 3.5))
    for events in (twice, (pair("add Cmpt Exec", 1, 2), pair("add Cmpt Exec", 4, 5, pid=1))):
        path = write(*events)
        refused(read, path, says)
    refused(read, test_data / FOLDER / "allreduce_tp4.json", says)
    again = pair("add_1 Cmpt Exec", 1, 3)
    _, rows = read(write(again, again, pair("add_2 Cmpt Exec", 2.9, 4)))
    assert len(rows) == 3


@pytest.mark.parametrize("changes", [{"ts": -5}, {"ts": "x"}, {"ts": 1e30}])
def test_impossible_times_are_refused(write: Callable[..., Path], changes: Event) -> None:
    begin, end = pair("add Cmpt Exec", 1, 2)
    refused(read, write([begin | changes, end]), "time")


def test_a_job_on_one_card(test_data: Path, tmp_path: Path) -> None:
    """17 operations, of which one is listed twice: from the first to the last 11,763.257 us."""
    path = test_data / FOLDER / "sample_flex_3062_job_4.json"
    trace, rows = read(path)
    assert (len(rows), trace.dropped, trace.facts.rank) == (17, {}, 0)
    busy_ns = sum(length for _, length in {(begin, length) for _, _, begin, length, *_ in rows})
    results = full_results(run(path, store=tmp_path / "store"), Selection())
    assert results.value(metric_name("time.step")) == pytest.approx(11_763.257e-6)
    assert results.value(metric_name("compute.busy")) == pytest.approx(busy_ns / 11_763_257)
