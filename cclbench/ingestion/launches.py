# SPDX-License-Identifier: Apache-2.0
"""The launch calls of a rank, by what joins them with the rows of its device."""

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
"""What the names of calls hold that launch one kernel, and no graph or host function."""


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Launch calls in order of their correlation, arrays of shape (launches,)."""

    correlation: Int64
    start_ns: Int64
    track: Int64
    of_kernel: Mask
    of_one: Mask
    """Which launch one kernel."""

    def __len__(self) -> int:
        return len(self.correlation)


def read_launches(folder: Path) -> Launches:
    """Those of a rank's events that state a correlation, of equal ones the first that is written first."""
    files = sorted(folder.glob("launch-*.parquet"))
    calls = read_columns(files, ["correlation", "start_ns", "track", "name"], EVENTS)
    calls = calls.filter(pc.is_valid(calls["correlation"])).combine_chunks()
    correlation, start, track = (calls[name].to_numpy() for name in ("correlation", "start_ns", "track"))
    order = np.argsort(correlation, kind="stable")
    name = calls["name"].chunk(0)
    words, word = name.dictionary.to_pylist(), name.indices.to_numpy()[order]
    of_kernel = np.array(["Launch" in word for word in words], np.bool_)
    of_one = np.array([any(call in word for call in _OF_ONE) for word in words], np.bool_)
    return Launches(correlation[order], start[order], track[order], of_kernel[word], of_one[word])
