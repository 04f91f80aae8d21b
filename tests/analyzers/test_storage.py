# SPDX-License-Identifier: Apache-2.0
"""Storage by DLIO, by hand: epochs, phases, several results; waits for batches by its steps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, of_run

from cclbench.ground.evidence_schema import LOG_STEPS, STORAGE

EPOCHS = [("train", 1, 0.9), ("train", 2, 0.98), ("train", 3, 0.94), ("eval", 1, 0.5)]


def stored(figure: str, rows: list[tuple[str, int | None, float]], *files: str) -> Evidence:
    names = ("file", "phase", "epoch", "value")
    named = [(file, *row) for file in files or ("summary.json",) for row in rows]
    common = {"source": "dlio", "figure": figure, "unit": "1"}
    table = [common | dict(zip(names, row, strict=True)) for row in named]
    return Evidence(storage=pa.Table.from_pylist(table, schema=STORAGE))


def figures(metric: str, evidence: Evidence) -> dict[tuple[str | None, str | None], float | None]:
    return {(value.category, value.stat): value.value for value in of_run(metric, evidence)}


def test_the_mean_over_epochs_stands_beside_the_first_the_least_and_the_most() -> None:
    found = figures("storage.accelerator_utilization", stored("accelerator_utilization", EPOCHS))
    assert found == {
        (None, None): pytest.approx(2.82 / 3),
        (None, "min"): 0.9,
        (None, "max"): 0.98,
        (None, "first"): 0.9,
        ("evaluation", None): 0.5,
    }


def test_checkpoints_are_apart() -> None:
    rows = [("save", None, 3.0), ("load", None, 2.0)]
    assert figures("storage.checkpoint_time", stored("time", rows)) == {
        ("checkpoint saved", None): 3.0,
        ("checkpoint loaded", None): 2.0,
    }


def test_several_results_have_a_row_each() -> None:
    found = figures("storage.samples", stored("samples_per_s", [("train", None, 7.0)], "b.json", "a.json"))
    assert found == {(None, None): None, ("a.json", None): 7.0, ("b.json", None): 7.0}


def test_what_is_not_stated_has_a_reason() -> None:
    evidence = stored("time", [("save", None, 3.0)])
    (value,) = of_run("storage.samples", evidence)
    assert (value.status, value.reason) == ("not_applicable", "the benchmark's files do not state it")


def test_steps_wait_for_their_batches() -> None:
    """Steps 2 to 4 take 2 s, 2 s and 4 s, and wait 1 s, 0 s and 3 s: 4 of 8 s; the first does not count."""
    times = [(9, 8), (2, 1), (2, 0), (4, 3)]
    rows: list[dict[str, Any]] = [
        {
            "source": "dlio", "file": "0_output.json", "restart": 0, "step": step, "steps": 1,
            "dur_ns": whole * 10**9, "data_ns": wait * 10**9, "timed_by": "stated",
        }
        for step, (whole, wait) in enumerate(times, 1)
    ]  # fmt: skip
    evidence = Evidence(log_steps=pa.Table.from_pylist(rows, schema=LOG_STEPS))
    assert figures("log.data_wait", evidence) == {(None, None): 0.5, (None, "max"): 0.75}
    for row in rows:
        del row["data_ns"]
    (value,) = of_run("log.data_wait", Evidence(log_steps=pa.Table.from_pylist(rows, schema=LOG_STEPS)))
    assert value.reason == "no line states how long its step waits for its batch"
