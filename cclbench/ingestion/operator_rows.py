# SPDX-License-Identifier: Apache-2.0
"""Rows of the operators' table, once a rank's device rows are linked with the calls that launched them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.disk_columns import DiskColumn, disk_array, pieces, release
from cclbench.ingestion.host_rows import ARGUMENTS, Texts
from cclbench.ingestion.launched import Launched, RowsByStretch, device_time
from cclbench.ingestion.operators import Operators
from cclbench.ingestion.pending import or_none
from cclbench.intervals import Index, Int64
from cclbench.normalize.operators import Ids, is_wrapper
from cclbench.normalize.phases import among
from cclbench.normalize.steps import Marks
from cclbench.schema import OPERATORS, PHASES


def operator_rows(found: Operators, rank: int, operator: Int64, steps: Marks) -> Iterator[pa.Table]:
    """Rows of `schema.OPERATORS`, a row group at a time.

    `operator` is the id of each device row's call, −1 for none; `steps` are the host's.
    """
    kernels, busy = _device_time(found, operator)
    rows = found.host.calls
    calls = rows.columns
    texts = {
        "name": Texts(calls["name"], rows.names),
        "phase": Texts(found.phase, PHASES),
        "module": Texts(found.module, found.modules.paths),
        "call_site": Texts(found.site, found.host.python.names),
        "annotation": Texts(found.step, found.host.annotations.names),
        **{column: Texts(calls[column], rows.words[column]) for column in ARGUMENTS},
    }
    for here in pieces(len(found), rows, found):
        start, sequence, parent = calls["start_ns"][here], calls["sequence"][here], found.parents[here]
        step = or_none(steps.numbers, steps.holding(start)).astype(np.int32)
        columns = {
            "rank": np.full(len(start), rank, np.int32),
            "operator": found.id[here],
            "parent": _or_null(found.id[parent], parent),
            "track": calls["track"][here],
            "start_ns": start,
            "end_ns": calls["end_ns"][here],
            "sequence": _or_null(sequence, sequence),
            "step": _or_null(step, step),
            "recomputed": found.recomputed[here],
            "kernels": kernels[here],
            "device_ns": busy[here],
        }
        columns |= {
            name: _used(one.codes[here], one.words, OPERATORS.field(name).type) for name, one in texts.items()
        }
        yield pa.table([columns[name] for name in OPERATORS.names], schema=OPERATORS)
        release(kernels, busy)


def _device_time(found: Operators, operator: Int64) -> tuple[Int64, Int64]:
    """How many device rows each call launched itself, and their union, ns."""
    if found.launched is None or found.rows is None:
        return disk_array(len(found), np.int64), _own_time(found)
    kernels, busy = disk_array(len(found), np.int64), disk_array(len(found), np.int64)
    several = _add_here(found, found.launched, found.rows, operator, kernels, busy)
    call = found.index_of(several)
    several, call = several[call >= 0], call[call >= 0]
    if len(several):
        own = np.concatenate(
            [np.flatnonzero(among(operator[here], several)) + here.start for here in pieces(len(operator))]
        )
        starts, ends = found.launched.starts[own], found.launched.ends[own]
        numbers = np.searchsorted(several, operator[own])
        kernels[call], busy[call] = device_time(numbers, starts, ends, len(several))
    return kernels, busy


def _add_here(
    found: Operators, launched: Launched, rows: RowsByStretch, operator: Int64, kernels: Int64, busy: Int64
) -> Int64:
    """Count the device rows that were launched in the stretch in which their call begins.

    The ids that others state come back, sorted: calls that launch in several stretches, or unknown ones.
    """
    others: DiskColumn[np.int64] = DiskColumn(np.int64)
    last = int(found.id.max(initial=-1))
    for number in range(found.host.calls.stretches):
        calls, own = found.host.calls.stretch(number), rows[number]
        stated = operator[own]
        call = Ids(calls.column("id")).index_of(stated)
        here = (call >= 0) & np.append(calls.own, False)[call]
        others.append(np.unique(stated[~here & (stated >= 0) & (stated <= last)]))
        own = own[here]
        counts = device_time(call[here], launched.starts[own], launched.ends[own], len(calls.at))
        for column, values in zip((kernels, busy), counts, strict=True):
            column[calls.at[calls.own]] = values[calls.own]
        found.host.calls.release()
        launched.release()
        release(kernels, busy, operator)
    return np.unique(others.values())


def _own_time(found: Operators) -> Int64:
    """The time of each call outside of the calls that it makes, 0 of what is around operators, ns."""
    inside, rows = disk_array(len(found), np.int64), found.host.calls
    calls = rows.columns
    for here in pieces(len(found), rows, found):
        parent = found.parents[here]
        called = parent >= 0
        np.add.at(inside, parent[called], (calls["end_ns"][here] - calls["start_ns"][here])[called])
    wrapper = rows.names.where(is_wrapper)
    for here in pieces(len(found), rows):
        own = np.maximum(calls["end_ns"][here] - calls["start_ns"][here] - inside[here], 0)
        inside[here] = np.where(wrapper[calls["name"][here]], 0, own)
    return inside


def _or_null(values: npt.NDArray[Any], codes: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Those values, null where the code is negative."""
    return pa.array(values, mask=codes < 0)


def _used(codes: Index, words: Sequence[str], kind: pa.DictionaryType) -> pa.Array:
    """Texts by code, with only those words that some code is of."""
    used = np.zeros(len(words) + 1, np.bool_)
    used[codes] = True
    number = np.append(np.cumsum(used[:-1]) - 1, -1)
    own = [words[code] for code in np.flatnonzero(used[:-1]).tolist()]
    return Texts(number[codes], own).array(kind.index_type)
