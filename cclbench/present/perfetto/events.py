# SPDX-License-Identifier: Apache-2.0
"""Write trace events to a file: a process for each rank, its threads and slices, and flow arrows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedIOBase
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.intervals import Int64
from cclbench.ground.units import MIB
from cclbench.present.perfetto.instances import CollectiveParts, InstanceArrows, LatestRanks
from cclbench.present.perfetto.lanes import slice_lanes
from cclbench.present.perfetto.lines import (
    as_microseconds,
    bytes_of,
    event_line,
    join_columns,
    key_values,
    object_members,
    quote_texts,
)
from cclbench.present.perfetto.shown import ShownRows

_DETAILS: Final = (
    *("category", "step", "correlation", "bytes", "copy_direction", "blocks", "flops", "hbm_bytes"),
)
"""Columns shown in the viewer for a selected slice, besides those of its collective."""
_COLUMNS: Final = ("name", "start_ns", "dur_ns", "collective", *_DETAILS)
_MOST_BYTES: Final = 64 * MIB
"""Most bytes of names in one chunk of text: names come from the input and may be long."""


@dataclass(slots=True, eq=False)
class TraceEvents:
    """Writes events; times are relative to `begin_ns` on the common clock."""

    file: BufferedIOBase
    begin_ns: int
    latest: LatestRanks
    first_thread: int
    """First thread number, above all ranks; numbers are unique: viewers treat a thread with the process's
    number as the main thread, and equal numbers in two processes as the same thread."""
    arrows: InstanceArrows = field(default_factory=InstanceArrows)
    slices: int = 0
    _threads: int = 0
    _comma: bytes = b""

    def add_rank(self, rank: int, shown: ShownRows, *, corrected: bool) -> None:
        """Write one rank; if its clock is corrected, slices also state the uncorrected duration."""
        threads, thread = shown.thread_places()
        devices = {shown_thread.device for shown_thread in threads if not shown_thread.on_host} - {-1}
        device_note = f" (device {min(devices)})" if len(devices) == 1 else ""
        self._add_name("process", {"pid": rank}, f"rank {rank}{device_note}", rank)
        parts = CollectiveParts.from_tables(shown.tables)
        self._add_steps(rank, shown)
        self._add_waits(rank, shown, parts)
        thread_ids = [
            self._thread_id(rank, shown_thread.thread_name(device=not device_note))
            for shown_thread in threads
        ]
        tids = np.array(thread_ids, np.int64)[thread]
        first_row = 0
        for kind, batch in shown.row_batches(_COLUMNS):
            batch_rows = slice(first_row, first_row + len(batch))
            first_row += len(batch)
            begin, end = shown.common_times(batch)
            places = parts.rows_of_keys(batch["collective"])
            self.arrows.add_begins(
                parts.instance_numbers(places), begin - self.begin_ns, rank, tids[batch_rows]
            )
            own_duration = [key_values("own_dur_ns", batch["dur_ns"])] if corrected else []
            args = object_members(
                *(key_values(name, batch[name]) for name in _DETAILS), parts.texts.take(places), *own_duration
            )
            for rows in _bounded_slices(batch):
                names = quote_texts(batch["name"][rows])
                self._add_slices(
                    rank, tids[batch_rows][rows], begin[rows], end[rows], kind, names, args[rows]
                )

    def add_arrows(self) -> None:
        """Write the arrows, after all slices: viewers sort by time and keep the order of equal times."""
        self.file.write(bytes_of(self.arrows.flow_lines()))

    def _add_steps(self, rank: int, shown: ShownRows) -> None:
        """A lane for each source of steps."""
        table = shown.step_rows()
        for source in table["source"].unique().to_pylist():
            rows = table.filter(pc.equal(table["source"].cast(pa.string()), source))
            marks = pc.if_else(rows["open"].combine_chunks(), ' (open)"', '"')
            names = join_columns('"step ', rows["step"].combine_chunks(), marks)
            begin, end = (shown.clock.on_common_clock(rows[key].to_numpy()) for key in ("start_ns", "end_ns"))
            self._add_lanes(
                rank, f"steps ({source})", begin, end, "step", names, join_columns(f'"source":"{source}"')
            )

    def _add_waits(self, rank: int, shown: ShownRows, parts: CollectiveParts) -> None:
        """The rank's waits in collectives for the rank that arrives last."""
        waits = pc.fill_null(pc.greater(parts.table["wait_ns"], 0), False).to_numpy()
        kept = np.flatnonzero(waits & shown.shown_mask(parts.table))
        rows = parts.table.take(kept)
        begin = rows["arrival_ns"].to_numpy()
        last = pa.array(self.latest.latest_at(rows["instance"].to_numpy()))
        names = join_columns('"waits for rank ', last, '"')
        end = begin + rows["wait_ns"].to_numpy()
        self._add_lanes(
            rank, "collectives: wait", begin, end, "wait", names, parts.texts.take(pa.array(kept))
        )

    def _add_lanes(
        self, rank: int, title: str, begin: Int64, end: Int64, category: str, names: pa.Array, args: Any
    ) -> None:
        if not len(begin):
            return
        lane = slice_lanes(np.zeros(len(begin), np.int8), begin, end)
        titles = [title if n == 0 else f"{title} ({n + 1})" for n in range(int(lane.max()) + 1)]
        tids = np.array([self._thread_id(rank, lane_title) for lane_title in titles], np.int64)[lane]
        self._add_slices(rank, tids, begin, end, category, names, args)

    def _add_slices(
        self, rank: int, tids: Int64, begin: Int64, end: Int64, category: str, names: pa.Array, args: Any
    ) -> None:
        """Complete events, exact to the nanosecond."""
        self.slices += len(begin)
        lines = join_columns(
            f'{{"ph":"X","pid":{rank},"tid":', pa.array(tids),
            ',"ts":', as_microseconds(begin - self.begin_ns), ',"dur":', as_microseconds(end - begin),
            f',"cat":"{category}","name":', names, ',"args":{', args, "}}",
        )  # fmt: skip
        self.file.write(bytes_of(lines))

    def _thread_id(self, rank: int, name: str) -> int:
        tid = self.first_thread + self._threads
        self._threads += 1
        self._add_name("thread", {"pid": rank, "tid": tid}, name, self._threads)
        return tid

    def _add_name(self, what: str, ids: dict[str, int], name: str, place: int) -> None:
        """Metadata: the name of a process or thread, and its sort index."""
        for key, args in (("name", {"name": name}), ("sort_index", {"sort_index": place})):
            self.file.write(self._comma + b"\n" + event_line(ph="M", **ids, name=f"{what}_{key}", args=args))
            self._comma = b","


def _bounded_slices(batch: pa.RecordBatch) -> Iterator[slice]:
    """Slices of the rows such that their names have bounded length."""
    longest = pc.max(pc.binary_length(batch["name"].dictionary)).as_py() or 0
    rows = max(1, _MOST_BYTES // (longest + 1))
    return (slice(at, at + rows) for at in range(0, len(batch), rows))
