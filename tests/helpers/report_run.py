# SPDX-License-Identifier: Apache-2.0
"""Runs made by hand for tests of the report: events, windows, result rows, as small as a sum on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cclbench.comparison.comparison import (
    PARTS,
    CardDifference,
    Comparison,
    Line,
    MetricFigure,
    PartChange,
    PartMover,
    Versus,
)
from cclbench.comparison.fingerprint import UNKNOWN
from cclbench.comparison.interval import CaptureSpread
from cclbench.comparison.subject import ComparisonSubject as Subject
from cclbench.ground.schema import COLLECTIVES, EVENTS, GROUPS, LAYOUT, OPERATORS, RESULTS, STEPS, VERSION
from cclbench.record.files import EventFile, write_table
from cclbench.record.results import Results
from cclbench.record.run import Run
from helpers.typed import rewrite_manifest

Row = dict[str, Any]
Event = tuple[int, str, str, int, int]
"""Rank, name, category, start and duration in ns."""

HOSTILE = (
    "<script>alert(1)</script>", "../../etc/passwd", "$(touch /tmp/owned) `id` $x$", "\u202egnp.exe",
    "\"><img src=x onerror='alert(2)'>{{ 7 * 7 }}{% raw %}]]>", "עברית", "n" * 1_000_000,
    "\x1b[31mred\x00\n</style></title>",
)  # fmt: skip


def row(metric: str, value: float | None, unit: str = "s", **other: Any) -> Row:
    """A row of results; ok and measured where it has a value."""
    found: Row = {"metric": metric, "value": value, "unit": unit, "better": "lower"}
    found |= dict.fromkeys(("rank", "step", "group", "collective", "category", "stat"))
    found |= {"window": "steps", "version": 1, "source": "kineto", "reason": None}
    missing = {"status": "not_applicable", "provenance": None, "reason": "no such thing"}
    return found | (missing if value is None else {"status": "ok", "provenance": "measured"}) | other


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), RESULTS)


def by_rank(metric: str, values: Sequence[float], **other: Any) -> list[Row]:
    return [
        row(metric, sum(values) / len(values), **other),
        *(row(metric, value, rank=rank, **other) for rank, value in enumerate(values)),
    ]


def by_step(metric: str, grid: Sequence[Sequence[float]], **other: Any) -> list[Row]:
    """Each rank's value of each step, from 3 on."""
    return [
        row(metric, value, rank=rank, step=3 + step, **other)
        for rank, values in enumerate(grid)
        for step, value in enumerate(values)
    ]


REDUCES = {"collective": "all_reduce", "group": "0-1"}
PARTS_OF_STEP = {"compute_only": (0.03, 0.05), "overlapped": (0.01, 0.01), "exposed_comm": (0.05, 0.03)}
PARTS_OF_STEP |= {"exposed_wait": (0.02, 0.0), "exposed_transfer": (0.03, 0.03)}
PARTS_OF_STEP |= {"exposed_unmatched": (0.0, 0.0), "exposed_copy": (0.0, 0.0), "idle": (0.01, 0.01)}
"""Of each rank, s."""


def results(slower: float = 1.0) -> list[Row]:
    """Two ranks, steps 3 and 4, of 100 ms each: rank 0 computes 40 ms, rank 1 60 ms and is waited for."""
    rates = ((3, {}), (3, REDUCES), (2, REDUCES | {"category": "1KiB-4KiB"}))
    rates += ((4, REDUCES | {"category": "1MiB-4MiB"}),)
    utilization = "comm.bandwidth_utilization"
    found = [
        row("time.step", 0.1 * slower),
        row("time.step", 0.05, unit="1", stat="cv"),
        *(row("time.step", 0.1 * slower, step=step) for step in (3, 4)),
        *(row("time.step", 0.1 * slower, rank=rank) for rank in (0, 1)),
        row("time.step_parts", 0.1 * slower),
        row("time.step_parts", 0.1 * slower - 0.04, stat="compute"),
        row("time.step_parts", 0.03, stat="exposed_transfer"),
        row("time.step_parts", 0.01, stat="idle_other"),
        row("compute.mfu", 0.5, "1", provenance="modelled", reason="since the trace does not say"),
        row("comm.measured_busbw", None, "B/s", reason="no benchmark"),
        row("compute.achieved_flops", None, "FLOP/s", status="failed", reason="more than the peak"),
        *(row("comm.busbw", 1e9 * n, "B/s", provenance="derived", **keys) for n, keys in rates),
        *(row(utilization, 0.25, "1", provenance="derived", **keys) for keys in ({}, REDUCES)),
    ]
    for metric, values in PARTS_OF_STEP.items():
        found += by_rank(f"time.{metric}", values)
    found += by_step("time.overlapped", [[0.01, 0.03], [0.01, 0.0]])
    found += by_step("comm.time", [[0.06, 0.06], [0.04, 0.04]])
    return found + by_step("comm.wait", [[0.02, 0.03], [0.0, 0.01]])


EVENTS_OF_RUN: tuple[Event, ...] = (
    # Windows: 3 is [1000, 2000), 4 is [2000, 3000); what begins outside counts nowhere.
    (0, "before", "gemm", 900, 50),
    (0, "gemm_a", "gemm", 1000, 100),
    (0, "gemm_a", "gemm", 1999, 300),
    (1, "gemm_a", "gemm", 2500, 200),
    (1, "reduce_b", "reduction", 2999, 500),
    (1, "after", "gemm", 3000, 10),
)


def stored(
    path: Path,
    events: Sequence[Event] = EVENTS_OF_RUN,
    *,
    kind: str = "kernel",
    calls: Mapping[str, Row] | None = None,
    program: str | None = None,
    **other: Any,
) -> Run:
    """A run of two ranks on disk, with two windows each. `calls` are calls of operators by the name of the
    event that each launches, `program` is the compiled program of all events."""
    calls = calls or {}
    numbers = {name: number for number, name in enumerate(calls, start=1)}
    call = dict.fromkeys(OPERATORS.names) | {"phase": "other", "recomputed": False}
    call |= dict.fromkeys(("track", "start_ns", "end_ns", "kernels", "device_ns"), 0)
    for rank in (0, 1):
        own = [event for event in events if event[0] == rank]
        told = {"track": 7, "side": "device", "kind": kind, "program": program}
        columns = {name: [value] * len(own) for name, value in told.items()}
        for at, name in enumerate(("name", "category", "start_ns", "dur_ns"), start=1):
            columns[name] = [event[at] for event in own]
        columns["operator"] = [numbers.get(event[1]) for event in own]
        columns["module"] = [calls.get(event[1], {}).get("module") for event in own]
        file = EventFile(path / "events" / f"rank={rank}", kind, 0)
        file.write(filled(columns, EVENTS, len(own)))
        file.close()
        windows = {"rank": [rank] * 2, "step": [3, 4], "start_ns": [1000, 2000], "end_ns": [2000, 3000]}
        windows |= {"source": ["device"] * 2, "open": [False] * 2}
        write_table(path / "steps" / f"rank={rank}.parquet", filled(windows, STEPS, 2))
        write_table(path / "collectives" / f"rank={rank}.parquet", COLLECTIVES.empty_table())
        made = [call | {"rank": rank, "operator": numbers[name]} | row for name, row in calls.items()]
        write_table(path / "operators" / f"rank={rank}.parquet", pa.Table.from_pylist(made, OPERATORS))
    write_table(path / "groups.parquet", GROUPS.empty_table())
    whole = manifest(path.name)
    for rank, entry in enumerate(whole["ranks"]):
        entry["rows"] = {kind: sum(event[0] == rank for event in events)}
        entry["operators"] = len(calls)
    rewrite_manifest(path, whole | other)
    return Run(path)


def filled(columns: dict[str, list[Any]], schema: pa.Schema, count: int) -> pa.Table:
    """A table of that schema; columns that are not given are null."""
    arrays = [pa.array(columns.get(field.name, [None] * count), field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def manifest(run: str) -> dict[str, Any]:
    steps = {"found": 2, "closed": 2, "source": "device", "left_out": {}}
    entry: dict[str, Any] = {"rows": {"kernel": 3}, "dropped": {}, "steps": steps, "truncated": None}
    entry["facts"] = {"world_size": 2, "works_on": "device", "device_name": "an accelerator"}
    entry |= {"unclassified": {"share": 0.0, "names": []}, "collectives": {"libraries": {"nccl": 1}}}
    entry["notes"] = []
    file = {"bytes": 1234, "sha256": "ab" * 32, "reader": "kineto"}
    ranks = [entry | {"rank": n, "files": [file | {"name": f"rank{n}.json"}]} for n in (0, 1)]
    found = {"schema": VERSION, "tables": LAYOUT, "cclbench": "0.1.0", "run": run, "fingerprint": "0" * 64}
    found |= {"source": f"traces/{run}", "card": None, "ranks": ranks, "inference": None}
    found |= {"matching": {"rows": 0}, "clocks": {"ranks": []}}
    return found | {name: [] for name in ("sources", "evidence", "notes")}


def subject(
    path: Path, letter: str = "A", rows: Sequence[Row] | None = None, card: Any = None, **how: Any
) -> Subject:
    found = Results(table(results() if rows is None else rows))
    return Subject(letter, stored(path, **how), found, card)


def comparison(
    a: Subject, b: Subject, *, words: str = "B is 1.20× slower than A.", **other: Any
) -> Comparison:
    """B takes 20 ms longer: 25 ms more compute, 5 ms less transfer."""
    change = {"compute": 25_000_000, "exposed_transfer": -5_000_000}
    movers = {"compute": (PartMover("category", "gemm", 0.01, 0.035),)}
    changes = tuple(
        PartChange(part, 0.03, 0.03 + ns / 1e9, ns, movers.get(part, ()))
        for part, ns in ((part, change.get(part, 0)) for part in PARTS)
    )
    bounds: dict[str, Any] = {"ratio": 1.2, "low": 1.1, "high": 1.3, "spread": CaptureSpread(0.02, 0, 0)}
    about: dict[str, Any] = {"measure": "time.step", "captures_needed": 2, "outcome": "slower"}
    about |= {"work": UNKNOWN}
    moved: dict[str, Any] = {"change_ns": 20_000_000, "changes": changes}
    versus = Versus(base="A", other="B", words=words, **bounds, **about, **moved)
    modelled = MetricFigure(0.12, "ok", "modelled", "by the model", 0.11, 0.13)
    figures = {"A": MetricFigure(0.1, "ok", "measured", None), "B": modelled}
    lacks = MetricFigure(None, "not_applicable", None, "A lacks it")
    lacking = {"A": lacks, "B": MetricFigure(2.0, "ok", "published", None)}
    lines = (Line("time.step", "s", "lower", figures), Line("serving.ttft[stat=p50]", "s", "lower", lacking))
    fields: dict[str, Any] = {"subjects": (a, b), "warnings": ("the work differs",), "versus": (versus,)}
    fields |= {"cards": (CardDifference("parallelism.tp", {"A": 2, "B": None}),), "lines": lines}
    return Comparison(**(fields | other))
