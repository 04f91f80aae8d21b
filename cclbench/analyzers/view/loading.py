# SPDX-License-Identifier: Apache-2.0
"""Times in which a rank's host loads data or a checkpoint, by annotations."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from cclbench.analyzers.view.columns import has_word, matching_rows, row_spans
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals
from cclbench.normalize.phases import LOADER

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView


def loading_intervals(rank: RankView) -> Intervals:
    """Union of data loader and checkpoint ranges on the host, over the whole trace."""
    parts = []
    for batch in rank.tables.events(("annotation", "op"), ("side", "name", "start_ns", "dur_ns")):
        loads = matching_rows(batch, "name", partial(re.search, LOADER)) & has_word(batch, "side", "host")
        if loads.any():
            parts.append(intervals.union(*row_spans(batch.filter(pa.array(loads)))))
    return intervals.join(*parts)
