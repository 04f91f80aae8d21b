# SPDX-License-Identifier: Apache-2.0
"""CSV tables as batches of texts, whose digits are then parsed exactly."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from cclbench.formats.streams import open_bytes
from cclbench.formats.texts import damaged_error
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.ground.out_of_memory import is_out_of_memory
from cclbench.ground.text import printable

T = TypeVar("T")

_BLOCK_BYTES: Final = 1 << 22
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def heading_of(head: bytes) -> list[str]:
    """The column names of a table that begins with these bytes."""
    line = head.removeprefix(_BYTE_ORDER_MARK).split(b"\n", 1)[0].decode(errors="replace")
    return [name.strip().strip('"') for name in line.split(",")]


def open_csv(raw: object, chosen: Sequence[str]) -> pa.RecordBatchReader:
    """The table, with the chosen columns as texts."""
    from pyarrow import csv

    texts = csv.ConvertOptions(column_types=dict.fromkeys(chosen, pa.string()), strings_can_be_null=True)
    return csv.open_csv(
        pa.PythonFile(raw, "r"), read_options=csv.ReadOptions(block_size=_BLOCK_BYTES), convert_options=texts
    )


def read_csv(
    path: Path,
    chosen: Sequence[str],
    required: Sequence[str],
    convert: Callable[[pa.RecordBatch, int], Iterable[T]],
    *,
    hint: str,
) -> Iterator[T]:
    """What `convert` makes of each batch and the number of rows before it; chosen columns are texts.

    `InputError` with `hint` if a required column is missing, or a row is damaged or cannot be converted.
    """
    rows_before = 0
    try:
        with open_bytes(path) as raw:
            table = open_csv(raw, chosen)
            if missing := [name for name in required if name not in table.schema.names]:
                raise damaged_error(path, f"has no column {missing[0]!r}", hint=hint)
            for batch in table:
                yield from convert(batch, rows_before)
                rows_before += len(batch)
    except (pa.ArrowException, OSError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        if is_out_of_memory(error):
            raise
        reason = printable(str(error).splitlines()[0][:200]) if str(error) else type(error).__name__
        what = f"is damaged after row {rows_before:,}: {reason}"
        raise InputError(what, where=str(path), hint=hint) from None


def whole_numbers(texts: pa.Array) -> Int64:
    """Whole numbers below 10^18, −1 for any other text, shape (rows,)."""
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)
    is_whole = pc.fill_null(pc.match_substring_regex(texts, r"^\d{1,18}$"), False)
    numbers = pc.if_else(is_whole, texts, "-1").cast(pa.int64())
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64)
