# SPDX-License-Identifier: Apache-2.0
"""Sizes and layout of PyTorch's matrix products."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from cclbench.operators.call import Call, Tensor
from cclbench.operators.cost import Cost

_FIRST: Final = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_int_mm", "aten::_scaled_mm", "aten::linear"), 0),
    **dict.fromkeys(("aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::baddbmm_"), 1),
    "aten::_addmm_activation": 1,
}
"""Index of the first operand, (..., M, K); the second, (..., K, N), follows."""
_LARGEST: Final = 2**63 - 1
_BY_WEIGHT: Final = "aten::linear"
"""Its second operand is (N, K)."""


class ProductSizes(NamedTuple):
    """A product of `batch` matrices (M, K) times (K, N).

    `layout`: a letter an operand, N where its rows are contiguous in memory, T where its columns are; None
    where strides are not recorded or neither is.
    """

    batch: int
    m: int
    n: int
    k: int
    layout: str | None = None


def product_sizes(call: Call, cost: Cost) -> ProductSizes | None:
    """The sizes of a product that costs 2·B·M·N·K; None for other operators."""
    first = _FIRST.get(call.name)
    operands = () if first is None else call.arguments[first : first + 2]
    if len(operands) < 2:
        return None
    a, b = operands
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or min(len(a.shape), len(b.shape)) < 2:
        return None
    if call.name == _BY_WEIGHT:
        *rows, k = a.shape
        batch, m, n = 1, math.prod(rows), b.shape[0]
    else:
        *batches, m, k = a.shape
        batch, n = math.prod(batches), b.shape[-1]
    letters = _letter(a), _letter(b, transposed=call.name == _BY_WEIGHT)
    sizes = ProductSizes(batch, m, n, k, "".join(map(str, letters)) if None not in letters else None)
    return sizes if 2 * batch * m * n * k == cost.flops and max(sizes[:4]) <= _LARGEST else None


def _letter(operand: Tensor, *, transposed: bool = False) -> str | None:
    if operand.strides is None or len(operand.strides) != len(operand.shape):
        return None
    rows, columns = operand.shape[-2:]
    row_step, column_step = operand.strides[-2:]
    if column_step == 1 and (row_step >= columns or rows == 1):
        return "T" if transposed else "N"
    if row_step == 1 and (column_step >= rows or columns == 1):
        return "N" if transposed else "T"
    return None
