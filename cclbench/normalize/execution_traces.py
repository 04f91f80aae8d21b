# SPDX-License-Identifier: Apache-2.0
"""Join execution traces with ranks' traces: assign each to a rank, and its calls to collectives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from cclbench.formats import ExecutionTrace, Payload, StatedPayloads
from cclbench.normalize.collectives import payload_bytes
from cclbench.record.facts import TraceFacts

_NUMBER = re.compile(r"(\d{1,6})\D*$")


def traces_by_process(
    processes: Mapping[Path, int | None], ranks: Mapping[int, int | None]
) -> dict[int, Path]:
    """The execution trace of each rank that has one, by process id.

    If ids do not decide (equal ids in containers, or the rank's is unknown), by the number at the end of
    the file's name.
    """
    trace_by_rank: dict[int, Path] = {}
    shared = Counter(ranks.values())
    for rank, process in ranks.items():
        fitting = [path for path, pid in processes.items() if process is None or pid == process]
        if process is None or shared[process] > 1 or len(fitting) > 1:
            fitting = [path for path in fitting if _rank_number(path) == rank]
        if len(fitting) == 1:
            trace_by_rank[rank] = fitting[0]
    return trace_by_rank


def _rank_number(path: Path) -> int | None:
    number = _NUMBER.search(path.name)
    return int(number[1]) if number else None


def place_calls(
    stated_payloads: StatedPayloads, trace: ExecutionTrace, facts: TraceFacts
) -> tuple[TraceFacts, list[str]]:
    """Add the payloads of the execution trace's calls to `stated_payloads`, at the rank's annotations' times.

    An execution trace has no times: its k-th call of a backend (`nccl:all_reduce`) is the rank's k-th
    annotation of one, and none is placed unless all agree in kind and size.  Returns the facts, with the
    execution trace's process groups if the trace lists none, and notes.
    """
    payloads = list(stated_payloads.payloads)
    of_backend = np.array([p.source == "annotation" and p.ranks is None for p in payloads] or [False])
    row, code, start = (
        np.array(column, np.int64)
        for column in (stated_payloads.row, stated_payloads.code, stated_payloads.start_ns)
    )
    at = np.flatnonzero((row < 0) & of_backend[code])
    at = at[np.argsort(start[at], kind="stable")]
    annotated = [payloads[c] for c in code[at].tolist()]
    if difference := _describe_difference(annotated, trace):
        return facts, [f"the execution trace beside it is not used: {difference}"]
    if not facts.groups and trace.groups:
        facts = msgspec.structs.replace(facts, groups=trace.groups)
    sizes = _group_sizes(trace)
    everyone = _all_ranks(trace, sizes, facts)
    completed: dict[Payload, Payload] = {}
    for i, call in zip(at.tolist(), trace.calls, strict=True):
        if call.payload is None:
            continue
        if (payload := completed.get(call.payload)) is None:
            ranks, size = everyone or call.payload.ranks, sizes[call.payload.group_name]
            payload = msgspec.structs.replace(call.payload, ranks=ranks, group_size=size)
            completed[call.payload] = payload
        stated_payloads.add_payload(
            payload,
            track=stated_payloads.track[i],
            start_ns=stated_payloads.start_ns[i],
            end_ns=stated_payloads.end_ns[i],
            seq=call.seq,
        )
    if not everyone:
        return facts, []
    inferred = f"the execution trace's one process group is of {len(everyone)} ranks: taken as all of the job"
    return facts, [inferred]


def _describe_difference(annotated: list[Payload], trace: ExecutionTrace) -> str | None:
    """First difference between a backend's annotations and the execution trace's calls, None if none."""
    if len(annotated) != len(trace.calls):
        return f"it has {len(trace.calls)} calls, the trace {len(annotated)}"
    for k, (payload, call) in enumerate(zip(annotated, trace.calls, strict=True), start=1):
        size, name = payload_bytes(payload)[0], call.name.partition(":")[2]
        if payload.collective != name:
            return f"call {k} is {name[:60]}, the trace's {(payload.collective or '')[:60]}"
        if None not in (size, call.in_bytes) and size != call.in_bytes:
            return f"call {k} ({name[:60]}) is of {call.in_bytes} bytes, the trace's of {size}"
    return None


def _group_sizes(trace: ExecutionTrace) -> dict[str | None, int | None]:
    """Size of each process group of the calls; None if calls state none or different ones."""
    sizes_by_group: dict[str | None, set[int]] = {}
    for payload in (call.payload for call in trace.calls if call.payload is not None):
        sizes = sizes_by_group.setdefault(payload.group_name, set())
        if payload.group_size is not None:
            sizes.add(payload.group_size)
    return {group: next(iter(sizes)) if len(sizes) == 1 else None for group, sizes in sizes_by_group.items()}


def _all_ranks(
    trace: ExecutionTrace, sizes: Mapping[str | None, int | None], facts: TraceFacts
) -> tuple[int, ...] | None:
    """All ranks, if the calls' only process group is not listed and has the size of the job."""
    listed = facts.groups or any(call.payload.ranks for call in trace.calls if call.payload is not None)
    if listed or facts.world_size is None or list(sizes.values()) != [facts.world_size]:
        return None
    return tuple(range(facts.world_size))
