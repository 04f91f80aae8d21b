# SPDX-License-Identifier: Apache-2.0
"""Work of a rank with an accelerator: device events by the operator call that each belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import has_word, row_spans, short_codes, vocabulary_places
from cclbench.analyzers.view.operator_calls import Float64, OperatorCalls, WorkKind, costs_of, ids_of
from cclbench.analyzers.view.works import WorkRows, Works
from cclbench.ground import intervals
from cclbench.ground.intervals import Index, Int64, begins
from cclbench.ground.schema import CATEGORIES, EVENTS, PHASES
from cclbench.normalize.device_rows import DEVICE_WORK
from cclbench.operators.call import Call

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

NOT_LINKED: Final = "no operator call is linked to it"
NO_CALLS: Final = "the trace records no operator calls"
_ROW: Final = (
    "kind",
    "operator",
    "name",
    "category",
    "phase",
    "module",
    "program",
    "flops",
    "hbm_bytes",
    "awaited_ns",
)
_OTHER: Final = CATEGORIES.index("other")
_COMMUNICATION: Final = CATEGORIES.index("communication")


def device_works(rank: RankView) -> Works:
    """Work on a rank's device that begins in its windows."""
    calls = OperatorCalls(rank)
    rows = _device_rows(rank)
    starts, ends = row_spans(rows)
    awaited = rows["awaited_ns"].fill_null(-1).to_numpy()
    on_core = awaited < 0
    ns = np.where(on_core, ends - starts, awaited)
    name, names = short_codes(rows, "name")
    category = vocabulary_places(rows, "category", CATEGORIES, _OTHER).astype(np.int32)
    computes = has_word(rows, "kind", "kernel") & (category != _COMMUNICATION)
    key = _keys(calls, rows, category)
    order = np.lexsort((starts, key))
    is_new = begins(key[order])
    first = np.flatnonzero(is_new)
    count = len(first)
    work = np.empty(len(key), np.int32)
    work[order] = np.cumsum(is_new) - 1
    lead = order[_longest_rows(work[order], ns[order], count)]
    flops, hbm_bytes = (
        np.bincount(work, _as_floats(rows[column]), count) for column in ("flops", "hbm_bytes")
    )
    call_keys = key[order][first]
    call_keys = call_keys[call_keys < len(calls)]  # the works of calls come first
    bounds = np.append(first, len(key))

    def kernels_of(number: int) -> tuple[str, ...]:
        return tuple(names[code] or "" for code in name[order[bounds[number] : bounds[number + 1]]].tolist())

    of_calls, kind_of_call = calls.numbered_kinds(
        call_keys, _sequence_hashes(name[order], first)[: len(call_keys)], kernels_of
    )
    why_not = NOT_LINKED if len(calls) else NO_CALLS
    single_kinds = [WorkKind(Call(word or ""), linked=False, why_not=why_not) for word in names]
    all_kinds = [*of_calls, *single_kinds]
    kind = np.append(kind_of_call, len(of_calls) + name[order[first[len(call_keys) :]]])
    modelled_flops, modelled_bytes, written_bytes = costs_of(all_kinds)
    stated = ~np.isnan(flops)
    module, modules = short_codes(rows, "module")
    program, programs = short_codes(rows, "program")
    time_ns = intervals.union_lengths(work[on_core], starts[on_core], ends[on_core], count)
    time_ns += np.bincount(work[~on_core], awaited[~on_core], count).astype(np.int64)
    without_call = count - len(call_keys)
    return Works(
        kinds=all_kinds,
        kind=kind.astype(np.int32),
        phase=vocabulary_places(rows, "phase", PHASES, PHASES.index("other"))[lead].astype(np.int32),
        module=module[lead],
        modules=modules,
        program=program[lead],
        programs=programs,
        category=category[lead],
        start_ns=starts[order][first],
        time_ns=time_ns,
        kernels=np.bincount(work, minlength=count).astype(np.int32),
        computes=np.bincount(work, computes, count) > 0,
        recomputed=np.append(calls.recomputed[call_keys], np.zeros(without_call, np.bool_)),
        operator=np.append(calls.operator[call_keys], np.full(without_call, -1)),
        sequence=np.append(calls.sequence[call_keys], np.full(without_call, -1)),
        flops=np.where(stated, flops, modelled_flops[kind]),
        bytes=np.where(stated, hbm_bytes, modelled_bytes[kind]),
        written_bytes=np.where(stated, np.nan, written_bytes[kind]),
        stated=stated,
        rows=WorkRows(starts, ends, ns, work, name, names),
    )


def _device_rows(rank: RankView) -> pa.Table:
    """Device events that begin in the windows."""
    schema = pa.schema([EVENTS.field(name) for name in ("start_ns", "dur_ns", *_ROW)])
    return pa.Table.from_batches((batch for batch, _ in rank.begun(DEVICE_WORK, *_ROW)), schema)


def _keys(calls: OperatorCalls, rows: pa.Table, category: Index) -> Index:
    """The call of each row; a row without one has its own key, larger than all calls."""
    call = calls.ids.index_of(ids_of(rows["operator"]))
    called = (call >= 0) & (category != _COMMUNICATION)
    owner = call.copy()
    owner[called] = calls.owner[call[called]]
    return np.where(owner < 0, np.arange(len(calls), len(calls) + len(rows), dtype=np.int32), owner)


def _as_floats(numbers: pa.ChunkedArray) -> Float64:
    """A column of numbers, NaN for null."""
    return np.asarray(numbers.cast(pa.float64()).fill_null(np.nan).to_numpy())


def _longest_rows(work: Index, ns: Int64, count: int) -> Int64:
    """Index of the longest row of each work item, with rows ordered by work item."""
    by_length = np.lexsort((-ns, work))
    return by_length[np.searchsorted(work[by_length], np.arange(count))]


def _sequence_hashes(name: Index, first: Int64) -> Int64:
    """Hash of the sequence of names from each of `first` to the next."""
    place = np.arange(len(name)) - np.repeat(first, np.diff(np.append(first, len(name))))
    mixed = (name.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(np.add.reduceat(mixed, first)).view(np.int64)
