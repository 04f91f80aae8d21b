# SPDX-License-Identifier: Apache-2.0
"""Operators of compiled programs (XLA): an execution of an instruction is a call of its framework op.

Its device rows state its number as their operator, one that is alone none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.formats import Names
from cclbench.ground.intervals import Index, Int64, Mask, begins, union_lengths
from cclbench.ground.schema import OPERATORS
from cclbench.ingestion.host_rows import Texts
from cclbench.ingestion.part import ROW_GROUP
from cclbench.ingestion.pending import Pending
from cclbench.normalize.name_stacks import name_stack
from cclbench.record.files import parquet_file

_COLUMNS: Final = ("track", "call_site", "shapes", "dtypes", "values")
_LAST: Final = np.iinfo(np.int64).max


class ProgramOperators:
    """Calls of a rank's compiled programs, from its pending rows; arrays of shape (rows,)."""

    def __init__(self, files: Sequence[Path], pending: Pending, first: int) -> None:
        """`files` hold the pending rows; calls are numbered from `first`."""
        self._files, self._pending = files, pending
        paths = Names()
        codes, parts, numbered = [np.empty(0, np.int32)], [np.empty(0, np.int64)], Names()
        for path, batch in self._pending_batches("framework_op"):
            _, _, part = path.name.partition("-")
            parts.append(np.full(len(batch), numbered[f"{path.parent}/{part}"]))
            words, index = batch["framework_op"].dictionary, batch["framework_op"].indices
            numbers = np.array([*(paths[word] for word in words.to_pylist()), -1], np.int32)
            codes.append(numbers[index.fill_null(-1).to_numpy()])
        self._code: Index = np.concatenate(codes)
        self._part: Int64 = np.concatenate(parts)
        """Part of the trace that each row is of, with its own numbers of executions."""
        self._stacks = [name_stack(path) for path in paths]
        self.stated: Mask = self._code >= 0
        """Which rows are calls."""
        self._first = first

    @cached_property
    def _calls(self) -> tuple[Int64, Int64]:
        """The call of each row (−1: none), shape (rows,), and the first row of each call, shape (calls,)."""
        rows = np.flatnonzero(self.stated)
        execution = self._pending.operator[rows]
        part = np.where(execution >= 0, self._part[rows], -1)
        number = np.where(execution >= 0, execution, rows)
        order = np.lexsort((number, part))
        is_first = begins(part[order], number[order])
        first = rows[order[is_first]]
        by_row = np.argsort(first)
        place = np.empty(len(first), np.int64)
        place[by_row] = np.arange(len(first))
        call = np.full(len(self.stated), -1)
        call[rows[order]] = place[np.cumsum(is_first) - 1]
        return call, first[by_row]

    @cached_property
    def operator_ids(self) -> Int64:
        """Id of each row's call, −1 for none."""
        call, _ = self._calls
        return np.where(call >= 0, self._first + call, -1)

    def texts_of_rows(self, part: str, rows: slice | Int64 = slice(None)) -> Texts:
        """`operator`, `module` or `phase` (`part`) of those rows."""
        listed = [getattr(stack, part) for stack in self._stacks]
        words = Names()
        numbers = np.array([*(-1 if word is None else words[word] for word in listed), -1], np.int32)
        return Texts(numbers[self._code[rows]], list(words))

    def operator_rows(self, rank: int, step: Int64) -> Iterator[pa.Table]:
        """Rows of `schema.OPERATORS`; `step` is each row's step number, −1 for none."""
        recomputed = np.array([*(stack.recomputed for stack in self._stacks), False])
        call, first = self._calls
        rows = np.flatnonzero(call >= 0)
        starts, ends, call_of_row = self._pending.starts[rows], self._pending.ends[rows], call[rows]
        begin, end = np.full(len(first), _LAST), np.full(len(first), -_LAST)
        np.minimum.at(begin, call_of_row, starts)
        np.maximum.at(end, call_of_row, ends)
        kernels, busy = np.bincount(call_of_row), union_lengths(call_of_row, starts, ends, len(first))
        read = 0
        int32 = pa.int32()
        for _, batch in self._pending_batches(*_COLUMNS) if len(first) else ():
            call_range = slice(*np.searchsorted(first, (read, read + len(batch))).tolist())
            first_rows = first[call_range]
            batch, read = batch.take(pa.array(first_rows - read)), read + len(batch)
            number = step[first_rows]
            columns: dict[str, Any] = {
                "rank": np.full(len(batch), rank, np.int32),
                "operator": self.operator_ids[first_rows],
                "name": self.texts_of_rows("operator", first_rows).texts_of_rows(int32),
                "track": batch["track"],
                "start_ns": begin[call_range],
                "end_ns": end[call_range],
                "step": pa.array(number, mask=number < 0),
                "phase": self.texts_of_rows("phase", first_rows).texts_of_rows(int32),
                "module": self.texts_of_rows("module", first_rows).texts_of_rows(int32),
                "recomputed": recomputed[self._code[first_rows]],
                "kernels": kernels[call_range],
                "device_ns": busy[call_range],
                **{name: batch[name] for name in ("call_site", "shapes", "dtypes", "values")},
            }
            absent = {field.name: pa.nulls(len(batch), field.type) for field in OPERATORS}
            yield pa.table({**absent, **columns}).cast(OPERATORS)

    def _pending_batches(self, *columns: str) -> Iterator[tuple[Path, pa.RecordBatch]]:
        """The pending rows that are kept, in batches, each with its file."""
        read = 0
        for path in self._files:
            with parquet_file(path) as file:
                for batch in file.iter_batches(ROW_GROUP, columns=list(columns), use_threads=False):
                    kept = self._pending.kept[read : read + len(batch)]
                    read += len(batch)
                    yield path, batch.filter(pa.array(kept))
