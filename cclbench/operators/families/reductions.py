# SPDX-License-Identifier: Apache-2.0
"""Reductions, scans and sorts along dimensions."""

from __future__ import annotations

from typing import Any, Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import is_floating, promotion_rank, stated_type, vector_precision
from cclbench.operators.families.elementwise import elementwise_cost

FAMILY = "reduction"

REDUCTIONS: Final = {
    "sum": (1, 1, 2, 3),
    "nansum": (1, 1, 2, 3),
    "mean": (1, 1, 2, 3),
    "prod": (1, 1, 2, 3),
    "amax": (1, 1, 2, None),
    "amin": (1, 1, 2, None),
    "argmax": (1, 1, 2, None),
    "argmin": (1, 1, 2, None),
    "all": (0, 1, 2, None),
    "any": (0, 1, 2, None),
    "logsumexp": (4, 1, 2, None),
    "var": (4, 1, 3, None),
    "std": (4, 1, 3, None),
    "norm": (2, 2, 3, None),
    "linalg_vector_norm": (2, 2, 3, 4),
}
"""FLOPs per element, and positions of dim, keepdim and dtype.  One or two arguments reduce all dimensions.

logsumexp max, x − max, exp, sum; var x̄ first, then Σ(x − x̄)²; norm x², sum."""


def kept_shape(shape: tuple[int, ...], dims: Any, keep: Any) -> tuple[int, ...]:
    """The shape after a reduction; all dimensions are reduced where none is named."""
    axes = dims if isinstance(dims, tuple) else () if dims is None else (dims,)
    if not all(type(axis) is int and -len(shape) <= axis < max(len(shape), 1) for axis in axes):
        raise NoModel("the dimensions that it reduces are not recorded")
    reduced = {axis % len(shape) for axis in axes if shape} or set(range(len(shape)))
    if keep is True:
        return tuple(1 if i in reduced else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in reduced)


def reduced_type(name: str, dtype: str) -> str:
    """The type of the result: int64 for integer sums and for positions, bool for predicates."""
    if name in ("all", "any"):
        return "bool"
    if name in ("argmax", "argmin") or (promotion_rank(dtype) < 2 and name in ("sum", "nansum", "prod")):
        return "int64"
    return dtype


@cost_model(FAMILY, rf"aten::(?:{'|'.join(REDUCTIONS)})")
def reduction(call: Call) -> Cost:
    """A sum, mean, extremum, norm ... over all or some dimensions.

    FLOPs: an element of the input: 1 of sum, mean and extrema, 2 of norms, 4 of variances
    Bytes: the input, the result
    Source: native_functions.yaml: sum.dim_IntList(self, dim, keepdim, dtype), mean alike;
    linalg_vector_norm(self, ord, dim, keepdim, dtype)
    """
    name = call.name.removeprefix("aten::")
    flops, dim, keep, dtype_index = REDUCTIONS[name]
    x = call.tensor(0)
    is_total = len(call.arguments) <= 2
    unknown = not is_total and call.value(dim) is None and call.value(keep) is None
    result = None
    if not unknown:
        shape = () if is_total else kept_shape(x.shape, call.value(dim), call.value(keep))
        stated = None if dtype_index is None else call.value(1 if is_total and dim == 1 else dtype_index)
        result = Tensor(shape, stated_type(stated, reduced_type(name, x.dtype)))
    return Cost.from_tensors(
        flops=flops * x.elements if is_floating(x.dtype) else 0,
        precision=vector_precision(x.dtype),
        reads=(x,),
        writes=(result,),
        assumes="which dimensions it reduces is not recorded: its result is not counted" if unknown else None,
    )


@cost_model(FAMILY, r"aten::(?:max|min)")
def extremum(call: Call) -> Cost:
    """max and min: of all elements, along a dimension with positions, or of two tensors.

    FLOPs: 1 an element
    Bytes: the input, the result, and along a dimension the positions in int64
    Source: native_functions.yaml: max(self), max.dim(self, dim, keepdim), max.other(self, other)
    """
    x, other = call.tensor(0), call.optional_tensor(1)
    if other is not None:
        return elementwise_cost(call, (x, other), 1)
    results: tuple[Tensor, ...] = (Tensor((), x.dtype),)
    if len(call.arguments) > 1:
        if call.value(1) is None:
            raise NoModel("the dimension that it reduces is not recorded")
        shape = kept_shape(x.shape, call.value(1), call.value(2))
        results = (Tensor(shape, x.dtype), Tensor(shape, "int64"))
    flops = x.elements if is_floating(x.dtype) else 0
    return Cost.from_tensors(flops=flops, precision=vector_precision(x.dtype), reads=(x,), writes=results)


@cost_model(FAMILY, r"aten::(?:cumsum|cumprod|logcumsumexp)_?")
def scan(call: Call) -> Cost:
    """A running sum or product along a dimension.

    FLOPs: 1 an element (3 of logcumsumexp)
    Bytes: the input, the result
    Source: native_functions.yaml: cumsum(self, dim, dtype)
    """
    x = call.tensor(0)
    dtype = "int64" if promotion_rank(x.dtype) < 2 else x.dtype
    result = call.optional_tensor(3) or Tensor(x.shape, stated_type(call.value(2), dtype))
    per_element = 3 if "logcumsumexp" in call.name else 1
    return Cost.from_tensors(
        flops=per_element * x.elements if is_floating(x.dtype) else 0,
        precision=vector_precision(x.dtype),
        reads=(x,),
        writes=(result,),
    )


@cost_model(FAMILY, r"aten::topk")
def top_k(call: Call) -> Cost:
    """The k largest along a dimension, with their positions.

    FLOPs: 0: how many are compared depends on the algorithm
    Bytes: the input; k values and k positions in int64 a slice
    Source: native_functions.yaml: topk(self, k, dim, largest, sorted)
    """
    x, k = call.tensor(0), call.value(1)
    if type(k) is not int:
        raise NoModel("k is not recorded")
    axis = call.value(2) if type(call.value(2)) is int else -1
    shape = list(x.shape)
    shape[axis] = k
    results = (Tensor(tuple(shape), x.dtype), Tensor(tuple(shape), "int64"))
    return Cost.from_tensors(reads=(x,), writes=results)


@cost_model(FAMILY, r"aten::(?:sort|argsort)")
def sort(call: Call) -> Cost:
    """Sorting along a dimension, with positions.

    FLOPs: 0: how many are compared depends on the algorithm
    Bytes: the input; values and positions in int64
    Source: native_functions.yaml: sort(self, dim, descending), argsort alike without values
    """
    x = call.tensor(0)
    values = None if call.name == "aten::argsort" else Tensor(x.shape, x.dtype)
    return Cost.from_tensors(reads=(x,), writes=(values, Tensor(x.shape, "int64")))


@cost_model(FAMILY, r"aten::(?:histc|bincount)")
def histogram(call: Call) -> Cost:
    """Numbers of elements by value.

    FLOPs: 0
    Bytes: the input; the bins, of bincount at least as many as stated
    Source: native_functions.yaml: histc(self, bins, min, max), bincount(self, weights, minlength)
    """
    x, counts = call.tensor(0), call.name == "aten::bincount"
    bins = call.value(2 if counts else 1)
    if type(bins) is not int:
        raise NoModel("the number of bins is not recorded")
    return Cost.from_tensors(
        reads=(x, call.optional_tensor(1) if counts else None),
        writes=(Tensor((bins,), "int64" if counts else x.dtype),),
        assumes="the largest value is below the number of bins" if counts else None,
    )
