# SPDX-License-Identifier: Apache-2.0
"""Hand-made ranks: a few rows in, what the metrics say out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from cclbench.analyzers.metric import METRICS, Value
from cclbench.analyzers.rows import run_values
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.card.model import Card, card_of
from cclbench.ground.evidence_schema import EVIDENCE
from cclbench.ground.schema import COLLECTIVES, EVENTS, OPERATORS, STEPS
from cclbench.record.facts import TraceFacts
from helpers.typed import changed

Rows = Sequence[Mapping[str, Any]]
_OPERATOR = dict.fromkeys(OPERATORS.names) | {"phase": "other", "recomputed": False}
_OPERATOR |= dict.fromkeys(("rank", "track", "start_ns", "end_ns", "kernels", "device_ns"), 0)
DEVICE_KINDS = ("kernel", "copy", "memset", "sync", "graph")


class Tables:
    """One rank's rows in memory, handed out two at a time so that every metric crosses batches."""

    def __init__(
        self,
        events: Rows,
        collectives: Rows,
        steps: Rows,
        facts: TraceFacts,
        rows_a_batch: int = 2,
        clock_residual_ns: float = 0.0,
        operators: Rows = (),
    ) -> None:
        self._events = [_event(row) for row in events]
        self._collectives = collectives
        given = {"rank": 0, "source": "device", "step": None, "open": False, "purity": None}
        self._steps = [given | dict(row) for row in steps]
        self._operators = [_OPERATOR | dict(row) for row in operators]
        self.facts, self._rows_a_batch = facts, rows_a_batch
        self.clock_residual_ns, self.rows = clock_residual_ns, len(self._events)

    def events(self, kinds: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = [row for row in self._events if row["kind"] in kinds]
        for at in range(0, len(rows), self._rows_a_batch):
            table = pa.Table.from_pylist(rows[at : at + self._rows_a_batch], schema=EVENTS)
            yield from table.select(list(columns)).to_batches()

    def operators(self, columns: Sequence[str]) -> pa.Table:
        return pa.Table.from_pylist(self._operators, schema=OPERATORS).select(list(columns))

    def collectives(self) -> pa.Table:
        return collectives_table(*self._collectives)

    def steps(self) -> pa.Table:
        return pa.Table.from_pylist(self._steps, schema=STEPS)


class Evidence:
    """What lies beside a run's traces: tables or the rows of some, and nothing of others."""

    def __init__(self, **told: pa.Table | Rows) -> None:
        self.told = told

    def evidence(self, name: str) -> pa.Table:
        own, schema = self.told.get(name, ()), EVIDENCE[name]
        if isinstance(own, pa.Table):
            return own
        return pa.Table.from_pylist([dict.fromkeys(schema.names) | dict(row) for row in own], schema=schema)

    def evidence_files(self, name: str) -> list[Callable[..., pa.Table]]:
        table = self.evidence(name)
        return [lambda columns=table.column_names: table.select(columns)]


def job_values(metric: str, evidence: Evidence, *ranks: RankView, **more: Any) -> list[Value]:
    """What a metric says of a run with that evidence."""
    views = {view.rank: view for view in ranks}
    run = RunView(evidence, **{"ranks": list(views), "view": views.__getitem__, **more})  # type: ignore[arg-type]
    return run_values(run, [METRICS.get(metric)])[metric]


def busy_steps(*bounds: tuple[int, int], rank: int = 0) -> RankView:
    """A rank with those steps, each busy throughout."""
    windows = [window(start, end, step) for step, (start, end) in enumerate(bounds)]
    return a_rank([compute(start, end) for start, end in bounds], windows, rank=rank)


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    on_device = row["kind"] in DEVICE_KINDS
    given = dict.fromkeys(EVENTS.names) | {
        "side": "device" if on_device else "host",
        "device": 0 if on_device else None,
        "track": 7,
        "category": "copy" if row["kind"] in ("copy", "memset") else "other",
        "name": row["kind"],
    }
    unknown = set(row) - set(given) - {"end_ns"}
    assert not unknown, unknown
    full = given | dict(row)
    full["dur_ns"] = full.pop("end_ns") - full["start_ns"]
    return full


def _collective(number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    given = dict.fromkeys(COLLECTIVES.names)
    return given | {"collective": number, "rank": 0, "library": "nccl"} | dict(row)


def event(kind: str, start: int, end: int, **columns: Any) -> dict[str, Any]:
    return {"kind": kind, "start_ns": start, "end_ns": end, **columns}


def compute(start: int, end: int, **columns: Any) -> dict[str, Any]:
    return event("kernel", start, end, **{"category": "gemm", "name": "gemm", **columns})


def comm(start: int, end: int, **columns: Any) -> dict[str, Any]:
    given = {"category": "communication", "name": "nccl", "track": 20}
    return event("kernel", start, end, **{**given, **columns})


def launch(start: int, correlation: int) -> dict[str, Any]:
    return event("launch", start, start + 1, correlation=correlation)


def collective(kind: str | None, start: int, end: int, **columns: Any) -> dict[str, Any]:
    return {"kind": kind, "start_ns": start, "end_ns": end, **columns}


def window(
    start: int, end: int, step: int | None = None, source: str = "device", *, still_open: bool = False
) -> dict[str, Any]:
    return {"start_ns": start, "end_ns": end, "step": step, "source": source, "open": still_open}


MODEL = {"moe": False, "parameters": 1100, "embedding_parameters": 100, "tied_embeddings": False}
MODEL |= {"vocabulary": 20, "hidden": 5, "layers": 1, "heads": 2, "head_dim": 5}


def card(**changes: Any) -> Card:
    """A training card of a 1-layer model; `changes` are dotted paths with `__`, None removes."""
    batch = {"global": 4, "sequence_length": 10}
    workload = {"phase": "training", "precision": "bf16", "model": {**MODEL}, "batch": batch}
    raw: dict[str, Any] = {"version": 2, "id": "tiny", "description": "a card of a test"}
    raw |= {"workload": workload}
    raw |= {"hardware": {"accelerator": "nvidia-a100-sxm-80gb", "count": 2}}
    return card_of(changed(raw, changes), Path())


def a_rank(
    events: Rows = (),
    windows: Rows = (),
    collectives: Rows = (),
    *,
    policy: str = "steps",
    steps: tuple[int | None, int | None] | None = None,
    card: Card | None = None,
    rank: int = 0,
    rows_a_batch: int = 2,
    clock_residual_ns: float = 0.0,
    operators: Rows = (),
    **facts: Any,
) -> RankView:
    """A rank with those rows; `facts` are those of its trace, on an accelerator unless they say otherwise."""
    told = TraceFacts(**{"works_on": "device", **facts})
    tables = Tables(events, collectives, windows, told, rows_a_batch, clock_residual_ns, operators)
    return RankView(tables, rank=rank, window=policy, steps=steps, card=card)


def collectives_table(*rows: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([_collective(n, row) for n, row in enumerate(rows)], schema=COLLECTIVES)


def an_accelerator(patch: pytest.MonkeyPatch, **facts: Any) -> SimpleNamespace:
    """Makes that of `card` a chip of those facts, the only accelerator in the catalog beside a CPU."""
    told = {"peak_flops_per_s": {}, "attainable_flops_per_s": {}}
    told |= dict.fromkeys(("hbm_bytes_per_s", "sm_count", "cache_bytes"))
    made, cpu = SimpleNamespace(id="chip", **told | facts), SimpleNamespace(id="cpu", **told)
    known = {"nvidia-a100-sxm-80gb": made, "generic-cpu": cpu}
    patch.setattr("cclbench.hardware.catalog.accelerators", lambda: known)
    return made
