# SPDX-License-Identifier: Apache-2.0
"""The host's rows that hold a launch, from a rank's events: operators' calls, and what is around them.

They are in order on disk, and memory holds those of a stretch of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.disk_columns import DiskColumn, disk_array, pieces, release
from cclbench.formats import Names
from cclbench.ingestion.part import ROW_GROUP
from cclbench.intervals import Index, Int64, Mask
from cclbench.normalize.operators import Ranges
from cclbench.normalize.phases import Named, Vocabulary, among
from cclbench.record.files import parquet_file

ARGUMENTS: Final = ("shapes", "dtypes", "strides", "values")
_SPANS: Final = ("track", "start_ns", "dur_ns", "name")
_RANGES: Final = {**dict.fromkeys(("track", "start_ns", "end_ns"), np.int64), "name": np.int32}
_CALLS: Final = {
    **_RANGES,
    "id": np.int64,
    "sequence": np.int64,
    "in_backward": np.bool_,
    **dict.fromkeys(ARGUMENTS, np.int32),
}
Columns = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts by code, −1 for none, shape (rows,)."""

    codes: Index
    words: Sequence[str]

    def array(self, kind: pa.DataType, rows: slice = slice(None)) -> pa.DictionaryArray:
        """Those rows' texts; `kind` is of the indices."""
        codes = pa.array(self.codes[rows], mask=self.codes[rows] < 0)
        return pa.DictionaryArray.from_arrays(codes.cast(kind), pa.array(list(self.words), pa.string()))


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """Rows of the host as they are read: columns of shape (rows,), and the words of those that are codes."""

    columns: Mapping[str, DiskColumn[Any]]
    words: Mapping[str, Sequence[str]]

    def release(self) -> None:
        """Let go of what was read."""
        for column in self.columns.values():
            column.release()


@dataclass(frozen=True, eq=False)
class Stretch:
    """The rows of a stretch of time, and of those that began before what lasts into it or holds what does."""

    rows: HostRows
    at: Int64
    """Where they stand among all rows, in order, shape (ranges,)."""
    since: int
    """When it begins, ns."""

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of them."""
        return np.asarray(self.rows.columns[name][self.at])

    @cached_property
    def ranges(self) -> Ranges:
        """Their times."""
        return Ranges(self.column("track"), self.column("start_ns"), self.column("end_ns"))

    @cached_property
    def named(self) -> Named:
        """Their times and names."""
        return Named(self.ranges, self.column("name"), self.rows.names)

    @cached_property
    def own(self) -> Mask:
        """Which of them begin in it."""
        return np.asarray(self.ranges.start_ns >= self.since)


class HostRows:
    """Rows of the host in the order of `Ranges.order`, columns of shape (rows,), by stretches of time."""

    def __init__(self, read: Read, cuts: Int64, last: int = 0) -> None:
        """`cuts` are the instants between stretches; rows whose id is negative get one after the `last`."""
        self.words = read.words
        self.names = Vocabulary(read.words["name"])
        self._cuts = cuts
        found = {name: column.values() for name, column in read.columns.items()}
        count = len(found["track"])
        self.columns: Columns = {name: disk_array(count, values.dtype.type) for name, values in found.items()}
        self.names_used = np.zeros(len(self.names), np.bool_)
        """Which names occur."""
        stretch = np.concatenate(
            [np.empty(0, np.uint16), *(self.stretch_of(found["start_ns"][here]) for here in pieces(count))]
        )
        self.tracks = _distinct(found["track"])
        counts = np.zeros((len(self.tracks), self.stretches), np.int64)
        for here in pieces(count, read):
            np.add.at(counts, (np.searchsorted(self.tracks, found["track"][here]), stretch[here]), 1)
        self._ends = np.cumsum(counts).reshape(counts.shape)
        self._begins = self._ends - counts
        order = np.argsort(stretch, kind="stable") if self.stretches > 1 else np.arange(count)
        until = np.cumsum(counts.sum(axis=0))
        for number, here in enumerate(map(slice, until - counts.sum(axis=0), until)):
            own = order[here]
            self._put({name: values[own] for name, values in found.items()}, number, own, last)
            read.release()
            self.release()
        self._open: dict[int, Int64] = {0: np.empty(0, np.int64)}

    def _put(self, rows: dict[str, npt.NDArray[Any]], stretch: int, number: Int64, last: int) -> None:
        """Write the rows of a stretch where they belong; `number` is where they were read."""
        if "id" in rows:
            number = rows["id"] = np.where(rows["id"] < 0, last - rows["id"], rows["id"])
        order = Ranges.order(rows["track"], rows["start_ns"], rows["end_ns"], number)
        place = self._own(stretch)
        for name, values in rows.items():
            self.columns[name][place] = values[order]
        self.names_used[rows["name"]] = True

    def __len__(self) -> int:
        return len(self.columns["track"])

    @property
    def stretches(self) -> int:
        """How many there are."""
        return len(self._cuts) + 1

    def stretch_of(self, at: Int64) -> npt.NDArray[np.uint16]:
        """Number of the stretch that each instant is in, shape of `at`."""
        return np.searchsorted(self._cuts, at, side="right").astype(np.uint16)

    def stretch(self, number: int) -> Stretch:
        """One of them; those before it were given to `go_on` in turn."""
        since = int(self._cuts[number - 1]) if number else np.iinfo(np.int64).min
        return Stretch(self, np.sort(np.concatenate([self._open[number], self._own(number)])), since)

    def go_on(self, one: Stretch, number: int, *, with_parents: bool = False) -> None:
        """Note which rows of a stretch last into the next, and, where that is asked for, what holds those."""
        if number + 1 == self.stretches or number + 1 in self._open:
            return
        held = one.ranges.end_ns > self._cuts[number]
        above = np.flatnonzero(held if with_parents else [])
        parents = np.append(one.ranges.parents(), -1) if len(above) else above
        while len(above):
            above = np.unique(parents[above])
            above = above[(above >= 0) & ~held[above]]
            held[above] = True
        self._open[number + 1] = one.at[held]

    def _own(self, stretch: int) -> Int64:
        """Where the rows that begin in a stretch stand."""
        first, until = self._begins[:, stretch], self._ends[:, stretch]
        length = until - first
        before = np.cumsum(length) - length
        return np.repeat(first - before, length) + np.arange(length.sum())

    def release(self) -> None:
        """Let go of what was read."""
        release(*self.columns.values())


def read_calls(folder: Path, launched: Mapping[int, Int64] | None, stated: Int64) -> tuple[Read, int]:
    """The calls that launched something, by time or as `stated` by id; all of a rank without a device.

    Ids of calls that have none are negative, and the largest id comes with the calls.  `launched` are the
    instants of each thread's launches, sorted; so is `stated`.
    """
    words = {column: Names() for column in ("name", *ARGUMENTS)}
    columns: dict[str, DiskColumn[Any]] = {name: DiskColumn(kind) for name, kind in _CALLS.items()}
    last = int(stated.max(initial=-1))
    seen = 0
    for batch in _batches(folder, "op", (*_SPANS, "operator", "sequence", "forward_thread", *ARGUMENTS)):
        track, start, duration = (batch[name].to_numpy() for name in _SPANS[:3])
        unknown = batch["operator"].is_null().to_numpy(zero_copy_only=False)
        number = np.where(
            unknown, -1 - np.arange(seen, seen + len(batch)), batch["operator"].fill_null(0).to_numpy()
        )
        seen += len(batch)
        of_batch = {
            "track": track,
            "start_ns": start,
            "end_ns": start + duration,
            "id": number,
            "sequence": batch["sequence"].fill_null(-1).to_numpy(),
            "in_backward": batch["forward_thread"].is_valid().to_numpy(zero_copy_only=False),
            **{column: _coded(batch[column], names) for column, names in words.items()},
        }
        kept = np.ones(len(batch), np.bool_)
        if launched is not None:
            kept = _holding(track, start, start + duration, launched) | among(number, stated)
        last = max(last, int(number[kept].max(initial=-1)))
        for column, values in of_batch.items():
            columns[column].append(values[kept])
    return Read(columns, {name: list(own) for name, own in words.items()}), last


def read_named(
    folder: Path, kind: str, launched: Mapping[int, Int64] | None, wanted: Callable[[str], bool]
) -> Read:
    """The host's rows of a kind whose name is wanted, those that hold a launch."""
    names = Names()
    columns: dict[str, DiskColumn[Any]] = {name: DiskColumn(kind) for name, kind in _RANGES.items()}
    for batch in _batches(folder, kind, _SPANS):
        words = batch["name"].dictionary.to_pylist()
        own = np.array([wanted(word) for word in words], np.bool_)[batch["name"].indices.to_numpy()]
        rows = batch.filter(pa.array(own))
        track, start, duration = (rows[name].to_numpy() for name in _SPANS[:3])
        of_batch = {"track": track, "start_ns": start, "end_ns": start + duration}
        of_batch["name"] = _coded(rows["name"], names)
        kept = slice(None) if launched is None else _holding(track, start, start + duration, launched)
        for column, values in of_batch.items():
            columns[column].append(values[kept])
    return Read(columns, {"name": list(names)})


def _distinct(column: Int64) -> Int64:
    """The values of a column, each once, sorted."""
    found = np.empty(0, np.int64)
    for here in pieces(len(column)):
        found = np.union1d(found, column[here])
    return found


def _batches(folder: Path, kind: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The host's rows of a kind, file by file, on this thread: each thread of Arrow's keeps memory."""
    for path in sorted(folder.glob(f"{kind}-[0-9][0-9][0-9].parquet")):
        with parquet_file(path) as file:
            yield from file.iter_batches(ROW_GROUP, columns=list(columns), use_threads=False)


def _coded(column: pa.DictionaryArray, names: Names) -> Index:
    """The code of each text, −1 for none."""
    codes = np.array([*(names[word] for word in column.dictionary.to_pylist()), -1], np.int32)
    return np.asarray(codes[column.indices.fill_null(-1).to_numpy()])


def _holding(track: Int64, start: Int64, end: Int64, launched: Mapping[int, Int64]) -> Mask:
    """Which ranges hold a launch of their thread, shape (ranges,)."""
    holds = np.zeros(len(start), np.bool_)
    for thread, at in launched.items():
        own = track == thread
        holds[own] = np.searchsorted(at, start[own]) < np.searchsorted(at, end[own])
    return holds
