# SPDX-License-Identifier: Apache-2.0
"""Tables of operators in bounded batches, from any kind of file: times in ns, texts, integers."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats.csv_tables import open_csv
from cclbench.formats.streams import open_bytes
from cclbench.formats.timeline.mapping import ENDINGS, TimelineMapping
from cclbench.formats.trace import LATEST_NS
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.ground.out_of_memory import is_out_of_memory
from cclbench.ground.text import printable
from cclbench.record.files import parquet_file

_DIGITS: Final = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Decimal digits from each unit down to ns."""
_ROWS_A_BATCH: Final = 1 << 16
_BLOCK_BYTES: Final = 1 << 22
_EXACT: Final = pa.decimal256(76, 30)
_TEXTS: Final = ("operator", "group")
_TIMES: Final = ("start", "duration")
_MAY_LACK: Final = ("step", "stream", "sequence", "group", "peer", "bytes")
"""Columns that may be null."""


def wanted_columns(mapping: TimelineMapping) -> dict[str, str]:
    """The table's columns by our names: those of `TimelineColumns`, and `place.<dimension>`."""
    fields = {name: getattr(mapping.columns, name) for name in mapping.columns.__struct_fields__}
    places = {f"place.{dimension}": column for dimension, column in mapping.place.items()}
    return {name: column for name, column in fields.items() if column is not None} | places


def table_batches(path: Path, mapping: TimelineMapping) -> Iterator[pa.RecordBatch]:
    """Rows in the file's order, with the columns of `wanted_columns`: start and duration in ns, texts, int64.

    `InputError` with file and row if one is damaged, or lacks a required column or value.
    """
    columns = wanted_columns(mapping)
    rows_before = 0
    try:
        for batch in _read_table(path, columns):
            yield _canonical_batch(batch, columns, mapping.time.unit, path, rows_before)
            rows_before += len(batch)
    except (pa.ArrowException, OSError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        if is_out_of_memory(error):
            raise
        reason = printable(str(error).splitlines()[0][:200]) if str(error) else type(error).__name__
        raise InputError(f"is damaged after row {rows_before:,}: {reason}", where=str(path)) from None


def _read_table(path: Path, columns: dict[str, str]) -> Iterator[pa.RecordBatch]:
    ending = next((e for e in ENDINGS if path.name.removesuffix(".gz").endswith(e)), None)
    if ending is None:
        raise InputError("is not named as Parquet, CSV or JSON lines", where=str(path))
    chosen = sorted(set(columns.values()))
    if ending == ".parquet":
        with parquet_file(path) as table:
            _require_columns(chosen, table.schema_arrow.names, path)
            yield from table.iter_batches(_ROWS_A_BATCH, columns=chosen)
        return
    with open_bytes(path) as raw:
        reader = open_csv(raw, chosen) if ending == ".csv" else _json_lines(raw, columns)
        _require_columns(chosen, reader.schema.names, path)
        for batch in reader:
            yield batch.select(chosen)


def _json_lines(raw: object, columns: dict[str, str]) -> pa.RecordBatchReader:
    from pyarrow import json

    times = pa.schema([(columns[name], _EXACT) for name in _TIMES])
    return json.open_json(
        pa.PythonFile(raw, "r"),
        read_options=json.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=json.ParseOptions(explicit_schema=times),
    )


def _require_columns(chosen: list[str], present: list[str], path: Path) -> None:
    missing = [column for column in chosen if column not in present]
    if missing:
        names = ", ".join(printable(name[:40]) for name in present[:12])
        raise InputError(
            f"has no column {missing[0]!r}, which timeline.yaml names", where=str(path), hint=names
        )


def _canonical_batch(
    batch: pa.RecordBatch, columns: dict[str, str], unit: str, path: Path, rows_before: int
) -> pa.RecordBatch:
    canonical: dict[str, pa.Array] = {}
    for name, column in columns.items():
        values = batch[column]
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if name not in _MAY_LACK and values.null_count:
            row = rows_before + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise InputError(f"has no {column}", where=f"{path}: row {row + 1:,}")
        kind = pa.string() if name in _TEXTS else pa.int64()
        if name in _TIMES:
            canonical[name] = pa.array(exact_nanoseconds(values, unit, f"{path}: column {column}"))
        elif pa.types.is_null(values.type):
            canonical[name] = pa.nulls(len(values), kind)
        else:
            canonical[name] = values.cast(kind)
    return pa.record_batch(canonical)


def exact_nanoseconds(values: pa.Array, unit: str, where: str) -> Int64:
    """Times as whole ns, half to even, from the file's digits or a float's exact value."""
    if pa.types.is_floating(values.type):
        scaled = values.cast(pa.float64()).to_numpy(zero_copy_only=False) * 10.0 ** _DIGITS[unit]
        if not (abs(scaled) < LATEST_NS).all():
            raise InputError("holds a time that no clock has", where=where, hint="is time.unit right?")
        return np.asarray(np.rint(scaled), np.int64)
    if pa.types.is_string(values.type):
        # torch_npu writes a tab behind a time so that spreadsheets do not round it.
        values = pc.utf8_trim_whitespace(values)
    exact = values.cast(_EXACT)
    rounded = pc.round(exact, ndigits=_DIGITS[unit], round_mode="half_to_even")
    most = pa.scalar(LATEST_NS // 10 ** _DIGITS[unit]).cast(_EXACT)
    if len(exact) and not pc.all(pc.less(pc.abs(exact), most)).as_py():
        raise InputError("holds a time that no clock has", where=where, hint="is time.unit right?")
    scaled = rounded.cast(pa.decimal128(38, _DIGITS[unit]), safe=False)
    # A decimal128 is an integer of 128 bits; these values fit the lower 64.
    words = np.frombuffer(scaled.buffers()[1], np.int64).reshape(-1, 2)
    return words[scaled.offset : scaled.offset + len(scaled), 0].copy()
