# SPDX-License-Identifier: Apache-2.0
"""Lines of steps as a table, whatever the order and the blocks in which they are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cclbench.formats.job_log.columns import UNKNOWN
from cclbench.formats.job_log.step_table import StepColumns, step_table

Line = tuple[int, int, float, float, int]
"""Rank, step, ms, loss and stamp."""


def table_of(*blocks: list[Line]) -> pa.Table:
    lines = StepColumns("megatron")
    for block in blocks:
        rank, step, ms, loss, stamp = (np.array(column) for column in zip(*block, strict=True))
        lines.count += len(block)
        lines.append("rank", rank)
        lines.append("step", step.astype(np.float64))
        lines.append("step_ms", ms.astype(np.float64))
        lines.append("loss", loss.astype(np.float64))
        lines.append("stamp", stamp)
    return step_table(lines, {})[0]


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[list[Line]], list[Line]]:
    """Lines of each rank, and all of them in another order, in which each rank's stay in order."""
    ms, loss = st.sampled_from([np.nan, 0.0, 20.0, 21.5]), st.sampled_from([np.nan, 2.5, 3.0])
    stamps, steps = (
        st.sampled_from([UNKNOWN, 10**18, 10**18 + 7]),
        st.sets(st.integers(0, 50), min_size=1, max_size=6),
    )
    ranks = [
        [(rank, step, draw(ms), draw(loss), draw(stamps)) for step in sorted(draw(steps))]
        for rank in range(draw(st.integers(1, 3)))
    ]
    order = draw(st.permutations([rank for rank, own in enumerate(ranks) for _ in own]))
    left = [iter(own) for own in ranks]
    return ranks, [next(left[rank]) for rank in order]


@given(interleaved(), st.integers(1, 9))
def test_lines_of_any_order_are_the_same_rows(lines: tuple[list[list[Line]], list[Line]], size: int) -> None:
    ranks, mixed = lines
    blocks = [mixed[first : first + size] for first in range(0, len(mixed), size)]
    table, single = table_of(*blocks), pa.concat_tables([table_of(own) for own in ranks])
    first = np.flatnonzero(np.diff(single["rank"].to_numpy(), prepend=-1))
    assert table.drop_columns("steps").to_pylist() == single.drop_columns("steps").to_pylist()
    # the steps of a first line are the usual number of all ranks
    steps, alone = table["steps"].to_numpy().copy(), single["steps"].to_numpy().copy()
    steps[first] = alone[first] = 0
    assert steps.tolist() == alone.tolist()
