# SPDX-License-Identifier: Apache-2.0
"""NCCL Inspector: JSON lines of the profiler plugin in NCCL 2.28 and later, one line for each collective.

`coll_msg_size_bytes` is the size that one rank sends in all_gather and receives in reduce_scatter: the
plugin's own bandwidth multiplies it by the ranks (ext-profiler/inspector/inspector.cc), and so does S here.
Times are whole µs of the GPU's clock, of the slowest channel; GB/s are 1e9 B/s.  Sequence numbers count the
calls of one kind in one communicator.

`communicator` is a checksum of the header's id, which is the same on all ranks.  `rank` is null, since the
header's is the rank in its communicator; so is `start_ns`, since verbose lines state when the host noticed
the kernel, up to one polling interval later.  From format 4.3 on a line may omit its header: that of the last
`dump_stats` line applies.  Operations of proxy threads (`proxy_trace`) become counters.  Records as other
programs rewrite them, with times like `5663.0` or spread over lines as by `jq .`, are read, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final
from zlib import crc32

import msgspec

from cclbench.classify import bus_factor, kind_of
from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.nccl_inspector.proxy import ProxyOperations, ProxyRecord
from cclbench.formats.texts import damaged_error, numbered_lines, reason_of, strip_decoration
from cclbench.formats.timing_rows import MOST_BYTES, Timings

_MOST_BYTES: Final = 1 << 34
_NS_PER_US: Final = 1000
_PRINTED: Final = 1e-6
"""Unit of the last digit of a printed bandwidth, in GB/s; 1 GB/s is a byte per ns."""
_PER_RANK: Final = ("all_gather", "reduce_scatter")
_AS_STATED: Final = ("all_reduce", "broadcast", "reduce", "send", "recv", "send_recv")
"""Kinds whose message size is S; for other kinds its meaning is not documented."""

_TRANSFERS: Final = ("send", "recv", "send_recv")
_MOST_COUNTERS: Final = 1 << 16
_INT32: Final = 0x7FFFFFFF
_MOST_LINES: Final = 1 << 12
"""Most lines of one record; the verbose form has some dozens."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
Micros = Annotated[int, msgspec.Meta(ge=0, lt=10**14)] | Annotated[float, msgspec.Meta(ge=0, lt=1e14)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Rate = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]


class _Header(msgspec.Struct):
    id: str
    n_ranks: Ranks
    nnodes: Ranks


class _Collective(msgspec.Struct):
    coll: str
    coll_sn: Count
    coll_msg_size_bytes: Count
    coll_exec_time_us: Micros
    coll_timing_source: str | None = None
    coll_algobw_gbs: Rate | None = None
    coll_busbw_gbs: Rate | None = None


class _Transfer(msgspec.Struct):
    p2p: str
    p2p_sn: Count
    p2p_msg_size_bytes: Count
    p2p_exec_time_us: Micros
    p2p_timing_source: str | None = None
    p2p_algobw_gbs: Rate | None = None
    p2p_busbw_gbs: Rate | None = None


class _Stats(msgspec.Struct):
    coll_dropped_since_last_dump: Count = 0
    p2p_dropped_since_last_dump: Count = 0
    proxy_dropped_since_last_dump: Count = 0
    proxy_ops_dropped_since_last_dump: Count = 0
    proxy_pxn_skipped_process_total: Count = 0


class _Metadata(msgspec.Struct):
    inspector_output_format_version: str | None = None


class _Line(msgspec.Struct):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Collective | None = None
    p2p_perf: _Transfer | None = None
    dump_stats: _Stats | None = None
    proxy_trace: ProxyRecord | None = None


@dataclass(frozen=True, slots=True)
class _Record:
    """A collective or a transfer, with common field names."""

    kind: str
    seq: int
    message: int
    time: int | float
    clock: str | None
    algbw: Rate | None
    busbw: Rate | None


@dataclass(slots=True)
class _Seen:
    """Counts over the file, for the notes."""

    dropped: int = 0
    proxy_dropped: int = 0
    proxy_skipped: int = 0
    other_clock: int = 0
    contradicting: int = 0
    formats: dict[str, None] = field(default_factory=dict)
    numbers: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    """First and last sequence number and records, by communicator and kind."""


class NcclInspector(EvidenceReader):
    """Reader of the Inspector plugin's files."""

    name = "nccl_inspector"
    description = "NCCL Inspector JSON lines: every collective's size, time and bandwidth"
    extensions: tuple[str, ...] = (".log", ".jsonl", ".log.gz", ".jsonl.gz")
    capture = (
        "the JSON lines of NCCL's inspector plug-in;"
        " `NCCL_INSPECTOR_ENABLE_PROXY=1` adds the proxy's operations"
    )
    versions = "output format v4.0 to v4.3 as documented (NCCL 2.28 to 2.30)"
    tested = "documentation: the plugin's README and source"

    def sniff(self, head: bytes) -> float:
        """Sure of the plugin's own keys."""
        head = strip_decoration(head)
        perf = any(key in head for key in (b'"coll_perf"', b'"p2p_perf"', b'"dump_stats"'))
        return 0.9 if head.lstrip()[:1] == b"{" and perf and b'"n_ranks"' in head else 0.0

    def read(self, path: Path) -> Evidence:
        """A row for each collective; `InputError` with the damaged line."""
        timings, counts, left_out = Timings(path), _Seen(), Counter[str]()
        proxy = ProxyOperations()
        for at, header, line in _decode_lines(path):
            record = _line_record(line)
            if line.metadata and line.metadata.inspector_output_format_version and len(counts.formats) < 8:
                counts.formats[line.metadata.inspector_output_format_version[:20]] = None
            if line.dump_stats is not None:
                stats = line.dump_stats
                counts.dropped += stats.coll_dropped_since_last_dump + stats.p2p_dropped_since_last_dump
                counts.proxy_dropped += stats.proxy_dropped_since_last_dump
                counts.proxy_dropped += stats.proxy_ops_dropped_since_last_dump
                # Of the process, whatever the communicator.
                counts.proxy_skipped = max(counts.proxy_skipped, stats.proxy_pxn_skipped_process_total)
            elif record is None and line.proxy_trace is None:
                left_out["of an unknown kind"] += 1
            elif header is None:
                raise damaged_error(path, "belongs to no communicator: no header precedes it", line=at)
            elif line.proxy_trace is not None:
                proxy.add_record(header.id, header.n_ranks, line.proxy_trace)
            elif record is not None:
                _add_timing(timings, counts, header, record, path, at)
        formats, counters = list(counts.formats), proxy.counters()
        return Evidence(
            timings=timings.timing_table(),
            counters=counters,
            facts={"inspector_format": formats[0] if len(formats) == 1 else formats} if formats else {},
            left_out=left_out + proxy.left_out,
            notes=_file_notes(counts, len(timings)),
        )


def _decode_lines(path: Path) -> Iterator[tuple[int, _Header | None, _Line]]:
    """Each line with the header that applies to it."""
    decoder, last = msgspec.json.Decoder(_Line), None
    for at, text in _json_objects(path):
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            hint = "if the job was killed while it was written, remove the line"
            raise damaged_error(path, reason_of(error), line=at, hint=hint) from None
        if line.dump_stats is not None:
            last = line.header
        yield at, line.header or last, line


def _json_objects(path: Path) -> Iterator[tuple[int, str]]:
    """The text of each object, with the number of the line it begins on."""
    begun, gathered = 0, list[str]()
    for at, text in numbered_lines(path, _MOST_BYTES):
        if gathered:
            gathered.append(text)
        elif text == "{":
            begun, gathered = at, [text]
        elif text:
            yield at, text
        if len(gathered) > _MOST_LINES or (gathered and text == "}"):
            yield begun, "\n".join(gathered)
            gathered = []
    if gathered:
        yield begun, "\n".join(gathered)


def _line_record(line: _Line) -> _Record | None:
    if (c := line.coll_perf) is not None:
        figures = (c.coll_timing_source, c.coll_algobw_gbs, c.coll_busbw_gbs)
        return _Record(c.coll, c.coll_sn, c.coll_msg_size_bytes, c.coll_exec_time_us, *figures)
    if (p := line.p2p_perf) is not None:
        figures = (p.p2p_timing_source, p.p2p_algobw_gbs, p.p2p_busbw_gbs)
        return _Record(p.p2p, p.p2p_sn, p.p2p_msg_size_bytes, p.p2p_exec_time_us, *figures)
    return None


_kind = lru_cache(1 << 12)(kind_of)  # few names, many lines


def _add_timing(
    timings: Timings, counts: _Seen, header: _Header, record: _Record, path: Path, at: int
) -> None:
    kind = _kind(record.kind)
    size = record.message * header.n_ranks if kind in _PER_RANK else record.message
    if size > MOST_BYTES:
        raise damaged_error(path, "has an impossible size", line=at)
    has_size = kind in _PER_RANK or kind in _AS_STATED
    ns = round(Decimal(str(record.time)) * _NS_PER_US)
    # The plugin writes 0 for a time that it could not measure, and for its bandwidths.
    algbw, busbw = (record.algbw, record.busbw) if ns and has_size else (None, None)
    counts.contradicting += any(
        bandwidth is not None and abs(bandwidth - factor * size / ns) > _PRINTED * (1 + bandwidth)
        for bandwidth, factor in ((algbw, 1.0), (busbw, bus_factor(kind or "", header.n_ranks)))
    )
    counts.other_clock += record.clock not in (None, "kernel_gpu")
    key = (header.id, record.kind)
    if kind not in _TRANSFERS and (key in counts.numbers or len(counts.numbers) < _MOST_COUNTERS):
        first, last, count = counts.numbers.get(key, (record.seq, record.seq, 0))
        counts.numbers[key] = (min(first, record.seq), max(last, record.seq), count + 1)
    timings.add_row(
        kind=kind,
        library="nccl",
        communicator=crc32(header.id.encode()) & _INT32,
        group_size=header.n_ranks,
        nodes=header.nnodes,
        seq=record.seq,
        bytes=size if has_size else None,
        dur_ns=ns or None,
        algbw=None if algbw is None else round(algbw * 1e9, 0),
        busbw=None if busbw is None else round(busbw * 1e9, 0),
        state="completed",
    )


def _file_notes(counts: _Seen, rows: int) -> list[str]:
    notes = []
    missing = sum(max(last - first + 1 - count, 0) for first, last, count in counts.numbers.values())
    if missing:
        notes.append(
            f"{missing:,} collectives are not in the file: before format 4.1 the plugin keeps the last one"
            " of each dump interval (NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS)"
        )
    if counts.dropped:
        notes.append(f"the plugin dropped {counts.dropped:,} records: its buffers were full")
    if counts.proxy_dropped:
        notes.append(f"the plugin dropped {counts.proxy_dropped:,} proxy records: its buffers were full")
    if counts.proxy_skipped:
        notes.append(f"{counts.proxy_skipped:,} proxy operations for other processes (PXN) are not recorded")
    if counts.other_clock:
        notes.append(f"{counts.other_clock:,} of {rows:,} times are from the host's clock, not the GPU's")
    if counts.contradicting:
        notes.append(
            f"bandwidths do not follow from size and time in {counts.contradicting:,} of {rows:,} rows"
        )
    return notes


READERS.add(NcclInspector.name, NcclInspector(), origin=__name__)
