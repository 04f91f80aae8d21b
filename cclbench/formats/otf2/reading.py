# SPDX-License-Identifier: Apache-2.0
"""Rows of one process of an OTF2 archive: regions, messages, collectives, values of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.formats import Names, Rows, Trace
from cclbench.formats.otf2 import archive, definitions
from cclbench.formats.otf2.calls import MessageCalls
from cclbench.formats.otf2.definitions import Definitions, MpiProcess
from cclbench.formats.otf2.metrics import MetricSamples
from cclbench.formats.otf2.process import HINT, Block, open_archive
from cclbench.formats.trace import LATEST_NS, impossible_value
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.record.facts import HOST_DEVICE, ProcessGroup, TraceFacts

NO_EPOCH: Final = "its times count from the start of the tracer's timer: the archive does not state the date"
PAUSED: Final = "changes of measurement on or off"
_STREAM: Final = re.compile(r".*\[(\d{1,4})[:\]]")
"""The device in the name of a stream, as Score-P gives it: `CUDA[0:7]`."""
_MOST_LOCATION: Final = 1 << 52
_KINDS: Final = ("op", "annotation", "other", "kernel", "copy")


def list_members(path: Path) -> tuple[MpiProcess, ...]:
    """The processes of an archive; `InputError` without any."""
    with open_archive(path) as opened:
        if not opened.definitions.ranks:
            raise InputError("has no process with events", where=str(path))
        return opened.definitions.ranks


def read_member(path: Path, name: str) -> Trace:
    """One process of an archive."""
    trace = Trace(batches=iter(()), device_rows_in_order=False)
    trace.batches = _member_rows(path, name, trace)
    return trace


def _member_rows(path: Path, name: str, trace: Trace) -> Iterator[Rows | pa.Table]:
    with open_archive(path) as opened:
        archive_defs = opened.definitions
        member = next((process for process in archive_defs.ranks if process.name == name), None)
        if member is None or archive_defs.clock is None or not archive_defs.clock.resolution:
            what = f"has no process {name!r}" if member is None else "has no clock"
            raise InputError(what, where=str(path), hint=HINT)
        if max(*member.threads, *member.streams, 0) >= _MOST_LOCATION:
            raise impossible_value("number of a location", path, HINT)
        trace.facts = _facts(archive_defs, member)
        if archive_defs.clock.realtime_ns is None:
            trace.notes.append(NO_EPOCH)
        reader = _BlockReader(path, archive_defs, member, trace)
        for block in opened.blocks((*member.threads, *member.streams)):
            yield from reader.convert_block(block)
        reader.calls.number_calls(paused=bool(opened.counts.get(PAUSED)))
        trace.dropped.update({reason: count for reason, count in opened.counts.items() if reason != PAUSED})
        trace.dropped = +trace.dropped
        if opened.counts.get(PAUSED):
            trace.notes.append("the tracer paused: messages and collectives are matched by order alone")


def _facts(archive_defs: Definitions, member: MpiProcess) -> TraceFacts:
    groups = []
    for comm, name in archive_defs.comm_names.items():
        ranks = archive_defs.comm_ranks(comm, member.rank)
        if ranks and member.rank in ranks:
            groups.append(ProcessGroup(name=name, ranks=ranks))
    return TraceFacts(
        rank=member.rank,
        rank_source=None if member.rank is None else "MPI",
        local_rank=member.place,
        world_size=len(archive_defs.world) or None,
        producer=archive_defs.creator or "OTF2",
        # The times of all processes are on one clock.
        device_name=None if member.streams else HOST_DEVICE,
        groups=tuple(groups),
    )


@dataclass(slots=True)
class _BlockReader:
    """Converts blocks of an archive to rows."""

    path: Path
    definitions: Definitions
    member: MpiProcess
    trace: Trace
    names: dict[str, Names] = field(default_factory=lambda: {kind: Names() for kind in _KINDS})
    calls: MessageCalls = field(init=False)
    metrics: MetricSamples = field(init=False)
    _regions: npt.NDArray[np.uint64] = field(init=False)
    _devices: dict[int, int | None] = field(init=False)

    def __post_init__(self) -> None:
        self.calls = MessageCalls(self.definitions, self.member, self.trace)
        self.metrics = MetricSamples(self.definitions, self.trace.dropped)
        self._regions = np.array(sorted(self.definitions.regions), np.uint64)
        self._devices = {
            stream: int(match[1])
            if (match := _STREAM.match(self.definitions.locations[stream].name))
            else None
            for stream in self.member.streams
        }

    def convert_block(self, block: Block) -> Iterator[Rows | pa.Table]:
        """Rows of regions, of messages and collectives that are no region's own, and of metrics."""
        clock = self.definitions.clock
        assert clock is not None  # noqa: S101
        begin, end = clock.to_ns(block["begin"]), clock.to_ns(block["end"])
        wrong = (block["end"] < block["begin"]) | (begin < 0) | (end < begin) | (end > LATEST_NS)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise impossible_value(f"time: from {begin[at]} to {end[at]} ns", self.path, HINT)
        kind = block["kind"]
        regions = np.flatnonzero(kind == archive.REGION)
        code = self._region_codes(block["region"][regions])
        yield from self._region_rows(block, regions, code, begin, end)
        calls = np.flatnonzero((kind == archive.MESSAGE) | (kind == archive.COLLECTIVE))
        if len(calls):
            yield from self.calls.convert_calls(block, calls, begin, end, self.names["op"])
        values = np.flatnonzero(kind == archive.METRIC)
        if len(values):
            yield from self.metrics.convert_values(block, values, begin)

    def _region_codes(self, refs: npt.NDArray[np.uint64]) -> Int64:
        """Index of each region among those defined."""
        code = np.searchsorted(self._regions, refs)
        inside = code < len(self._regions)
        if not inside.all() or (self._regions[code] != refs).any():
            raise impossible_value("region, which the archive does not define", self.path, HINT)
        return code.astype(np.int64)

    def _region_rows(
        self, block: Block, rows: Int64, code: Int64, begin: Int64, end: Int64
    ) -> Iterator[Rows]:
        used = np.unique(code)
        regions = [self.definitions.regions[int(self._regions[index])] for index in used.tolist()]
        place = np.searchsorted(used, code)
        location = block["location"][rows].astype(np.int64)
        on_stream = np.isin(location, self.member.streams)
        for side, chosen in (("host", ~on_stream), ("device", on_stream)):
            for kind in _KINDS:
                of_kind = np.array([kind in _row_kinds(region, side) for region in regions], np.bool_)
                at = np.flatnonzero(chosen & of_kind[place]) if len(regions) else rows[:0]
                if not len(at):
                    continue
                names = self.names[kind]
                codes = np.array([names[_row_name(region, kind)] for region in regions], np.int32)
                track, spans = location[at], rows[at]
                yield Rows(
                    kind=kind,
                    side=side,
                    names=names,
                    codes=codes[place[at]],
                    start_ns=begin[spans],
                    dur_ns=end[spans] - begin[spans],
                    track=track,
                    device=[self._devices[stream] for stream in track.tolist()] if side == "device" else None,
                    name_categories=self._library_calls(names) if kind == "op" else None,
                )
            idle = np.array([not _row_kinds(region, side) for region in regions], np.bool_)
            if len(regions) and (left := int((chosen & idle[place]).sum())):
                self.trace.dropped["regions of streams in which nothing runs"] += left

    def _library_calls(self, names: Names) -> dict[int, str]:
        """Categories of the names of MPI's functions, none of which computes."""
        mpi = {
            region.name for region in self.definitions.regions.values() if region.paradigm == definitions.MPI
        }
        return {code: "communication" for name, code in names.items() if name in mpi}


def _row_name(region: definitions.Region, kind: str) -> str:
    """A host's region by its paradigm, unless its functions are known by their names; others as they are."""
    if kind != "op" or region.paradigm == definitions.MPI:
        return region.name
    return f"{definitions.PARADIGMS.get(region.paradigm, 'region')}::{region.name}"


def _row_kinds(region: definitions.Region, side: str) -> tuple[str, ...]:
    """What rows of a region are: the program's own regions also mark steps."""
    if side == "device":
        if region.role == definitions.ARTIFICIAL:
            return ()
        return ("copy",) if region.role == definitions.DATA_TRANSFER else ("kernel",)
    if region.role == definitions.ARTIFICIAL:
        return ("other",)
    return ("op", "annotation") if region.paradigm == definitions.USER else ("op",)
