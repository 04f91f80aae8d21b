# SPDX-License-Identifier: Apache-2.0
"""Launch calls of a rank, by the correlation that joins them with device rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.compute as pc

from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.schema import EVENTS
from cclbench.record.files import read_columns

_OF_ONE: Final = ("LaunchKernel", "LaunchCooperativeKernel")
"""Parts of the names of calls that launch one kernel, not a graph or a host function."""


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Launch calls sorted by correlation, arrays of shape (launches,)."""

    correlation: Int64
    start_ns: Int64
    track: Int64
    of_kernel: Mask
    of_one: Mask
    """Which calls launch one kernel."""
    of_graph: Mask

    def __len__(self) -> int:
        return len(self.correlation)


def read_launches(folder: Path) -> Launches:
    """Launch calls of a rank that state a correlation; equal ones stay in the order of the files."""
    files = sorted(folder.glob("launch-*.parquet"))
    calls = read_columns(files, ["correlation", "start_ns", "track", "name"], EVENTS)
    calls = calls.filter(pc.is_valid(calls["correlation"])).combine_chunks()
    correlation, start, track = (calls[name].to_numpy() for name in ("correlation", "start_ns", "track"))
    order = np.argsort(correlation, kind="stable")
    name = calls["name"].chunk(0)
    words, word = name.dictionary.to_pylist(), name.indices.to_numpy()[order]
    of_kernel = np.array(["Launch" in word for word in words], np.bool_)
    of_one = np.array([any(call in word for call in _OF_ONE) for word in words], np.bool_)
    of_graph = np.array(["GraphLaunch" in word for word in words], np.bool_)
    return Launches(
        correlation[order], start[order], track[order], of_kernel[word], of_one[word], of_graph[word]
    )
