# SPDX-License-Identifier: Apache-2.0
"""The taxonomy on real traces: totals of an independent calculation, and how much it knows."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

from cclbench.classify import kernel_category


def _rows(path: Path) -> list[dict[str, Any]]:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    rows = trace if isinstance(trace, list) else trace["traceEvents"]
    return [row for row in rows if row.get("ph") == "X" and row.get("cat") in ("kernel", "Kernel")]


def _union_ns(spans: list[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def test_communication_time_of_real_traces(test_data: Path) -> None:
    """The union of communication kernels is that of an independent calculation, to the nanosecond."""
    paths = {path.name: path for path in (test_data / "kineto").glob("*/*.json.gz")}
    with (test_data / "expected" / "kineto_whole_trace.csv").open() as table:
        expected = {row["file"]: int(row["comm_ns"]) for row in csv.DictReader(table)}
    assert len(expected) >= 19
    measured = {}
    for name in expected:
        rows = [row for row in _rows(paths[name]) if kernel_category(row["name"]) == "communication"]
        begin = min((row["ts"] for row in rows), default=0)
        spans = [(round((row["ts"] - begin) * 1000), round(row["dur"] * 1000)) for row in rows]
        measured[name] = _union_ns([(start, start + length) for start, length in spans])
    assert measured == expected


def test_kernel_time_of_real_traces_is_classified(test_data: Path) -> None:
    """At most 2 % of a real trace's kernel time is left without a category."""
    unclassified = {}
    for path in sorted((test_data / "kineto").glob("*/*.json.gz")):
        rows = _rows(path)
        total = sum(row["dur"] for row in rows)
        unknown = sum(row["dur"] for row in rows if kernel_category(row["name"]) is None)
        if total:
            unclassified[path.name] = unknown / total
    assert len(unclassified) >= 19
    assert {name: share for name, share in unclassified.items() if share > 0.02} == {}
