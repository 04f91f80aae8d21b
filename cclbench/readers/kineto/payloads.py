# SPDX-License-Identifier: Apache-2.0
"""What Kineto rows say of collectives, in all the names it has had since 2021."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from pathlib import Path

import msgspec

from cclbench.errors import InputError
from cclbench.readers import Payload
from cclbench.readers.kineto.events import Args

MARK = "cclbench::collective "
"""Annotation by which a workload names its collectives: scripts/workloads/annotate_groups.py."""
_LARGEST_GROUP = 1 << 20


def speaks_of_collectives(name: str) -> bool:
    """Whether a row of that name may carry a payload besides kernels with metadata."""
    return name == "record_param_comms" or name.startswith((MARK, "nccl:"))


def payload(name: str, args: Args, path: Path) -> tuple[Payload, int | None] | None:
    """The payload a row tells and its sequence number; None where it tells none."""
    if args.collective is not None:
        return _metadata(args, "host_op" if name == "record_param_comms" else "kernel"), args.seq
    if name.startswith(MARK):
        return _mark(name, path)
    return (_annotation(name, args), None) if name.startswith("nccl:") else None


def _metadata(a: Args, source: str) -> Payload:
    name = a.group_name if a.group_name is not None else a.group_id
    return Payload(
        source=source,
        collective=a.collective,
        in_elements=a.in_size if a.in_elements is None else a.in_elements,
        out_elements=a.out_size if a.out_elements is None else a.out_elements,
        dtype=a.dtype,
        group_name=None if name is None else str(name),
        group_description=a.group_description,
        group_size=a.group_size,
        ranks=_ranks(a.group_ranks or "", a.group_size, a.first_rank, a.rank_stride),
        src_rank=a.src_rank,
        dst_rank=a.dst_rank,
    )


@lru_cache(maxsize=1 << 10)
def _ranks(text: str, size: int | None, first: int | None, stride: int | None) -> tuple[int, ...] | None:
    """Global ranks: as listed where the list is whole, else from start and stride, else unknown."""
    listed = tuple(map(int, re.findall(r"\d+", text)))
    if listed and "..." not in text and size in (None, len(listed)):
        return listed
    if size and size <= _LARGEST_GROUP and first is not None and stride is not None:
        return tuple(first + i * stride for i in range(size))
    return None


def _annotation(name: str, a: Args) -> Payload:
    """The backend's own annotation, `nccl:all_reduce`: kind, and the size of its one input."""
    elements = dtype = None
    try:
        dims = msgspec.json.decode(a.dims, type=list[list[int]]) if a.dims else []
        types = msgspec.json.decode(a.types, type=list[str]) if a.types else []
        if len(dims) == 1 and len(types) == 1:
            elements, dtype = math.prod(dims[0]), types[0]
    except msgspec.DecodeError:
        pass  # lists of tensors: the size stays unknown
    return Payload(source="annotation", collective=name.partition(":")[2], in_elements=elements, dtype=dtype)


def _mark(name: str, path: Path) -> tuple[Payload, int | None]:
    """`cclbench::collective kind=K seq=N [peer=R] [in_bytes=B out_bytes=B dtype=T] rows=R [threads=T,T]
    pg=NAME ranks=R,R,.. desc=TEXT`."""
    fields, _, description = name.removeprefix(MARK).partition(" desc=")
    try:
        told = dict(field.split("=", 1) for field in fields.split())
        ranks = _numbers(told["ranks"])
        payload = Payload(
            source="annotation",
            collective=told["kind"],
            in_bytes=_number(told.get("in_bytes")),
            out_bytes=_number(told.get("out_bytes")),
            dtype=told.get("dtype"),
            group_name=told.get("pg"),
            group_description=description or None,
            group_size=len(ranks),
            ranks=ranks,
            src_rank=_number(told.get("peer")) if told["kind"] == "recv" else None,
            dst_rank=_number(told.get("peer")) if told["kind"] == "send" else None,
            rows=int(told["rows"]),
            threads=_numbers(told["threads"]) if "threads" in told else (),
        )
        return payload, _number(told.get("seq"))
    except (KeyError, ValueError) as error:
        raise InputError(f"annotation {name[:100]!r} is malformed ({error!r})", where=str(path)) from None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
