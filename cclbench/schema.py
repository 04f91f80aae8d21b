# SPDX-License-Identifier: Apache-2.0
"""The schema, version 1: every Arrow table cclbench writes, each field with its unit and meaning.

Time is int64 nanoseconds since the Unix epoch (of the rank's own clock), bytes are int64, and a
value nobody knows is null.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from typing import Final

import pyarrow as pa

VERSION: Final = 1

SIDES: Final = ("device", "host")
KINDS: Final = ("kernel", "copy", "memset", "sync", "launch", "op", "annotation", "python", "other")
CATEGORIES: Final = (
    *("gemm", "attention", "convolution", "normalization", "elementwise", "reduction", "moe", "embedding"),
    *("optimizer", "sampling", "communication", "copy", "fused", "other"),
)
COPY_DIRECTIONS: Final = ("h2d", "d2h", "d2d", "p2p")
WINDOW_SOURCES: Final = ("device", "annotation", "module", "whole_trace")
GROUP_SOURCES: Final = ("stated", "inferred")
COLLECTIVE_KINDS: Final = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter"),
    *("send", "recv", "send_recv", "barrier"),
)

OPEN: Final = "open"
"""The statistic of a result that is about an open window."""
HAS_VALUE: Final = ("ok", "partial")
"""Statuses of a result that has a number."""

_WORD = pa.dictionary(pa.int8(), pa.string())
_NAME = pa.dictionary(pa.int32(), pa.string())


def _field(name: str, kind: pa.DataType, meaning: str, unit: str = "", *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"meaning": meaning, "unit": unit})


def _schema(table: str, *fields: pa.Field) -> pa.Schema:
    return pa.schema(fields, metadata={"cclbench.table": table, "cclbench.schema": str(VERSION)})


EVENTS: Final = _schema(
    "events",
    _field("device", pa.int16(), "index of the accelerator as the process sees it", null=True),
    _field("track", pa.int64(), "stream (device side) or thread (host side)"),
    _field("side", _WORD, "where it ran: " + ", ".join(SIDES)),
    _field("kind", _WORD, "what it is: " + ", ".join(KINDS)),
    _field("category", _WORD, "what it does, by its name: " + ", ".join(CATEGORIES)),
    _field("name", _NAME, "the profiler's name for it"),
    _field("start_ns", pa.int64(), "begin", "ns"),
    _field("dur_ns", pa.int64(), "duration; 0 for an instant", "ns"),
    _field("correlation", pa.int64(), "links a launch with what it launched", null=True),
    _field(
        "step",
        pa.int32(),
        "step of a device event, that of its launch, and of a CPU's transfer; null on other host rows,"
        " where the steps table gives it by time",
        null=True,
    ),
    _field("bytes", pa.int64(), "bytes copied or set; of [memory] rows those then allocated", "B", null=True),
    _field("copy_direction", _WORD, "of a copy: " + ", ".join(COPY_DIRECTIONS), null=True),
    _field("flops", pa.float64(), "operations, where the trace states them", "FLOP", null=True),
    _field("hbm_bytes", pa.int64(), "device memory traffic, where the trace states it", "B", null=True),
    _field("grid_x", pa.int64(), "thread blocks along x of the kernel's grid", null=True),
    _field("grid_y", pa.int64(), "thread blocks along y", null=True),
    _field("grid_z", pa.int64(), "thread blocks along z", null=True),
    _field("blocks", pa.int64(), "thread blocks in the kernel's grid: the product of the three", null=True),
    _field(
        "operator",
        pa.int64(),
        "id of an operator's call: of an op its own, of a device event that of the innermost op which"
        " launched it",
        null=True,
    ),
    _field("shapes", _NAME, "of an op: sizes of its inputs, as a JSON list", null=True),
    _field("event_stream", pa.int64(), "of a wait for an event: stream whose work it marks", null=True),
    _field(
        "event_record",
        pa.int64(),
        "of a wait for an event: correlation of the call that recorded it, before which the stream's work was"
        " launched",
        null=True,
    ),
    _field("collective", pa.int64(), "key into collectives", null=True),
)

COLLECTIVES: Final = _schema(
    "collectives",
    _field("collective", pa.int64(), "key of the row: this rank's part in a collective"),
    _field("instance", pa.int64(), "number the parts of one collective share; null until matched", null=True),
    _field("rank", pa.int32(), "rank whose view this row is"),
    _field("kind", _WORD, "what it does: " + ", ".join(COLLECTIVE_KINDS), null=True),
    _field("library", _WORD, "who does it: nccl, rccl, gloo, mscclpp, mpi, xla, custom, ..."),
    _field("group", _NAME, "stable id of the sorted list of ranks, such as 0-7 or 0-6:2", null=True),
    _field("group_size", pa.int32(), "ranks in the process group", null=True),
    _field("dimension", _WORD, "parallel dimension of the group: dp, tp, pp, ep, cp, ...", null=True),
    _field("seq", pa.int64(), "sequence number within the group", null=True),
    _field("src_rank", pa.int32(), "sending rank of a point-to-point transfer", null=True),
    _field("dst_rank", pa.int32(), "receiving rank of a point-to-point transfer", null=True),
    _field("in_bytes", pa.int64(), "payload handed in by this rank", "B", null=True),
    _field("out_bytes", pa.int64(), "payload handed back to this rank", "B", null=True),
    _field("dtype", _WORD, "element type, as the framework names it", null=True),
    _field(
        "payload_source",
        _WORD,
        "who states the bytes: kernel, host_op, annotation, execution_trace, hlo",
        null=True,
    ),
    _field("step", pa.int32(), "step that holds it", null=True),
    _field("start_ns", pa.int64(), "begin on this rank", "ns"),
    _field("end_ns", pa.int64(), "end on this rank", "ns"),
    _field("arrival_ns", pa.int64(), "begin on the common clock; null until matched", "ns", null=True),
    _field("wait_ns", pa.int64(), "latest arrival − own arrival; null until matched", "ns", null=True),
    _field("transfer_ns", pa.int64(), "end − latest arrival; null until matched", "ns", null=True),
    _field(
        "least_wait_ns",
        pa.int64(),
        "of a collective that lacks some rank's trace: latest arrival that is seen − own arrival",
        "ns",
        null=True,
    ),
)

GROUPS: Final = _schema(
    "groups",
    _field("group", pa.string(), "stable id of the sorted list of ranks"),
    _field("ranks", pa.list_(pa.int32()), "global ranks, sorted"),
    _field("size", pa.int32(), "how many they are"),
    _field("descriptions", pa.list_(pa.string()), "what traces call the group, sorted"),
    _field("source", _WORD, "by a trace, or from how the ranks run: " + ", ".join(GROUP_SOURCES)),
)

STEPS: Final = _schema(
    "steps",
    _field("rank", pa.int32(), "rank whose window this is"),
    _field("step", pa.int32(), "number the workload gave it; null for the whole trace", null=True),
    _field("start_ns", pa.int64(), "begin, inclusive", "ns"),
    _field("end_ns", pa.int64(), "end, exclusive", "ns"),
    _field("source", _WORD, "how it was found: " + ", ".join(WINDOW_SOURCES)),
    _field("open", pa.bool_(), "whether no further step says where it ends: means leave it out"),
    _field(
        "purity",
        pa.float64(),
        "share of the kernel time in it that its own step launched; null without kernels or launches",
        "1",
        null=True,
    ),
)

_SOURCE = (
    _field("source", _WORD, "reader of the file that says so", null=True),
    _field("file", _NAME, "that file, within the source", null=True),
)

COUNTERS: Final = _schema(
    "counters",
    *_SOURCE,
    _field("rank", pa.int32(), "rank whose device is counted, where that is known", null=True),
    _field("device", pa.int16(), "index of the accelerator", null=True),
    _field("port", _NAME, "link or port: nvlink 3, mlx5_0/1; null where all are counted together", null=True),
    _field("counter", _NAME, "what is counted: a name of COUNTER_UNITS, else the producer's own"),
    _field("unit", _WORD, "base SI unit of the value; null where the producer's is not known", null=True),
    _field(
        "start_ns", pa.int64(), "begin of the interval the value is about; null: unknown", "ns", null=True
    ),
    _field("end_ns", pa.int64(), "its end; equal to the begin for an instant's value", "ns", null=True),
    _field("value", pa.float64(), "bytes moved in the interval, or the mean of a share or rate over it"),
)

COUNTER_UNITS: Final = {
    "sm_active": "1",
    "tensor_active": "1",
    "dram_active": "1",
    "dram_read_utilization": "1",
    "dram_write_utilization": "1",
    "nvlink_tx_utilization": "1",
    "nvlink_rx_utilization": "1",
    "pcie_tx_utilization": "1",
    "pcie_rx_utilization": "1",
    "gpu_utilization": "1",
    "memory_utilization": "1",
    "dram_read_bytes": "B",
    "dram_write_bytes": "B",
    "nvlink_tx_bytes": "B",
    "nvlink_rx_bytes": "B",
    "pcie_tx_bytes": "B",
    "pcie_rx_bytes": "B",
    "nic_tx_bytes": "B",
    "nic_rx_bytes": "B",
    "nvlink_tx_rate": "B/s",
    "nvlink_rx_rate": "B/s",
    "pcie_tx_rate": "B/s",
    "pcie_rx_rate": "B/s",
    "nic_tx_rate": "B/s",
    "nic_rx_rate": "B/s",
    "nvlink_tx_total": "B",
    "nvlink_rx_total": "B",
    "nic_tx_total": "B",
    "nic_rx_total": "B",
    "nic_retransmits": "count",
    "nic_congestion_marks": "count",
    "power": "W",
    "energy": "J",
}
"""Counters by the names that analyzers know, with their units.

A cumulative count comes as differences between its samples, or as `_total` from a file with one sample.
A rate comes as bytes, or as `_rate` where nobody knows for how long it held."""

TIMINGS: Final = _schema(
    "timings",
    *_SOURCE,
    _field("rank", pa.int32(), "rank that measured, null for a sweep's own figure", null=True),
    _field("kind", _WORD, "kind of collective, as in collectives", null=True),
    _field("library", _WORD, "who does it, as in collectives", null=True),
    _field("group_size", pa.int32(), "ranks that take part", null=True),
    _field("nodes", pa.int32(), "nodes they are on", null=True),
    _field("group", _NAME, "stable id of the sorted list of ranks", null=True),
    _field("seq", pa.int64(), "sequence number within the group", null=True),
    _field("dtype", _WORD, "element type, as the producer names it", null=True),
    _field("in_place", pa.bool_(), "whether input and output share a buffer", null=True),
    _field("bytes", pa.int64(), "payload S: the large side of all_gather and reduce_scatter", "B", null=True),
    _field("start_ns", pa.int64(), "begin since the epoch, where it is told", "ns", null=True),
    _field("dur_ns", pa.int64(), "time it took; null while it has not completed", "ns", null=True),
    _field("algbw", pa.float64(), "algorithm bandwidth as the producer states it", "B/s", null=True),
    _field("busbw", pa.float64(), "bus bandwidth as the producer states it", "B/s", null=True),
    _field("errors", pa.int64(), "wrong results the producer found", null=True),
    _field("state", _WORD, "scheduled, started or completed, where the producer tells", null=True),
)

REQUESTS: Final = _schema(
    "requests",
    *_SOURCE,
    _field("benchmark", pa.int64(), "ordinal of the benchmark in its file"),
    _field("request", pa.int64(), "ordinal in its benchmark"),
    _field("success", pa.bool_(), "whether it was answered", null=True),
    _field("input_tokens", pa.int64(), "tokens of the prompt", null=True),
    _field("output_tokens", pa.int64(), "tokens of the answer", null=True),
    _field("ttft_ns", pa.int64(), "request sent to first token", "ns", null=True),
    _field("e2e_ns", pa.int64(), "request sent to last token", "ns", null=True),
    _field(
        "itl_ns", pa.list_(pa.int64()), "gaps between what the client received, in order", "ns", null=True
    ),
)

SERVING: Final = _schema(
    "serving",
    *_SOURCE,
    _field("benchmark", pa.int64(), "ordinal of the benchmark in its file"),
    _field("figure", _NAME, "ttft, tpot, itl, e2e_latency, request_throughput, ..."),
    _field(
        "stat", _WORD, "mean, p50, p90, p99, std, ...; null for a figure without a distribution", null=True
    ),
    _field("value", pa.float64(), "as the client's file states it, in base SI units"),
    _field("unit", _WORD, "base SI unit"),
)

EVIDENCE: Final = {"counters": COUNTERS, "timings": TIMINGS, "requests": REQUESTS, "serving": SERVING}
"""Tables that files other than traces fill, by name."""

RESULTS: Final = _schema(
    "results",
    _field("metric", pa.string(), "topic.name"),
    _field("value", pa.float64(), "the number; null unless status is ok or partial", null=True),
    _field("unit", pa.string(), "base unit: s, B, B/s, FLOP/s, 1 (a fraction), count, ..."),
    _field(
        "status", pa.string(), "ok, partial (rows that belong to it are left out), not_applicable or failed"
    ),
    _field("coverage", pa.float64(), "of a partial number: share of the rows it uses", "1", null=True),
    _field(
        "coverage_time",
        pa.float64(),
        "of a partial number: share of those rows' summed durations; null where they have none",
        "1",
        null=True,
    ),
    _field("provenance", pa.string(), "measured, derived, modelled or published", null=True),
    _field("reason", pa.string(), "why there is no number, or what qualifies the one there is", null=True),
    _field("better", pa.string(), "direction: higher, lower or null where neither", null=True),
    _field("rank", pa.int32(), "rank, null for the run", null=True),
    _field("step", pa.int32(), "step, null where the row spans them", null=True),
    _field("group", pa.string(), "process group, null where the row spans them", null=True),
    _field("collective", pa.string(), "collective kind, null where the row spans them", null=True),
    _field(
        "category",
        pa.string(),
        "kernel category, copy direction or size; null where it spans them",
        null=True,
    ),
    _field("stat", pa.string(), "p50, p95, max, cv, ...; null for the metric's own value", null=True),
    _field("window", pa.string(), "window policy: steps, annotations or trace"),
    _field("version", pa.int32(), "version of the metric's definition"),
    _field("source", pa.string(), "reader of the files that say so; null without any", null=True),
)

TABLES: Final = {
    "events": EVENTS,
    "collectives": COLLECTIVES,
    "groups": GROUPS,
    "steps": STEPS,
    "results": RESULTS,
    **EVIDENCE,
}
"""All tables of a run, by name."""

LAYOUT: Final = sha256(
    "\n".join(
        f"{table}.{field.name} {field.type} {field.nullable}"
        for table, schema in TABLES.items()
        for field in schema
    ).encode()
).hexdigest()[:12]
"""Names one set of columns: tables written with another are of another version."""


def group_id(ranks: tuple[int, ...]) -> str:
    """Stable, readable id of a process group: `0-7`, `0-6:2` (stride), `3`, `0,1,5`.

    `ranks` are global ranks in any order; equal sets have equal ids.  Irregular groups of more than
    eight ranks are abbreviated as `n24:` and eight hexadecimal digits of their list's SHA-256.
    """
    ordered = sorted(set(ranks))
    strides = {b - a for a, b in pairwise(ordered)}
    if len(ordered) == 1:
        return str(ordered[0])
    if len(strides) == 1 and (len(ordered) > 2 or strides == {1}):
        stride = strides.pop()
        return f"{ordered[0]}-{ordered[-1]}" + (f":{stride}" if stride > 1 else "")
    listed = ",".join(map(str, ordered))
    if len(ordered) <= 8:
        return listed
    return f"n{len(ordered)}:{sha256(listed.encode()).hexdigest()[:8]}"
