# SPDX-License-Identifier: Apache-2.0
"""A rank's operators are the same whether its time is taken at once or in stretches, in memory or on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cclbench
from cclbench import disk_columns, disk_order
from cclbench.disk_order import cuts
from cclbench.ingestion import host
from cclbench.ingestion.host_rows import HostRows, read_named

Event = dict[str, Any]
MAIN, ENGINE = 1, 2


@pytest.fixture
def in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of some ten rows, and no array in memory."""
    monkeypatch.setattr(host, "STRETCH_ROWS", 10)
    monkeypatch.setattr(disk_order, "_SAMPLE", 1)
    monkeypatch.setattr(disk_columns, "SMALL_BYTES", 1)


def event(category: str, name: str, begin: int, end: int, thread: int = MAIN, **args: Any) -> Event:
    row = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": begin, "dur": end - begin}
    return {**row, "args": args}


class Host:
    """A made-up host: calls within calls, of which some launch, state a number, or run for a node."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311
        self.now, self.number = 0, 0
        self.events: list[Event] = []
        self.device = 0

    def step(self, index: int) -> None:
        """Forward with modules and lines of Python, backward on another thread, optimizer."""
        begin = self.now
        for layer in range(3):
            self.range("python_function", f"nn.Module: Layer_{layer}", self.forward)
        for _ in range(3):
            self.call("autograd::engine::evaluate_function: MmBackward0", ENGINE, self.numbered(), 1)
        self.range("user_annotation", "Optimizer.step#SGD.step", lambda: self.call("aten::add_", MAIN, {}, 1))
        self.events.append(event("user_annotation", f"ProfilerStep#{index}", begin, self.now))

    def forward(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            site = f"train.py({self.random.randint(1, 3)}): step"
            self.range("python_function", site, lambda: self.call("aten::mm", MAIN, self.numbered(), 3))

    def numbered(self) -> dict[str, int]:
        args = {"Sequence number": self.random.randint(0, 40), "Fwd thread id": 0}
        return args if self.random.random() < 0.8 else {}

    def range(self, category: str, name: str, inside: Any) -> None:
        begin = self.tick()
        inside()
        self.events.append(event(category, name, begin, self.tick()))

    def call(self, name: str, thread: int, args: dict[str, int], depth: int) -> None:
        begin, number = self.tick(), self.number
        self.number += 1
        for _ in range(self.random.randint(0, 3)):
            if depth and self.random.random() < 0.5:
                self.call("aten::inner", thread, {}, depth - 1)
            else:
                self.launch(thread)
        own = {"External id": number} if self.random.random() < 0.8 else {}
        self.events.append(event("cpu_op", name, begin, self.tick(), thread, **own, **args))

    def launch(self, thread: int) -> None:
        """A launch and its kernel, which may state its call, any call, or have lost its launch."""
        at, correlation = self.tick(), len(self.events)
        stated = self.random.choice([None, self.number - 1, self.random.randrange(self.number)])
        args: dict[str, Any] = {"device": 0, "stream": 7, "correlation": correlation}
        args |= {} if stated is None else {"External id": stated}
        if self.random.random() < 0.9:
            row = event("cuda_runtime", "cudaLaunchKernel", at, self.tick(), thread, correlation=correlation)
            self.events.append(row)
        self.device = max(self.device, self.now) + self.random.randint(0, 3)
        begin = self.device - self.random.randint(0, 2)
        self.events.append(event("kernel", f"kernel_{correlation % 5}", begin, self.device + 5, 7, **args))
        self.device += 5

    def tick(self) -> int:
        """The next instant, often the same one."""
        self.now += self.random.randint(0, 2)
        return self.now


def tables(run: cclbench.Run) -> Iterator[tuple[str, pa.Table]]:
    for path in sorted(run.path.rglob("*.parquet")):
        yield str(path.relative_to(run.path)), pq.read_table(path)


@pytest.fixture(params=[*range(12)])
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    host = Host(request.param)
    for index in range(6):
        host.step(index)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": host.events}))
    return path


def test_tables_are_equal(trace: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    whole = dict(tables(cclbench.ingest(trace, store=tmp_path / "whole", jobs=1)))
    request.getfixturevalue("in_stretches")
    assert len(whole["operators/rank=0.parquet"]) > 60
    for name, table in tables(cclbench.ingest(trace, store=tmp_path / "stretches", jobs=1)):
        assert table.equals(whole[name]), name


def test_tables_of_a_cpu_are_equal(trace: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    events = json.loads(trace.read_text())["traceEvents"]
    host = [row for row in events if row["cat"] not in ("kernel", "cuda_runtime")]
    trace.write_text(json.dumps({"traceEvents": host}))
    whole = dict(tables(cclbench.ingest(trace, store=tmp_path / "whole", jobs=1)))
    request.getfixturevalue("in_stretches")
    for name, table in tables(cclbench.ingest(trace, store=tmp_path / "stretches", jobs=1)):
        assert table.equals(whole[name]), name


@pytest.mark.parametrize("name", ["ddp_a100", "cpu_only", "resnet_mi300x"])
@pytest.mark.usefixtures("in_stretches")
def test_tables_of_real_traces_are_equal(
    name: str, test_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "STRETCH_ROWS", 500)
    stretches = cclbench.ingest(test_data / "kineto" / name, store=tmp_path / "stretches", jobs=1)
    monkeypatch.undo()
    whole = dict(tables(cclbench.ingest(test_data / "kineto" / name, store=tmp_path / "whole", jobs=1)))
    for path, table in tables(stretches):
        assert table.equals(whole[path]), path


@pytest.mark.usefixtures("in_stretches")
def test_a_stretch_has_its_own_rows_and_those_that_last_into_it(tmp_path: Path) -> None:
    """Ten short ranges a stretch, and one of another thread around all: it is read with both stretches."""
    spans = [(2, 0, 1000), *((1, 10 * i, 5) for i in range(19))]
    track, start, length = (pa.array(column, pa.int64()) for column in zip(*spans, strict=True))
    name = pa.array([f"range {i}" for i in range(20)]).dictionary_encode()
    table = pa.table({"track": track, "start_ns": start, "dur_ns": length, "name": name})
    pq.write_table(table, tmp_path / "annotation-000.parquet")
    read = read_named(tmp_path, "annotation", None, lambda _: True)
    rows = HostRows(read, np.array(cuts(10, read.columns["start_ns"].values())))
    assert rows.stretches == 2
    first = rows.stretch(0)
    rows.go_on(first, 0)
    second = rows.stretch(1)
    assert first.ranges.start_ns.tolist() == [*range(0, 90, 10), 0]
    assert second.ranges.start_ns.tolist() == [*range(90, 190, 10), 0]
    assert second.own.tolist() == [True] * 10 + [False]
    assert rows.stretch_of(np.array([0, 89, 90, 500])).tolist() == [0, 0, 1, 1]
