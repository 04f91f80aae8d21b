# SPDX-License-Identifier: Apache-2.0
"""Checks of accepted inputs: oracles on a run, and equivalent inputs."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from campaign.mutators import fields, message_of
from campaign.seeds import Files

from cclbench.record.rows import builtins
from cclbench.record.run import Run

PARTS: Final = ("compute_only", "overlapped", "exposed_comm", "exposed_copy", "idle")
"""Parts that add up to a step's time."""
KEYS: Final = ("metric", "rank", "step", "group", "collective", "category", "stat")
Figures = dict[tuple[Any, ...], Any]


def figures(run: Run) -> Figures:
    """Status and value of every result row."""
    rows = builtins(run.saved_results or ())
    return {tuple(row[key] for key in KEYS): (row["status"], row["value"]) for row in rows}


def differences(one: Figures, other: Figures) -> Iterator[str]:
    """Differences between two sets of figures that must be equal."""
    for key in sorted({*one, *other}, key=str):
        (status, value), (state, figure) = one.get(key, ("absent", None)), other.get(key, ("absent", None))
        alike = value == figure or (
            value is not None
            and figure is not None
            and math.isclose(value, figure, rel_tol=1e-9, abs_tol=1e-15)
        )
        # One sample of a counter gives no figure; the same sample twice gives 0.
        silent = status in ("absent", "not_applicable")
        nothing = silent and (figure == 0 or state == "not_applicable")
        nothing |= status == "partial" and state == "ok" and alike
        if (status != state or not alike) and not nothing:
            words = "/".join(str(part) for part in key if part is not None)
            yield f"{words}: {status} {value} became {state} {figure}"


def partition(run: Run) -> Iterator[str]:
    """The parts of each rank's window add up to its length, to the nanosecond."""
    windows: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for (metric, rank, step, *other, stat), (_, value) in figures(run).items():
        if metric.startswith("time.") and value is not None and not any(other):
            windows[rank, step, stat][metric[5:]] = value
    for (rank, step, stat), times in windows.items():
        if rank is None or "step" not in times or not all(part in times for part in PARTS):
            continue
        total = math.fsum(times[part] for part in PARTS)
        if not math.isclose(total, times["step"], rel_tol=1e-12, abs_tol=1e-12):
            yield f"rank {rank} step {step} {stat or ''}: parts are {total!r} s of {times['step']!r} s"


def finite(run: Run) -> Iterator[str]:
    """Every figure is a finite number; times are not negative, differences of times may be."""
    for (metric, *rest), (_, value) in figures(run).items():
        is_time = metric.startswith(("time.", "comm.time")) and not metric.endswith("_difference")
        if value is not None and (not math.isfinite(value) or (value < 0 and is_time)):
            yield f"{metric} {[part for part in rest if part is not None]} is {value}"


def spans(run: Run) -> Iterator[str]:
    """No rank's window is longer than its trace, which is its events and stated steps."""
    steps = {
        (rank, step): value
        for (metric, rank, step, *other), (_, value) in figures(run).items()
        if metric == "time.step" and not any(other)
    }
    for rank in run.ranks:
        times = run.events(rank=rank, columns=["start_ns", "dur_ns"])
        rows = list(zip(times["start_ns"].to_pylist(), times["dur_ns"].to_pylist(), strict=True))
        stated = (row for row in run.rank(rank).steps().to_pylist() if row["source"] != "whole_trace")
        rows += [(row["start_ns"], row["end_ns"] - row["start_ns"]) for row in stated]
        if not rows:
            continue
        span = (max(start + length for start, length in rows) - min(start for start, _ in rows)) / 1e9
        longest = max(
            (value for (step_rank, _), value in steps.items() if step_rank == rank and value is not None),
            default=0.0,
        )
        if longest > span * (1 + 1e-12) + 1e-12:
            yield f"rank {rank}: a window of {longest} s in a trace of {span} s"


ORACLES: Final = (partition, finite, spans)


# ---------------------------------------------------------------------------- equivalent inputs


def _tables(data: bytes, order: str) -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(data)
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if order == "twice":
                connection.execute(f'INSERT INTO "{name}" SELECT * FROM "{name}"')  # noqa: S608
                continue
            rows = connection.execute(f'SELECT * FROM "{name}" ORDER BY rowid DESC').fetchall()  # noqa: S608
            connection.execute(f'DELETE FROM "{name}"')  # noqa: S608
            for row in rows:
                connection.execute(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(row))})', row)  # noqa: S608
        return connection.serialize()


def _reverse_fields(message: bytes, numbers: tuple[int, ...]) -> bytes:
    """A message with its fields of the first number in reverse order, and recursively for the others."""
    parsed = fields(message)
    places = [at for at, (number, wire, _) in enumerate(parsed) if number == numbers[0] and wire == 2]
    turned = [parsed[at] for at in reversed(places)]
    for at, (number, wire, value) in zip(places, turned, strict=True):
        parsed[at] = (number, wire, _reverse_fields(value, numbers[1:]) if numbers[1:] else value)
    return message_of(parsed)


def _document(data: bytes, order: str) -> bytes:
    document = json.loads(data)
    rows = document["traceEvents"]
    return json.dumps({**document, "traceEvents": rows * 2 if order == "twice" else rows[::-1]}).encode()


def _row_order(name: str, data: bytes, order: str) -> bytes:
    if name.endswith(".sqlite"):
        return _tables(data, order)
    if name.endswith(".pb"):
        return data * 2 if order == "twice" else _reverse_fields(data, (1, 3, 4))
    if name.endswith(".jsonl"):
        if not data.endswith(b"\n"):
            raise ValueError("a truncated last line cannot be moved")
        lines = data.splitlines(keepends=True)
        return b"".join(lines * 2 if order == "twice" else lines[::-1])
    if name.endswith(".json"):
        return _document(data, order)
    if order == "twice":
        return data * 2
    raise ValueError(f"the order of rows matters in {name}")


def reordered(files: Files) -> Files:
    """The rows in reverse order; `ValueError` or similar if the input has no such form."""
    return {name: _row_order(name, data, "reverse") for name, data in files.items()}


def rows_twice(files: Files) -> Files:
    """Every row twice."""
    return {name: _row_order(name, data, "twice") for name, data in files.items()}


def file_twice(files: Files) -> Files:
    """The first file a second time under another name."""
    name = next(iter(files))
    return {**files, f"again-{name}": files[name]}


SAME: Final = {
    "reordered": (reordered, False),
    "rows twice": (rows_twice, True),
    "file twice": (file_twice, True),
}
"""Equivalent inputs, and whether they may be refused."""
