# SPDX-License-Identifier: Apache-2.0
"""Graphs launched whole: their operators come from a capture of the same kernels in the same order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.ground.errors import InputError
from tests.ingestion.test_operators import Event, event, op

NAMES = ["gemm", "norm", "gemm"]


def capture(names: list[str], width: int = 4) -> list[Event]:
    """A graph with a product and a norm captured on thread 5: launches that run nothing."""
    rows = [
        event("cuda_runtime", "hipStreamBeginCapture", 10, 1, 5),
        event("cuda_runtime", "hipLaunchKernel", 2, 1, 5),
    ]
    rows += [event("python_function", "nn.Module: Net_0", 11, 60, 5)]
    shapes = {"Input Dims": [[width, 3], [3, 5]], "Input type": ["float", "float"]}
    for n, name in enumerate(names):
        at = 12 + 10 * n
        rows += [
            op(
                100 + n,
                f"aten::{'mm' if name == 'gemm' else name}",
                at,
                8,
                5,
                **(shapes if name == "gemm" else {}),
            ),
            event("cuda_runtime", "hipLaunchKernel", at + 2, 1, 5, kernel=name),
        ]
    return [*rows, event("cuda_runtime", "hipStreamEndCapture", 80, 1, 5)]


def replay(names: list[str], annotation: str = "execute_0_context_0(0)_generation_3(3)") -> list[Event]:
    """One step that launches the graph twice; a copy of its own before."""
    rows = [
        event("user_annotation", annotation, 0, 100),
        op(100, "aten::copy_", 1, 3),
        event("cuda_runtime", "hipLaunchKernel", 2, 1, correlation=1),
        event("kernel", "copy", 200, 5, 7, correlation=1, device=0, stream=7),
    ]
    for turn in range(2):
        rows.append(event("cuda_runtime", "hipGraphLaunch", 10 + turn, 1, correlation=2 + turn))
        for n, name in enumerate(names):
            begin = 300 + 100 * turn + 10 * n
            rows.append(event("kernel", name, begin, 10, 7, correlation=2 + turn, device=0, stream=7))
    return rows


def ingest(folder: Path, replayed: list[Event], captures: dict[str, tuple[int, list[Event]]]) -> cclbench.Run:
    """A run of a replay and captures by file, each with its batch size."""

    def write(name: str, content: Any) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))

    write("job/replay.json", {"traceEvents": replayed})
    write(
        "job/capture/execution_details.json", [{"file": n, "batch_size": b} for n, (b, _) in captures.items()]
    )
    for name, (_, events) in captures.items():
        write(f"job/capture/{name}", {"traceEvents": events})
    return cclbench.ingest(folder / "job", store=folder / "store")


def column(run: cclbench.Run, query: str) -> list[Any]:
    return list(run.sql(query).column(0).to_pylist())


KERNELS = (
    "FROM events e LEFT JOIN operators o USING (rank, operator) WHERE e.kind = 'kernel' ORDER BY e.start_ns"
)


def test_kernels_of_a_replay_have_the_captures_operators(tmp_path: Path) -> None:
    """Each launch is a set of calls of its own, with ids that no other call has."""
    run = ingest(tmp_path, replay(NAMES), {"bs_4.json": (4, capture(NAMES))})
    assert column(run, f"SELECT o.name {KERNELS}") == [
        "aten::copy_",
        *["aten::mm", "aten::norm", "aten::mm"] * 2,
    ]
    assert column(run, f"SELECT e.module {KERNELS}") == [None, *["Net_0"] * 6]
    assert column(run, f"SELECT e.phase {KERNELS}") == ["decode"] * 7
    ids = column(run, f"SELECT e.operator {KERNELS}")
    assert len(set(ids)) == 7
    assert column(run, "SELECT shapes FROM operators WHERE name = 'aten::mm'") == ["[[4,3],[3,5]]"] * 4
    assert column(run, "SELECT device_ns FROM operators WHERE kernels > 0") == [5_000, *[10_000] * 6]
    (note,) = [note for rank in run.record.ranks for note in rank.notes if "graph" in note]
    assert note == "launches of graphs with operators from the graphs' captures: 2"
    assert [file.name for rank in run.record.ranks for file in rank.beside] == ["capture/bs_4.json"]


@pytest.mark.parametrize("names", [["gemm", "gemm", "norm"], ["gemm", "norm"], ["gemm", "norm", "other"]])
def test_another_sequence_is_told_and_not_guessed(tmp_path: Path, names: list[str]) -> None:
    run = ingest(tmp_path, replay(NAMES), {"bs_4.json": (4, capture(names))})
    assert column(run, f"SELECT o.name {KERNELS}") == ["aten::copy_", *[None] * 6]
    (note,) = [note for rank in run.record.ranks for note in rank.notes if "graph" in note]
    assert note.startswith("launches of graphs without operators: 2: 3 device rows in another order")


def test_of_captures_with_the_same_kernels_the_batch_decides(tmp_path: Path) -> None:
    """Three requests run in the graph for four, not in that for two or eight."""
    captures = {f"bs_{n}.json": (n, capture(NAMES, width=n)) for n in (2, 8, 4)}
    run = ingest(tmp_path, replay(NAMES), captures)
    assert set(column(run, "SELECT shapes FROM operators WHERE name = 'aten::mm'")) == {"[[4,3],[3,5]]"}


def test_without_a_batch_size_none_is_chosen(tmp_path: Path) -> None:
    captures = {f"bs_{n}.json": (n, capture(NAMES, width=n)) for n in (2, 4)}
    run = ingest(tmp_path, replay(NAMES, "ProfilerStep#1"), captures)
    (note,) = [note for rank in run.record.ranks for note in rank.notes if "graph" in note]
    assert note.endswith("2 captures have the same kernels, and no batch size tells which it is")


def test_captures_alone_are_no_run(tmp_path: Path) -> None:
    ingest(tmp_path, replay(NAMES), {"bs_4.json": (4, capture(NAMES))})
    (tmp_path / "job" / "replay.json").unlink()
    with pytest.raises(InputError, match="holds captures of graphs only"):
        cclbench.ingest(tmp_path / "job", store=tmp_path / "store")


@pytest.mark.parametrize(("name", "kernels"), [("sglang_decode_mi300x", 544), ("vllm_decode_mi300x", 421)])
def test_real_decode_steps_are_linked(test_data: Path, evidence_store: Path, name: str, kernels: int) -> None:
    """All kernels of each graph, and of all kernels' time at least 95 %."""
    run = cclbench.ingest(test_data / "graph_replay" / name, store=evidence_store)
    query = "SELECT sum(dur_ns) FILTER (operator IS NOT NULL) / sum(dur_ns), count(operator) FROM events"
    share, linked = run.sql(f"{query} WHERE kind = 'kernel'").to_pylist()[0].values()
    assert share >= 0.95
    assert linked >= kernels
