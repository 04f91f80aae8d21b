# SPDX-License-Identifier: Apache-2.0
"""The schema, version 1: every Arrow table that cclbench writes, each field with its unit and meaning.

Times are int64 nanoseconds since the Unix epoch (by the rank's own clock), bytes are int64, and unknown
values are null.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from typing import Final

import pyarrow as pa

from cclbench.ground import pandas_on_demand  # noqa: F401 - for its effect
from cclbench.ground.evidence_schema import EVIDENCE
from cclbench.ground.table_schema import NAME as _NAME
from cclbench.ground.table_schema import STORED_WORD as _WORD
from cclbench.ground.table_schema import VERSION as VERSION
from cclbench.ground.table_schema import file_schema
from cclbench.ground.table_schema import nullable as _nullable
from cclbench.ground.table_schema import required as _required
from cclbench.ground.table_schema import table_schema as _versioned_schema

SIDES: Final = ("device", "host")
KINDS: Final = ("kernel", "copy", "memset", "sync", "launch", "op", "annotation", "python", "other", "graph")
CATEGORIES: Final = (
    *("gemm", "attention", "convolution", "normalization", "elementwise", "reduction", "moe", "embedding"),
    *("optimizer", "sampling", "communication", "copy", "fused", "compute", "other"),
)
PHASES: Final = ("forward", "loss", "backward", "optimizer", "data", "prefill", "decode", "mixed", "other")
COPY_DIRECTIONS: Final = ("h2d", "d2h", "d2d", "p2p")
WINDOW_SOURCES: Final = ("device", "annotation", "module", "whole_trace", "graph")
GROUP_SOURCES: Final = ("stated", "inferred")
COLLECTIVE_KINDS: Final = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter"),
    *("send", "recv", "send_recv", "barrier"),
)

OPEN: Final = "open"
"""The statistic of a result of an open window."""
TOTAL: Final = "total"
"""The statistic of a result of all ranks together, for metrics that are otherwise per rank."""
HAS_VALUE: Final = ("ok", "partial")
"""Statuses of results that have a number."""


EVENTS: Final = _versioned_schema(
    "events",
    _nullable("device", pa.int16(), "index of the accelerator as the process sees it"),
    _required("track", pa.int64(), "stream (device side) or thread (host side)"),
    _required("side", _WORD, "where it ran: " + ", ".join(SIDES)),
    _required("kind", _WORD, "what it is (graph: a launch of one, traced as a whole): " + ", ".join(KINDS)),
    _required("category", _WORD, "what it does, by its name: " + ", ".join(CATEGORIES)),
    _required("name", _NAME, "the profiler's name for it"),
    _required("start_ns", pa.int64(), "begin", "ns"),
    _required("dur_ns", pa.int64(), "duration; 0 for an instant", "ns"),
    _nullable("correlation", pa.int64(), "links a launch with what it launched"),
    _nullable(
        "step",
        pa.int32(),
        "step of a device event, that of its launch, and of a CPU's transfer; null on other host rows,"
        " where the steps table gives it by time",
    ),
    _nullable("bytes", pa.int64(), "bytes copied or set; of [memory] rows those then allocated", "B"),
    _nullable("copy_direction", _WORD, "of a copy: " + ", ".join(COPY_DIRECTIONS)),
    _nullable("flops", pa.float64(), "operations, where the trace states them", "FLOP"),
    _nullable("hbm_bytes", pa.int64(), "device memory traffic, where the trace states it", "B"),
    _nullable("grid_x", pa.int64(), "thread blocks along x of the kernel's grid"),
    _nullable("grid_y", pa.int64(), "thread blocks along y"),
    _nullable("grid_z", pa.int64(), "thread blocks along z"),
    _nullable("blocks", pa.int64(), "thread blocks in the kernel's grid: the product of the three"),
    _nullable("occupancy", pa.float64(), "of a kernel: share of the device's warps that are resident", "1"),
    _nullable(
        "operator",
        pa.int64(),
        "id of an operator's call: of an op its own, of a device event that of the innermost op which"
        " launched it",
    ),
    _nullable(
        "framework_op",
        _NAME,
        "of a device event that is an instruction of a compiled program: path of the framework's op that it"
        " comes from; its opcode where the compiler states none",
    ),
    _nullable("program", _NAME, "of such an instruction: name of its compiled program"),
    _nullable(
        "awaited_ns",
        pa.int64(),
        "of such an instruction that runs beside the device's core: time of the core to issue and await it",
        "ns",
    ),
    _nullable("call_site", _NAME, "of such an instruction: line of Python that it comes from"),
    _nullable("shapes", _NAME, "of an op or instruction: sizes of its inputs, as a JSON list"),
    _nullable("dtypes", _NAME, "of an op or instruction: element types of its inputs, as a JSON list"),
    _nullable("strides", _NAME, "of an op: strides of its inputs in elements, as a JSON list"),
    _nullable("values", _NAME, "of an op or instruction: inputs that are no tensors, a JSON list of texts"),
    _nullable("sequence", pa.int64(), "of an op: number that a backward op shares with its forward op"),
    _nullable("forward_thread", pa.int64(), "of a backward op: framework's number of its forward's thread"),
    _nullable("phase", _WORD, "of a device event, what its launch was for: " + ", ".join(PHASES)),
    _nullable("module", _NAME, "of a device event: path of the nn.Module, or name scopes, that launched it"),
    _nullable("launched", _NAME, "of a launch: the kernel's name, where the runtime states it"),
    _nullable("event_stream", pa.int64(), "of a wait for an event: stream whose work it marks"),
    _nullable(
        "event_record",
        pa.int64(),
        "of a wait for an event: correlation of the call that recorded it, before which the stream's work was"
        " launched",
    ),
    _nullable("collective", pa.int64(), "key into collectives"),
    _nullable("reserved", pa.int64(), "of [memory] rows: bytes that the allocator then held", "B"),
    _nullable("change", pa.int64(), "of [memory] rows: bytes allocated; below 0 those freed", "B"),
    _nullable("address", pa.int64(), "of [memory] rows: begin of the block"),
)

OPERATORS: Final = _versioned_schema(
    "operators",
    _required("rank", pa.int32(), "rank that called it"),
    _required("operator", pa.int64(), "id of the call, as in events"),
    _nullable("parent", pa.int64(), "id of the call that made this one"),
    _required("name", _NAME, "the framework's name for it"),
    _nullable(
        "shapes", _NAME, "sizes of its inputs, as a JSON list; of a fused optimizer those of its gradients"
    ),
    _nullable("dtypes", _NAME, "element types of its inputs, as a JSON list"),
    _nullable("strides", _NAME, "strides of its inputs in elements, as a JSON list"),
    _nullable("values", _NAME, "its inputs that are no tensors, as a JSON list of texts"),
    _required("track", pa.int64(), "thread that called it; of a compiled program's op as in events"),
    _required("start_ns", pa.int64(), "begin of the call; of a compiled program's op of its run", "ns"),
    _required("end_ns", pa.int64(), "its end", "ns"),
    _nullable("sequence", pa.int64(), "number that a backward op shares with its forward op"),
    _nullable("step", pa.int32(), "step that holds it"),
    _required("phase", _WORD, "what it was for: " + ", ".join(PHASES)),
    _nullable(
        "module",
        _NAME,
        "path of the nn.Module that called it, of a backward op of its forward op; of JAX's name scopes",
    ),
    _nullable("call_site", _NAME, "innermost line of Python outside of the framework that called it"),
    _nullable("annotation", _NAME, "serving engine's name of the step that holds it"),
    _required("recomputed", pa.bool_(), "whether it is a forward op run again for the backward pass"),
    _required("kernels", pa.int64(), "device rows that it launched, those of calls that it made aside"),
    _required(
        "device_ns", pa.int64(), "|those rows|; of a CPU's op its time outside of calls that it made", "ns"
    ),
)

COLLECTIVES: Final = _versioned_schema(
    "collectives",
    _required("collective", pa.int64(), "key of the row: this rank's part in a collective"),
    _nullable("instance", pa.int64(), "number the parts of one collective share; null until matched"),
    _required("rank", pa.int32(), "rank whose view this row is"),
    _nullable("kind", _WORD, "what it does: " + ", ".join(COLLECTIVE_KINDS)),
    _required("library", _WORD, "who does it: nccl, rccl, gloo, mscclpp, mpi, xla, custom, ..."),
    _nullable("group", _NAME, "stable id of the sorted list of ranks, such as 0-7 or 0-6:2"),
    _nullable("group_size", pa.int32(), "ranks in the process group"),
    _nullable("dimension", _WORD, "parallel dimension of the group: dp, tp, pp, ep, cp, ..."),
    _nullable("seq", pa.int64(), "sequence number within the group"),
    _nullable("src_rank", pa.int32(), "sending rank of a point-to-point transfer; a root that sends"),
    _nullable("dst_rank", pa.int32(), "receiving rank of a point-to-point transfer; a root that receives"),
    _nullable("channel", _NAME, "communicator and tag of a message, within which `seq` counts"),
    _nullable("in_bytes", pa.int64(), "payload handed in by this rank", "B"),
    _nullable("out_bytes", pa.int64(), "payload handed back to this rank", "B"),
    _nullable("dtype", _WORD, "element type, as the framework names it"),
    _nullable(
        "payload_source", _WORD, "who states the bytes: kernel, host_op, annotation, hlo, or a file's reader"
    ),
    _nullable("step", pa.int32(), "step that holds it"),
    _required("start_ns", pa.int64(), "begin on this rank", "ns"),
    _required("end_ns", pa.int64(), "end on this rank", "ns"),
    _nullable("arrival_ns", pa.int64(), "begin on the common clock; null until matched", "ns"),
    _nullable("wait_ns", pa.int64(), "latest arrival − own arrival; null until matched", "ns"),
    _nullable("transfer_ns", pa.int64(), "end − latest arrival; null until matched", "ns"),
    _nullable(
        "least_wait_ns",
        pa.int64(),
        "of a collective that lacks some rank's trace: latest arrival that is seen − own arrival",
        "ns",
    ),
)

GROUPS: Final = _versioned_schema(
    "groups",
    _required("group", pa.string(), "stable id of the sorted list of ranks"),
    _required("ranks", pa.list_(pa.int32()), "global ranks, sorted"),
    _required("size", pa.int32(), "how many they are"),
    _required("descriptions", pa.list_(pa.string()), "what traces call the group, sorted"),
    _required("source", _WORD, "by a trace, or from how the ranks run: " + ", ".join(GROUP_SOURCES)),
)

STEPS: Final = _versioned_schema(
    "steps",
    _required("rank", pa.int32(), "rank whose window this is"),
    _nullable("step", pa.int32(), "number the workload gave it; null for the whole trace"),
    _required("start_ns", pa.int64(), "begin, inclusive", "ns"),
    _required("end_ns", pa.int64(), "end, exclusive", "ns"),
    _required("source", _WORD, "how it was found: " + ", ".join(WINDOW_SOURCES)),
    _required("open", pa.bool_(), "whether no further step says where it ends: means leave it out"),
    _nullable("purity", pa.float64(), "share of its kernel time that its own step launched, if known", "1"),
)

RESULTS: Final = _versioned_schema(
    "results",
    _required("metric", pa.string(), "topic.name"),
    _nullable("value", pa.float64(), "the number; null unless status is ok or partial"),
    _required("unit", pa.string(), "base unit: s, B, B/s, FLOP/s, 1 (a fraction), count, ..."),
    _required(
        "status", pa.string(), "ok, partial (rows that belong to it are left out), not_applicable or failed"
    ),
    _nullable("coverage", pa.float64(), "of a partial number: share of the rows it uses", "1"),
    _nullable(
        "coverage_time",
        pa.float64(),
        "of a partial number: share of those rows' summed durations; null where they have none",
        "1",
    ),
    _nullable("provenance", pa.string(), "measured, derived, modelled or published"),
    _nullable("reason", pa.string(), "why there is no number, or what qualifies the one there is"),
    _nullable("better", pa.string(), "direction: higher, lower or null where neither"),
    _nullable("rank", pa.int32(), "rank, null for the run"),
    _nullable("step", pa.int32(), "step, null where the row spans them"),
    _nullable("group", pa.string(), "process group, null where the row spans them"),
    _nullable("collective", pa.string(), "collective kind, null where the row spans them"),
    _nullable("category", pa.string(), "kernel category, copy direction or size; null where it spans them"),
    _nullable("stat", pa.string(), "p50, p95, max, cv, ...; null for the metric's own value"),
    _required("window", pa.string(), "window policy: steps, annotations or trace"),
    _required("version", pa.int32(), "version of the metric's definition"),
    _nullable("source", pa.string(), "reader of the files that say so; null without any"),
)

TABLES: Final = {
    "events": EVENTS,
    "operators": OPERATORS,
    "collectives": COLLECTIVES,
    "groups": GROUPS,
    "steps": STEPS,
    "results": RESULTS,
    **EVIDENCE,
}
"""All tables of a run, by name."""

_FILES: Final = "manifest lists files"
"""A property of the run's folder, besides columns, that distinguishes versions."""
_COLUMNS: Final = (
    f"{table}.{field.name} {field.type} {field.nullable}"
    for table, schema in TABLES.items()
    for field in file_schema(schema)
)
LAYOUT: Final = sha256("\n".join((*_COLUMNS, _FILES)).encode()).hexdigest()[:12]
"""Identifies the layout of runs; runs with another layout are of another version."""


def group_id(ranks: tuple[int, ...]) -> str:
    """Stable, readable id of a process group: `0-7`, `0-6:2` (stride), `3`, `0,1,5`.

    `ranks` are global ranks in any order; equal sets have equal ids.  Irregular groups of more than
    eight ranks are abbreviated as `n24:` and eight hexadecimal digits of their list's SHA-256.
    """
    ordered = sorted(set(ranks))
    strides = {b - a for a, b in pairwise(ordered)}
    if len(strides) == 1 and (len(ordered) > 2 or strides == {1}):
        stride = strides.pop()
        return f"{ordered[0]}-{ordered[-1]}" + (f":{stride}" if stride > 1 else "")
    listed = ",".join(map(str, ordered))
    return listed if len(ordered) <= 8 else f"n{len(ordered)}:{sha256(listed.encode()).hexdigest()[:8]}"
