# SPDX-License-Identifier: Apache-2.0
"""The part of a rank that is shown: its rows by step, its clock, its threads in the viewer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.schema import KINDS
from cclbench.present.perfetto.lanes import slice_lanes
from cclbench.present.timeline import TimelineClock
from cclbench.record.rank import Rank

_PLACE: Final = ("device", "track", "side")
_TIME: Final = ("start_ns", "dur_ns")


class ShownThread(NamedTuple):
    """A stream or thread of a rank, and one of its lanes; sorted in display order."""

    on_host: bool
    device: int
    """-1 for the host, and if the trace does not state it."""
    track: int
    lane: int = 0

    def thread_name(self, *, device: bool) -> str:
        """The name in the viewer; `device` adds the device's number."""
        if self.on_host:
            name = f"thread {self.track}"
        else:
            # Profilers write -1 for a whole device.
            name = "all streams" if self.track == -1 else f"stream {self.track}"
            name += f", device {self.device}" if device and self.device >= 0 else ""
        return f"{name} ({self.lane + 1})" if self.lane else name


@dataclass(frozen=True, slots=True, eq=False)
class ShownRows:
    """The shown rows of a rank: all, or those of steps first <= n < last.

    A row belongs to the step it states; one without a step is shown if it begins in [begin, end), from the
    beginning of the first of these steps to the end of the last.
    """

    tables: Rank
    clock: TimelineClock
    first: int | None = None
    last: int | None = None
    begin: int | None = None
    end: int | None = None

    @classmethod
    def from_rank(
        cls, tables: Rank, clock: TimelineClock, steps: tuple[int | None, int | None] | None
    ) -> ShownRows | None:
        """The rank's rows of these steps; None if it has none of them."""
        if steps is None:
            return cls(tables, clock)
        first, last = (0 if steps[0] is None else steps[0]), (2**31 if steps[1] is None else steps[1])
        table = tables.steps()
        step = table["step"]
        table = table.filter(pc.and_(pc.greater_equal(step, first), pc.less(step, last)))
        if not len(table):
            return None
        bounds = pc.min(table["start_ns"]).as_py(), pc.max(table["end_ns"]).as_py()
        return cls(tables, clock, first, last, *bounds)

    def row_batches(self, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(kind, columns of the shown rows) in bounded batches, always in the same order."""
        needed = list(dict.fromkeys([*columns, "start_ns", "step"]))
        for kind in KINDS:
            for batch in self.tables.events([kind], needed):
                kept = batch if self.first is None else batch.filter(pa.array(self.shown_mask(batch)))
                if len(kept):
                    yield kind, kept.select(list(columns))

    def shown_mask(self, rows: pa.RecordBatch | pa.Table) -> Mask:
        """Mask of the rows that are shown, by their `step` and `start_ns`."""
        if self.first is None:
            return np.ones(len(rows), np.bool_)
        step = pc.fill_null(rows["step"], -1).to_numpy(zero_copy_only=False)
        start = rows["start_ns"].to_numpy()
        inside = (start >= self.begin) & (start < self.end)
        return np.asarray(np.where(step < 0, inside, (step >= self.first) & (step < self.last)))

    def step_rows(self) -> pa.Table:
        """The shown rows of `schema.STEPS`."""
        table = self.tables.steps()
        table = table.filter(pc.is_valid(table["step"]))
        return table.filter(pa.array(self.shown_mask(table)))

    def earliest_ns(self) -> int | None:
        """The earliest begin of the shown rows on the common clock; None without any."""
        starts = [batch["start_ns"].to_numpy().min() for _, batch in self.row_batches(["start_ns"])]
        starts += self.step_rows()["start_ns"].to_pylist()
        return int(self.clock.on_common_clock(np.array([min(starts)], np.int64))[0]) if starts else None

    def thread_places(self) -> tuple[list[ShownThread], npt.NDArray[np.int32]]:
        """The threads of the rows, and the index of each row's thread, in the order of `row_batches`."""
        tracks: dict[ShownThread, int] = {}
        track_numbers, starts, ends = [], [], []
        for _, batch in self.row_batches([*_PLACE, *_TIME]):
            begin, end = self.common_times(batch)
            starts.append(begin)
            ends.append(end)
            track_numbers.append(_track_numbers(batch, tracks))
        if not track_numbers:
            return [], np.empty(0, np.int32)
        track = np.concatenate(track_numbers)
        lane = slice_lanes(track, np.concatenate(starts), np.concatenate(ends))
        pairs, place = np.unique(track.astype(np.int64) << 32 | lane, return_inverse=True)
        by_number = list(tracks)
        threads = [by_number[pair >> 32]._replace(lane=pair & 0xFFFFFFFF) for pair in pairs.tolist()]
        order = sorted(range(len(threads)), key=threads.__getitem__)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return [threads[n] for n in order], rank[place]

    def common_times(self, rows: pa.RecordBatch) -> tuple[Int64, Int64]:
        """Begin and end of rows on the common clock; both are converted, so that nesting is preserved."""
        start, dur = rows["start_ns"].to_numpy(), rows["dur_ns"].to_numpy()
        return self.clock.on_common_clock(start), self.clock.on_common_clock(start + dur)


def _track_numbers(batch: pa.RecordBatch, by_thread: dict[ShownThread, int]) -> npt.NDArray[np.int32]:
    """The number of each row's stream or thread; new ones are added to `by_thread`."""
    on_host = pc.equal(batch["side"].cast(pa.string()), "host").to_numpy(zero_copy_only=False)
    device = np.where(on_host, -1, pc.fill_null(batch["device"], -1).to_numpy(zero_copy_only=False))
    tracks, track = np.unique(batch["track"].to_numpy(), return_inverse=True)
    devices, device = np.unique(device, return_inverse=True)
    codes, place = np.unique((track * len(devices) + device) * 2 + on_host, return_inverse=True)
    numbers = []
    for code in codes.tolist():
        (track_at, device_at), host = divmod(code >> 1, len(devices)), bool(code & 1)
        thread = ShownThread(host, int(devices[device_at]), int(tracks[track_at]))
        numbers.append(by_thread.setdefault(thread, len(by_thread)))
    return np.array(numbers, np.int32)[place]
