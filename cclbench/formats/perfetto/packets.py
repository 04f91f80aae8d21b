# SPDX-License-Identifier: Apache-2.0
"""Packets of a Perfetto trace: a file is a sequence of fields 1, each a TracePacket, in bounded memory.

Field numbers: protos/perfetto/trace of github.com/google/perfetto; fields that are not read are left out.
Texts are bytes, since a writer need not check that they are UTF-8.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cclbench.formats.files import read_blocks
from cclbench.formats.streams import LARGEST_RATIO
from cclbench.ground.errors import InputError
from cclbench.ground.protobuf_schema import described_class

AGAIN: Final = "copy the file again, or capture it again"
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""TrackEvent.Type."""
CLEARED, NEEDED = 1, 2
"""Bits of `sequence_flags`: earlier state of the sequence is void; the packet needs its state."""
_EVENT: Final = (
    "category_iids=3:uint64* categories=22:bytes* name_iid=10:uint64 name=23:bytes type=9:int32"
    " track_uuid=11:uint64? legacy_event=6:LegacyEvent"
)
_DETAILS: Final = (
    " debug_annotations=4:DebugAnnotation* flow_ids=47:fixed64* flow_ids_old=36:uint64*"
    " terminating_flow_ids=48:fixed64* terminating_flow_ids_old=42:uint64*"
)
_MESSAGES: Final = {
    "LegacyEvent": "name_iid=1:uint64 phase=2:int32 duration_us=3:int64",
    "DebugAnnotation": "name_iid=1:uint64 name=10:bytes bool_value=2:bool? uint_value=3:uint64?"
    " int_value=4:int64? double_value=5:double? string_value=6:bytes? pointer_value=7:uint64?"
    " string_value_iid=17:uint64?",
    "Interned": "iid=1:uint64 text=2:bytes",
    "InternedData": "event_categories=1:Interned* event_names=2:Interned* debug_annotation_names=3:Interned*"
    " debug_annotation_string_values=29:Interned*",
    "Clock": "clock_id=1:uint32 timestamp=2:uint64 is_incremental=3:bool unit_multiplier_ns=4:uint64",
    "ClockSnapshot": "clocks=1:Clock*",
    "Process": "pid=1:int32",
    "Thread": "pid=1:int32 tid=2:int64",
    "TrackDescriptor": "uuid=1:uint64 parent_uuid=5:uint64 name=2:bytes static_name=10:bytes"
    " process=3:Process thread=4:Thread",
    "EventDefaults": "track_uuid=11:uint64",
    "Defaults": "timestamp_clock_id=58:uint32 track_event_defaults=11:EventDefaults",
    "BufferStats": "chunks_overwritten=3:uint64 chunks_discarded=18:uint64"
    " trace_writer_packet_loss=19:uint64",
    "TraceStats": "buffer_stats=1:BufferStats*",
    "TracePacket": "ftrace_events=1:bytes clock_snapshot=6:ClockSnapshot timestamp=8:uint64"
    " trusted_packet_sequence_id=10:uint32 track_event=11:TrackEvent interned_data=12:InternedData"
    " sequence_flags=13:uint32 trace_stats=35:TraceStats incremental_state_cleared=41:bool"
    " previous_packet_dropped=42:uint32 compressed_packets=50:bytes timestamp_clock_id=58:uint32"
    " trace_packet_defaults=59:Defaults track_descriptor=60:TrackDescriptor trusted_pid=79:int32"
    " first_packet_on_sequence=87:bool zstd_compressed_packets=133:bytes",
}
_HEADER: Final = re.compile(rb"\n([\x80-\xff]{0,4}[\x00-\x7f])")
_LONGEST_HEADER: Final = 6
_LONGEST: Final = 1 << 26
"""Bytes of the longest packet that is read, inflated or not."""


@cache
def packet_class(*, details: bool) -> Any:
    """The class of a TracePacket, whose events have annotations and flows if `details`."""
    messages = _MESSAGES | {"TrackEvent": _EVENT + _DETAILS * details}
    return described_class("perfetto_events" if details else "perfetto_tracks", messages, "TracePacket")


@dataclass(slots=True)
class PacketFile:
    """The packets of a file in its order, those of compressed packets in their place."""

    path: Path
    details: bool

    def packets(self) -> Iterator[Any]:
        """Every TracePacket; `InputError` with the position if the file is damaged or cut."""
        from google.protobuf.message import DecodeError

        parse = packet_class(details=self.details).FromString
        for where, text in self._texts():
            try:
                packet = parse(text)
                if not _is_compressed(packet):
                    yield packet
                    continue
                inside = _Packets(where)
                for _, each in inside.split(_inflate(packet, where)):
                    yield (packet := parse(each))
                    if _is_compressed(packet):
                        raise _no_packet(where)
                if inside.rest:
                    raise _no_packet(where)
            except DecodeError:
                raise _no_packet(where) from None

    def _texts(self) -> Iterator[tuple[str, bytes]]:
        file = _Packets(str(self.path))
        try:
            for block in read_blocks(self.path):
                yield from file.split(block)
        except InputError as error:
            raise InputError(error.what, where=error.where or str(self.path), hint=AGAIN) from None
        if file.rest:
            where = f"{self.path}: byte {file.offset:,}"
            raise InputError("the file ends within a packet", where=where, hint=AGAIN)


@dataclass(slots=True)
class _Packets:
    """Splits blocks of bytes into packets."""

    where: str
    rest: bytes = b""
    """Bytes of an incomplete packet, which begins at `offset`."""
    offset: int = 0

    def split(self, block: bytes) -> Iterator[tuple[str, bytes]]:
        """The position and bytes of each packet that ends in this block."""
        data, at = self.rest + block, 0
        while at < len(data):
            where = f"{self.where}: byte {self.offset + at:,}"
            header = _HEADER.match(data, at)
            if header is None:
                if len(data) - at < _LONGEST_HEADER and re.fullmatch(rb"\n[\x80-\xff]*", data[at:]):
                    break
                raise _no_packet(where)
            length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(header[1]))
            if length > _LONGEST:
                raise InputError(f"a packet of {length:,} bytes", where=where, hint=AGAIN)
            if header.end() + length > len(data):
                break
            at = header.end() + length
            yield where, data[header.end() : at]
        self.offset, self.rest = self.offset + at, data[at:]


def _is_compressed(packet: Any) -> bool:
    return bool(packet.compressed_packets or packet.zstd_compressed_packets)


def _inflate(packet: Any, where: str) -> bytes:
    """The packets in a compressed one, at most `LARGEST_RATIO` times its size."""
    packed = packet.compressed_packets or packet.zstd_compressed_packets
    most = min(max(LARGEST_RATIO * len(packed), 1 << 20), _LONGEST)
    decoder = zlib.decompressobj()
    try:
        if packet.compressed_packets:
            inflated = decoder.decompress(packed, most + 1)
        else:
            inflated = pa.input_stream(pa.py_buffer(packed), compression="zstd").read(most + 1)
    except (zlib.error, OSError):
        inflated = b""
    if len(inflated) > most:
        raise InputError("compressed packets expand like a decompression bomb", where=where)
    if not inflated or (packet.compressed_packets and not decoder.eof):
        raise InputError("compressed packets are damaged", where=where, hint=AGAIN)
    return inflated


def _no_packet(where: str) -> InputError:
    return InputError("is no packet of a Perfetto trace", where=where, hint=AGAIN)
