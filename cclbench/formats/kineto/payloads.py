# SPDX-License-Identifier: Apache-2.0
"""Payloads that Kineto rows state, under all key names since 2021."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Final

import msgspec

from cclbench.capture.marks import MARK
from cclbench.formats import Payload
from cclbench.formats.kineto.events import Args, Count
from cclbench.ground.errors import InputError

_LARGEST_GROUP = 1 << 20
_MOST_LISTED: Final = 1 << 21
"""Most ranks of all process groups together: first rank and stride can state a group of any size."""
_MOST_ELEMENTS = 1 << 56
_INT64 = range(1 << 63)
_RANKS = range(1 << 31)


def speaks_of_collectives(name: str) -> bool:
    """Whether a host row with this name may state a payload."""
    return name == "record_param_comms" or name.startswith((MARK, "nccl:", "gloo:"))


class StatedCollectives:
    """The payloads that rows of a file state; equal metadata gives one object."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._payloads: dict[tuple[object, ...], Payload] = {}
        self._ranks: dict[tuple[object, ...], tuple[int, ...] | None] = {}
        self._listed = 0

    def stated_payload(self, name: str, args: Args) -> tuple[Payload, int | None] | None:
        """The payload that a row states and its sequence number; None if it states none."""
        if args.collective is not None:
            return self._metadata_payload(
                args, "host_op" if name == "record_param_comms" else "kernel"
            ), args.seq
        if name.startswith(MARK):
            return _mark_payload(name, self._path)
        return (
            (_backend_payload(name, args, self._path), None) if name.startswith(("nccl:", "gloo:")) else None
        )

    def _metadata_payload(self, a: Args, stated_by: str) -> Payload:
        key = (
            *(stated_by, a.collective, a.in_size, a.in_elements, a.out_size, a.out_elements, a.dtype),
            *(a.group_name, a.group_id, a.group_description, a.group_size, a.group_ranks),
            *(a.first_rank, a.rank_stride, a.src_rank, a.dst_rank),
        )
        if key not in self._payloads:
            self._payloads[key] = _metadata_payload(a, stated_by, self._ranks_of(a))
        return self._payloads[key]

    def _ranks_of(self, a: Args) -> tuple[int, ...] | None:
        """The ranks of a row's group, None if it does not state them; `InputError` above `_MOST_LISTED`."""
        key = (a.group_ranks or "", a.group_size, a.first_rank, a.rank_stride)
        if key not in self._ranks:
            ranks = self._ranks[key] = ranks_of_text(*key)
            self._listed += len(ranks or ())
            if self._listed > _MOST_LISTED:
                message = f"process groups of more than {_MOST_LISTED:,} ranks together"
                raise InputError(message, where=str(self._path), hint="is the file damaged?")
        return self._ranks[key]


def _metadata_payload(a: Args, stated_by: str, ranks: tuple[int, ...] | None) -> Payload:
    name = a.group_name if a.group_name is not None else a.group_id
    return Payload(
        source=stated_by,
        collective=a.collective,
        in_elements=a.in_size if a.in_elements is None else a.in_elements,
        out_elements=a.out_size if a.out_elements is None else a.out_elements,
        dtype=a.dtype,
        group_name=None if name is None else str(name),
        group_description=a.group_description,
        group_size=a.group_size,
        ranks=ranks,
        src_rank=a.src_rank,
        dst_rank=a.dst_rank,
    )


def ranks_of_text(
    text: str, size: int | None, first: int | None = None, stride: int | None = None
) -> tuple[int, ...] | None:
    """Global ranks of `[0, 1, ..., 7]` if complete, else by first rank and stride, else None."""
    listed = re.findall(r"\d+", text)
    if listed and "..." not in text and size in (None, len(listed)) and len(max(listed, key=len)) < 10:
        return tuple(map(int, listed))
    if first is None or first < 0 or size is None or not 0 < size <= _LARGEST_GROUP:
        return None
    if size == 1:
        return (first,)
    # A stride of −1 means that the ranks are not evenly spaced.
    return tuple(range(first, first + size * stride, stride)) if stride is not None and stride > 0 else None


def _backend_payload(name: str, a: Args, path: Path) -> Payload:
    """Payload of a backend's row, `nccl:all_reduce` or `gloo:all_reduce`: kind, and size of its inputs."""
    elements = dtype = None
    try:
        dims = msgspec.json.decode(a.dims, type=list[list[Count]]) if a.dims else []
        types = msgspec.json.decode(a.types, type=list[str]) if a.types else []
        if len(dims) == len(types) and len(set(types)) == 1 and types[0]:
            elements, dtype = sum(map(math.prod, dims)), types[0]
    except msgspec.DecodeError:
        pass  # lists of tensors: the size stays unknown
    if elements is not None and elements > _MOST_ELEMENTS:
        raise InputError(f"{name} of {elements} elements", where=str(path), hint="is the file damaged?")
    return Payload(source="annotation", collective=name.partition(":")[2], in_elements=elements, dtype=dtype)


def _mark_payload(name: str, path: Path) -> tuple[Payload, int | None]:
    """`cclbench::collective kind=K seq=N [peer=R] [in_bytes=B out_bytes=B dtype=T] rows=R [threads=T,T]
    pg=NAME ranks=R,R,.. desc=TEXT`."""
    fields, _, description = name.removeprefix(MARK).partition(" desc=")
    try:
        values = dict(field.split("=", 1) for field in fields.split())
        ranks, kind = _parse_numbers(values["ranks"], _RANKS), values["kind"]
        peer = _parse_number(values["peer"], _RANKS) if "peer" in values else None
        payload = Payload(
            source="annotation",
            collective=kind,
            in_bytes=_parse_number(values["in_bytes"]) if "in_bytes" in values else None,
            out_bytes=_parse_number(values["out_bytes"]) if "out_bytes" in values else None,
            dtype=values.get("dtype"),
            group_name=values.get("pg"),
            group_description=description or None,
            group_size=len(ranks),
            ranks=ranks,
            src_rank=peer if kind == "recv" else None,
            dst_rank=peer if kind == "send" else None,
            rows=_parse_number(values["rows"]),
            threads=_parse_numbers(values["threads"]) if "threads" in values else (),
        )
        return payload, _parse_number(values["seq"]) if "seq" in values else None
    except (KeyError, ValueError) as error:
        raise InputError(f"annotation {name[:100]!r} is malformed ({error!r})", where=str(path)) from None


def _parse_number(text: str, allowed: range = _INT64) -> int:
    number = int(text)
    if number not in allowed:
        raise ValueError(f"{number} is out of range")
    return number


def _parse_numbers(text: str, allowed: range = _INT64) -> tuple[int, ...]:
    return tuple(_parse_number(part, allowed) for part in text.split(","))
