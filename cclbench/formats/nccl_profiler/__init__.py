# SPDX-License-Identifier: Apache-2.0
"""Profiler plug-ins of NCCL: the library's own example, and JSON lines of its events and CUPTI's kernels.

Of the lines, an operation's time is that of its kernel: the events of channels (`ncclProfileKernelCh`) are
stamped when the host notices them, up to 10 ms late in a real file.  A rank's operations and launches in a
communicator are paired in their order, if they are as many; a launch and its kernel have the same number,
`extCorrId`.  Ranks are those in the communicator: no line states the job's.  The clock is the host's, not the
epoch's.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final
from zlib import crc32

import msgspec

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.nccl_profiler.example import read_example
from cclbench.formats.texts import damaged_error, exact_number, numbered_lines, read_beginning, reason_of
from cclbench.formats.timing_rows import MOST_BYTES, Timings, exact_nanoseconds

_MOST_BYTES: Final = 1 << 34
_INT32: Final = 0x7FFFFFFF
_OF_EACH_RANK: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""Kinds whose count is of one rank's part."""
_OPERATIONS: Final = ("ncclProfileColl", "ncclProfileP2p")
_AGAIN: Final = "record it again with the plug-in"
_EXAMPLE: Final = re.compile(
    rb'\s*\[\s*\{"name": "[^"]{1,40}", "cat": "(?:GROUP|COLL|P2P|PROXY|CE)[A-Z_]{0,12}", "ph": "b"'
)
_MARK_BYTES: Final = 256

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Details(msgspec.Struct):
    nranks: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None
    func: str | None = None
    seq: Count | None = None
    count: Count | None = None
    dtype: str | None = None
    peer: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] | None = None


class _PluginLine(
    msgspec.Struct, rename={"record_type": "recordType", "comm": "commId", "link": "extCorrId"}
):
    type: str | None = None
    func: str | None = None
    record_type: str | None = None
    comm: int | None = None
    rank: int | None = None
    link: int | None = None
    duration: Any = None
    details: _Details | None = None


@dataclass(slots=True)
class _Recorded:
    """What the lines state, by communicator and rank in it."""

    sizes: dict[int, int] = field(default_factory=dict)
    """Ranks of each communicator."""
    operations: dict[tuple[int, int], list[_Details]] = field(default_factory=dict)
    launches: dict[tuple[int, int], list[int | None]] = field(default_factory=dict)
    kernels: dict[int, list[int]] = field(default_factory=dict)
    """Times in ns by the number of the launch."""
    left_out: Counter[str] = field(default_factory=Counter)


class NcclProfiler(EvidenceReader):
    """Reader of both plug-ins."""

    name = "nccl_profiler"
    description = "traces of NCCL's profiler plug-ins: collectives with sizes and times on the GPU"
    extensions: tuple[str, ...] = (".txt", ".jsonl", ".jsonl.gz")
    capture = (
        "NCCL's example: `NCCL_PROFILER_PLUGIN=example NCCL_PROFILE_EVENT_MASK=66"
        " NCCL_PROFILE_DUMP_FILE=trace`; the lines of a plug-in that writes `ncclProfileColl` and CUPTI's"
        " kernels"
    )
    versions = "the example of NCCL 2.23 to 2.30; the lines' only one (NCCL 2.28)"
    tested = "real: lines of an all-reduce of four ranks in a process; documentation: NCCL's example"

    def sniff(self, head: bytes) -> float:
        """Sure of the first lines, of the plug-in's own life or of an event."""
        if _EXAMPLE.match(head):
            return 0.95
        line = head.lstrip()[:1024]
        is_record = line.startswith((b'{"type":"Profiler', b'{"recordType":')) and b'"pid":' in line
        return 0.9 if is_record and (b'"commId"' in line or b'"eventAddr"' in line) else 0.0

    def read(self, path: Path) -> Evidence:
        """A timing for each collective and transfer; `InputError` with the damaged line."""
        if _EXAMPLE.match(read_beginning(path, _MARK_BYTES)):
            return read_example(path)
        recorded, decoder = _Recorded(), msgspec.json.Decoder(_PluginLine, float_hook=exact_number)
        for at, text in numbered_lines(path, _MOST_BYTES):
            if not text:
                continue
            try:
                line = decoder.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                raise damaged_error(path, reason_of(error), line=at, hint=_AGAIN) from None
            _add_line(recorded, line)
        return _evidence(path, recorded)


def _add_line(recorded: _Recorded, line: _PluginLine) -> None:
    details, comm = line.details or _Details(), line.comm
    if line.record_type == "cuptiActivity" and line.type == "KERNEL":
        duration = line.duration
        number = isinstance(duration, int | Decimal) and not isinstance(duration, bool)
        ns = exact_nanoseconds(Decimal(duration), per_unit=1000) if number else None
        if line.link is None or ns is None:
            recorded.left_out["kernel without a launch or time"] += 1
        else:
            recorded.kernels.setdefault(line.link, []).append(ns)
    elif comm is None or line.rank is None:
        recorded.left_out["state of an event"] += line.record_type == "state"
        recorded.left_out["line without a communicator"] += line.record_type != "state"
    elif line.func == "ProfilerInit":
        if details.nranks is not None:
            recorded.sizes[comm] = details.nranks
    elif line.type in _OPERATIONS:
        recorded.operations.setdefault((comm, line.rank), []).append(details)
    elif line.type == "ncclProfileKernelLaunch":
        recorded.launches.setdefault((comm, line.rank), []).append(line.link)
    else:
        recorded.left_out["event of the host"] += 1


def _evidence(path: Path, recorded: _Recorded) -> Evidence:
    from cclbench.classify import element_bytes, kind_of

    timings, untimed = Timings(path), 0
    for (comm, rank), operations in recorded.operations.items():
        launches = recorded.launches.get((comm, rank), [])
        paired = len(launches) == len(operations)
        for place, details in enumerate(operations):
            kernels = recorded.kernels.get(launches[place] or 0, []) if paired else []
            untimed += len(kernels) != 1
            kind, size = kind_of(details.func or ""), recorded.sizes.get(comm)
            parts = size if kind in _OF_EACH_RANK else 1
            element, count = element_bytes((details.dtype or "").removeprefix("nccl")), details.count
            payload = None
            if kind and None not in (element, count, parts):
                payload = count * element * parts  # type: ignore[operator]  # none is None
            timings.add_row(
                kind=kind,
                library="nccl",
                communicator=crc32(str(comm).encode()) & _INT32,
                group_size=size,
                seq=details.seq,
                src_rank=None if kind != "recv" else details.peer,
                dst_rank=None if kind != "send" else details.peer,
                dtype=details.dtype and details.dtype[:40],
                bytes=payload if payload is not None and payload <= MOST_BYTES else None,
                dur_ns=kernels[0] if len(kernels) == 1 else None,
            )
    notes = [f"{untimed:,} operations have no kernel of their own, and so no time"] if untimed else []
    return Evidence(timings=timings.timing_table(), left_out=dict(+recorded.left_out), notes=notes)


READERS.add(NcclProfiler.name, NcclProfiler(), origin=__name__)
