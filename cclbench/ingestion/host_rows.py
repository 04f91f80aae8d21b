# SPDX-License-Identifier: Apache-2.0
"""The host's rows that hold a launch, read from a rank's events: operators' calls, ranges around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cclbench.formats import Names
from cclbench.ingestion.part import ROW_GROUP
from cclbench.intervals import Index, Int64, Mask
from cclbench.normalize.operators import Ranges, joined
from cclbench.normalize.phases import NO_NAMED, Named

ARGUMENTS: Final = ("shapes", "dtypes", "strides", "values")
_SPANS: Final = ("track", "start_ns", "dur_ns", "name")
_COLUMNS: Final = {
    **dict.fromkeys(("id", "track", "start_ns", "end_ns", "sequence"), np.int64),
    "in_backward": np.bool_,
    **dict.fromkeys(("name", *ARGUMENTS), np.int32),
}


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts by code, −1 for none; shape (calls,)."""

    codes: Index
    words: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Calls of operators, in the order of their ranges; arrays of shape (calls,)."""

    id: Int64
    named: Named
    sequence: Int64
    """Autograd's number, −1 for none."""
    in_backward: Mask
    """Which name their forward op's thread."""
    arguments: Mapping[str, Texts]
    """By column."""


def calls(folder: Path, launched: Mapping[int, Int64] | None, stated: Int64) -> Calls:
    """The calls that launched something, by time or as `stated` by id; all of a rank without a device.

    Calls without an id are numbered after those that have one.  `launched` are the instants of each thread's
    launches, sorted.
    """
    words = {column: Names() for column in ("name", *ARGUMENTS)}
    found: dict[str, list[npt.NDArray[Any]]] = {name: [np.empty(0, kind)] for name, kind in _COLUMNS.items()}
    seen = 0
    for batch in _batches(folder, "op", (*_SPANS, "operator", "sequence", "forward_thread", *ARGUMENTS)):
        track, start, duration = (batch[name].to_numpy() for name in _SPANS[:3])
        # Calls without an id are told apart by a negative one until all ids are known.
        unknown = batch["operator"].is_null().to_numpy(zero_copy_only=False)
        number = np.where(
            unknown, -1 - np.arange(seen, seen + len(batch)), batch["operator"].fill_null(0).to_numpy()
        )
        seen += len(batch)
        of_batch = {
            "id": number,
            "track": track,
            "start_ns": start,
            "end_ns": start + duration,
            "sequence": batch["sequence"].fill_null(-1).to_numpy(),
            "in_backward": batch["forward_thread"].is_valid().to_numpy(zero_copy_only=False),
            **{column: _coded(batch[column], names) for column, names in words.items()},
        }
        kept = np.ones(len(batch), np.bool_)
        if launched is not None:
            kept = _holding(track, start, start + duration, launched) | np.isin(number, stated)
        for column, values in of_batch.items():
            found[column].append(values[kept].astype(_COLUMNS[column], copy=False))
    whole = {name: np.concatenate(found.pop(name)) for name in _COLUMNS}
    without = whole["id"] < 0
    last = max(whole["id"].max(initial=-1), stated.max(initial=-1))
    whole["id"][without] = last - whole["id"][without]
    order = Ranges.order(whole["track"], whole["start_ns"], whole["end_ns"], whole["id"])
    for column in _COLUMNS:
        whole[column] = whole[column][order]
    ranges = Ranges(whole["track"], whole["start_ns"], whole["end_ns"])
    return Calls(
        whole["id"],
        Named(ranges, whole["name"], list(words["name"])),
        whole["sequence"],
        whole["in_backward"],
        {column: Texts(whole[column], list(words[column])) for column in ARGUMENTS},
    )


def named(
    folder: Path, kind: str, launched: Mapping[int, Int64] | None, wanted: Callable[[str], bool]
) -> Named:
    """The host's rows of a kind whose name is wanted, those that hold a launch, in order."""
    names = Names()
    found = [np.empty((4, 0), np.int64)]
    for batch in _batches(folder, kind, _SPANS):
        words = batch["name"].dictionary.to_pylist()
        own = np.array([wanted(word) for word in words], np.bool_)[batch["name"].indices.to_numpy()]
        rows = batch.filter(pa.array(own))
        track, start, duration = (rows[name].to_numpy() for name in _SPANS[:3])
        edges = np.array([track, start, start + duration, _coded(rows["name"], names)])
        if launched is not None:
            edges = edges[:, _holding(edges[0], edges[1], edges[2], launched)]
        found.append(edges)
    track, start, end, name = np.concatenate(found, axis=1)
    order = Ranges.order(track, start, end, np.arange(len(track)))
    if not len(order):
        return NO_NAMED
    return Named(Ranges(track[order], start[order], end[order]), name[order].astype(np.int32), list(names))


def both(one: Named, other: Named) -> Named:
    """The ranges of both, in order."""
    ranges, order = joined(one.ranges, other.ranges)
    name = np.concatenate([one.name, other.name + len(one.names)])
    return Named(ranges, name[order], [*one.names, *other.names])


def _batches(folder: Path, kind: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The host's rows of a kind, file by file, on this thread: each thread of Arrow's keeps memory."""
    for path in sorted(folder.glob(f"{kind}-[0-9][0-9][0-9].parquet")):
        with pq.ParquetFile(path) as file:
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
