# SPDX-License-Identifier: Apache-2.0
"""Sessions of the eBPF tracer ingero: CUDA calls, the scheduler, disks and sockets of processes, by minute.

The tracer stores few of the events that it counts (0.2 % in a session with a starved loader), so that
`event_aggregates` is read: the number and summed time of each operation of a process in each minute.  A
session without it is summed from its events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.rewriting import Redactor
from cclbench.formats.sqlite_file import MAGIC

_MINUTE_NS: Final = 60 * 10**9
_MARKS: Final = (b"causal_chains", b"stack_traces")
_AGAIN: Final = "record it again: ingero trace --record"
_SNAPSHOTS: Final = {
    "cpu_pct": ("host_cpu_utilization", 0.01, "1"),
    "mem_pct": ("host_memory_utilization", 0.01, "1"),
    "load_avg": ("host_load", 1.0, None),
}
"""Columns of `system_snapshots`: the counter, its factor and unit."""
_NOT_READ: Final = ("stack_traces", "causal_chains", "cgroup_schedstat")
_READ: Final = {
    "ops": ("source_id", "op_id", "name"),
    "event_aggregates": ("bucket", "source", "op", "pid", "count", "sum_dur"),
    "events": ("timestamp", "source", "op", "pid", "duration"),
    "system_snapshots": ("timestamp", *_SNAPSHOTS),
    **dict.fromkeys(_NOT_READ, ()),
}
"""Columns of tables."""


class EbpfSession(EvidenceReader):
    """Reader of ingero's databases."""

    name = "ebpf_session"
    description = "eBPF sessions of ingero: CUDA calls, scheduler, disk and sockets of each process by minute"
    extensions: tuple[str, ...] = (".db",)
    capture = "the database of `ingero trace --record`"
    versions = "0.8 and 0.9"
    tested = "real: a training with a starved loader, a node of a cluster"

    def sniff(self, head: bytes) -> float:
        """Sure of a database whose beginning names the tool's tables."""
        return 0.95 if head.startswith(MAGIC) and all(mark in head for mark in _MARKS) else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """The tables and columns that are read: no name of a process, container or pod."""
        from cclbench.formats.sqlite_rewriting import rewrite_database

        rewrite_database(path, target, redactor, _READ, hint=_AGAIN)
        return True

    def read(self, path: Path) -> Evidence:
        """Two counters for each operation, process and minute, and those of the host."""
        # Not needed to recognise a file.
        from cclbench.formats.sqlite_file import SqliteFile
        from cclbench.ground.evidence_schema import COUNTERS

        class TracedSession(SqliteFile):
            hint = _AGAIN

        with TracedSession(path) as file:
            summed = _has_rows(file, "event_aggregates")
            rows = [*_operation_counters(file, summed=summed), *_host_counters(file)]
            left_out = Counter({f"rows of {t}": file.count_rows(t) for t in _NOT_READ if t in file.tables})
        return Evidence(
            counters=pa.Table.from_pylist(rows, COUNTERS),
            left_out=dict(+left_out),
            notes=[] if summed else ["sums are of the stored events: the session has no event_aggregates"],
        )


def _has_rows(file: Any, table: str) -> bool:
    return table in file.tables and file.count_rows(table) > 0


def _operation_counters(file: Any, *, summed: bool) -> Iterator[dict[str, Any]]:
    """Number and time of operations."""
    from cclbench.formats.trace import LATEST_NS, impossible_value

    minutes = "event_aggregates"
    if not summed:
        minutes = (
            f"(SELECT timestamp / {_MINUTE_NS} * {_MINUTE_NS} AS bucket, source, op, pid, count(*) AS count,"  # noqa: S608
            " sum(duration) AS sum_dur FROM events GROUP BY 1, 2, 3, 4)"
        )
    columns = {name: f"m.{name}" for name in ("bucket", "source", "op", "pid", "count", "sum_dur")}
    relation = f"{minutes} m LEFT JOIN ops o ON o.source_id = m.source AND o.op_id = m.op"
    columns["name"] = "CAST(substr(o.name, 1, 80) AS TEXT)"
    for batch in file.query_batches(relation, columns, what="sums of events", text=("name",)):
        for row in batch.to_pylist():
            begin, count, time = row["bucket"], row["count"], row["sum_dur"]
            if None in (begin, count, time) or not 0 <= begin < LATEST_NS or min(count, time) < 0:
                raise impossible_value(f"sum: {count} events, {time} ns from {begin} ns", file.path, _AGAIN)
            name = row["name"] or f"operation {row['op']} of source {row['source']}"
            common = {"port": f"process {row['pid']}", "start_ns": begin, "end_ns": begin + _MINUTE_NS}
            yield {**common, "counter": f"{name} calls", "unit": "count", "value": float(count)}
            if time:
                yield {**common, "counter": f"{name} time", "unit": "s", "value": time / 1e9}


def _host_counters(file: Any) -> Iterator[dict[str, Any]]:
    """Samples of the host."""
    names = [name for name in _SNAPSHOTS if file.has_columns("system_snapshots", "timestamp", name)]
    if not names:
        return
    columns = {"timestamp": "timestamp", **{name: name for name in names}}
    for batch in file.read_batches("system_snapshots", columns, real=names):
        for row in batch.to_pylist():
            for name in names:
                counter, factor, unit = _SNAPSHOTS[name]
                if row[name] is not None:
                    instant = {"start_ns": row["timestamp"], "end_ns": row["timestamp"]}
                    yield {**instant, "counter": counter, "unit": unit, "value": row[name] * factor}


READERS.add(EbpfSession.name, EbpfSession(), origin=__name__)
