# SPDX-License-Identifier: Apache-2.0
"""XSpace files: find the planes, and parse one plane at a time as a protobuf message.

A plane's lines contain events; `event_metadata` and `stat_metadata` are maps by id, separate for each plane.
Field numbers: xplane.proto of the OpenXLA project (tsl/profiler/protobuf).
"""

from __future__ import annotations

import mmap
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from cclbench.formats import Cut
from cclbench.formats.trace import LATEST_NS
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.ground.protobuf_schema import described_class

LARGEST_PLANE: Final = (1 << 31) - 1
"""Bytes of the longest message that protobuf parses."""
AGAIN: Final = "copy the file again, or profile again"
"""Hint for a damaged profile."""
DEVICE: Final = re.compile(r"/device:(TPU|GPU):(\d{1,4})")
HOST, PROGRAMS, ENVIRONMENT = "/host:CPU", "/host:metadata", "Task Environment"
"""Names of planes; there may be several planes of programs, which are identified by their ids."""
MOST_PLANES: Final = 1024
"""A host has tens of devices."""
_TWICE: Final = "profiles joined to one file count everything twice: give each its own file"
Stats = dict[str, str | int | float | bytes]

_LONGEST_PS: Final = 1 << 61
_PLANE, _COMPLAINTS, _NAME, _LINES, _EVENTS = 1, (2, 3), 2, 3, 4
_MANGLED: Final = b"\xef\xbf\xbd"
_MESSAGES: Final = {
    "XStat": "metadata_id=1:int64 double_value=2:double? uint64_value=3:uint64? int64_value=4:int64?"
    " str_value=5:string? bytes_value=6:bytes? ref_value=7:uint64?",
    "XEvent": "metadata_id=1:int64 offset_ps=2:int64? num_occurrences=5:int64? duration_ps=3:int64"
    " stats=4:XStat*",
    "XLine": "id=1:int64 name=2:string timestamp_ns=3:int64 events=4:XEvent* duration_ps=9:int64"
    " display_id=10:int64 display_name=11:string",
    "XEventMetadata": "id=1:int64 name=2:string metadata=3:bytes display_name=4:string stats=5:XStat*"
    " child_id=6:int64*",
    "XStatMetadata": "id=1:int64 name=2:string description=3:string",
    "EventEntry": "key=1:int64 value=2:XEventMetadata",
    "StatEntry": "key=1:int64 value=2:XStatMetadata",
    "XPlane": "id=1:int64 name=2:string lines=3:XLine* event_metadata=4:EventEntry*"
    " stat_metadata=5:StatEntry* stats=6:XStat*",
}


class PlaneRange(msgspec.Struct, frozen=True):
    """Position of a plane in its file: bytes [begin, end)."""

    name: str
    begin: int
    end: int


class Space(msgspec.Struct, frozen=True):
    """A file's planes; only those before `cut` if the file is cut."""

    planes: tuple[PlaneRange, ...]
    complaints: int
    """Number of errors and warnings of the profiler in the file."""
    cut: Cut | None


def find_planes(path: Path) -> Space:
    """Find the planes without parsing them; `InputError` with the offset if the file is not an XSpace."""
    with path.open("rb") as file:
        if not file.read(1):
            raise InputError("empty file", where=str(path), hint="was the profile stopped and written?")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            planes: list[PlaneRange] = []
            names: set[str] = set()
            complaints = 0
            for number, at, begin, end in message_fields(data, 0, len(data), str(path)):
                if end > len(data):
                    reason = f"the file ends {end - len(data):,} bytes before its plane does"
                    if not planes:
                        raise InputError(reason, where=f"{path}: byte {at:,}", hint=_cut_hint(data))
                    return Space(tuple(planes), complaints, Cut(file=str(path), byte=at, reason=reason))
                if number == _PLANE:
                    name = _plane_name(data, begin, end, str(path))
                    if name in names and name != PROGRAMS:
                        raise InputError(
                            f"has plane {name!r} twice", where=f"{path}: byte {at:,}", hint=_TWICE
                        )
                    if len(planes) == MOST_PLANES:
                        hint = "profile fewer devices in one file"
                        raise InputError(f"has more than {MOST_PLANES:,} planes", where=str(path), hint=hint)
                    names.add(name)
                    planes.append(PlaneRange(name, begin, end))
                complaints += number in _COMPLAINTS
    return Space(tuple(planes), complaints, None)


def parse_plane(path: Path, where: PlaneRange, *, lines: bool = True) -> Any:
    """The XPlane message in a range, with or without its lines; `InputError` if it is damaged."""
    from google.protobuf.message import DecodeError

    at = f"{path}: byte {where.begin:,}"
    if where.end - where.begin > LARGEST_PLANE:
        raise InputError(f"plane {where.name!r} exceeds 2 GiB", where=at, hint="profile fewer steps")
    with path.open("rb") as file:
        file.seek(where.begin)
        data = file.read(where.end - where.begin)
    if not lines:
        inside = message_fields(data, 0, len(data), f"{path}: plane {where.name!r}")
        data = b"".join(data[begin:end] for number, begin, _, end in inside if number != _LINES)
    try:
        message = message_class().FromString(data)
    except DecodeError:
        raise InputError(f"plane {where.name!r} is damaged", where=at, hint=_cut_hint(data)) from None
    numbers = {
        "line": [(line.id, line.name) for line in message.lines],
        "event": [entry.key for entry in message.event_metadata],
        "stat": [entry.key for entry in message.stat_metadata],
    }
    for noun, ids in numbers.items():
        if len(set(ids)) < len(ids):
            (again, _), *_ = Counter(ids).most_common(1)
            raise InputError(f"plane {where.name!r} has {noun} {again!r:.80} twice", where=at, hint=AGAIN)
    return message


def has_events(path: Path, where: PlaneRange, line: str) -> bool:
    """Whether any line of the plane with the name prefix `line` has an event, without parsing them."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        of_plane = f"{path}: plane {where.name!r}"
        lines = (
            (begin, end)
            for number, _, begin, end in message_fields(data, where.begin, where.end, of_plane)
            if number == _LINES and _plane_name(data, begin, end, of_plane).startswith(line)
        )
        return any(
            number == _EVENTS
            for begin, end in lines
            for number, *_ in message_fields(data, begin, end, of_plane)
        )


def event_metadata(message: Any) -> dict[int, Any]:
    """A plane's XEventMetadata by id."""
    return {entry.key: entry.value for entry in message.event_metadata}


def stat_names(message: Any) -> dict[int, str]:
    """Names of a plane's stats by id, which are also the texts that `ref_value` refers to."""
    return {entry.key: entry.value.name for entry in message.stat_metadata}


def decode_stats(names: Mapping[int, str], messages: Iterable[Any]) -> Stats:
    """XStat messages as a dict, references resolved; without those whose name or value is unknown."""
    values: Stats = {}
    for stat in messages:
        name, which = names.get(stat.metadata_id), stat.WhichOneof("value")
        value = None if which is None else getattr(stat, which)
        if which == "ref_value":
            value = names.get(stat.ref_value)
        if name and value is not None:
            values[name] = value
    return values


def epoch_ns(path: Path, planes: Iterable[PlaneRange]) -> int:
    """When the profile began, in ns since the epoch; 0 if the file does not state it."""
    for where in planes:
        if where.name == ENVIRONMENT:
            message = parse_plane(path, where)
            begin = decode_stats(stat_names(message), message.stats).get("profile_start_time", 0)
            if not isinstance(begin, int) or not 0 <= begin < LATEST_NS:
                raise InputError(f"profile_start_time is {begin!r:.40}, not a time", where=str(path))
            return begin
    return 0


def event_times(line: Any, events: Iterable[Any], path: Path, epoch_ns: int = 0) -> tuple[Int64, Int64]:
    """Start and duration of a line's events in ns; both ends are rounded down, so events stay adjacent.

    start_ns = ⌊timestamp + offset⌋, dur_ns = ⌊timestamp + offset + duration⌋ − start_ns.  A timestamp before
    `epoch_ns` is relative to it: lines state the time since the profile's beginning or since the epoch.
    """
    events = list(events)
    offset = np.fromiter((event.offset_ps for event in events), np.int64, len(events))
    duration = np.fromiter((event.duration_ps for event in events), np.int64, len(events))
    absurd = (duration < 0) | (duration > _LONGEST_PS) | (offset < -_LONGEST_PS) | (offset > _LONGEST_PS)
    begin: int = line.timestamp_ns
    if absurd.any() or not -LATEST_NS < begin < LATEST_NS:
        bad = events[int(np.argmax(absurd))] if events else None
        of_event = f", offset {bad.offset_ps} ps, duration {bad.duration_ps} ps" if bad else ""
        raise InputError(
            f"impossible time in line {line.name[:60]!r}: {begin} ns{of_event}", where=str(path), hint=AGAIN
        )
    base = begin + (epoch_ns if begin < epoch_ns else 0)
    start = base + offset // 1000
    return start, base + (offset + duration) // 1000 - start


def message_fields(data: Any, at: int, stop: int, where: str) -> Iterator[tuple[int, int, int, int]]:
    """Number, position and value range of each field in [at, stop); the last may end beyond it."""
    while at < stop:
        tag, begin = _read_varint(data, at, stop, where)
        number, wire = tag >> 3, tag & 7
        end = begin
        if wire == 0:
            _, end = _read_varint(data, begin, stop, where)
        elif wire == 2:
            length, begin = _read_varint(data, begin, stop, where)
            end = begin + length
        elif wire in (1, 5):
            end = begin + (8 if wire == 1 else 4)
        if number == 0 or wire in (3, 4, 6, 7):
            raise _no_protobuf(data, at, where)
        yield number, at, begin, end
        at = end


def integer_fields(data: Any, at: int, stop: int, where: str) -> dict[int, int]:
    """Unsigned integer fields in [at, stop) by number; 0 for an empty field."""
    return {
        number: _read_varint(data, begin, end, where)[0] if begin < end else 0
        for number, _, begin, end in message_fields(data, at, stop, where)
    }


def _read_varint(data: Any, at: int, stop: int, where: str) -> tuple[int, int]:
    """An unsigned integer of at most ten bytes, and the offset of its end."""
    value = 0
    for i, byte in enumerate(data[at : min(at + 10, stop)]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise _no_protobuf(data, at, where)


def _plane_name(data: Any, begin: int, end: int, where: str) -> str:
    for number, at, first, last in message_fields(data, begin, end, where):
        if last > end:
            raise _no_protobuf(data, at, where)
        if number == _NAME:
            return str(data[first:last], errors="replace")
    return ""


def _no_protobuf(data: Any, at: int, where: str) -> InputError:
    return InputError("is not a protobuf field", where=f"{where}: byte {at:,}", hint=_cut_hint(data))


def _cut_hint(data: Any) -> str:
    if data[: 1 << 12].count(_MANGLED) > 8:
        return "its bytes went through a text conversion (U+FFFD): copy it again as binary"
    if data[:2] == b"\x1f\x8b":
        return "it is compressed: gunzip it first"
    return AGAIN


@cache
def message_class() -> Any:
    """The class of XPlane messages."""
    return described_class("xplane", _MESSAGES, "XPlane")
