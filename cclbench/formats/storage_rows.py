# SPDX-License-Identifier: Apache-2.0
"""Rows of `STORAGE` by benchmarks and monitors of stores, each in the unit of its figure."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import pyarrow as pa

from cclbench.ground.evidence_schema import STORAGE, STORE_UNITS

MOST: Final = 10**15
"""Largest accepted rate, in base units, and number of operations."""


class StorageRows:
    """Builds rows of `STORAGE`, column by column."""

    def __init__(self) -> None:
        self._columns: dict[str, list[object]] = {
            name: [] for name in ("phase", "job", "sample", "figure", "stat", "unit", "value")
        }

    def __len__(self) -> int:
        return len(self._columns["value"])

    def add(
        self,
        phase: str,
        figure: str,
        value: Decimal | int,
        *,
        job: str | None = None,
        sample: int | None = None,
        stat: str | None = None,
    ) -> None:
        """Append a figure of `STORE_UNITS`, in its unit."""
        row = (phase, job, sample, figure, stat, STORE_UNITS[figure], float(value))
        for column, cell in zip(self._columns.values(), row, strict=True):
            column.append(cell)

    def table(self) -> pa.Table:
        """All rows; nobody states an epoch, and ingestion adds source and file."""
        empty = [None] * len(self)
        columns = [pa.array(self._columns.get(field.name, empty), field.type) for field in STORAGE]
        return pa.Table.from_arrays(columns, schema=STORAGE)
