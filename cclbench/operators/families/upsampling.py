# SPDX-License-Identifier: Apache-2.0
"""Resampling of images; forward and backward."""

from __future__ import annotations

import re
from typing import Any, Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import vector_precision

FAMILY = "upsampling"
_NAMES: Final = r"aten::_?upsample_(?:nearest(?:_exact)?|(?:bi|tri)?linear|bicubic)[123]d"
_TAPS: Final = {"nearest": 1, "linear": 2, "cubic": 4}
"""Neighbours of a point along a dimension."""


def taps_and_dimensions(name: str) -> tuple[int, int]:
    """Neighbours along a dimension, and dimensions, by an operator's name."""
    match = re.search(r"(nearest|linear|cubic)\w*?(\d)d", name)
    if match is None:
        raise NoModel(f"how {name} interpolates is unknown")
    return _TAPS[match[1]], int(match[2])


def recorded_sizes(value: Any, label: str) -> tuple[int, ...]:
    """A list of sizes; `NoModel` where it is not recorded."""
    if not isinstance(value, tuple) or not value or not all(type(size) is int for size in value):
        raise NoModel(f"the size of its {label} is not recorded")
    return value


@cost_model(FAMILY, _NAMES)
def upsample(call: Call) -> Cost:
    """Each element of the result is a weighted sum of its neighbours in the input.

    Of n neighbours along each of d dimensions, one dimension after the other: 2·n − 1 operations for each of
    n^(d−1) + ... + n + 1 sums.

    FLOPs: an element of the result: 0 of nearest, 9 of bilinear, 21 of trilinear, 35 of bicubic
    Bytes: the input, of nearest at most an element for each of the result; the result
    Source: native_functions.yaml: upsample_bilinear2d(self, output_size, align_corners, scales_h, scales_w)
    """
    x, sizes = call.tensor(0), recorded_sizes(call.value(1), "result")
    taps, dimensions = taps_and_dimensions(call.name)
    if len(x.shape) != dimensions + 2 or len(sizes) != dimensions:
        raise NoModel("its operands have other dimensions than its documentation states")
    out = Tensor((*x.shape[:2], *sizes), x.dtype)
    sums = sum(taps**power for power in range(dimensions))
    read = Tensor((min(x.elements, out.elements * taps**dimensions),), x.dtype)
    return Cost.from_tensors(
        flops=(2 * taps - 1) * sums * out.elements if taps > 1 else 0,
        precision=vector_precision(x.dtype),
        reads=(read,),
        writes=(out,),
    )


@cost_model(FAMILY, rf"{_NAMES}_backward")
def upsample_backward(call: Call) -> Cost:
    """The gradient of each element of the result goes to its neighbours in the input.

    FLOPs: an element of the result's gradient: 1 of nearest, else 2 a neighbour (8 of bilinear)
    Bytes: the result's gradient, the input's gradient
    Source: native_functions.yaml: upsample_bilinear2d_backward(grad_output, output_size, input_size,
    align_corners, scales_h, scales_w)
    """
    grad, sizes = call.tensor(0), recorded_sizes(call.value(2), "input")
    taps, dimensions = taps_and_dimensions(call.name)
    return Cost.from_tensors(
        flops=(2 * taps**dimensions if taps > 1 else 1) * grad.elements,
        precision=vector_precision(grad.dtype),
        reads=(grad,),
        writes=(Tensor(sizes, grad.dtype),),
    )
