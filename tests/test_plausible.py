# SPDX-License-Identifier: Apache-2.0
"""What no device can have done is set aside with count and reason; the rest of the trace is as without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cclbench
from cclbench.errors import InputError
from cclbench.ingestion.plausible import NO_LAUNCH, Rows, broken_rules, without_oversized

DAY = 86_400 * 10**9


def event(name: str, cat: str, ts: float, dur: float, tid: int, **args: Any) -> dict[str, Any]:
    """A row of Kineto's, times in µs."""
    device = cat in ("kernel", "gpu_memcpy")
    where = {"pid": 0, "tid": tid} if device else {"pid": 100, "tid": 100}
    more = {"device": 0, "stream": tid} if device else {}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **where, "args": {**args, **more}}


def steps(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """Three steps of 1 ms from 333 ms on: each launches a kernel of 0.6 ms; and what comes on top."""
    found = list(more)
    for n in range(3):
        begin = 333_000 + 1000 * n
        found += [
            event(f"ProfilerStep#{n}", "user_annotation", begin, 1000, 100),
            event("cudaLaunchKernel", "cuda_runtime", begin + 10, 5, 100, correlation=n + 1),
            event("gemm", "kernel", begin + 100, 600, 7, correlation=n + 1),
        ]
    return found


@pytest.fixture
def figures(tmp_path: Path) -> Any:
    """From events to the run's own rows by metric, and the notes."""

    def compute(*more: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        document = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": steps(*more)}
        (folder / "rank0.json").write_text(json.dumps(document))
        run = cclbench.run(folder / "rank0.json", store=folder / "store")
        own = [r for r in run.figures if r.rank is None and r.step is None and not r.narrowed]
        return {r.metric: (r.value, r.status) for r in own}, run.record.ranks[0].notes

    return compute


LAUNCH = event("cudaLaunchKernel", "cuda_runtime", 334_020, 5, 100, correlation=9)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            event("late", "kernel", 334_800, 950_400_000_000, 8, correlation=9),
            "1 kernel rows longer than a day",
        ),
        (
            event("zero", "kernel", 0, 100, 8, correlation=9),
            "1 kernel rows begun more than 100 ms before the call that launched them",
        ),
    ],
    ids=["11 days", "at time 0"],
)
def test_an_impossible_kernel_changes_nothing_but_a_note(figures: Any, row: Any, words: str) -> None:
    usual, notes = figures(LAUNCH)
    assert not any("implausible" in note for note in notes)
    found, notes = figures(LAUNCH, row)
    assert found == usual
    assert found["compute.kernel_count"] == (1.0, "ok")
    assert [note for note in notes if "implausible" in note] == [f"set aside as implausible: {words}"]


def test_a_size_that_nothing_moves_is_none(figures: Any) -> None:
    copy = {"ts": 334_850, "dur": 100, "tid": 8, "correlation": 9}
    (usual, _), (found, notes) = (
        figures(LAUNCH, event("Memcpy HtoD", "gpu_memcpy", **copy, bytes=size)) for size in (10**7, 1 << 60)
    )
    assert usual["memory.copy_bandwidth"] == (10**7 / 100e-6, "ok")
    assert found["memory.copy_bandwidth"][0] is None
    assert found["time.step"] == usual["time.step"]
    assert [note for note in notes if "implausible" in note] == [
        "set aside as implausible: 1 sizes that no memory or link moves in that time: over 100 TB/s"
    ]


def test_a_trace_of_nothing_plausible_is_refused(tmp_path: Path) -> None:
    document = {"schemaVersion": 1, "traceEvents": [event("late", "kernel", 1, 950_400_000_000, 8)]}
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="no plausible row of its device: 1 kernel rows longer than a day"):
        cclbench.run(tmp_path / "rank0.json", store=tmp_path / "store")


def test_rules_hold_to_the_nanosecond() -> None:
    start = np.array([0, 0, 0, 0])
    duration = np.array([DAY, DAY + 1, 5, 5])
    launch = np.array([NO_LAUNCH, NO_LAUNCH, 10**8, 10**8 + 1])
    kept, counts = broken_rules(Rows(start, duration, launch))
    assert kept.tolist() == [True, False, True, False]
    assert counts == {
        "longer than a day": 1,
        "begun more than 100 ms before the call that launched them": 1,
    }


def test_sizes_hold_to_the_byte() -> None:
    table = pa.table({"a": pa.array([10**8, 10**8 + 1, None, 2 * 10**8]), "b": pa.array([1, 2, 3, 4])})
    found, count = without_oversized(table, np.array([0, 1000, 1, 2000]), "a", "b")
    assert found.to_pydict() == {"a": [10**8, None, None, 2 * 10**8], "b": [1, None, 3, 4]}
    assert count == 1
