# SPDX-License-Identifier: Apache-2.0
"""Schemas of tables that come from files other than traces: counters, timings, requests, allocators."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cclbench.ground.table_schema import NAME as _NAME
from cclbench.ground.table_schema import STORED_WORD as _WORD
from cclbench.ground.table_schema import nullable as _nullable
from cclbench.ground.table_schema import required as _required
from cclbench.ground.table_schema import table_schema as _versioned_schema

_SOURCE = (
    _nullable("source", _WORD, "reader of the file that says so"),
    _nullable("file", _NAME, "that file, within the source"),
)

COUNTERS: Final = _versioned_schema(
    "counters",
    *_SOURCE,
    _nullable("rank", pa.int32(), "rank whose device is counted, where that is known"),
    _nullable("device", pa.int16(), "index of the accelerator"),
    _nullable("port", _NAME, "link or port: nvlink 3, mlx5_0/1; null where all are counted together"),
    _required("counter", _NAME, "what is counted: a name of COUNTER_UNITS, else the producer's own"),
    _nullable("unit", _WORD, "base SI unit of the value; null where the producer's is not known"),
    _nullable("start_ns", pa.int64(), "begin of the interval the value is about; null: unknown", "ns"),
    _nullable("end_ns", pa.int64(), "its end; equal to the begin for an instant's value", "ns"),
    _required("value", pa.float64(), "bytes moved in the interval, or the mean of a share or rate over it"),
)

_COUNTERS: Final = {
    "1": (
        *("sm_active", "tensor_active", "dram_active", "dram_read_utilization", "dram_write_utilization"),
        *("nvlink_tx_utilization", "nvlink_rx_utilization", "pcie_tx_utilization", "pcie_rx_utilization"),
        *("gpu_utilization", "memory_utilization"),
        *("power_limited", "thermally_limited", "hardware_limited"),
    ),
    "B": (
        *("dram_read_bytes", "dram_write_bytes", "nvlink_tx_bytes", "nvlink_rx_bytes", "pcie_tx_bytes"),
        *("pcie_rx_bytes", "nic_tx_bytes", "nic_rx_bytes"),
        *("nvlink_tx_total", "nvlink_rx_total", "nic_tx_total", "nic_rx_total"),
        "memory_used",
    ),
    "B/s": ("nvlink_tx_rate", "nvlink_rx_rate", "pcie_tx_rate", "pcie_rx_rate", "nic_tx_rate", "nic_rx_rate"),
    "count": ("nic_retransmits", "nic_congestion_marks"),
    "W": ("power",),
    "J": ("energy",),
    "Hz": ("sm_clock", "memory_clock"),
}
COUNTER_UNITS: Final = {counter: unit for unit, counters in _COUNTERS.items() for counter in counters}
"""Counters by the names that analyzers know, with their units.

A cumulative count comes as differences between its samples, or as `_total` from a file with one sample.
A rate comes as bytes, or as `_rate` where nobody knows for how long it held."""

TIMINGS: Final = _versioned_schema(
    "timings",
    *_SOURCE,
    _nullable("rank", pa.int32(), "rank that measured, null for a sweep's own figure"),
    _nullable("kind", _WORD, "kind of collective, as in collectives"),
    _nullable("library", _WORD, "who does it, as in collectives"),
    _nullable("group_size", pa.int32(), "ranks that take part"),
    _nullable("nodes", pa.int32(), "nodes they are on"),
    _nullable("group", _NAME, "stable id of the sorted list of ranks"),
    _nullable("communicator", pa.int32(), "number of the library's communicator, the same on all its ranks"),
    _nullable("seq", pa.int64(), "sequence number within the group; of a logged call in its communicator"),
    _nullable("src_rank", pa.int32(), "sending rank of a point-to-point transfer"),
    _nullable("dst_rank", pa.int32(), "receiving rank of a point-to-point transfer"),
    _nullable("dtype", _WORD, "element type, as the producer names it"),
    _nullable("in_place", pa.bool_(), "whether input and output share a buffer"),
    _nullable("bytes", pa.int64(), "payload S: the large side of all_gather and reduce_scatter", "B"),
    _nullable("start_ns", pa.int64(), "begin since the epoch, where it is told", "ns"),
    _nullable("dur_ns", pa.int64(), "time it took; null while it has not completed", "ns"),
    _nullable("algbw", pa.float64(), "algorithm bandwidth as the producer states it", "B/s"),
    _nullable("busbw", pa.float64(), "bus bandwidth as the producer states it", "B/s"),
    _nullable("errors", pa.int64(), "wrong results the producer found"),
    _nullable("state", _WORD, "scheduled, started or completed, where the producer tells"),
    _nullable("calls", pa.int64(), "calls that the row stands for; null: one"),
)

REQUESTS: Final = _versioned_schema(
    "requests",
    *_SOURCE,
    _required("benchmark", pa.int64(), "ordinal of the benchmark in its file"),
    _required("request", pa.int64(), "ordinal in its benchmark"),
    _nullable("success", pa.bool_(), "whether it was answered"),
    _nullable("input_tokens", pa.int64(), "tokens of the prompt"),
    _nullable("output_tokens", pa.int64(), "tokens of the answer"),
    _nullable(
        "ttft_ns", pa.int64(), "request sent to first token; of a server's span from its arrival", "ns"
    ),
    _nullable("e2e_ns", pa.int64(), "request sent to last token; of a server's span from its arrival", "ns"),
    _nullable("itl_ns", pa.list_(pa.int64()), "gaps between what the client received, in order", "ns"),
    _nullable("queue_ns", pa.int64(), "arrival to first scheduling, by a server's span", "ns"),
    _nullable("prefill_ns", pa.int64(), "first scheduling to first token, by a server's span", "ns"),
    _nullable("decode_ns", pa.int64(), "first to last token, by a server's span", "ns"),
)

REQUEST_STAGES: Final = _versioned_schema(
    "request_stages",
    *_SOURCE,
    _required("request", pa.int64(), "number of the request, the same in all files that state its id"),
    _nullable("host", pa.int64(), "number of the host whose clock times it; null where it is not stated"),
    _required("role", _WORD, "of the instance: prefill or decode"),
    _required(
        "stage",
        _WORD,
        "request (arrival to first token), queue, prefill, transfer, first_token, or kv_wait: the decode"
        " instance waits for the KV cache",
    ),
    _required("start_ns", pa.int64(), "begin, since 1970 on the host's clock", "ns"),
    _required("end_ns", pa.int64(), "its end", "ns"),
)

SERVING: Final = _versioned_schema(
    "serving",
    *_SOURCE,
    _required("benchmark", pa.int64(), "ordinal of the benchmark in its file"),
    _required("figure", _NAME, "ttft, tpot, itl, e2e_latency, request_throughput, ..."),
    _nullable("stat", _WORD, "mean, p50, p90, p99, std, ...; null for a figure without a distribution"),
    _required("value", pa.float64(), "as the client's file states it, in base SI units"),
    _required("unit", _WORD, "base SI unit"),
)

ALLOCATOR_ACTIONS: Final = (
    *("alloc", "free_requested", "free_completed"),
    *("segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot"),
)
_ALLOCATOR = (
    *_SOURCE,
    _nullable("rank", pa.int32(), "rank whose allocator it is, where that is known"),
    _required("device", pa.int16(), "index of the accelerator as the process sees it"),
)
BLOCK_STATES: Final = ("active_allocated", "active_pending_free", "inactive")

ALLOCATIONS: Final = _versioned_schema(
    "allocations",
    *_ALLOCATOR,
    _required("event", pa.int64(), "ordinal of the event in the device's recording, from 0"),
    _nullable("time_ns", pa.int64(), "when, on the host's clock; null where the snapshot has no times", "ns"),
    _required("action", _WORD, "what the allocator did: " + ", ".join(ALLOCATOR_ACTIONS)),
    _nullable("address", pa.int64(), "begin of the block or segment; null of an oom"),
    _required(
        "size",
        pa.int64(),
        "bytes: of alloc and free as the program asked for them, of a segment as they were reserved",
        "B",
    ),
    _nullable("stream", pa.int64(), "stream whose pool it is from"),
    _nullable("call_site", _NAME, "the stack, innermost first and cut; null where none was recorded"),
    _nullable("device_free", pa.int64(), "of an oom: bytes that the device itself had free; else null", "B"),
)

MEMORY_BLOCKS: Final = _versioned_schema(
    "memory_blocks",
    *_ALLOCATOR,
    _required("segment", pa.int64(), "address of the segment that it is part of: its blocks fill it"),
    _required("address", pa.int64(), "begin of the block"),
    _required("size", pa.int64(), "bytes that the block takes of its segment", "B"),
    _nullable("requested", pa.int64(), "bytes that the program asked for; null where untold", "B"),
    _nullable("stream", pa.int64(), "stream whose pool the segment belongs to"),
    _nullable("pool", _NAME, "the segment's pool: large or small, with a private one's id; null if unknown"),
    _required("state", _WORD, "when the snapshot was taken: " + ", ".join(BLOCK_STATES)),
    _nullable("call_site", _NAME, "stack that allocated it, as in allocations; null of an inactive block"),
)

ALLOCATOR_ANNOTATIONS: Final = _versioned_schema(
    "allocator_annotations",
    *_ALLOCATOR,
    _required("name", _NAME, "annotation of the program, such as ProfilerStep#3"),
    _required("start_ns", pa.int64(), "begin, on the host's clock", "ns"),
    _required("end_ns", pa.int64(), "end", "ns"),
)

BUFFER_KINDS: Final = ("parameter", "parameter_output", "constant", "output", "temporary", "thread_local")
BUFFER_PARTS: Final = ("whole", "live", "untraced", "unused")

PROGRAM_BUFFERS: Final = _versioned_schema(
    "program_buffers",
    *_SOURCE,
    _required("program", pa.int64(), "ordinal of the compiled program in its file"),
    _nullable("module", _NAME, "name of the compiled module"),
    _nullable("allocation", pa.int64(), "index of the allocation; null if the program's are unknown"),
    _nullable(
        "kind",
        _WORD,
        "as the compiler assigned it: "
        + ", ".join(BUFFER_KINDS)
        + "; parameter_output is a parameter whose memory an output reuses",
    ),
    _nullable("memory_space", pa.int64(), "color of the allocation; 0 is the device's main memory"),
    _nullable(
        "part",
        _WORD,
        "of the allocation: "
        + ", ".join(BUFFER_PARTS)
        + "; at the peak of its heap trace, one row per live buffer",
    ),
    _nullable("bytes", pa.int64(), "size of the part: those of an allocation sum to its size", "B"),
    _nullable("instruction", _NAME, "HLO instruction that defines the buffer"),
    _nullable("framework_op", _NAME, "its framework op, as the metadata state it"),
    _nullable("call_site", _NAME, "its line of source, as the metadata state it"),
    _nullable("reason", _NAME, "why bytes, or live buffers, are unknown"),
)

LOG_STEPS: Final = _versioned_schema(
    "log_steps",
    *_SOURCE,
    _nullable("rank", pa.int32(), "number that labels the line: a rank, or a task of srun"),
    _required("restart", pa.int32(), "restarts of the rank's job before the line"),
    _nullable("step", pa.int64(), "step as the log numbers it; null for a server's line"),
    _nullable("steps", pa.int64(), "steps that the line is about: those since the one before it"),
    _nullable("end_ns", pa.int64(), "when it was written, since 1970 on the log's own clock", "ns"),
    _nullable("dur_ns", pa.int64(), "time of a step, the mean of those that the line is about", "ns"),
    _nullable("data_ns", pa.int64(), "of that, the wait for the batch, as the log states it", "ns"),
    _nullable("timed_by", _WORD, "where that is from: stated, rate (stated), or stamps (of two lines)"),
    _nullable("profiler", _WORD, "recorded: a profiler recorded the step; saved: it wrote its profile then"),
    _nullable("samples", pa.int64(), "samples of a step, over all ranks"),
    _nullable("tokens", pa.int64(), "tokens of a step, over all ranks: samples times the sequence length"),
    _nullable("loss", pa.float64(), "loss of the step"),
    _nullable("flops_per_s", pa.float64(), "of a device, as the log states it", "FLOP/s"),
    _nullable("mfu", pa.float64(), "as the log states it, a share"),
    _nullable("memory_bytes", pa.int64(), "peak memory of the device, as the log states it", "B"),
    _nullable("tokens_per_s_per_device", pa.float64(), "as the log states it", "1/s"),
    _nullable("prompt_tokens_per_s", pa.float64(), "of a server, as its log states it", "1/s"),
    _nullable("generated_tokens_per_s", pa.float64(), "of a server, as its log states it", "1/s"),
    _nullable("running", pa.int64(), "requests that a server runs"),
    _nullable("waiting", pa.int64(), "requests in its queue"),
)

SERVER_METRIC_PARTS: Final = ("total", "value", "count", "sum", "bucket")

SERVER_METRICS: Final = _versioned_schema(
    "server_metrics",
    *_SOURCE,
    _required("scrape", pa.int64(), "ordinal of the scrape in its file"),
    _nullable("at_ns", pa.int64(), "when it was scraped, since 1970; null where the file does not say", "ns"),
    _required("series", _NAME, "labels that tell servers and reasons apart; empty without any"),
    _required("metric", _WORD, "ttft, queue, prefill, decode, transfer, generated_tokens, ..."),
    _required(
        "part",
        _WORD,
        ", ".join(SERVER_METRIC_PARTS) + ": of a counter, of a gauge, and three of a histogram",
    ),
    _nullable("le", pa.float64(), "upper bound of a bucket, which counts all observations up to it"),
    _required("value", pa.float64(), "as the server states it, in base SI units; all but gauges only grow"),
)

REQUEST_TRACE: Final = _versioned_schema(
    "request_trace",
    *_SOURCE,
    _required("request", pa.int64(), "ordinal in its file"),
    _required("arrival_ns", pa.int64(), "arrival since the trace began", "ns"),
    _required("input_tokens", pa.int64(), "tokens of the prompt"),
    _required("output_tokens", pa.int64(), "tokens of the answer"),
    _nullable("blocks", pa.list_(pa.int64()), "ids of the prompt's cache blocks, equal for equal prefixes"),
)

STORAGE: Final = _versioned_schema(
    "storage",
    *_SOURCE,
    _required(
        "phase",
        _WORD,
        "train, eval; save or load of a checkpoint; of a store: read, write, trim, flush, mixed, all, ...",
    ),
    _nullable("epoch", pa.int32(), "number of the epoch; null for a figure of the whole run"),
    _nullable("job", _NAME, "job of a benchmark, or device, that the figure is of; null: all"),
    _nullable("sample", pa.int32(), "number of a monitor's report, or of a repetition"),
    _required("figure", _NAME, "accelerator_utilization, samples_per_s, epoch_time, ..., or of STORE_UNITS"),
    _nullable("stat", _NAME, "min, max, p50, p99.9, ...; null for a mean, a rate or a time"),
    _required("unit", _WORD, "base SI unit"),
    _required("value", pa.float64(), "as the benchmark states it, in base SI units"),
)

STORE_UNITS: Final = {
    "bytes_per_s": "B/s",
    "operations_per_s": "1/s",
    "entries_per_s": "1/s",
    "latency": "s",
    "utilization": "1",
}
"""Figures of a store, by benchmarks and monitors, with their units."""

IO_CALL_KINDS: Final = ("read", "write", "metadata", "application")

IO_CALLS: Final = _versioned_schema(
    "io_calls",
    *_SOURCE,
    _nullable("rank", pa.int32(), "rank of the process, where the file states it"),
    _required("process", pa.int64(), "process id"),
    _nullable("thread", pa.int64(), "thread id"),
    _required("layer", _WORD, "POSIX, STDIO, or an application's own"),
    _required("function", _NAME, "function that was called, or a name of the application's"),
    _required("kind", _WORD, ", ".join(IO_CALL_KINDS) + " (any other layer, which contains calls)"),
    _nullable("path", _NAME, "file or folder"),
    _required("start_ns", pa.int64(), "begin since 1970", "ns"),
    _required("dur_ns", pa.int64(), "time it took", "ns"),
    _nullable("bytes", pa.int64(), "bytes that were read or written; null of a call that failed", "B"),
)

AGENT_CALLS: Final = _versioned_schema(
    "agent_calls",
    *_SOURCE,
    _required("session", pa.int64(), "ordinal of the session in its file"),
    _required("round", pa.int64(), "number of the round in its session"),
    _required("kind", _WORD, "model or tool"),
    _nullable("name", _NAME, "the model or the tool"),
    _required("start_ns", pa.int64(), "last input of the round, or the call, since 1970", "ns"),
    _required("end_ns", pa.int64(), "last output, or the result", "ns"),
    _nullable("input_tokens", pa.int64(), "of a round of the model: tokens of all that it was given"),
    _nullable("cached_tokens", pa.int64(), "of these, tokens of the prefix that a cache held"),
    _nullable("output_tokens", pa.int64(), "tokens that it returned"),
    _nullable("failed", pa.bool_(), "whether a tool returned an error, where that is stated"),
)

PHASE_TIMES: Final = _versioned_schema(
    "phase_times",
    *_SOURCE,
    _required("entry", pa.int64(), "ordinal of the step's line in its file"),
    _required("step", pa.int64(), "step as the log numbers it"),
    _required("phase", _NAME, "timer of the trainer, such as gen or update_actor; step is the whole"),
    _required("dur_ns", pa.int64(), "time, as the log states it", "ns"),
)

STATED_PARTS: Final = _versioned_schema(
    "stated_parts",
    *_SOURCE,
    _required("entry", pa.int64(), "ordinal of the step's row in its file"),
    _nullable("rank", pa.int32(), "rank, where the table states it"),
    _nullable("device", pa.int32(), "device as the profiler numbers it"),
    _nullable("step", pa.int64(), "step as the profiler numbers it; null: everything recorded"),
    _required(
        "part",
        _WORD,
        "compute, exposed_comm, free, which add up to stage + bubble (the receives); overlapped,"
        " communication, exposed_comm_without_receive; preparing, which is before the first task",
    ),
    _required("dur_ns", pa.int64(), "time, as the profiler's own table states it", "ns"),
)

EVIDENCE: Final = {
    "counters": COUNTERS,
    "timings": TIMINGS,
    "requests": REQUESTS,
    "request_stages": REQUEST_STAGES,
    "serving": SERVING,
    "allocations": ALLOCATIONS,
    "memory_blocks": MEMORY_BLOCKS,
    "allocator_annotations": ALLOCATOR_ANNOTATIONS,
    "program_buffers": PROGRAM_BUFFERS,
    "log_steps": LOG_STEPS,
    "server_metrics": SERVER_METRICS,
    "request_trace": REQUEST_TRACE,
    "storage": STORAGE,
    "io_calls": IO_CALLS,
    "agent_calls": AGENT_CALLS,
    "phase_times": PHASE_TIMES,
    "stated_parts": STATED_PARTS,
}
"""Tables beside the rows of traces, by name: from other files, or from a trace's own tables."""
