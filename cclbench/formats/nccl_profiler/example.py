# SPDX-License-Identifier: Apache-2.0
"""The trace of NCCL's own example of a profiler plug-in, an event a line: COLL and P2P with their channels.

An operation's events begin and end on the host, which may be when it is launched.  Its time is therefore that
of its channels by the GPU's clock, from the first to begin to the last to end, and is stated only with
`KernelCh` events of all channels (NCCL 2.26 and later, `NCCL_PROFILE_EVENT_MASK` with 64).  The ranks of a
communicator are not counted in the file, so that sizes of all_gather and the like, of which the file has one
rank's part, are unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal
from zlib import crc32

import msgspec

from cclbench.formats import Evidence
from cclbench.formats.texts import damaged_error, numbered_lines, reason_of
from cclbench.formats.timing_rows import MOST_BYTES, Timings

_MOST_BYTES: Final = 1 << 34
_INT32: Final = 0x7FFFFFFF
_LONGEST_NS: Final = 10**17
_SAME_SIZE: Final = ("all_reduce", "broadcast", "reduce", "send", "recv")
"""Kinds whose count is of the whole payload."""
_READ: Final = ('"cat": "COLL"', '"cat": "P2P"', '"cat": "GPU"')
_AGAIN: Final = "record it again with the plug-in"

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _OperationArgs(msgspec.Struct):
    communicator: int | None = msgspec.field(default=None, name="CommHash")
    seq: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] | None = msgspec.field(default=None, name="SeqNum")
    count: Count | None = msgspec.field(default=None, name="Count")
    dtype: str | None = msgspec.field(default=None, name="Datatype")
    algorithm: str | None = msgspec.field(default=None, name="Algorithm")
    protocol: str | None = msgspec.field(default=None, name="Protocol")
    channels: int | None = msgspec.field(default=None, name="nChannels")
    peer: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)] | None = msgspec.field(default=None, name="Peer")
    channel: int | None = msgspec.field(default=None, name="Channel")
    begin: Count | None = msgspec.field(default=None, name="StartGpuClk")
    end: Count | None = msgspec.field(default=None, name="StopGpuClk")


class _ExampleEvent(msgspec.Struct):
    name: str
    cat: str
    ph: Literal["b", "e"]
    args: _OperationArgs = msgspec.field(default_factory=_OperationArgs)


@dataclass(slots=True)
class _Operation:
    name: str
    args: _OperationArgs
    channels: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Begin and end by the GPU's clock, of each channel."""

    @property
    def duration(self) -> int | None:
        """From the first channel's begin to the last one's end, in ns; None unless all are known."""
        spans = self.channels.values()
        if not spans or len(spans) != self.args.channels or any(end <= begin for begin, end in spans):
            return None
        span = max(end for _, end in spans) - min(begin for begin, _ in spans)
        return span if span <= _LONGEST_NS else None


def read_example(path: Path) -> Evidence:
    """A timing for each collective and transfer; `InputError` with the damaged line."""
    from cclbench.classify import element_bytes, kind_of

    timings, left_out, methods, untimed = Timings(path), Counter[str](), dict[str, None](), 0
    for operation in _operations(path, left_out):
        args, kind, duration = operation.args, kind_of(operation.name), operation.duration
        element, payload = element_bytes((args.dtype or "").removeprefix("nccl")), None
        if kind in _SAME_SIZE and element is not None and args.count is not None:
            payload = args.count * element
        peer = args.peer if args.peer is None or args.peer >= 0 else None
        timings.add_row(
            kind=kind,
            library="nccl",
            communicator=None
            if args.communicator is None
            else crc32(str(args.communicator).encode()) & _INT32,
            seq=args.seq,
            src_rank=peer if kind == "recv" else None,
            dst_rank=peer if kind == "send" else None,
            dtype=args.dtype and args.dtype[:40],
            bytes=payload if payload is not None and payload <= MOST_BYTES else None,
            dur_ns=duration,
        )
        untimed += duration is None
        if args.algorithm and args.protocol and len(methods) < _MOST_METHODS:
            methods[f"{args.algorithm[:20]} {args.protocol[:20]}".lower()] = None
    notes = (
        [f"{untimed:,} operations lack times of channels by the GPU's clock, and so a time"]
        if untimed
        else []
    )
    return Evidence(
        timings=timings.timing_table(),
        facts={"algorithms": list(methods)} if methods else {},
        left_out=dict(left_out),
        notes=notes,
    )


_MOST_METHODS: Final = 40


def _operations(path: Path, left_out: Counter[str]) -> Iterator[_Operation]:
    """The operations in order, each with the channels that stand between its begin and its end."""
    decoder, current = msgspec.json.Decoder(_ExampleEvent), None
    at, complete = 0, False
    for at, text in numbered_lines(path, _MOST_BYTES):
        complete |= text == "{}]"
        if not any(mark in text for mark in _READ):
            left_out["event of the host or its proxy"] += '"ph": "b"' in text
            continue
        try:
            event = decoder.decode(text.removesuffix(","))
        except (msgspec.DecodeError, RecursionError) as error:
            raise damaged_error(path, reason_of(error), line=at, hint=_AGAIN) from None
        if event.cat == "GPU":
            _add_channel(current, event, left_out)
        elif event.ph == "b":
            current = _Operation(event.name, event.args)
        elif current is not None:
            yield current
            current = None
    if not complete:
        what = "ends before the end of its events"
        raise damaged_error(path, what, line=at, hint="let the job end, or " + _AGAIN)


def _add_channel(operation: _Operation | None, event: _ExampleEvent, left_out: Counter[str]) -> None:
    args = event.args
    if event.ph != "b":
        return
    if operation is None or args.channel is None or args.begin is None or args.end is None:
        left_out["channel of no operation, or without clock"] += 1
    else:
        operation.channels[args.channel] = args.begin, args.end
