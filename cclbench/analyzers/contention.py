# SPDX-License-Identifier: Apache-2.0
"""Contention: how much longer kernels take while communication runs than alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, mean_over_ranks, metric, no_value
from cclbench.analyzers.view.columns import has_values, has_word, row_spans, word_codes
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64
from cclbench.normalize.operators import Ids

_GRID: Final = ("grid_x", "grid_y", "grid_z")
_KERNEL: Final = ("name", *_GRID, "shapes")
"""Kernels equal in these are expected to take the same time."""
_SUMS: Final = ("overlapped", "overlapped_ns", "overlap_ns", "alone", "alone_ns")
_NO_OPERATOR: Final = np.iinfo(np.int64).min
_CONFOUNDED: Final = (
    "confounded: communication cannot speed kernels up, so the overlapped ones differ in something else"
)
_STOPPED: Final = "kernels take longer by as much as they overlap communication, or more"


def _over_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over ranks by weight: Σ weight·value / Σ weight; for a ratio, the ratio of the sums."""
    for value in mean_over_ranks(ranks):
        is_confounded = value.stat is None and (value.value or 0.0) < 1
        yield replace(value, reason=_CONFOUNDED if is_confounded else None)


@metric(
    "compute.contention",
    definition="How much longer compute kernels take while communication runs: the time in which they overlap"
    " K, over the time that the same part of their work takes alone. That is the overlap less what they take"
    " longer than the mean of the same kernels without any overlap (stat excess: that time per step). Kernels"
    " are the same with equal name, grid and, where recorded, input shapes of the launching operator."
    " Kernels that run only one way are left out. Below 1 the ratio is confounded and no measure of"
    " contention.",
    formula="overlap / (overlap − excess); overlap = Σ |kernel ∩ K|, excess = Σ (t_overlapped −"
    " mean(t_alone))",
    unit="ratio",
    # a smaller ratio is no gain in itself: the kernels without overlap may have become slower
    better=None,
    not_applicable="no compute kernel of equal name, grid and shapes runs both with communication and alone,"
    " or kernels take longer by all of their overlap",
    version=3,
    combine=_over_ranks,
)
def contention(rank: RankView) -> Iterator[Value]:
    kernels = _sum_tables(list(_batch_sums(rank)))
    overlapped, overlapped_ns, overlap_ns, alone, alone_ns = (kernels[name].to_numpy() for name in _SUMS)
    both = (overlapped > 0) & (alone > 0)
    if not both.any():
        raise NotApplicable("no compute kernel runs both with communication and alone")
    if not alone_ns[both].any():
        raise NotApplicable("the kernels that run both with communication and alone have no duration")
    longer_ns = overlapped_ns[both] - overlapped[both] * (alone_ns[both] / alone[both])
    excess_ns = fsum(longer_ns.tolist())  # the same in any order of the kernels
    together_ns = int(overlap_ns[both].sum())
    left_out = {"overlapped kernels that never run alone": int(overlapped[~both].sum())}
    if excess_ns < together_ns:
        ratio = together_ns / (together_ns - excess_ns)
        yield Value(
            value=ratio,
            weight=together_ns - excess_ns,
            provenance="derived",
            reason=_CONFOUNDED if ratio < 1 else None,
            left_out=left_out,
        )
    else:
        yield no_value(_STOPPED, left_out=left_out)
    excess_s = excess_ns / (len(rank.windows) * NS_PER_S)
    yield Value(value=excess_s, stat="excess", unit="s", provenance="derived")


def _batch_sums(rank: RankView) -> Iterator[pa.Table]:
    """By batch: number and duration of compute kernels that overlap communication, and of the others."""
    shapes = _Shapes(rank)
    for batch, _ in rank.kernels("name", "category", "operator", *_GRID):
        stated = has_values(batch, "grid_x")
        compute = batch.filter(pa.array(stated & ~has_word(batch, "category", "communication")))
        starts, ends = row_spans(compute)
        shared, durations = intervals.within(rank.communication, starts, ends), ends - starts
        overlapped, alone = shared > 0, shared == 0
        columns = {
            "name": compute["name"],
            **{axis: compute[axis] for axis in _GRID},
            "shapes": shapes.codes_of(compute["operator"]),
            "overlapped": overlapped.astype(np.int64),
            "overlapped_ns": np.where(overlapped, durations, 0),
            "overlap_ns": shared,
            "alone": alone.astype(np.int64),
            "alone_ns": np.where(alone, durations, 0),
        }
        sums = _sum_tables([pa.table(columns)])
        yield sums.set_column(0, "name", sums["name"].cast(pa.string()))


def _sum_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Sums of the tables, one row per kernel."""
    grouped = pa.concat_tables(tables).group_by(list(_KERNEL), use_threads=False)
    sums = grouped.aggregate([(name, "sum") for name in _SUMS])
    return sums.select([*_KERNEL, *(f"{name}_sum" for name in _SUMS)]).rename_columns([*_KERNEL, *_SUMS])


class _Shapes:
    """Recorded shapes of operator calls, as codes."""

    def __init__(self, rank: RankView) -> None:
        self._ids = Ids(rank.operators("operator")["operator"].to_numpy())
        self._codes, self._words = word_codes(rank.operators("shapes"), "shapes")

    def codes_of(self, operators: pa.Array) -> Int64:
        """Code of each operator's shapes, −1 where not recorded; shape of `operators`."""
        row = self._ids.index_of(np.asarray(operators.fill_null(_NO_OPERATOR).to_numpy()))
        code = np.full(len(row), -1, np.int64)
        code[row >= 0] = self._codes[row[row >= 0]]
        return np.where(code == len(self._words) - 1, -1, code)
