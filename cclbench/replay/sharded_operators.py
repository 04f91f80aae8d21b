# SPDX-License-Identifier: Apache-2.0
"""Times of kernels when tensors are split over k times as many ranks: by recorded shapes, else by category.

One of the three sizes of a matrix product is split (columns or rows of a weight, or of its gradient), never
tokens, and the model's hidden size only if no other one can be. Its time scales as the ratio of roofline
times, max(FLOPs / peak, bytes / memory bandwidth), at new and old sizes. Attention is split by heads, the
optimizer by parameters: 1 / k. Work on activations of the hidden size is done by each rank in full, unless
sequences are split as well; on others 1 / k. Without recorded shapes, what may be either lies between 1 / k
and 1, with the geometric mean as expected value; normalizations are done in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench.ground.intervals import Int64
from cclbench.hardware.accelerator import Accelerator
from cclbench.normalize.operators import Ids
from cclbench.operators.call import Call, NoModel, Tensor, parse_call
from cclbench.operators.cost import Cost, cost_of, model_of
from cclbench.record.run import Run

CUT: Final = ("gemm", "attention", "convolution", "moe", "embedding", "optimizer")
"""Kernel categories whose work is split over the ranks."""
_MATRIX: Final = {"aten::mm": 0, "aten::addmm": 1, "aten::addmm_": 1, "aten::_int_mm": 0}
"""Products of two matrices, and the index of their first operand."""
_ATTENTION: Final = "attention"
_COMMUNICATION: Final = ("c10d::", "_c10d_functional", "gloo:", "nccl:")


class BoundedFactor(NamedTuple):
    """New over old time: expected and bounds."""

    expected: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TensorCutting:
    """How tensors are split: k; hidden size and tokens of a micro-batch, where known; whether sequences are
    split as well; and the accelerator of roofline times."""

    k: float
    hidden: int | None = None
    tokens: int | None = None
    sequences: bool = False
    accelerator: Accelerator | None = None

    @property
    def cut_factor(self) -> BoundedFactor:
        """Factor of work that is split."""
        return BoundedFactor(1 / self.k, 1 / self.k, 1 / self.k)

    @property
    def cut_or_whole_factor(self) -> BoundedFactor:
        """Factor of work that is split or done in full."""
        if self.sequences:
            return self.cut_factor
        low, high = sorted((1 / self.k, 1.0))
        return BoundedFactor(sqrt(1 / self.k), low, high)

    def category_factor(self, category: str) -> BoundedFactor:
        """Factor of a kernel by its category."""
        if category == "normalization" and not self.sequences:
            return BoundedFactor(1.0, 1.0, 1.0)
        return self.cut_factor if category in CUT else self.cut_or_whole_factor

    def recorded_call_factor(
        self, name: str, shapes: str | None, dtypes: str | None, values: str | None, phase: str
    ) -> BoundedFactor | None:
        """Factor of a recorded call; None where its arguments do not determine it."""
        return self.call_factor(parse_call(name, shapes, dtypes, None, values), phase)

    def call_factor(self, call: Call, phase: str) -> BoundedFactor | None:
        """Factor of a call; None where its arguments do not determine it."""
        if phase == "optimizer":
            return self.cut_factor
        if call.name in _MATRIX:
            return self._product_factor(call, _MATRIX[call.name])
        model = model_of(call.name)
        if model is not None and (model.family == _ATTENTION or call.name in ("aten::bmm", "aten::baddbmm")):
            return self.cut_factor
        tensors = [tensor for tensor in call.tensors if tensor.shape]
        if self.sequences or self.hidden is None or not tensors:
            return self.cut_or_whole_factor if tensors else None
        return BoundedFactor(1.0, 1.0, 1.0) if self.hidden in tensors[0].shape else self.cut_factor

    def _product_factor(self, call: Call, first: int) -> BoundedFactor | None:
        try:
            a, b = call.tensor(first), call.tensor(first + 1)
            old = self._roofline_s(cost_of(call))
        except NoModel:
            return None
        if len(a.shape) != 2 or len(b.shape) != 2:
            return self.cut_factor
        sizes = (a.shape[0], b.shape[1], a.shape[1])
        open_ = [i for i, size in enumerate(sizes) if size != self.tokens] or [0, 1, 2]
        axes = [i for i in open_ if sizes[i] != self.hidden] or open_
        ratios = []
        for axis in axes:
            m, n, k = (size / self.k if i == axis else size for i, size in enumerate(sizes))
            m, n, k = (max(round(size), 1) for size in (m, n, k))
            operands = Tensor((m, k), a.dtype), Tensor((k, n), b.dtype)
            cut = replace(call, name="aten::mm", arguments=operands)
            ratios.append(self._roofline_s(cost_of(cut)) / old if old else 1 / self.k)
        return BoundedFactor(float(np.exp(np.mean(np.log(ratios)))), min(ratios), max(ratios))

    def _roofline_s(self, cost: Cost) -> float:
        """Roofline time, s; FLOPs where the accelerator is unknown."""
        if self.accelerator is None or not self.accelerator.hbm_bytes_per_s:
            return float(cost.flops)
        peak = self.accelerator.peak_flops_per_s.get(cost.precision or "")
        arithmetic = cost.flops / float(peak) if peak else 0.0
        return max(arithmetic, cost.bytes / float(self.accelerator.hbm_bytes_per_s))


@dataclass(frozen=True, slots=True)
class CutKernels:
    """Factors of kernels by name, for those with calls; on a CPU, of all operators together.

    `shaped`: share of the time whose factor is from recorded arguments.
    """

    by_name: Mapping[str, BoundedFactor]
    together: BoundedFactor
    shaped: float


def cut_kernels(run: Run, ranks: Iterable[int], cutting: TensorCutting) -> CutKernels:
    """Factors over ranks of a run, means weighted by time."""
    names: dict[str, int] = {}
    sums = np.zeros((4, 0))
    totals, shaped = np.zeros(4), 0.0
    factors: dict[tuple[str | None, ...], BoundedFactor | None] = {}
    for rank in ranks:
        table = run.rank(rank).operators()
        words, word = _call_combinations(table)
        call_factors = [
            factors.setdefault(combination, cutting.recorded_call_factor(*combination))
            for combination in words
        ]
        combination_ns = np.bincount(word, table["device_ns"].to_numpy(), len(words))
        for combination, factor, ns in zip(words, call_factors, combination_ns.tolist(), strict=True):
            if not combination[0].startswith(_COMMUNICATION):
                totals += ns * np.array([1.0, *(factor or cutting.cut_or_whole_factor)])
                shaped += ns if factor is not None and combination[1] else 0.0
        factor_rows = np.array(
            [[1.0, *factor] if factor else [np.nan] * 4 for factor in call_factors], np.float64
        ).reshape(-1, 4)
        ids = Ids(table["operator"].to_numpy())
        for batch in run.rank(rank).events(("kernel",), ("name", "operator", "dur_ns")):
            batch_names = [
                names.setdefault(name, len(names)) for name in batch["name"].dictionary.to_pylist()
            ]
            sums = np.pad(sums, ((0, 0), (0, len(names) - sums.shape[1])))
            called = ids.index_of(batch["operator"].fill_null(-1).to_numpy())
            own_factor = np.append(factor_rows[word], [[np.nan] * 4], axis=0)[called]
            linked = ~np.isnan(own_factor[:, 0])
            name = np.array(batch_names, np.int64)[batch["name"].indices.to_numpy()][linked]
            weight = batch["dur_ns"].to_numpy()[linked]
            for row, column in zip(sums, own_factor[linked].T, strict=True):
                row += np.bincount(name, weight * column, len(names))
    total = totals[0]
    together = BoundedFactor(*(totals[1:] / total).tolist()) if total else cutting.cut_or_whole_factor
    by_name = {
        name: BoundedFactor(*(sums[1:, i] / sums[0, i]).tolist()) for name, i in names.items() if sums[0, i]
    }
    return CutKernels(by_name, together, shaped / total if total else 0.0)


def _call_combinations(
    table: pa.Table,
) -> tuple[list[tuple[str, str | None, str | None, str | None, str]], Int64]:
    """Distinct combinations of name, sizes, types, values and phase of calls; and each call's index."""
    combined = table.select(["name", "shapes", "dtypes", "values", "phase"]).combine_chunks()
    code = np.zeros(len(combined), np.int64)
    for column in combined.columns:
        encoded = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        index = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        code = np.unique(code * (int(index.max(initial=0)) + 1) + index, return_inverse=True)[1]
    _, first = np.unique(code, return_index=True)
    return [tuple(row.values()) for row in combined.take(first).to_pylist()], code
