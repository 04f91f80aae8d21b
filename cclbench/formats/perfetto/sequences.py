# SPDX-License-Identifier: Apache-2.0
"""Slices of a Perfetto trace: interned texts, clocks and defaults are those of a packet's sequence.

A sequence is what one writer wrote, in its order; packets of different sequences stand in any order.  Begins
and ends are paired within a sequence, the innermost open slice of a track first, in the order in which they
were written, not that of time: rocprofv3 writes each slice whole, also where slices of a track overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cclbench.formats.perfetto.packets import AGAIN, BEGIN, CLEARED, COUNTER, END, INSTANT, NEEDED, PacketFile
from cclbench.ground.errors import InputError

REALTIME, BOOTTIME, FIRST_OF_SEQUENCE, FIRST_GLOBAL = 1, 6, 64, 128
"""Clock ids: UTC and the trace's clock; from where on they are a sequence's own, and again the trace's."""
ANNOTATIONS: Final = {
    *("agent", "src_agent", "dst_agent", "corr_id", "tid", "queue", "stream_id", "stream_ID"),
    *("copy_bytes", "grid_size", "workgroup_size"),
}
"""Debug annotations that are read."""
_TABLES: Final = (
    "event_categories",
    "event_names",
    "debug_annotation_names",
    "debug_annotation_string_values",
)
_PHASES: Final = {"B": BEGIN, "E": END, "X": BEGIN, "I": INSTANT, "i": INSTANT, "R": INSTANT}
"""Types of events by phase of a legacy event; `X` states its duration."""
_MOST_OPEN: Final = 1 << 14
_LOST_STATE: Final = "packet after a loss, without the names it needs"
Value = bool | int | float | str


@dataclass(slots=True)
class Slice:
    """A slice of a track, times in ns of the trace's clock; an instant has no length."""

    category: str
    name: str
    track: int
    producer: int
    """Process id of the writer."""
    begin: int
    end: int = 0
    details: dict[str, Value] = field(default_factory=dict)
    flow: int | None = None


@dataclass(slots=True)
class Track:
    """What a descriptor states of a track."""

    name: str
    parent: int
    pid: int
    """Of a process's own track, else 0."""
    thread_pid: int
    tid: int


@dataclass(slots=True)
class _Clock:
    """A clock of a sequence: its last value in ns, and what to add for the clock `base`."""

    unit: int
    incremental: bool
    last: int
    base: int
    offset: int


@dataclass(slots=True)
class _Sequence:
    is_complete: bool = False
    """Whether its state is complete since the last loss."""
    packets: int = 0
    clock: int = BOOTTIME
    track: int = 0
    texts: tuple[dict[int, str], ...] = ({}, {}, {}, {})
    clocks: dict[int, _Clock] = field(default_factory=dict)
    open: dict[int, list[Slice]] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget names and defaults, which its writer states again."""
        self.is_complete, self.clock, self.track, self.texts = True, BOOTTIME, 0, ({}, {}, {}, {})


class SliceStream:
    """Slices of a file, in the order of their ends; the other fields are complete after the last of them."""

    def __init__(self, path: Path, *, details: bool) -> None:
        self.file = PacketFile(path, details)
        self.tracks: dict[int, Track] = {}
        self.left_out = Counter[str]()
        self.losses = 0
        """Gaps in sequences, and chunks of packets that the trace's buffers lost."""
        self.ftrace = False
        self.epoch_ns: int | None = None
        """What to add to all times for ns since 1970; None if no snapshot states UTC."""
        self._sequences: dict[int, _Sequence] = {}
        self._offsets = {BOOTTIME: 0}
        self._open = self._gaps = 0

    def slices(self) -> Iterator[Slice]:
        """Every slice and instant; `InputError` if the file is damaged."""
        for packet in self.file.packets():
            sequence = self._sequences.get(number := packet.trusted_packet_sequence_id)
            if sequence is None:
                sequence = self._sequences[number] = _Sequence()
            if not self._restore_state(sequence, packet):
                continue
            if packet.HasField("clock_snapshot"):
                self._add_clocks(sequence, packet.clock_snapshot)
            if packet.HasField("track_descriptor"):
                self._add_track(packet.track_descriptor)
            time = self._time(sequence, packet)
            if packet.HasField("track_event"):
                yield from self._event_slices(sequence, packet, time)
            elif packet.ftrace_events:
                self.ftrace = True
            elif packet.HasField("trace_stats"):
                lost = ("chunks_overwritten", "chunks_discarded", "trace_writer_packet_loss")
                stats = packet.trace_stats.buffer_stats
                self.losses = max(
                    self.losses, sum(getattr(buffer, word) for buffer in stats for word in lost)
                )
        self.losses += self._gaps
        for sequence in self._sequences.values():
            self._close_all(sequence)

    def _restore_state(self, sequence: _Sequence, packet: Any) -> bool:
        """Whether a packet can be read with the state of its sequence, which it may change."""
        if packet.previous_packet_dropped and sequence.packets and not packet.first_packet_on_sequence:
            self._gaps += 1
            sequence.is_complete = False
            self._close_all(sequence)
        sequence.packets += 1
        flags = packet.sequence_flags
        if flags & CLEARED or packet.incremental_state_cleared:
            sequence.clear()
        elif flags & NEEDED and not sequence.is_complete:
            self.left_out[_LOST_STATE] += 1
            return False
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            sequence.clock = defaults.timestamp_clock_id or sequence.clock
            sequence.track = defaults.track_event_defaults.track_uuid or sequence.track
        if packet.HasField("interned_data"):
            for table, name in zip(sequence.texts, _TABLES, strict=True):
                for entry in getattr(packet.interned_data, name):
                    table[entry.iid] = _text(entry.text)
        return True

    def _close_all(self, sequence: _Sequence) -> None:
        lost = sum(map(len, sequence.open.values()))
        self._open -= lost
        self.left_out["slice without an end"] += lost
        sequence.open.clear()

    def _add_clocks(self, sequence: _Sequence, snapshot: Any) -> None:
        """Relate the clocks of a snapshot to one another: all show the same moment."""
        times = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
        shared = [clock for clock in times if clock < FIRST_OF_SEQUENCE]
        anchor = next((clock for clock in shared if clock in self._offsets), None)
        base = BOOTTIME if BOOTTIME in times else anchor
        if base is not None:
            moment = times[base] + self._offsets[base]
            self._offsets |= {clock: moment - times[clock] for clock in shared if clock != BOOTTIME}
            if REALTIME in times and self.epoch_ns is None:
                self.epoch_ns = times[REALTIME] - moment
        base = base or next(iter(shared), None)
        if base is None:
            return
        for clock in snapshot.clocks:
            if clock.clock_id >= FIRST_OF_SEQUENCE:
                unit = clock.unit_multiplier_ns or 1
                value = clock.timestamp * unit
                clocks = self._clocks_of(sequence, clock.clock_id)
                clocks[clock.clock_id] = _Clock(unit, clock.is_incremental, value, base, times[base] - value)

    def _clocks_of(self, sequence: _Sequence, clock: int) -> dict[int, _Clock]:
        owner = sequence if clock < FIRST_GLOBAL else self._sequences.setdefault(-1, _Sequence())
        return owner.clocks

    def _time(self, sequence: _Sequence, packet: Any) -> int | None:
        """The packet's time on the trace's clock; None if nothing relates its clock to that."""
        number, time = packet.timestamp_clock_id or sequence.clock, packet.timestamp
        if number >= FIRST_OF_SEQUENCE:
            clock = self._clocks_of(sequence, number).get(number)
            if clock is None:
                return None
            clock.last = time = time * clock.unit + (clock.last if clock.incremental else 0)
            number, time = clock.base, time + clock.offset
        offset = self._offsets.get(number)
        return None if offset is None else time + offset

    def _add_track(self, described: Any) -> None:
        name, thread = _text(described.name or described.static_name), described.thread
        track = Track(name, described.parent_uuid, described.process.pid, thread.pid, thread.tid)
        self.tracks[described.uuid] = track

    def _event_slices(self, sequence: _Sequence, packet: Any, time: int | None) -> Iterator[Slice]:
        event = packet.track_event
        legacy = event.legacy_event
        kind = event.type or _PHASES.get(chr(legacy.phase) if 0 < legacy.phase < 128 else "", 0)
        if kind not in (BEGIN, END, INSTANT):
            self.left_out["value of a counter" if kind == COUNTER else "event of an unknown type"] += 1
            return
        if time is None:
            number = packet.timestamp_clock_id or sequence.clock
            what = f"no snapshot relates clock {number} to the trace's clock"
            raise InputError(what, where=str(self.file.path), hint=AGAIN)
        uuid = event.track_uuid if event.HasField("track_uuid") else sequence.track
        if kind == END:
            if not (started := sequence.open.get(uuid)):
                self.left_out["end of a slice without a begin"] += 1
                return
            self._open -= 1
            trace_slice = started.pop()
            trace_slice.end = time
            yield trace_slice
            return
        trace_slice = self._begin(sequence, packet, uuid, time)
        if kind == INSTANT or (legacy.phase == ord("X") and not event.type):
            trace_slice.end = time + (1000 * legacy.duration_us if kind == BEGIN else 0)
            yield trace_slice
            return
        self._open += 1
        if self._open > _MOST_OPEN:
            what = f"more than {_MOST_OPEN:,} slices are open at once"
            raise InputError(what, where=str(self.file.path), hint=AGAIN)
        sequence.open.setdefault(uuid, []).append(trace_slice)

    def _begin(self, sequence: _Sequence, packet: Any, uuid: int, time: int) -> Slice:
        event = packet.track_event
        categories, names, keys, values = sequence.texts
        category = next(iter([categories.get(iid, "") for iid in event.category_iids]), "")
        category = category or next(map(_text, event.categories), "")
        name = _text(event.name) or names.get(event.name_iid or event.legacy_event.name_iid, "")
        trace_slice = Slice(category, name or "(no name)", uuid, packet.trusted_pid, time)
        if self.file.details:
            for each in event.debug_annotations:
                key = keys.get(each.name_iid, "") or _text(each.name)
                if key in ANNOTATIONS and (which := each.WhichOneof("value")):
                    value = getattr(each, which)
                    if which == "string_value_iid":
                        value = values.get(value, "")
                    trace_slice.details[key] = _text(value) if isinstance(value, bytes) else value
            flows = (event.flow_ids, event.terminating_flow_ids, event.flow_ids_old)
            trace_slice.flow = next((ids[0] for ids in (*flows, event.terminating_flow_ids_old) if ids), None)
        return trace_slice


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
