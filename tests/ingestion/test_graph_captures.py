# SPDX-License-Identifier: Apache-2.0
"""Graphs launched whole: their operators come from a capture of the same kernels in the same order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import cclbench
from cclbench.formats import Part, Reader, Trace, trace_reader
from cclbench.ground.errors import InputError
from cclbench.ingestion.captured_launches import read_captures
from cclbench.ingestion.source import find_source
from cclbench.operator_table import operator_costs
from cclbench.record.manifest import GraphJoins
from tests.ingestion.test_operators import Event, event, op

NAMES, STEP = ["gemm", "norm", "gemm"], "execute_0_context_0(0)_generation_3(3)"


def capture(names: list[str], width: int = 4) -> list[Event]:
    """A graph with a product and a norm captured on thread 5: launches that run nothing."""
    called = {"hipStreamBeginCapture": 10, "hipLaunchKernel": 2}
    rows = [event("cuda_runtime", name, at, 1, 5) for name, at in called.items()]
    rows += [event("python_function", "nn.Module: Net_0", 11, 10 * len(names) + 30, 5)]
    shapes = {"Input Dims": [[width, 3], [3, 5]], "Input type": ["float", "float"]}
    for n, name in enumerate(names):
        at = 12 + 10 * n
        called, more = ("mm", shapes) if name == "gemm" else (name, {})
        rows.append(op(100 + n, f"aten::{called}", at, 8, 5, **more))
        rows.append(event("cuda_runtime", "hipLaunchKernel", at + 2, 1, 5, kernel=name))
    return [*rows, event("cuda_runtime", "hipStreamEndCapture", 10 * len(names) + 50, 1, 5)]


def replay(names: list[str], annotation: str = STEP) -> list[Event]:
    """One step that launches the graph twice; a copy of its own before."""
    rows = [
        *(event("user_annotation", annotation, 0, 100), op(100, "aten::copy_", 1, 3)),
        event("cuda_runtime", "hipLaunchKernel", 2, 1, correlation=1),
        event("kernel", "copy", 200, 5, 7, correlation=1, device=0, stream=7),
    ]
    for turn in range(2):
        rows.append(event("cuda_runtime", "hipGraphLaunch", 10 + turn, 1, correlation=2 + turn))
        for n, name in enumerate(names):
            begin = 300 + 1_000 * turn + 10 * n
            rows.append(event("kernel", name, begin, 10, 7, correlation=2 + turn, device=0, stream=7))
    return rows


def ingest(folder: Path, replayed: list[Event], captures: dict[str, tuple[int, list[Event]]]) -> cclbench.Run:
    """A run of a replay and captures by file, each with its batch size."""

    def write(name: str, content: Any) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))

    write("job/replay.json", {"traceEvents": replayed})
    details = [{"file": name, "batch_size": size} for name, (size, _) in captures.items()]
    write("job/capture/execution_details.json", details)
    for name, (_, events) in captures.items():
        write(f"job/capture/{name}", {"traceEvents": events})
    return cclbench.ingest(folder / "job", store=folder / "store")


def column(run: cclbench.Run, query: str) -> list[Any]:
    return list(run.sql(query).column(0).to_pylist())


def joins(run: cclbench.Run) -> GraphJoins:
    (rank,) = run.record.ranks
    return rank.graphs


KERNELS = "FROM events e LEFT JOIN operators o USING (rank, operator) WHERE kind = 'kernel'"
KERNELS += " ORDER BY e.start_ns"


def test_kernels_of_a_replay_have_the_captures_operators(tmp_path: Path) -> None:
    """Each launch is a set of calls of its own, with ids that no other call has."""
    run = ingest(tmp_path, replay(NAMES), {"bs_4.json": (4, capture(NAMES))})
    expected = ["aten::copy_", *["aten::mm", "aten::norm", "aten::mm"] * 2]
    assert column(run, f"SELECT o.name {KERNELS}") == expected
    assert column(run, f"SELECT e.module {KERNELS}") == [None, *["Net_0"] * 6]
    assert column(run, f"SELECT e.phase {KERNELS}") == ["decode"] * 7
    ids = column(run, f"SELECT e.operator {KERNELS}")
    assert len(set(ids)) == 7
    assert column(run, "SELECT shapes FROM operators WHERE name = 'aten::mm'") == ["[[4,3],[3,5]]"] * 4
    assert column(run, "SELECT device_ns FROM operators WHERE kernels > 0") == [5_000, *[10_000] * 6]
    assert joins(run) == GraphJoins(2, 2, 6, 6, 60_000, 60_000)
    assert [file.name for rank in run.record.ranks for file in rank.beside] == ["capture/bs_4.json"]


@pytest.mark.parametrize("names", [["gemm", "gemm", "norm"], ["gemm", "norm"], ["gemm", "norm", "other"]])
def test_another_sequence_is_told_and_not_guessed(tmp_path: Path, names: list[str]) -> None:
    run = ingest(tmp_path, replay(NAMES), {"bs_4.json": (4, capture(names))})
    assert column(run, f"SELECT o.name {KERNELS}") == ["aten::copy_", *[None] * 6]
    assert joins(run).joined == 0
    ((why, number),) = joins(run).refused.items()
    assert (why.partition(";")[0], number) == ("3 device rows", 2)
    assert operator_costs(run).notes[-2:] == (
        "graphs: joined 0 of 2 launches with their capture, 0 % of their device time",
        f"graphs: 2 launches not joined: {why}",
    )


def test_of_captures_with_the_same_kernels_the_batch_decides(tmp_path: Path) -> None:
    """Three requests run in the graph for four, not in that for two or eight."""
    captures = {f"bs_{n}.json": (n, capture(NAMES, width=n)) for n in (2, 8, 4)}
    run = ingest(tmp_path, replay(NAMES), captures)
    assert set(column(run, "SELECT shapes FROM operators WHERE name = 'aten::mm'")) == {"[[4,3],[3,5]]"}


SAME = "2 captures of different work have the same kernels, and no batch size tells which"


@pytest.mark.parametrize(
    ("sizes", "annotation", "why"),
    [((2, 4), "ProfilerStep#1", SAME), ((2,), STEP, "captured for at most 2 requests, and the step has 3")],
)
def test_no_others_are_taken(tmp_path: Path, sizes: tuple[int, ...], annotation: str, why: str) -> None:
    captures = {f"bs_{n}.json": (n, capture(NAMES, width=n)) for n in sizes}
    assert joins(ingest(tmp_path, replay(NAMES, annotation), captures)).refused == {why: 2}


def test_without_a_trace_of_the_capture_nothing_is_joined(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"traceEvents": replay(NAMES)}))
    run = cclbench.ingest(tmp_path / "job.json", store=tmp_path / "store")
    assert joins(run).refused == {"the source has no trace of their capture": 2}


LAYERED = [*(f"k{n}" for n in range(30)), "tail"]


def test_a_launch_without_a_row_is_a_stated_loss(tmp_path: Path) -> None:
    """30 of 31 captured kernels have rows: all of them have their call, and the loss is said."""
    run = ingest(tmp_path, replay(LAYERED[:-1]), {"bs_4.json": (4, capture(LAYERED))})
    assert column(run, f"SELECT o.name {KERNELS}")[1:31] == [f"aten::{name}" for name in LAYERED[:-1]]
    assert joins(run) == GraphJoins(2, 2, 60, 60, 600_000, 600_000, 2)
    assert operator_costs(run).notes[-1] == (
        "graphs: joined 2 of 2 launches with their capture, 100.0 % of their device time; 2 captured launches"
        " have no device row"
    )


def layers(count: int) -> list[Event]:
    """Captures of as many graphs of equal work, each in a module of its own."""
    rows: list[Event] = []
    for layer in range(count):
        for row in capture(NAMES):
            name = f"nn.Module: Layer_{layer}" if row["cat"] == "python_function" else row["name"]
            rows.append(row | {"ts": row["ts"] + 1_000 * layer, "name": name})
    return rows


@pytest.mark.parametrize(
    ("captured", "modules"), [(1, ["Layer_0", "Layer_0"]), (2, ["Layer_0", "Layer_1"]), (3, [None, None])]
)
def test_of_equal_layers_order_tells_which(tmp_path: Path, captured: int, modules: list[str | None]) -> None:
    """Two launches: of one graph, of two layers' graphs; of three layers nobody knows which two."""
    run = ingest(tmp_path, replay(NAMES), {"bs_4.json": (4, layers(captured))})
    assert column(run, f"SELECT e.module {KERNELS}")[1:] == [modules[0]] * 3 + [modules[1]] * 3
    assert column(run, f"SELECT o.name {KERNELS}")[1:] == ["aten::mm", "aten::norm", "aten::mm"] * 2


def test_a_capture_without_an_end_is_none(tmp_path: Path) -> None:
    """An error ended the first attempt; the second one is the graph."""
    failed = [row for row in capture(NAMES[:1]) if "EndCapture" not in row["name"]]
    again = [row | {"ts": row["ts"] + 1_000} for row in capture(NAMES)]
    run = ingest(tmp_path, replay(NAMES), {"bs_4.json": (4, [*failed, *again])})
    assert joins(run).joined == 2


def test_captures_alone_are_no_run(tmp_path: Path) -> None:
    ingest(tmp_path, replay(NAMES), {"bs_4.json": (4, capture(NAMES))})
    (tmp_path / "job" / "replay.json").unlink()
    with pytest.raises(InputError, match="holds captures of graphs only"):
        cclbench.ingest(tmp_path / "job", store=tmp_path / "store")


@pytest.mark.parametrize(
    ("name", "launches", "rows", "without_row"),
    [
        *(("sglang_decode_mi300x", 1, 544, 0), ("vllm_decode_mi300x", 1, 421, 0)),
        ("xdit_flux_sage_mi300x", 4, 6_264, 4),
    ],
)
def test_real_replays_are_joined(test_data, evidence_store, name, launches, rows, without_row):
    """All kernels of each graph, and of all kernels' time at least 98 %."""
    run = cclbench.ingest(test_data / "graph_replay" / name, store=evidence_store)
    found = joins(run)
    assert (found.launches, found.joined, found.rows, found.joined_rows) == (launches, launches, rows, rows)
    assert (found.launches_without_row, found.refused) == (without_row, {})
    query = "SELECT sum(dur_ns) FILTER (operator IS NOT NULL) / sum(dur_ns), count(operator) FROM events"
    share, linked = run.sql(f"{query} WHERE kind = 'kernel'").to_pylist()[0].values()
    assert share >= 0.98
    assert linked >= rows


def test_a_diffusion_model_in_a_graph_has_costs(test_data: Path, evidence_store: Path) -> None:
    """14.6 % were modelled while one captured launch more than the replay's rows kept them apart."""
    run = cclbench.ingest(test_data / "graph_replay" / "xdit_flux_sage_mi300x", store=evidence_store)
    assert operator_costs(run).modelled_share >= 0.9


@pytest.mark.parametrize("name", ["sglang_decode_mi300x", "vllm_decode_mi300x", "xdit_flux_sage_mi300x"])
def test_what_is_left_out_is_no_capture(test_data: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The same launches, calls and modules from all rows of a real capture as from its calls only."""
    files = find_source(test_data / "graph_replay" / name).captures
    own = read_captures(files)
    reader = type(trace_reader("kineto"))
    read = reader.read

    def read_all(self: Reader, path: Path, *, part: Part, allow_truncated: bool) -> Trace:
        return read(self, path, part=replace(part, calls_only=False), allow_truncated=allow_truncated)

    monkeypatch.setattr(reader, "read", read_all)
    for capture, of_all in zip(own, read_captures(files), strict=True):
        assert capture.calls.equals(of_all.calls)
        assert len(capture.calls)
        for column in ("copies", "call", "work", "place"):
            assert (getattr(capture, column) == getattr(of_all, column)).all()
        assert capture.kernels.words == of_all.kernels.words
        assert (capture.kernels.codes == of_all.kernels.codes).all()
