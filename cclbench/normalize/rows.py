# SPDX-License-Identifier: Apache-2.0
"""Convert a reader's rows to `schema.EVENTS`: encode names, add categories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench import classify
from cclbench.formats import Names, Rows
from cclbench.ground.schema import CATEGORIES, COPY_DIRECTIONS, EVENTS, KINDS, SIDES
from cclbench.ground.table_schema import WORD

_CLASSIFIED = ("kernel", "op")
_OTHER, _COPY = CATEGORIES.index("other"), CATEGORIES.index("copy")
_SPANS = ("name", "track", "start_ns", "dur_ns")
_COLUMNS = (
    *("device", "correlation", "bytes", "flops", "hbm_bytes", "grid_x", "grid_y", "grid_z"),
    *("blocks", "occupancy", "operator", "event_stream", "event_record", "sequence", "forward_thread"),
    *("reserved", "change", "address", "awaited_ns"),
)
_TEXTS = (*("framework_op", "program", "call_site", "shapes", "dtypes", "strides", "values", "launched"),)

Codes = npt.NDArray[np.int8]


class Categories:
    """Category of each name of one kind, by the name's code; a name is classified once."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._codes: list[int] = []
        self.unclassified: list[bool] = []

    def category_codes(self, names: Names, stated_categories: Mapping[int, str] | None = None) -> Codes:
        """Codes into `schema.CATEGORIES`, shape (names,); `stated_categories` are the producer's."""
        for code, name in enumerate(names):
            if code < len(self._codes):
                continue
            category = (stated_categories or {}).get(code)
            if category is None and self._kind in _CLASSIFIED:
                category = classify.kernel_category(name)
            default = _COPY if self._kind in ("copy", "memset") else _OTHER
            self._codes.append(default if category is None else CATEGORIES.index(category))
            self.unclassified.append(category is None)
        return np.array(self._codes, np.int8)


def events_table(batches: Sequence[Rows], categories: Categories) -> pa.Table:
    """One table of `schema.EVENTS` from batches of one kind and side; step and collective are null."""
    first = batches[0]
    codes = np.concatenate([rows.codes for rows in batches])
    length = len(codes)
    columns = {
        "side": _constant_column(SIDES, first.side, length),
        "kind": _constant_column(KINDS, first.kind, length),
        "category": _vocabulary_column(
            CATEGORIES, categories.category_codes(first.names, batches[-1].name_categories)[codes]
        ),
        "copy_direction": _copy_directions(batches),
        **stated_columns(batches, (*_SPANS, *_COLUMNS, *_TEXTS)),
    }
    for field in EVENTS:
        if field.name not in columns:
            columns[field.name] = pa.nulls(length, field.type)
    return pa.table([columns[field.name] for field in EVENTS], schema=EVENTS)


def stated_columns(batches: Sequence[Rows], names: Iterable[str]) -> dict[str, pa.Array]:
    """Columns of `schema.EVENTS` that a reader states, of batches of one kind and side, by name."""
    return {name: _stated_column(batches, name) for name in names}


def _stated_column(batches: Sequence[Rows], name: str) -> pa.Array:
    if name == "name":
        codes = np.concatenate([rows.codes for rows in batches])
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(batches[0].names), pa.string()))
    if name in _SPANS:
        return pa.array(np.concatenate([getattr(rows, name) for rows in batches]))
    return (_text_column if name in _TEXTS else _optional_column)(batches, name)


def _optional_column(batches: Sequence[Rows], name: str) -> pa.Array:
    kind = EVENTS.field(name).type
    return pa.concat_arrays([_array_of(getattr(rows, name), len(rows), kind) for rows in batches])


def _array_of(values: Any, length: int, kind: pa.DataType) -> pa.Array:
    if values is None:
        return pa.nulls(length, kind)
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _copy_directions(batches: Sequence[Rows]) -> pa.Array:
    words = pa.concat_arrays([_array_of(rows.copy_direction, len(rows), pa.string()) for rows in batches])
    codes = pc.index_in(words, pa.array(COPY_DIRECTIONS)).cast(WORD.index_type)
    return pa.DictionaryArray.from_arrays(codes, pa.array(COPY_DIRECTIONS))


def _text_column(batches: Sequence[Rows], name: str) -> pa.Array:
    kind = EVENTS.field(name).type
    chunks = pa.chunked_array([_array_of(getattr(rows, name), len(rows), kind) for rows in batches])
    return chunks.unify_dictionaries().combine_chunks()


def _vocabulary_column(vocabulary: Sequence[str], codes: Codes) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, WORD.index_type), pa.array(vocabulary))


def _constant_column(vocabulary: Sequence[str], word: str, length: int) -> pa.Array:
    return _vocabulary_column(vocabulary, np.full(length, vocabulary.index(word), np.int8))
