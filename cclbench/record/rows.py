# SPDX-License-Identifier: Apache-2.0
"""A result row, one number of a run or why there is none: `schema.RESULTS` as a type."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa

from cclbench.ground.schema import HAS_VALUE, RESULTS
from cclbench.ground.scratch import no_space_error, temporary_folder
from cclbench.record.metric_name import MetricName

IN_MEMORY: Final = 1 << 18
"""Rows up to which a table of results is held in memory, some 22 MB."""

WORDS: Final = tuple(field.name for field in RESULTS if pa.types.is_string(field.type))
COMPACT: Final = pa.schema(
    [f.with_type(pa.dictionary(pa.int32(), pa.string())) if f.name in WORDS else f for f in RESULTS],
    metadata=RESULTS.metadata,
)
"""`schema.RESULTS` as it is held in memory: each word once, some 80 bytes a row."""
_EMPTY: Final = pa.Table.from_batches([], COMPACT)
"""Without chunks, which joining would have to go through in each column."""


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row of `schema.RESULTS`, fields in the order of its columns, which say what they are."""

    metric: MetricName
    value: float | None = None
    unit: str
    status: str
    coverage: float | None = None
    coverage_time: float | None = None
    provenance: str | None = None
    reason: str | None = None
    better: str | None = None
    rank: int | None = None
    step: int | None = None
    group: str | None = None
    collective: str | None = None
    category: str | None = None
    stat: str | None = None
    window: str
    version: int
    source: str | None = None

    @property
    def has_value(self) -> bool:
        """Whether there is a number, be it partial."""
        return self.status in HAS_VALUE

    @property
    def number(self) -> float:
        """The value of a row that has one."""
        assert self.value is not None  # noqa: S101 - callers have looked
        return self.value

    @property
    def narrowed(self) -> bool:
        """Whether it is about a part only of what its run or rank did."""
        is_total = self.step is None and self.group is None and self.collective is None
        return not (is_total and self.category is None and self.stat is None)

    def noted(self, words: str | None) -> Row:
        """The row with those words after its reason."""
        return msgspec.structs.replace(self, reason="; ".join(filter(None, (self.reason, words))) or None)


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a table of `schema.RESULTS` or `COMPACT`; equal words of a column are one object."""
    columns = [words_of(table[name]) if name in WORDS else table[name].to_pylist() for name in RESULTS.names]
    rows = (dict(zip(RESULTS.names, values, strict=True)) for values in zip(*columns, strict=True))
    return msgspec.convert(list(rows), list[Row])


def words_of(column: pa.ChunkedArray) -> list[str | None]:
    """The texts of a column of them, plain or as dictionaries; equal ones are one object."""
    plain = not pa.types.is_dictionary(column.type)
    # Equal words stand once in a dictionary, but each chunk of a column may have one of its own.
    encoded = (column.dictionary_encode() if plain else column).unify_dictionaries().combine_chunks()
    words = encoded.dictionary.to_pylist()
    return [None if code is None else words[code] for code in encoded.indices.to_pylist()]


def table_of(rows: Sequence[Row]) -> pa.Table:
    """The rows as a table of `COMPACT`."""
    columns = [pa.array(map(attrgetter(field.name), rows), field.type, size=len(rows)) for field in COMPACT]
    return pa.Table.from_arrays(columns, schema=COMPACT)


def join_tables(parts: Iterable[pa.Table]) -> pa.Table:
    """The rows of those tables of `COMPACT`, in order; beyond `IN_MEMORY` rows, mapped from a temporary file.

    `InputError` where the file finds no room.
    """
    batches = _batches(parts)
    first = next(batches)
    if (second := next(batches, None)) is None:
        return first
    with temporary_folder() as folder:
        path = os.fsencode(folder / "rows.arrow")
        try:
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, COMPACT) as file:
                for batch in chain((first, second), batches):
                    file.write_table(batch)
        except OSError as error:
            raise no_space_error(error) from None
        # The rows stay readable once the file has no name.
        return pa.ipc.open_stream(pa.memory_map(path)).read_all()


def _batches(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of more than `IN_MEMORY` rows, and a last one of the others; each word once."""
    waiting = [_EMPTY]
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) > IN_MEMORY:
            yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
            waiting = [_EMPTY]
    yield pa.concat_tables(waiting).unify_dictionaries()


def builtins(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows as flat dicts, the form of `--json`."""
    return [msgspec.structs.asdict(row) for row in rows]
