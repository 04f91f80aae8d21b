# SPDX-License-Identifier: Apache-2.0
"""Rules for plausible times in one capture, and for plausible sizes in a duration.

A capture has no day without a row: device rows more than a day from most others have times of another base
(0, a damaged digit), and so have host rows as far from those.  Work does not begin before the call that
launched it, except for the difference of the host's and device's clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.intervals import Int64, Mask
from cclbench.record.files import parquet_file

NO_LAUNCH: Final = 1 << 62
"""Launch time of rows whose launch is unknown."""
_DAY_NS: Final = 86_400 * 10**9
_EARLY_NS: Final = 10**8
# Profilers convert the device's clock to the host's to some µs: in 20 real captures nothing begins early.
_CLOCKS_NS: Final = 10**6
_LEAST_NS: Final = 1000
_MOST_BYTES_PER_NS: Final = 10**5


class TimedRows(NamedTuple):
    """Times of rows and of the calls that launched them, ns, shape (rows,); the capture's `days`."""

    start: Int64
    duration: Int64
    launch: Int64
    days: range


RULES: Final[Mapping[str, Callable[[TimedRows], Mask]]] = {
    "of negative duration": lambda rows: rows.duration < 0,
    "longer than a day": lambda rows: rows.duration > _DAY_NS,
    "more than a day from most of the capture's": lambda rows: is_outside_days(rows.start, rows.days),
    # CUPTI gives 0 for times that it could not collect; clocks of host and device differ by far less.
    "begun more than 100 ms before the call that launched them": lambda rows: (
        (rows.launch < NO_LAUNCH) & (rows.start < rows.launch - _EARLY_NS)
    ),
}
"""Which rows are set aside, by the words of the message."""
EARLY: Final = (
    "begun more than 1 ms before the call that launched them: host and device have different clocks"
)
"""Words of the message for rows that are kept."""
OVERSIZED: Final = "sizes that no memory or link moves in that time: over 100 TB/s"


def capture_days(starts: Iterable[Int64]) -> range:
    """The series of successive days with the most rows, and the day before and after it.

    Days of 86,400 s from time 0; an empty range if there are no rows.
    """
    rows: Counter[int] = Counter()
    for start in starts:
        days, counts = np.unique(start // _DAY_NS, return_counts=True)
        rows.update(dict(zip(days.tolist(), counts.tolist(), strict=True)))
    clusters: list[list[int]] = []
    for day in sorted(rows):
        if not clusters or day - clusters[-1][-1] > 1:
            clusters.append([])
        clusters[-1].append(day)
    if not clusters:
        return range(0)
    most = max(clusters, key=lambda days: sum(rows[day] for day in days))
    return range(most[0] - 1, most[-1] + 2)


def is_outside_days(start: Int64, days: range) -> Mask:
    """Which times lie outside `days`, shape of `start`."""
    return np.asarray((start < days.start * _DAY_NS) | (start >= days.stop * _DAY_NS))


def is_plausible_range(start_ns: int, end_ns: int, days: range) -> bool:
    """Whether a host range lasts at most a day and begins within the capture's `days`."""
    return end_ns - start_ns <= _DAY_NS and start_ns // _DAY_NS in days


def begins_before_launch(rows: TimedRows) -> Mask:
    """Which rows begin before their launch by more than clocks may differ, shape (rows,)."""
    return np.asarray((rows.launch < NO_LAUNCH) & (rows.start < rows.launch - _CLOCKS_NS))


def start_times(files: Iterable[Path]) -> Iterator[Int64]:
    """The column `start_ns` of files of events, batch by batch."""
    for path in files:
        with parquet_file(path) as file:
            for batch in file.iter_batches(columns=["start_ns"], use_threads=False):
                yield batch["start_ns"].to_numpy()


def implausible_host_rows(files: Iterable[Path], days: range) -> Counter[tuple[str, str]]:
    """Number of host rows that break a rule other than those on launches, by kind and rule."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in files:
        kind = path.name.partition("-")[0]
        with parquet_file(path) as file:
            for batch in file.iter_batches(columns=["start_ns", "dur_ns"], use_threads=False):
                start, duration = (batch[name].to_numpy() for name in ("start_ns", "dur_ns"))
                rows = TimedRows(start, duration, np.full(len(start), NO_LAUNCH), days)
                counts.update({(kind, words): count for words, count in broken_rules(rows)[1].items()})
    return counts


def broken_rules(rows: TimedRows) -> tuple[Mask, dict[str, int]]:
    """Which rows satisfy all `RULES`, shape (rows,); number of the others, by the first rule they break."""
    kept, counts = np.ones(len(rows.start), np.bool_), {}
    for words, breaks in RULES.items():
        broken = kept & breaks(rows)
        if broken.any():
            counts[words] = int(broken.sum())
            kept &= ~broken
    return kept, counts


def without_oversized(table: pa.Table, duration: Int64, *columns: str) -> tuple[pa.Table, int]:
    """The rows without sizes too large for their `duration`, ns; and the number of rows that had one.

    Durations below 1 µs count as 1 µs, the resolution of some traces.
    """
    most = pa.array(np.maximum(duration, _LEAST_NS) * _MOST_BYTES_PER_NS)
    over = [pc.fill_null(pc.greater(table[column], most), False) for column in columns]
    any_over = over[0] if len(over) == 1 else pc.or_(*over)
    count = pc.sum(any_over).as_py() or 0
    for column in columns if count else ():
        at, kind = table.column_names.index(column), table.schema.field(column)
        table = table.set_column(at, kind, pc.if_else(any_over, pa.scalar(None, kind.type), table[column]))
    return table, count
