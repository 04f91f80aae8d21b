# SPDX-License-Identifier: Apache-2.0
"""Times in which a rank's host loads data or a checkpoint, by annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.view.columns import row_spans, word_codes
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals, Mask
from cclbench.normalize.phases import LOADER

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView


def loading_intervals(rank: RankView) -> Intervals:
    """Union of data loader and checkpoint ranges on the host, over the whole trace."""
    parts = []
    for batch in rank.tables.events(("annotation", "op"), ("side", "name", "start_ns", "dur_ns")):
        loads = _rows_matching(batch, "name", LOADER) & _rows_matching(batch, "side", "^host$")
        if loads.any():
            parts.append(intervals.union(*row_spans(batch.filter(pa.array(loads)))))
    return intervals.join(*parts)


def _rows_matching(batch: pa.RecordBatch, column: str, pattern: str) -> Mask:
    """Mask of the rows whose word matches, shape (rows,)."""
    numbers, _ = word_codes(batch, column)
    words = pc.match_substring_regex(batch[column].dictionary, pattern).to_numpy(zero_copy_only=False)
    return np.append(words, False)[numbers]
