# SPDX-License-Identifier: Apache-2.0
"""The launch calls of a rank, by what joins them with the rows of its device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from cclbench.disk_columns import DiskColumn
from cclbench.disk_order import in_order
from cclbench.ingestion.part import ROW_GROUP
from cclbench.intervals import Int64, Mask
from cclbench.record.files import parquet_file

_COLUMNS: Final = {
    **dict.fromkeys(("correlation", "start_ns", "track"), np.int64),
    **dict.fromkeys(("of_kernel", "of_one"), np.bool_),
}
_OF_ONE: Final = ("LaunchKernel", "LaunchCooperativeKernel")
"""What the names of calls hold that launch one kernel, and no graph or host function."""


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Launch calls in order of their correlation, arrays of shape (launches,) that lie on disk."""

    correlation: Int64
    start_ns: Int64
    track: Int64
    of_kernel: Mask
    of_one: Mask
    """Which launch one kernel."""
    columns: tuple[DiskColumn[Any], ...]

    def __len__(self) -> int:
        return len(self.correlation)

    def release(self) -> None:
        """Let go of the pages that were read."""
        for column in self.columns:
            column.release()


def read_launches(folder: Path) -> Launches:
    """Those of a rank's events that state a correlation, of equal ones the first that is written first."""
    written, ordered = _columns(), _columns()
    for path in sorted(folder.glob("launch-*.parquet")):
        with parquet_file(path) as file:
            wanted = ["correlation", "start_ns", "track", "name"]
            for batch in file.iter_batches(ROW_GROUP, columns=wanted, use_threads=False):
                rows = batch.filter(pc.is_valid(batch["correlation"]))
                name = rows["name"]
                words, word = name.dictionary.to_pylist(), name.indices.to_numpy()
                of_kernel = np.array(["Launch" in word for word in words], np.bool_)
                of_one = np.array([any(call in word for call in _OF_ONE) for word in words], np.bool_)
                written["of_kernel"].append(of_kernel[word])
                written["of_one"].append(of_one[word])
                for column in wanted[:3]:
                    written[column].append(rows[column].to_numpy())
    for correlation, places in in_order(written["correlation"]):
        ordered["correlation"].append(correlation)
        for column in ("start_ns", "track", "of_kernel", "of_one"):
            ordered[column].append(written[column].values()[places])
            written[column].release()
    return Launches(
        **{name: column.values() for name, column in ordered.items()}, columns=tuple(ordered.values())
    )


def _columns() -> dict[str, DiskColumn[Any]]:
    return {name: DiskColumn(kind) for name, kind in _COLUMNS.items()}
