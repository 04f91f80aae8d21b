# SPDX-License-Identifier: Apache-2.0
"""Which kernels follow one another: all runs of successive kernels on one stream, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.columns import is_category, row_spans, word_codes
from cclbench.analyzers.view.launches import SINCE_EVER, devices_of, previous_ends, stream_numbers
from cclbench.analyzers.view.rank_view import RankView
from cclbench.classify import base_name
from cclbench.ground.intervals import Int64, Mask
from cclbench.normalize.device_rows import DEVICE_WORK

SUMS: Final = ("count", "ns", "gap_ns")
_COPY: Final = 0
"""Code of copies, memsets and graphs, which end a run; kernels' names count from 1 on."""


@dataclass(frozen=True, slots=True, eq=False)
class RankSequences:
    """The runs of successive kernels of one rank, in its windows.

    `table` has a row for each distinct run: its base names in columns 0, 1, ..., how often it occurs
    (`count`, occurrences may overlap), summed duration of the kernels that are in any occurrence (`ns`), and
    of the gaps between them (`gap_ns`), in which the stream runs nothing; each kernel and each gap once.
    """

    table: pa.Table
    kernels: int
    kernel_ns: int
    windows: int
    policy: str


@dataclass(frozen=True, slots=True, eq=False)
class _StreamRows:
    """What a rank's streams ran, stream by stream in order of start; arrays of shape (rows,), times in ns."""

    name: Int64
    durations: Int64
    gap: Int64
    """From the end of all that the stream ran before to the row's start."""
    run: Int64
    """Number of the stretch of kernels on one stream in one window."""
    compute: Mask
    """Kernels that are not communication."""
    names: Sequence[str]
    """Base names by their number."""


def rank_sequences(rank: RankView, length: int) -> RankSequences:
    """All runs of that many successive kernels, `length` ≥ 2, each within a window and on one stream.

    A copy, memset or graph on the stream ends a run; runs of communication alone are left out, since nobody
    fuses them.  Not applicable where the rank ran no kernels.
    """
    rows = _stream_rows(rank)
    kernel = rows.name != _COPY
    last = max(len(rows.run) - length + 1, 0)
    whole = rows.run[:last] == rows.run[len(rows.run) - last :]
    any_compute = _range_sums(rows.compute.astype(np.int64), np.arange(last), np.arange(last) + length) > 0
    at = np.flatnonzero(whole & any_compute)
    distinct, first, which = np.unique(
        _windows_of(rows.name, length, len(rows.names))[at], return_index=True, return_inverse=True
    )
    order = np.argsort(which, kind="stable")
    at, which, first = at[order], which[order], at[first]
    # What the occurrence before holds already, where it is of the same names and overlaps, counts once.
    again = np.append(False, which[1:] == which[:-1])[: len(at)]
    held = np.where(again, np.append(0, at[:-1])[: len(at)] + length, 0)
    sums = {name: np.zeros(len(distinct), np.int64) for name in SUMS}
    np.add.at(sums["count"], which, 1)
    np.add.at(sums["ns"], which, _range_sums(rows.durations, np.maximum(at, held), at + length))
    np.add.at(sums["gap_ns"], which, _range_sums(rows.gap, np.maximum(at + 1, held), at + length))
    words = pa.array(rows.names, pa.string())
    named = {str(n): words.take(pa.array(rows.name[first + n])) for n in range(length)}
    return RankSequences(
        pa.table(named | {name: pa.array(column) for name, column in sums.items()}),
        int(kernel.sum()),
        int(rows.durations[kernel].sum()),
        len(rank.windows),
        rank.windows.policy,
    )


def merge_sequences(tables: Sequence[pa.Table]) -> pa.Table:
    """The ranks' tables as one, with a row for each distinct run."""
    names = [name for name in tables[0].column_names if name not in SUMS]
    sums = pa.concat_tables(tables).group_by(names, use_threads=False)
    found = sums.aggregate([(name, "sum") for name in SUMS])
    return found.select([*names, *(f"{name}_sum" for name in SUMS)]).rename_columns([*names, *SUMS])


def _stream_rows(rank: RankView) -> _StreamRows:
    rank.needs_accelerator("it runs ops, no kernels")
    numbers: dict[str, int] = {}
    empty = np.empty(0, np.int64)
    parts = [(empty, empty, empty, empty, np.empty(0, np.int16), empty, np.empty(0, np.bool_))]
    columns = ("name", "kind", "category", "track", "device")
    for batch, window in rank.begun(DEVICE_WORK, *columns):
        name, words = word_codes(batch, "name")
        kind, kinds = word_codes(batch, "kind")
        used = np.unique(name).tolist()
        code = np.zeros(len(words), np.int64)
        code[used] = [numbers.setdefault(base_name(words[n] or ""), len(numbers) + 1) for n in used]
        is_kernel = np.array([word == "kernel" for word in kinds], np.bool_)[kind]
        starts, ends = row_spans(batch)
        own = np.where(is_kernel, code[name], _COPY)
        compute = is_kernel & ~is_category(batch, "communication")
        parts.append((own, starts, ends, batch["track"].to_numpy(), devices_of(batch), window, compute))
    name, starts, ends, track, device, window, compute = map(np.concatenate, zip(*parts, strict=True))
    if not (name != _COPY).any():
        raise NotApplicable("the rank ran no kernels in the window")
    stream, _ = stream_numbers(track, device)
    order = np.lexsort((ends, starts, stream))
    stream = stream[order]
    name, starts, ends, window = (own[order] for own in (name, starts, ends, window))
    copy = name == _COPY
    begins = (stream[1:] != stream[:-1]) | (window[1:] != window[:-1]) | copy[1:] | copy[:-1]
    free = previous_ends(ends, stream)
    return _StreamRows(
        name=name,
        durations=ends - starts,
        gap=np.where(free == SINCE_EVER, 0, np.maximum(starts - free, 0)),
        run=np.append(0, np.cumsum(begins)),
        compute=compute[order],
        names=["", *numbers],
    )


def _windows_of(name: Int64, length: int, names: int) -> Int64:
    """A number for the names of `length` rows from each on, the same for the same.

    Of shape (rows − length + 1,).  A row longer each time: the pair of the number so far and the next name is
    numbered anew.
    """
    number = name
    for further in range(1, length):
        pairs = number[:-1] * names + name[further:]
        number = np.unique(pairs, return_inverse=True)[1]
    return number


def _range_sums(amounts: Int64, first: Int64, last: Int64) -> Int64:
    """Σ amounts[first[i]:last[i]] of each i."""
    before = np.append(0, np.cumsum(amounts))
    return np.asarray(before[last] - before[first], np.int64)
