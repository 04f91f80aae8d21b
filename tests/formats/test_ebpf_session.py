# SPDX-License-Identifier: Apache-2.0
"""Sessions of an eBPF tracer: operations of processes by minute, as its own tables sum them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.changed_bytes import read_or_refused

from cclbench.formats import READERS, Evidence
from cclbench.formats.source_files import required_reader
from cclbench.ground.errors import InputError

MINUTE = 60 * 10**9
SESSIONS = Path("ebpf_gpu", "investigations")


def write(folder: Path, *, aggregates: bool = True) -> Path:
    path = folder / "session.db"
    with sqlite3.connect(path) as base:
        base.executescript(
            "CREATE TABLE events (id INTEGER, timestamp INTEGER, pid INTEGER, source INTEGER, op INTEGER,"
            " duration INTEGER);"
            "CREATE TABLE stack_traces (hash INTEGER); CREATE TABLE causal_chains (id TEXT);"
            "CREATE TABLE ops (source_id INTEGER, op_id INTEGER, name TEXT);"
            "CREATE TABLE event_aggregates (bucket INTEGER, source INTEGER, op INTEGER, pid INTEGER,"
            " count INTEGER, sum_dur INTEGER);"
            "CREATE TABLE system_snapshots (timestamp INTEGER, cpu_pct REAL, mem_pct REAL, load_avg REAL);"
            "INSERT INTO ops VALUES (1, 5, 'cudaStreamSync'), (3, 2, 'sched_wakeup');"
            "INSERT INTO causal_chains VALUES ('chain-001');"
        )
        base.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
            [
                *((1, MINUTE + 5, 70, 1, 5, 2000), (2, MINUTE + 9, 70, 1, 5, 500)),
                (3, 2 * MINUTE, 71, 3, 2, 0),
            ],
        )
        base.execute("INSERT INTO system_snapshots VALUES (?, 25.0, 50.0, 1.5)", (MINUTE + 7,))
        if aggregates:
            sums = [(MINUTE, 1, 5, 70, 1000, 3 * 10**9), (MINUTE, 9, 1, 70, 1, 0)]
            base.executemany("INSERT INTO event_aggregates VALUES (?, ?, ?, ?, ?, ?)", sums)
    base.close()
    return path


def read(path: Path) -> Evidence:
    assert required_reader(path) == "ebpf_session"
    return READERS.get("ebpf_session").read(path)  # type: ignore[call-arg,return-value]


def values(found: Evidence) -> dict[tuple[Any, ...], float]:
    columns = ("counter", "unit", "port", "start_ns", "end_ns")
    return {tuple(row[name] for name in columns): row["value"] for row in found.counters.to_pylist()}


HOST = {("host_cpu_utilization", "1", None, MINUTE + 7, MINUTE + 7): 0.25}
HOST |= {("host_memory_utilization", "1", None, MINUTE + 7, MINUTE + 7): 0.5}
HOST |= {("host_load", None, None, MINUTE + 7, MINUTE + 7): 1.5}


def test_sums_of_the_tracer(tmp_path: Path) -> None:
    found = read(write(tmp_path))
    assert values(found) == HOST | {
        ("cudaStreamSync calls", "count", "process 70", MINUTE, 2 * MINUTE): 1000,
        ("cudaStreamSync time", "s", "process 70", MINUTE, 2 * MINUTE): 3.0,
        ("operation 1 of source 9 calls", "count", "process 70", MINUTE, 2 * MINUTE): 1,
    }
    assert (found.left_out, found.notes) == ({"rows of causal_chains": 1}, [])


def test_sums_of_events_where_the_tracer_has_none(tmp_path: Path) -> None:
    found = read(write(tmp_path, aggregates=False))
    assert values(found) == HOST | {
        ("cudaStreamSync calls", "count", "process 70", MINUTE, 2 * MINUTE): 2,
        ("cudaStreamSync time", "s", "process 70", MINUTE, 2 * MINUTE): 2.5e-6,
        ("sched_wakeup calls", "count", "process 71", 2 * MINUTE, 3 * MINUTE): 1,
    }
    assert found.notes == ["sums are of the stored events: the session has no event_aggregates"]


def test_a_starved_loader(test_data: Path) -> None:
    """The trainer waits 0.05 s for the device in two minutes; its loaders are descheduled 53,526 times."""
    sums = Counter[tuple[str, str]]()
    for (counter, _, process, *_), value in values(
        read(test_data / SESSIONS / "pytorch-dataloader-starvation.db")
    ).items():
        sums[counter, process] += value  # type: ignore[assignment]
    # Sums of the table's own columns count and sum_dur.
    assert sum(v for (name, _), v in sums.items() if name.endswith(" calls")) == 1_623_496
    assert sum(v for (name, _), v in sums.items() if name.endswith(" time")) == pytest.approx(51.572218427)
    assert sums["cudaDeviceSync time", "process 2233"] == pytest.approx(0.051702862)
    assert sums["sched_switch calls", "process 2254"] == 53_526


def test_a_node_of_a_cluster(test_data: Path) -> None:
    found = values(read(test_data / SESSIONS / "sample-gpu-node-01.db"))
    assert sum(v for (name, *_), v in found.items() if name.endswith(" calls")) == 200
    assert sum(v for (name, *_), v in found.items() if name.endswith(" time")) == pytest.approx(0.15289176)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE event_aggregates SET sum_dur = -1", "impossible sum"),
        ("UPDATE event_aggregates SET bucket = 1 << 62", "impossible sum"),
        ("UPDATE event_aggregates SET count = 'x'", "holds string values"),
        ("DROP TABLE ops", "no such table: ops"),
        ("UPDATE system_snapshots SET cpu_pct = 'x'", "holds string values"),
    ],
)
def test_damaged_sessions(sql: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    with sqlite3.connect(path) as base:
        base.execute(sql)
    base.close()
    with pytest.raises(InputError, match=said):
        read(path)


def test_mutations_are_read_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    read_or_refused(READERS.get("ebpf_session").read, path, path.read_bytes())
