# SPDX-License-Identifier: Apache-2.0
"""How large traces are: as files, decompressed, and as the tables of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cclbench.formats.files import read_blocks
from cclbench.record.run import Run


@dataclass(frozen=True)
class TraceSizes:
    """Bytes of the trace files, of their content without gzip, and of the run's Parquet tables."""

    files: int
    plain: int
    parquet: int

    @property
    def ratio(self) -> float | None:
        """Content / Parquet; None without tables."""
        return self.plain / self.parquet if self.parquet else None


def trace_sizes(files: Sequence[Path], run: Run) -> TraceSizes:
    """The sizes of the traces that a run was read from; each file is decompressed once."""
    return TraceSizes(
        files=sum(path.stat().st_size for path in files),
        plain=sum(len(block) for path in files for block in read_blocks(path)),
        parquet=sum(path.stat().st_size for path in run.path.rglob("*.parquet")),
    )
