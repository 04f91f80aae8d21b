# SPDX-License-Identifier: Apache-2.0
"""Contention: how much longer kernels take beside communication than alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.metric import NotApplicable, Value, mean_over_ranks, metric
from cclbench.analyzers.view.columns import is_category, row_spans, word_codes
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64
from cclbench.normalize.operators import Ids

_GRID: Final = ("grid_x", "grid_y", "grid_z")
_KERNEL: Final = ("name", *_GRID, "shapes")
"""Kernels that have these in common are expected to take the same time."""
_SUMS: Final = ("beside", "beside_ns", "alone", "alone_ns")
_NO_OPERATOR: Final = np.iinfo(np.int64).min
_CONFOUNDED: Final = (
    "confounded: communication does not speed kernels up, so those beside it differ in something else"
)


def _over_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Σ weight·value / Σ weight over the ranks that have one; of a ratio, the ratio of the sums."""
    for value in mean_over_ranks(ranks):
        yield replace(value, reason=_CONFOUNDED if (value.value or 0.0) < 1 else None)


@metric(
    "compute.contention",
    definition="How much longer compute kernels take beside communication: the duration of those with more"
    " than half of it inside K, over what they would take at the mean duration of those with none of it"
    " inside K, kernel by kernel: the same name, the same grid in all three dimensions and, where the trace"
    " records them, the same input shapes of the operator that launched it. Kernels that run only one way are"
    " left out. Below 1 the ratio is confounded and says nothing of contention.",
    formula="Σ_kernel Σ t_beside / Σ_kernel n_beside · mean(t_alone)",
    unit="ratio",
    # The kernels alone may be what changed: a smaller ratio is no gain of its own.
    better=None,
    not_applicable="no compute kernel runs both beside communication and alone, with the same name, grid and"
    " shapes",
    version=2,
    combine=_over_ranks,
)
def contention(rank: RankView) -> Value:
    kernels = _sum_tables(list(_batch_sums(rank)))
    beside, beside_ns, alone, alone_ns = (kernels[name].to_numpy() for name in _SUMS)
    both = (beside > 0) & (alone > 0)
    if not both.any():
        raise NotApplicable("no compute kernel runs both beside communication and alone")
    expected = float((beside[both] * (alone_ns[both] / alone[both])).sum())
    if not expected:
        raise NotApplicable("the kernels that run both beside communication and alone have no duration")
    ratio = int(beside_ns[both].sum()) / expected
    return Value(
        value=ratio,
        weight=expected,
        provenance="derived",
        reason=_CONFOUNDED if ratio < 1 else None,
        left_out={"kernels beside communication that never run alone": int(beside[~both].sum())},
    )


def _batch_sums(rank: RankView) -> Iterator[pa.Table]:
    """Of each batch, number and summed duration of compute kernels beside communication, and alone."""
    shapes = _Shapes(rank)
    for batch, _ in rank.kernels("name", "category", "operator", *_GRID):
        stated = batch["grid_x"].is_valid()
        compute = batch.filter(pc.and_(stated, pa.array(~is_category(batch, "communication"))))
        starts, ends = row_spans(compute)
        shared, durations = intervals.within(rank.communication, starts, ends), ends - starts
        beside, alone = 2 * shared > durations, shared == 0
        columns = {
            "name": compute["name"],
            **{axis: compute[axis] for axis in _GRID},
            "shapes": shapes.codes_of(compute["operator"]),
            "beside": beside.astype(np.int64),
            "beside_ns": np.where(beside, durations, 0),
            "alone": alone.astype(np.int64),
            "alone_ns": np.where(alone, durations, 0),
        }
        sums = _sum_tables([pa.table(columns).filter(pa.array(beside | alone))])
        yield sums.set_column(0, "name", sums["name"].cast(pa.string()))


def _sum_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """The tables as one, with a row a kernel."""
    whole = pa.concat_tables(tables).group_by(list(_KERNEL), use_threads=False)
    sums = whole.aggregate([(name, "sum") for name in _SUMS])
    return sums.select([*_KERNEL, *(f"{name}_sum" for name in _SUMS)]).rename_columns([*_KERNEL, *_SUMS])


class _Shapes:
    """The shapes that operators' calls are recorded with, as codes."""

    def __init__(self, rank: RankView) -> None:
        self._ids = Ids(rank.operators("operator")["operator"].to_numpy())
        self._codes, self._words = word_codes(rank.operators("shapes"), "shapes")

    def codes_of(self, operators: pa.Array) -> Int64:
        """Code of each operator's shapes, −1 where they are not recorded, shape of `operators`."""
        at = self._ids.index_of(np.asarray(operators.fill_null(_NO_OPERATOR).to_numpy()))
        code = np.full(len(at), -1, np.int64)
        code[at >= 0] = self._codes[at[at >= 0]]
        return np.where(code == len(self._words) - 1, -1, code)
