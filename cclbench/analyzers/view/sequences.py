# SPDX-License-Identifier: Apache-2.0
"""Sequences of successive kernels on one stream, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.columns import has_word, row_spans, word_codes
from cclbench.analyzers.view.launches import SINCE_EVER, devices_of, previous_ends, stream_numbers
from cclbench.analyzers.view.rank_view import RankView
from cclbench.classify import base_name
from cclbench.ground.intervals import Int64, Mask
from cclbench.normalize.device_rows import DEVICE_WORK

SUMS: Final = ("count", "ns", "gap_ns")
_COPY: Final = 0
"""Code of copies, memsets and graphs, which end a sequence; kernel names count from 1."""


@dataclass(frozen=True, slots=True, eq=False)
class RankSequences:
    """Sequences of successive kernels of one rank in its windows.

    `table` has a row per distinct sequence: base names in columns 0, 1, ..., number of occurrences (`count`,
    which may overlap), total duration of kernels in any occurrence (`ns`) and of the idle gaps between them
    (`gap_ns`), each kernel and gap once.
    """

    table: pa.Table
    kernels: int
    kernel_ns: int
    windows: int
    policy: str


@dataclass(frozen=True, slots=True, eq=False)
class _StreamRows:
    """Device events by stream, then start; arrays of shape (rows,), times in ns."""

    name: Int64
    durations: Int64
    gap: Int64
    """From the end of the stream's earlier events to the event's start."""
    run: Int64
    """Number of the uninterrupted series of kernels on one stream in one window."""
    compute: Mask
    """Compute kernels."""
    names: Sequence[str]
    """Base names by code."""


def rank_sequences(rank: RankView, length: int) -> RankSequences:
    """All sequences of `length` ≥ 2 successive kernels, each within a window and on one stream.

    A copy, memset or graph on the stream ends a sequence; sequences of communication alone are left out,
    since they cannot be fused. `NotApplicable` without kernels.
    """
    rows = _stream_rows(rank)
    kernel = rows.name != _COPY
    last = max(len(rows.run) - length + 1, 0)
    in_one_run = rows.run[:last] == rows.run[len(rows.run) - last :]
    any_compute = _range_sums(rows.compute.astype(np.int64), np.arange(last), np.arange(last) + length) > 0
    start = np.flatnonzero(in_one_run & any_compute)
    distinct, first, sequence = np.unique(
        _windows_of(rows.name, length, len(rows.names))[start], return_index=True, return_inverse=True
    )
    order = np.argsort(sequence, kind="stable")
    start, sequence, first = start[order], sequence[order], start[first]
    # the part that an overlapping occurrence of the same sequence already counted is skipped
    repeats = np.append(False, sequence[1:] == sequence[:-1])[: len(start)]
    counted_until = np.where(repeats, np.append(0, start[:-1])[: len(start)] + length, 0)
    sums = {name: np.zeros(len(distinct), np.int64) for name in SUMS}
    np.add.at(sums["count"], sequence, 1)
    np.add.at(
        sums["ns"], sequence, _range_sums(rows.durations, np.maximum(start, counted_until), start + length)
    )
    np.add.at(
        sums["gap_ns"], sequence, _range_sums(rows.gap, np.maximum(start + 1, counted_until), start + length)
    )
    words = pa.array(rows.names, pa.string())
    name_columns = {str(n): words.take(pa.array(rows.name[first + n])) for n in range(length)}
    return RankSequences(
        pa.table(name_columns | {name: pa.array(column) for name, column in sums.items()}),
        int(kernel.sum()),
        int(rows.durations[kernel].sum()),
        len(rank.windows),
        rank.windows.policy,
    )


def merge_sequences(tables: Sequence[pa.Table]) -> pa.Table:
    """The ranks' tables merged, with a row per distinct sequence."""
    names = [name for name in tables[0].column_names if name not in SUMS]
    sums = pa.concat_tables(tables).group_by(names, use_threads=False)
    grouped = sums.aggregate([(name, "sum") for name in SUMS])
    return grouped.select([*names, *(f"{name}_sum" for name in SUMS)]).rename_columns([*names, *SUMS])


def _stream_rows(rank: RankView) -> _StreamRows:
    rank.needs_accelerator("it runs operators, not kernels")
    numbers: dict[str, int] = {}
    empty = np.empty(0, np.int64)
    parts = [(empty, empty, empty, empty, np.empty(0, np.int16), empty, np.empty(0, np.bool_))]
    columns = ("name", "kind", "category", "track", "device")
    for batch, window in rank.begun(DEVICE_WORK, *columns):
        name, words = word_codes(batch, "name")
        used = np.unique(name).tolist()
        code = np.zeros(len(words), np.int64)
        code[used] = [numbers.setdefault(base_name(words[n] or ""), len(numbers) + 1) for n in used]
        is_kernel = has_word(batch, "kind", "kernel")
        starts, ends = row_spans(batch)
        codes = np.where(is_kernel, code[name], _COPY)
        compute = is_kernel & ~has_word(batch, "category", "communication")
        parts.append((codes, starts, ends, batch["track"].to_numpy(), devices_of(batch), window, compute))
    name, starts, ends, track, device, window, compute = map(np.concatenate, zip(*parts, strict=True))
    if not (name != _COPY).any():
        raise NotApplicable("the rank runs no kernels in the window")
    stream, _ = stream_numbers(track, device)
    order = np.lexsort((ends, starts, stream))
    stream = stream[order]
    name, starts, ends, window = (codes[order] for codes in (name, starts, ends, window))
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
    """Code of each sequence of `length` names, equal for equal sequences.

    Shape (rows − length + 1,). Extends the sequences by one name at a time, and renumbers the pairs of code
    and next name.
    """
    number = name
    for further in range(1, length):
        pairs = number[:-1] * names + name[further:]
        number = np.unique(pairs, return_inverse=True)[1]
    return number


def _range_sums(amounts: Int64, first: Int64, last: Int64) -> Int64:
    """Σ amounts[first[i]:last[i]] for each i."""
    cumulative = np.append(0, np.cumsum(amounts))
    return np.asarray(cumulative[last] - cumulative[first], np.int64)
