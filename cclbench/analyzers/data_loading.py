# SPDX-License-Identifier: Apache-2.0
"""Data loading: the device waiting for the input pipeline or a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench import intervals
from cclbench.analyzers.columns import codes, spans
from cclbench.analyzers.metric import NotApplicable, Value, metric
from cclbench.analyzers.values import share
from cclbench.analyzers.view import RankView
from cclbench.intervals import Mask

# torch's `enumerate(DataLoader)#...`, TensorFlow's and JAX's input pipelines, the names training
# frameworks give to the ranges around them, and saving or loading a checkpoint; activation
# checkpointing is compute and is not among them.
LOADER: Final = (
    r"(?i)data_?loader|data_?loading|tf\.data|iterator_?getnext|batch[-_]generator"
    r"|(save|load)[-_ ]checkpoint|checkpoint[-_. ](save|load)"
)


@metric(
    "data.stall",
    definition="Share of the window in which the host is in a loader or checkpoint annotation while the"
    " device is idle.",
    formula="|loader annotations \\ (C∪K∪M)| / W",
    unit="1",
    better="lower",
    not_applicable="nothing in the trace is annotated as loading or checkpointing, or the CPU is the device",
)
def stall(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("it loads and computes, and one can't be told from the other")
    loading = [intervals.EMPTY]
    for batch in rank.tables.events(("annotation", "op"), ("side", "name", "start_ns", "dur_ns")):
        named = _matches(batch, "name", LOADER) & _matches(batch, "side", "^host$")
        if named.any():
            loading.append(intervals.union(*spans(batch.filter(pa.array(named)))))
    if len(loading) == 1:
        raise NotApplicable("nothing in the trace is annotated as loading data or a checkpoint")
    stalled = intervals.subtract(intervals.join(*loading), intervals.join(*rank.busy))
    yield from share(rank, rank.inside(stalled), rank.parts.window, of="time")


def _matches(batch: pa.RecordBatch, column: str, pattern: str) -> Mask:
    """Which rows' word matches, shape (rows,)."""
    numbers, _ = codes(batch, column)
    words = pc.match_substring_regex(batch[column].dictionary, pattern).to_numpy(zero_copy_only=False)
    return np.append(words, False)[numbers]
