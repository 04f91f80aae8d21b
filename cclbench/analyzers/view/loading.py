# SPDX-License-Identifier: Apache-2.0
"""When a rank's host loads data or a checkpoint, by its annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cclbench import arrow_functions as pc
from cclbench import intervals
from cclbench.analyzers.view.columns import codes, spans
from cclbench.intervals import Intervals, Mask
from cclbench.normalize.phases import LOADER

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView


def loading(rank: RankView) -> Intervals:
    """The union of the ranges of data loaders and checkpoints on the host, over the whole trace."""
    parts = []
    for batch in rank.tables.events(("annotation", "op"), ("side", "name", "start_ns", "dur_ns")):
        named = _matches(batch, "name", LOADER) & _matches(batch, "side", "^host$")
        if named.any():
            parts.append(intervals.union(*spans(batch.filter(pa.array(named)))))
    return intervals.join(*parts)


def _matches(batch: pa.RecordBatch, column: str, pattern: str) -> Mask:
    """Which rows' word matches, shape (rows,)."""
    numbers, _ = codes(batch, column)
    words = pc.match_substring_regex(batch[column].dictionary, pattern).to_numpy(zero_copy_only=False)
    return np.append(words, False)[numbers]
