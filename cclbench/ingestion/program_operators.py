# SPDX-License-Identifier: Apache-2.0
"""Operators of compiled programs (XLA): a device row of an instruction is a call of its framework op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.formats import Names
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.ground.schema import OPERATORS
from cclbench.ingestion.host_rows import Texts
from cclbench.ingestion.part import ROW_GROUP
from cclbench.ingestion.pending import Pending
from cclbench.normalize.name_stacks import name_stack
from cclbench.record.files import parquet_file

_COLUMNS: Final = ("track", "start_ns", "dur_ns", "call_site", "shapes", "dtypes", "values")


class ProgramOperators:
    """Calls of a rank's compiled programs, from its pending rows; arrays of shape (rows,)."""

    def __init__(self, files: Sequence[Path], pending: Pending, first: int) -> None:
        """`files` hold the pending rows; calls are numbered from `first`."""
        self._files, self._pending = files, pending
        paths = Names()
        codes = [np.empty(0, np.int32)]
        for batch in self._pending_batches("framework_op"):
            words, index = batch["framework_op"].dictionary, batch["framework_op"].indices
            numbers = np.array([*(paths[word] for word in words.to_pylist()), -1], np.int32)
            codes.append(numbers[index.fill_null(-1).to_numpy()])
        self._code: Index = np.concatenate(codes)
        self._stacks = [name_stack(path) for path in paths]
        self.stated: Mask = self._code >= 0
        """Which rows are calls."""
        self._first = first

    @cached_property
    def operator_ids(self) -> Int64:
        """Id of each row's call, −1 for none."""
        return np.where(self.stated, self._first + np.cumsum(self.stated) - 1, -1)

    def texts_of_rows(self, part: str, rows: slice = slice(None)) -> Texts:
        """`operator`, `module` or `phase` (`part`) of those rows."""
        listed = [getattr(stack, part) for stack in self._stacks]
        words = Names()
        numbers = np.array([*(-1 if word is None else words[word] for word in listed), -1], np.int32)
        return Texts(numbers[self._code[rows]], list(words))

    def operator_rows(self, rank: int, step: Int64) -> Iterator[pa.Table]:
        """Rows of `schema.OPERATORS`; `step` is each row's step number, −1 for none."""
        recomputed = np.array([*(stack.recomputed for stack in self._stacks), False])
        read = 0
        int32 = pa.int32()
        for batch in self._pending_batches(*_COLUMNS) if self.stated.any() else ():
            here = slice(read, read + len(batch))
            read += len(batch)
            start, number = batch["start_ns"].to_numpy(), step[here]
            columns: dict[str, Any] = {
                "rank": np.full(len(batch), rank, np.int32),
                "operator": self.operator_ids[here],
                "name": self.texts_of_rows("operator", here).texts_of_rows(int32),
                "track": batch["track"],
                "start_ns": start,
                "end_ns": start + batch["dur_ns"].to_numpy(),
                "step": pa.array(number, mask=number < 0),
                "phase": self.texts_of_rows("phase", here).texts_of_rows(int32),
                "module": self.texts_of_rows("module", here).texts_of_rows(int32),
                "recomputed": recomputed[self._code[here]],
                "kernels": np.ones(len(batch), np.int64),
                "device_ns": batch["dur_ns"],
                **{name: batch[name] for name in ("call_site", "shapes", "dtypes", "values")},
            }
            absent = {field.name: pa.nulls(len(batch), field.type) for field in OPERATORS}
            made = pa.table({**absent, **columns}).filter(pa.array(self.stated[here]))
            yield made.cast(OPERATORS)

    def _pending_batches(self, *columns: str) -> Iterator[pa.RecordBatch]:
        """The pending rows that are kept, in batches."""
        read = 0
        for path in self._files:
            with parquet_file(path) as file:
                for batch in file.iter_batches(ROW_GROUP, columns=list(columns), use_threads=False):
                    kept = self._pending.kept[read : read + len(batch)]
                    read += len(batch)
                    yield batch.filter(pa.array(kept))
