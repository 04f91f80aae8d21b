# SPDX-License-Identifier: Apache-2.0
"""Contention: how much longer kernels take while communication runs than alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, mean_over_ranks, metric
from cclbench.analyzers.view.columns import has_values, has_word, row_spans, word_codes
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64
from cclbench.normalize.operators import Ids

_GRID: Final = ("grid_x", "grid_y", "grid_z")
_KERNEL: Final = ("name", *_GRID, "shapes")
"""Kernels equal in these are expected to take the same time."""
_SUMS: Final = ("overlapped", "overlapped_ns", "alone", "alone_ns")
_NO_OPERATOR: Final = np.iinfo(np.int64).min
_CONFOUNDED: Final = (
    "confounded: communication cannot speed kernels up, so the overlapped ones differ in something else"
)


def _over_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over ranks by weight: Σ weight·value / Σ weight; for a ratio, the ratio of the sums."""
    for value in mean_over_ranks(ranks):
        yield replace(value, reason=_CONFOUNDED if (value.value or 0.0) < 1 else None)


@metric(
    "compute.contention",
    definition="How much longer compute kernels take while communication runs: the duration of those that"
    " overlap K by more than half, over the mean duration of the same kernels without any overlap. Kernels"
    " are the same with equal name, grid and, where recorded, input shapes of the launching operator."
    " Kernels that run only one way are left out. Below 1 the ratio is confounded and no measure of"
    " contention.",
    formula="Σ_kernel Σ t_overlapped / Σ_kernel n_overlapped · mean(t_alone)",
    unit="ratio",
    # a smaller ratio is no gain in itself: the kernels without overlap may have become slower
    better=None,
    not_applicable="no compute kernel of equal name, grid and shapes runs both with communication and alone",
    version=2,
    combine=_over_ranks,
)
def contention(rank: RankView) -> Value:
    kernels = _sum_tables(list(_batch_sums(rank)))
    overlapped, overlapped_ns, alone, alone_ns = (kernels[name].to_numpy() for name in _SUMS)
    both = (overlapped > 0) & (alone > 0)
    if not both.any():
        raise NotApplicable("no compute kernel runs both with communication and alone")
    expected = float((overlapped[both] * (alone_ns[both] / alone[both])).sum())
    if not expected:
        raise NotApplicable("the kernels that run both with communication and alone have no duration")
    ratio = int(overlapped_ns[both].sum()) / expected
    return Value(
        value=ratio,
        weight=expected,
        provenance="derived",
        reason=_CONFOUNDED if ratio < 1 else None,
        left_out={"overlapped kernels that never run alone": int(overlapped[~both].sum())},
    )


def _batch_sums(rank: RankView) -> Iterator[pa.Table]:
    """By batch: number and duration of compute kernels that overlap communication, and of the others."""
    shapes = _Shapes(rank)
    for batch, _ in rank.kernels("name", "category", "operator", *_GRID):
        stated = has_values(batch, "grid_x")
        compute = batch.filter(pa.array(stated & ~has_word(batch, "category", "communication")))
        starts, ends = row_spans(compute)
        shared, durations = intervals.within(rank.communication, starts, ends), ends - starts
        overlapped, alone = 2 * shared > durations, shared == 0
        columns = {
            "name": compute["name"],
            **{axis: compute[axis] for axis in _GRID},
            "shapes": shapes.codes_of(compute["operator"]),
            "overlapped": overlapped.astype(np.int64),
            "overlapped_ns": np.where(overlapped, durations, 0),
            "alone": alone.astype(np.int64),
            "alone_ns": np.where(alone, durations, 0),
        }
        sums = _sum_tables([pa.table(columns).filter(pa.array(overlapped | alone))])
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
