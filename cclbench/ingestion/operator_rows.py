# SPDX-License-Identifier: Apache-2.0
"""Rows of the operator table, once a rank's device rows are linked with the calls that launched them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.ground.intervals import Index, Int64
from cclbench.ground.schema import OPERATORS, PHASES
from cclbench.ingestion.host_rows import ARGUMENTS, Texts
from cclbench.ingestion.launched import device_time
from cclbench.ingestion.operators import Operators
from cclbench.ingestion.part import ROW_GROUP
from cclbench.ingestion.pending import or_none
from cclbench.normalize.operators import is_wrapper
from cclbench.normalize.steps import Marks


def operator_rows(
    operators: Operators, rank: int, operator: Int64, shapes: Texts, steps: Marks
) -> Iterator[pa.Table]:
    """Rows of `schema.OPERATORS`, a row group at a time.

    `operator` is the id of each device row's call, −1 for none; `shapes` are those of each call's inputs;
    `steps` are the host's.
    """
    kernels, busy = _device_time(operators, operator)
    rows = operators.host.calls
    calls = rows.columns
    texts = {
        "name": Texts(calls["name"], rows.words["name"]),
        "phase": Texts(operators.phase, PHASES),
        "module": Texts(operators.module, operators.modules.paths),
        "call_site": Texts(operators.site, operators.host.python.words["name"]),
        "annotation": Texts(operators.step, operators.host.annotations.words["name"]),
        **{column: rows.texts_of(column) for column in ARGUMENTS},
        "shapes": shapes,
    }
    for first in range(0, len(operators), ROW_GROUP):
        row_range = slice(first, first + ROW_GROUP)
        start, sequence, parent = (
            calls["start_ns"][row_range],
            calls["sequence"][row_range],
            operators.parents[row_range],
        )
        step = or_none(steps.numbers, steps.step_at(start)).astype(np.int32)
        columns = {
            "rank": np.full(len(start), rank, np.int32),
            "operator": operators.id[row_range],
            "parent": _or_null(operators.id[parent], parent),
            "track": calls["track"][row_range],
            "start_ns": start,
            "end_ns": calls["end_ns"][row_range],
            "sequence": _or_null(sequence, sequence),
            "step": _or_null(step, step),
            "recomputed": operators.recomputed[row_range],
            "kernels": kernels[row_range],
            "device_ns": busy[row_range],
        }
        columns |= {
            name: _used_words(column.codes[row_range], column.words, OPERATORS.field(name).type)
            for name, column in texts.items()
        }
        yield pa.table([columns[name] for name in OPERATORS.names], schema=OPERATORS)


def _device_time(operators: Operators, operator: Int64) -> tuple[Int64, Int64]:
    """Number of device rows that each call launched itself, and their union, ns."""
    if operators.launched is None:
        return np.zeros(len(operators), np.int64), _own_time(operators)
    call = operators.index_of(operator)
    has_call = call >= 0
    return device_time(
        call[has_call], operators.launched.starts[has_call], operators.launched.ends[has_call], len(operators)
    )


def _own_time(operators: Operators) -> Int64:
    """Time of each call outside of the calls that it makes, ns; 0 for wrappers of operators."""
    rows = operators.host.calls
    lasts = rows.columns["end_ns"] - rows.columns["start_ns"]
    inside, called = np.zeros(len(operators), np.int64), operators.parents >= 0
    np.add.at(inside, operators.parents[called], lasts[called])
    return np.where(rows.named_ranges.name_is(is_wrapper), 0, np.maximum(lasts - inside, 0))


def _or_null(values: npt.NDArray[Any], codes: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """The values, null where the code is negative."""
    return pa.array(values, mask=codes < 0)


def _used_words(codes: Index, words: Sequence[str], kind: pa.DictionaryType) -> pa.Array:
    """Texts by code, without unused words."""
    used = np.zeros(len(words) + 1, np.bool_)
    used[codes] = True
    number = np.append(np.cumsum(used[:-1]) - 1, -1)
    used_words = [words[code] for code in np.flatnonzero(used[:-1]).tolist()]
    return Texts(number[codes], used_words).texts_of_rows(kind.index_type)
