# SPDX-License-Identifier: Apache-2.0
"""Read an OTF2 archive with its library, in a process of its own: `python -P archive.py ANCHOR`.

The library is C and may crash on a damaged archive, or never end; this process is ended alone, after more
time than its files can take, and its reader says so.  It
imports nothing of cclbench.  It writes the definitions as JSON (its length first, 8 bytes), reads a line with
the numbers of the locations whose events are wanted, and writes these in blocks: their number, then each of
`COLUMNS`, 8 bytes a value, in the machine's byte order.  A block of 0 is the last; JSON of counts follows.
Times are ticks of the archive's timer, which the library has corrected by the clock offsets that the archive
lists for each location.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final

REGION, MESSAGE, COLLECTIVE, METRIC = range(4)
"""Kinds of rows: a region from its begin to its end; a message; a collective; a value of a metric."""
COLUMNS: Final = (
    *("kind", "location", "begin", "end", "region", "nth", "what", "comm", "peer", "tag", "sent", "received"),
    *("posted", "value"),
)
"""`region` is the innermost one that holds the row, or the row's own; `nth` numbers the rows in it.  `what`
is SEND or RECEIVE of a message, the operation of a collective, the metric of a value (`nth` its member);
`peer` the other rank of a message or the root, `posted` the begin of the call that started it; `value` is
a float of 8 bytes, all others are unsigned."""
SEND, RECEIVE = 0, 1
NONE: Final = (1 << 64) - 1
"""The value of a column that a row does not have."""
DAMAGED: Final = 3
"""Exit status for an archive that the library refuses."""
_BLOCK_ROWS: Final = 1 << 16
_EVENTS_A_CALL: Final = 1 << 12
_LEAST_S: Final = 10
_BYTES_PER_S: Final = 100_000
"""A fiftieth of what was measured: 5.9 MB of events in a second of one core (AMD EPYC)."""


class DamagedError(Exception):
    """An archive whose events contradict one another."""


class DefinitionReader:
    """Collects global definitions; references are resolved when all are read."""

    def __init__(self, library: Any) -> None:
        self._strings: dict[int, str] = {}
        self.found: dict[str, Any] = {
            name: {}
            for name in ("processes", "locations", "regions", "groups", "comms", "members", "metrics")
        }
        self.found["contexts"], self.found["clock"] = {}, None
        callbacks = library.GlobalDefReaderCallbacks_New()
        for name, method in (
            ("ClockProperties", self._clock),
            ("String", self._string),
            ("LocationGroup", self._process),
            ("Location", self._location),
            ("Region", self._region),
            ("Group", self._group),
            ("Comm", self._comm),
            ("MetricMember", self._metric_member),
            ("MetricClass", self._metric_class),
            ("MetricInstance", self._metric_instance),
            ("CallingContext", self._context),
        ):
            getattr(library, f"GlobalDefReaderCallbacks_Set{name}Callback")(callbacks, method)
        self.callbacks = callbacks

    def named(self) -> dict[str, Any]:
        """All definitions, with texts in place of references to them."""
        texts = self._strings
        for name in ("processes", "locations", "regions", "comms"):
            for row in self.found[name].values():
                row[0] = texts.get(row[0], "")
        for row in self.found["members"].values():
            row[0], row[4] = texts.get(row[0], ""), texts.get(row[4], "")
        return self.found

    def _clock(self, _: Any, resolution: int, offset: int, _length: int, realtime: int) -> None:
        self.found["clock"] = [resolution, offset, None if realtime == NONE else realtime]

    def _string(self, _: Any, ref: int, text: str) -> None:
        self._strings[ref] = text

    def _process(self, _: Any, ref: int, name: int, kind: Any, _node: int, creator: int) -> None:
        self.found["processes"][ref] = [name, kind.value, creator]

    def _location(self, _: Any, ref: int, name: int, kind: Any, events: int, group: int) -> None:
        self.found["locations"][ref] = [name, kind.value, events, group]

    def _region(self, _: Any, ref: int, name: int, *about: Any) -> None:
        role, paradigm = about[2:4]
        self.found["regions"][ref] = [name, paradigm.value, role.value]

    def _group(
        self, _: Any, ref: int, _name: int, kind: Any, paradigm: Any, flags: Any, *members: Any
    ) -> None:
        self.found["groups"][ref] = [kind.value, paradigm.value, flags.value, list(members[-1])]

    def _comm(self, _: Any, ref: int, name: int, group: int, *_more: Any) -> None:
        self.found["comms"][ref] = [name, group]

    def _metric_member(
        self, _: Any, ref: int, name: int, _text: int, _kind: Any, mode: Any, *more: Any
    ) -> None:
        _, base, exponent, unit = more
        self.found["members"][ref] = [name, mode.value, base.value, exponent, unit]

    def _metric_class(self, _: Any, ref: int, members: Sequence[int], *_more: Any) -> None:
        self.found["metrics"][ref] = list(members)

    def _metric_instance(self, _: Any, ref: int, metric: int, *_more: Any) -> None:
        self.found["metrics"][ref] = metric

    def _context(self, _: Any, ref: int, region: int, *_more: Any) -> None:
        self.found["contexts"][ref] = region


class _OpenRegion:
    """A region that has begun, with the messages and collectives in it so far."""

    __slots__ = ("begin", "held", "region")

    def __init__(self, region: int, begin: int) -> None:
        self.region, self.begin = region, begin
        self.held: list[tuple[int, ...]] = []


class EventReader:
    """Pairs begins and ends of regions, requests and completions; writes rows in blocks."""

    def __init__(
        self, library: Any, output: BinaryIO, locations: Sequence[int], contexts: dict[int, int]
    ) -> None:
        self._output, self._contexts = output, contexts
        self._open: dict[int, list[_OpenRegion]] = {location: [] for location in locations}
        self._columns: list[array[Any]] = [array("d" if name == "value" else "Q") for name in COLUMNS]
        self._receives: dict[int, int] = {}
        """Begin of the call that posted it, by request."""
        self._started: dict[int, tuple[int, int]] = {}
        """Region and its begin, by request of a collective."""
        self.counts: Counter[str] = Counter()
        callbacks = library.GlobalEvtReaderCallbacks_New()
        for name, method in (
            ("Enter", self._enter),
            ("Leave", self._leave),
            ("CallingContextEnter", self._context_enter),
            ("CallingContextLeave", self._context_leave),
            ("MpiSend", self._send),
            ("MpiIsend", self._isend),
            ("MpiRecv", self._receive),
            ("MpiIrecvRequest", self._request),
            ("MpiIrecv", self._irecv),
            ("MpiRequestCancelled", self._cancelled),
            ("MpiCollectiveEnd", self._collective),
            ("NonBlockingCollectiveRequest", self._start),
            ("NonBlockingCollectiveComplete", self._complete),
            ("Metric", self._metric),
            ("MeasurementOnOff", self._measurement),
            ("BufferFlush", self._flush),
            ("CallingContextSample", self._sample),
            ("RmaPut", self._put),
            ("RmaGet", self._get),
        ):
            getattr(library, f"GlobalEvtReaderCallbacks_Set{name}Callback")(callbacks, method)
        self.callbacks = callbacks
        self.error = ""

    def finish(self) -> None:
        """Write the rest, the last block and the counts."""
        self.counts["regions without an end"] += sum(map(len, self._open.values()))
        self.counts["receives that did not complete"] += len(self._receives)
        self.counts["collectives that did not complete"] += len(self._started)
        self.write_block()
        self._output.write((0).to_bytes(8, sys.byteorder))
        write_json(self._output, +self.counts)

    def write_block(self, least: int = 1) -> None:
        """Write the rows so far, if they are as many as that."""
        if (rows := len(self._columns[0])) >= least:
            self._output.write(rows.to_bytes(8, sys.byteorder))
            for column in self._columns:
                self._output.write(column.tobytes())
                del column[:]

    def _put_row(self, *values: int, value: float = 0.0) -> None:
        for column, number in zip(self._columns, (*values, value), strict=True):
            column.append(number)

    def _hold(self, location: int, time: int, row: tuple[int, ...], begin: int | None = None) -> None:
        """Keep a row until its region ends; without a region it has the length 0.

        `row` is (kind, what, comm, peer, tag, sent, received, posted), `posted` 0 for the region's begin.
        """
        frames = self._open[location]
        if begin is not None:
            kind, *rest = row
            self._put_row(kind, location, begin, time, NONE, 1, *rest)
        elif frames:
            frames[-1].held.append(row)
        else:
            kind, *rest, posted = row
            self._put_row(kind, location, time, time, NONE, 1, *rest, posted or time)

    def _enter(self, location: int, time: int, _: Any, _attributes: Any, region: int) -> None:
        self._open[location].append(_OpenRegion(region, time))

    def _leave(self, location: int, time: int, _: Any, _attributes: Any, region: int) -> None:
        frames = self._open[location]
        if not frames or frames[-1].region != region:
            self.error = "a region ends that is not the innermost one"
            return
        frame = frames.pop()
        begin = frame.begin
        self._put_row(REGION, location, begin, time, region, 0, *(NONE,) * 7)
        for nth, (kind, *rest, posted) in enumerate(frame.held):
            self._put_row(kind, location, begin, time, region, nth, *rest, posted or begin)

    def _context_enter(self, location: int, time: int, _: Any, _a: Any, context: int, _depth: int) -> None:
        self._enter(location, time, None, None, self._contexts.get(context, NONE))

    def _context_leave(self, location: int, time: int, _: Any, _a: Any, context: int) -> None:
        self._leave(location, time, None, None, self._contexts.get(context, NONE))

    def _send(
        self, location: int, time: int, _: Any, _a: Any, to: int, comm: int, tag: int, size: int
    ) -> None:
        self._hold(location, time, (MESSAGE, SEND, comm, to, tag, size, 0, 0))

    def _isend(self, location: int, time: int, _: Any, _a: Any, *message: int) -> None:
        to, comm, tag, size, _request = message
        self._hold(location, time, (MESSAGE, SEND, comm, to, tag, size, 0, 0))

    def _receive(self, location: int, time: int, _: Any, _a: Any, *message: int) -> None:
        source, comm, tag, size = message
        self._hold(location, time, (MESSAGE, RECEIVE, comm, source, tag, 0, size, 0))

    def _request(self, _location: int, time: int, _: Any, _a: Any, request: int) -> None:
        self._receives[request] = time

    def _irecv(self, location: int, time: int, _: Any, _a: Any, *message: int) -> None:
        source, comm, tag, size, request = message
        posted = self._receives.pop(request, 0)
        self._hold(location, time, (MESSAGE, RECEIVE, comm, source, tag, 0, size, posted))

    def _cancelled(self, *event: Any) -> None:
        self._receives.pop(event[-1], None)
        self.counts["requests that were cancelled"] += 1

    def _collective(self, location: int, time: int, _: Any, _a: Any, operation: Any, *rest: int) -> None:
        comm, root, sent, received = rest
        self._hold(location, time, (COLLECTIVE, operation.value, comm, root, NONE, sent, received, 0))

    def _start(self, location: int, time: int, _: Any, _a: Any, request: int) -> None:
        frames = self._open[location]
        self._started[request] = (location, frames[-1].begin if frames else time)

    def _complete(self, location: int, time: int, _: Any, _a: Any, operation: Any, *rest: int) -> None:
        comm, root, sent, received, request = rest
        at, begin = self._started.pop(request, (location, time))
        row = (COLLECTIVE, operation.value, comm, root, NONE, sent, received, begin)
        self._hold(at, time, row, begin)

    def _metric(
        self, location: int, time: int, _: Any, _a: Any, metric: int, types: Any, values: Any
    ) -> None:
        for member, (kind, value) in enumerate(zip(types, values, strict=True)):
            name = {4: "unsigned_int", 8: "signed_int"}.get(kind.value, "floating_point")
            number = float(getattr(value, name))
            row = (METRIC, location, time, time, NONE, member, metric, *(NONE,) * 6)
            self._put_row(*row, value=number)

    def _measurement(self, *_: Any) -> None:
        self.counts["changes of measurement on or off"] += 1

    def _flush(self, *_: Any) -> None:
        self.counts["flushes of the tracer's buffer"] += 1

    def _sample(self, *_: Any) -> None:
        self.counts["samples"] += 1

    def _put(self, *_: Any) -> None:
        self.counts["one-sided transfers"] += 1

    def _get(self, *_: Any) -> None:
        self.counts["one-sided transfers"] += 1


def write_json(output: BinaryIO, value: object) -> None:
    """Write a value as JSON, behind its length."""
    text = json.dumps(value).encode()
    output.write(len(text).to_bytes(8, sys.byteorder))
    output.write(text)
    output.flush()


def read_archive(
    library: Any, path: str, output: BinaryIO, read_locations: Callable[[], Sequence[int]]
) -> None:
    """Write the definitions, then the events of the locations read; `DamagedError` for others."""
    reader = library.Reader_Open(path)
    library.Reader_SetSerialCollectiveCallbacks(reader)
    definitions = DefinitionReader(library)
    handle = library.Reader_GetGlobalDefReader(reader)
    library.Reader_RegisterGlobalDefCallbacks(reader, handle, definitions.callbacks, None)
    library.Reader_ReadAllGlobalDefinitions(reader, handle)
    library.Reader_CloseGlobalDefReader(reader, handle)
    named = definitions.named()
    write_json(output, {**named, "creator": library.Reader_GetCreator(reader)})
    locations = read_locations()
    if not locations:
        return
    events = EventReader(library, output, locations, named["contexts"])
    for location in locations:
        library.Reader_SelectLocation(reader, location)
    local = _open_local_definitions(library, reader)
    library.Reader_OpenEvtFiles(reader)
    for location in locations:
        if local and (location_reader := library.Reader_GetDefReader(reader, location)):
            library.Reader_ReadAllLocalDefinitions(reader, location_reader)
            library.Reader_CloseDefReader(reader, location_reader)
        library.Reader_GetEvtReader(reader, location)
    if local:
        library.Reader_CloseDefFiles(reader)
    handle = library.Reader_GetGlobalEvtReader(reader)
    library.GlobalEvtReader_SetCallbacks(handle, events.callbacks, None)
    count = 0
    while read := library.GlobalEvtReader_ReadEvents(handle, _EVENTS_A_CALL):
        if events.error:
            raise DamagedError(events.error)
        count += read
        events.write_block(_BLOCK_ROWS)
    expected = sum(named["locations"][location][2] for location in locations)
    if count != expected:
        raise DamagedError(f"{count:,} of {expected:,} events can be read")
    events.finish()


def _open_local_definitions(library: Any, reader: Any) -> bool:
    """Whether the locations have definitions of their own."""
    try:
        library.Reader_OpenDefFiles(reader)
    except library.Error:
        return False
    return True


def limit_time(anchor: str) -> None:
    """Let the system end this process after more time than the archive's files can take, s of the CPU."""
    folder = os.path.splitext(anchor)[0]
    size = sum(entry.stat().st_size for entry in os.scandir(folder)) if os.path.isdir(folder) else 0
    seconds = _LEAST_S + size // _BYTES_PER_S
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def main() -> None:
    """Read the archive that is named on the command line."""
    limit_time(sys.argv[1])
    # What the library prints is no part of the answer.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import _otf2 as library

    try:
        read_archive(
            library, sys.argv[1], output, lambda: [int(word) for word in sys.stdin.readline().split()]
        )
    except (library.Error, DamagedError) as error:
        sys.stderr.write(f"{getattr(error, 'description', None) or error}\n")
        sys.exit(DAMAGED)
    output.flush()
    # The library's own end of a damaged archive is not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
