# SPDX-License-Identifier: Apache-2.0
"""Collectives of one rank: which rows they are, of what kind, in which process group, with how many bytes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cclbench.intervals import Int64
from cclbench.readers import Payload
from cclbench.schema import COLLECTIVES, TraceFacts, group_id

RANK_SHIFT = 32
"""A collective's key before ranks are matched: rank << 32 | ordinal within the rank."""

_KINDS = (
    ("reduce_scatter", "reducescatter"),
    ("all_reduce", "allreduce"),
    ("all_gather", "allgather"),
    ("all_to_all", "alltoall"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send_recv", "sendrecv"),
    ("send", "send"),
    ("recv", "recv"),
)
_SIZES = (
    (1, r"float8.*|u?int8|byte|char|bool|unsigned char|signed char|quint8|qint8"),
    (2, r"half|bfloat16|float16|u?int16|short|unsigned short"),
    (4, r"float|float32|u?int32|int|unsigned int|complexhalf|complex32"),
    (8, r"double|float64|u?int64|long|long int|unsigned long|complexfloat|complex64"),
    (16, r"complexdouble|complex128"),
)
_DIMENSIONS = (
    ("tp", r"(?:^|[_\W])tp(?:$|[_\W])|tensor"),
    ("pp", r"(?:^|[_\W])pp(?:$|[_\W])|pipeline"),
    ("ep", r"(?:^|[_\W])ep(?:$|[_\W])|expert"),
    ("cp", r"(?:^|[_\W])cp(?:$|[_\W])|context"),
    ("dp", r"(?:^|[_\W])(?:dp|hsdp|fsdp)(?:$|[_\W])|data|dp_shard|dp_replicate"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The communication rows of a rank, in the order written; arrays of shape (calls,).

    `row` is the ordinal among the rank's kernels (−1 on a CPU), `launch_*` where and when it was
    launched (−1 where unknown), `kinds` and `libraries` what the name says.
    """

    row: Int64
    start_ns: Int64
    end_ns: Int64
    track: Int64
    step: Int64
    launch_track: Int64
    launch_ns: Int64
    kinds: Sequence[str | None]
    libraries: Sequence[str]


def kind_of(name: str) -> str | None:
    """The kind a framework's name for a collective means: `_allgather_base`, `alltoallv`, `all_reduce`."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for kind, mark in _KINDS if mark in letters), None)


def element_bytes(dtype: str | None) -> int | None:
    """Size of an element of that type, by any of the names frameworks give it; None where unknown."""
    if dtype is None:
        return None
    name = dtype.lower().removeprefix("c10::").removeprefix("torch.")
    return next((size for size, pattern in _SIZES if re.fullmatch(pattern, name)), None)


def dimension_of(description: str | None) -> str | None:
    """The parallel dimension a group's description names: `mesh_tp`, `TENSOR_MODEL_PARALLEL_GROUP`."""
    text = (description or "").lower()
    found = [dimension for dimension, pattern in _DIMENSIONS if re.search(pattern, text)]
    return found[0] if len(found) == 1 else None


def on_device(calls: Calls, payloads: Sequence[Payload]) -> dict[int, Payload]:
    """The payload of each call of an accelerator, by the call's index.

    The kernel's own metadata first, then the host op, then the annotation, on whose thread and within
    whose time the kernel was launched; where several hold the launch, the one that began last.
    """
    own = {p.row: p for p in payloads if p.row is not None}
    chosen = {i: own[row] for i, row in enumerate(calls.row.tolist()) if row in own}
    for source in ("host_op", "annotation"):
        by_track: dict[int | None, list[Payload]] = defaultdict(list)
        for p in payloads:
            if p.source == source and p.row is None:
                by_track[p.track].append(p)
        for track, spoken in by_track.items():
            spoken.sort(key=lambda p: p.start_ns or 0)
            starts = np.array([p.start_ns for p in spoken], np.int64)
            for i in np.flatnonzero((calls.launch_track == track) & (calls.launch_ns >= 0)).tolist():
                at = int(np.searchsorted(starts, calls.launch_ns[i], side="right")) - 1
                if i not in chosen and at >= 0 and calls.launch_ns[i] < (spoken[at].end_ns or 0):
                    chosen[i] = spoken[at]
    return chosen


def on_host(calls: Calls, payloads: Sequence[Payload]) -> tuple[dict[int, Payload], dict[str, int]]:
    """The payload of each row of a CPU's communication threads, and rows left ungrouped by reason.

    The k-th annotated call of a process group owns the next rows of that group's threads; sends and
    receives run inside their annotation, on its thread.  A group whose rows contradict its calls is
    left ungrouped as a whole.
    """
    chosen: dict[int, Payload] = {}
    refused: dict[str, int] = defaultdict(int)
    groups: dict[tuple[int, ...], list[Payload]] = defaultdict(list)
    for p in payloads:
        if p.source != "annotation" or p.ranks is None:
            continue
        if p.collective in ("send", "recv"):
            here = (calls.track == p.track) & (calls.start_ns >= (p.start_ns or 0)) & (calls.end_ns <= (p.end_ns or 0))
            chosen.update(dict.fromkeys(np.flatnonzero(here).tolist(), p))
        else:
            groups[p.ranks].append(p)
    for called in groups.values():
        called.sort(key=lambda p: (p.start_ns or 0, p.seq or 0))
        threads = sorted({t for p in called for t in p.threads})
        if threads or len(groups) == 1:
            rows = np.isin(calls.track, threads) if threads else np.ones(len(calls.track), np.bool_)
            free = [i for i in np.flatnonzero(rows).tolist() if i not in chosen]
            free.sort(key=lambda i: int(calls.start_ns[i]))
            owners = [p for p in called for _ in range(p.rows)]
            if len(owners) == len(free) and all(
                _runs_as(p.collective, calls.kinds[i]) for p, i in zip(owners, free, strict=True)
            ):
                chosen.update(zip(free, owners, strict=True))
                continue
            refused["the group's annotated calls and its rows differ"] += len(free)
    missing = len(calls.row) - len(chosen) - sum(refused.values())
    if missing:
        refused["no annotation tells its process group"] += missing
    return chosen, dict(refused)


def _runs_as(called: str | None, ran: str | None) -> bool:
    """Whether a call of that kind may run as that row; gloo reduces, then scatters."""
    return called == ran or (called == "reduce_scatter" and ran == "all_reduce")


def table(rank: int, calls: Calls, chosen: Mapping[int, Payload], facts: TraceFacts) -> pa.Table:
    """Rows of `schema.COLLECTIVES`, one for each call, in order."""
    by_name = {g.name: g for g in facts.groups}
    columns: dict[str, list[object]] = {name: [] for name in COLLECTIVES.names}
    for i in range(len(calls.row)):
        row = _row(calls.kinds[i], chosen.get(i), by_name)
        row |= {
            "collective": rank << RANK_SHIFT | i,
            "rank": rank,
            "library": calls.libraries[i],
            "step": int(calls.step[i]) if calls.step[i] >= 0 else None,
            "start_ns": int(calls.start_ns[i]),
            "end_ns": int(calls.end_ns[i]),
        }
        for name, values in columns.items():
            values.append(row.get(name))
    return pa.table(
        [_column(values, field.type) for values, field in zip(columns.values(), COLLECTIVES, strict=True)],
        schema=COLLECTIVES,
    )


def _column(values: list[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def _row(kind: str | None, p: Payload | None, groups: Mapping[str, object]) -> dict[str, object]:
    """What a payload tells, in the schema's terms; the kernel's name decides where it tells nothing."""
    if p is None:
        return {"kind": kind}
    told = kind_of(p.collective or "") or kind
    listed = groups.get(p.group_name or "")
    ranks = p.ranks or getattr(listed, "ranks", None)
    description = p.group_description or getattr(listed, "description", None)
    size = p.group_size or (len(ranks) if ranks else None)
    row: dict[str, object] = {
        "kind": told,
        "group_size": size,
        "dimension": dimension_of(description),
        "seq": p.seq,
        "src_rank": p.src_rank,
        "dst_rank": p.dst_rank,
        "dtype": p.dtype,
    }
    if ranks and len(ranks) == size:
        row |= {"group": group_id(tuple(ranks)), "group_ranks": sorted(ranks)}
    element = element_bytes(p.dtype)
    in_bytes, out_bytes = p.in_bytes, p.out_bytes
    if element is not None:
        in_bytes = p.in_elements * element if p.in_elements is not None else in_bytes
        out_bytes = p.out_elements * element if p.out_elements is not None else out_bytes
    if out_bytes is None and told in ("all_reduce", "broadcast"):
        out_bytes = in_bytes
    if in_bytes is not None or out_bytes is not None:
        row |= {"in_bytes": in_bytes, "out_bytes": out_bytes, "payload_source": p.source}
    return row
