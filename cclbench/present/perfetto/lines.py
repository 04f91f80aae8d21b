# SPDX-License-Identifier: Apache-2.0
"""Rows as lines of the Chrome Trace Event Format, column-wise.

Times are microseconds with three decimals, written as digits: floats would round nanoseconds.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.ground.intervals import Int64

_THOUSANDTHS: Final = pa.array([f"{n:03d}" for n in range(1000)], pa.large_string())


def event_line(**fields: Any) -> bytes:
    """One event of plain values."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def join_columns(*parts: Any) -> pa.Array:
    """Concatenate columns and constants as text; null if any is null."""
    return pc.binary_join_element_wise(*[_as_text(part) for part in parts], _as_text(""))


def object_members(*parts: pa.Array) -> pa.Array:
    """Members of a JSON object from columns of `"key":value`; nulls are left out."""
    return pc.binary_join_element_wise(*parts, _as_text(","), null_handling="skip")


def as_microseconds(ns: Int64) -> pa.Array:
    """Non-negative nanoseconds as microseconds: 1234567 → 1234.567."""
    micros, rest = np.divmod(ns, 1000)
    return join_columns(pa.array(micros), ".", _THOUSANDTHS.take(pa.array(rest)))


def key_values(key: str, column: Any) -> pa.Array:
    """`"key":value` for a column of numbers or dictionary-encoded texts; null for non-finite numbers."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = quote_texts(array)
    elif pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_finite(array), array, None)
    return join_columns(f'"{key}":', array)


def quote_texts(array: pa.DictionaryArray) -> pa.Array:
    """Texts as JSON strings; each distinct text is escaped once."""
    used, place = np.unique(array.indices.fill_null(0).to_numpy(), return_inverse=True)
    texts = array.dictionary.take(pa.array(used)).to_pylist() if len(array.dictionary) else [""] * len(used)
    escaped = pa.array([json.dumps(text, ensure_ascii=False) for text in texts], pa.large_string())
    return pc.if_else(array.is_valid(), escaped.take(pa.array(place)), None)


def bytes_of(lines: pa.Array) -> memoryview:
    """The bytes of a column of lines, each after a comma and a line break."""
    joined = join_columns(",\n", lines)
    _, offsets, text = joined.buffers()
    ends = np.frombuffer(offsets, np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(text)[int(ends[0]) : int(ends[-1])]


def _as_text(part: Any) -> Any:
    if isinstance(part, str):
        return pa.scalar(part, pa.large_string())
    return part if pa.types.is_large_string(part.type) else part.cast(pa.large_string())
