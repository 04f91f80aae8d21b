# SPDX-License-Identifier: Apache-2.0
"""Launch calls read again from a rank's events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from cclbench.formats import Names, Rows
from cclbench.ingestion.launches import read_launches
from cclbench.normalize.rows import Categories, events_table
from cclbench.record.files import EventFile


def write_part(folder: Path, part: int, *launches: tuple[str, int, int | None]) -> None:
    """A part's launches: name, start and correlation of each; its thread is the part's number."""
    names, count = Names(), len(launches)
    rows = Rows(
        kind="launch",
        side="host",
        names=names,
        codes=np.array([names[name] for name, _, _ in launches], np.int32),
        track=np.full(count, part),
        start_ns=np.array([start for _, start, _ in launches]),
        dur_ns=np.ones(count, np.int64),
        correlation=pa.array([correlation for *_, correlation in launches], pa.int64()),
    )
    file = EventFile(folder, "launch", part)
    file.write(events_table([rows], Categories("launch")))
    file.close()


def test_launches_of_all_parts_by_correlation(tmp_path: Path) -> None:
    """Those without a correlation launch nothing; of two with one correlation the first comes first."""
    assert len(read_launches(tmp_path)) == 0
    write_part(tmp_path, 0, ("cudaLaunchKernel", 50, 7), ("cudaMemcpyAsync", 10, 3), ("cudaFree", 5, None))
    write_part(tmp_path, 1, ("hipExtLaunchKernel", 20, 5), ("cudaMemcpyAsync", 40, 7))
    found = read_launches(tmp_path)
    assert len(found) == 4
    assert found.correlation.tolist() == [3, 5, 7, 7]
    assert found.start_ns.tolist() == [10, 20, 50, 40]
    assert found.track.tolist() == [0, 1, 0, 1]
    assert found.of_kernel.tolist() == [False, True, True, False]
