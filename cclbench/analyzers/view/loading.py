# SPDX-License-Identifier: Apache-2.0
"""Times in which a rank's host loads data or a checkpoint, or its device waits for input."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import has_word, matching_rows, row_spans
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals
from cclbench.normalize.phases import LOADER

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView


_INPUT: Final = "infeed"
"""A TPU's wait for what the host feeds it."""


def loading_intervals(rank: RankView) -> Intervals:
    """Union of data loader and checkpoint ranges on the host and of waits for input, over the whole trace."""
    parts = []
    for batch in rank.tables.events(("annotation", "op", "sync"), ("side", "name", "start_ns", "dur_ns")):
        on_host, waits = has_word(batch, "side", "host"), has_word(batch, "name", _INPUT)
        loads = np.where(on_host, matching_rows(batch, "name", partial(re.search, LOADER)), waits)
        if loads.any():
            parts.append(intervals.union(*row_spans(batch.filter(pa.array(loads)))))
    return intervals.join(*parts)
