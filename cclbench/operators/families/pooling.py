# SPDX-License-Identifier: Apache-2.0
"""Pooling; forward and backward."""

from __future__ import annotations

import math
from typing import Any

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import vector_precision
from cclbench.operators.shapes import per_dimension

FAMILY = "pooling"


def pooled_tensor(
    x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: Any
) -> tuple[Tensor, int]:
    """The result, and the elements per window, as in the documentation of torch.nn.MaxPool2d."""
    dimensions = len(x.shape) - 2
    sizes = per_dimension(kernel, dimensions, "kernel")
    steps = per_dimension(stride, dimensions, "stride") if stride != () else sizes
    pads = per_dimension(padding, dimensions, "padding")
    gaps = per_dimension(dilation, dimensions, "dilation")
    if not isinstance(ceil, bool):
        raise NoModel("its rounding (ceil_mode) is not recorded")
    shape = []
    for n, k, s, p, d in zip(x.shape[2:], sizes, steps, pads, gaps, strict=True):
        steps_in = n + 2 * p - d * (k - 1) - 1
        count = (-(-steps_in // s) if ceil else steps_in // s) + 1
        # A window that would begin in the padding on the right is dropped.
        shape.append(count - 1 if ceil and (count - 1) * s >= n + p else count)
    if any(size < 0 for size in shape):
        raise NoModel("the window is larger than the input")
    return Tensor((*x.shape[:2], *shape), x.dtype), math.prod(sizes)


@cost_model(FAMILY, r"aten::max_pool[23]d_with_indices")
def max_pool(call: Call) -> Cost:
    """The maximum of each window, with its position.

    FLOPs: a comparison an element of each window
    Bytes: the input; the result, and positions in int64
    Source: native_functions.yaml: max_pool2d_with_indices(self, kernel_size, stride, padding, dilation,
    ceil_mode)
    """
    x = call.tensor(0)
    out, window = pooled_tensor(x, *(call.value(index) for index in range(1, 6)))
    return Cost.from_tensors(
        flops=out.elements * window,
        precision=vector_precision(x.dtype),
        reads=(x,),
        writes=(out, Tensor(out.shape, "int64")),
    )


@cost_model(FAMILY, r"aten::max_pool[23]d_with_indices_backward")
def max_pool_backward(call: Call) -> Cost:
    """The gradient goes to each maximum.

    FLOPs: 1 an element of the result
    Bytes: the result's gradient, positions; the input's gradient
    Source: native_functions.yaml: max_pool2d_with_indices_backward(grad_output, self, kernel_size, stride,
    padding, dilation, ceil_mode, indices)
    """
    grad, x = call.tensor(0), call.tensor(1)
    return Cost.from_tensors(
        flops=grad.elements,
        precision=vector_precision(x.dtype),
        reads=(grad, call.tensor(7)),
        writes=(Tensor(x.shape, x.dtype),),
    )


@cost_model(FAMILY, r"aten::avg_pool[23]d")
def average_pool(call: Call) -> Cost:
    """The mean of each window.

    FLOPs: 1 an element of each window
    Bytes: the input, the result
    Source: native_functions.yaml: avg_pool2d(self, kernel_size, stride, padding, ceil_mode, ...)
    """
    x = call.tensor(0)
    kernel, stride, padding, ceil = (call.value(index) for index in range(1, 5))
    out, window = pooled_tensor(x, kernel, stride, padding, 1, ceil)
    precision = vector_precision(x.dtype)
    return Cost.from_tensors(flops=out.elements * window, precision=precision, reads=(x,), writes=(out,))


@cost_model(FAMILY, r"aten::avg_pool[23]d_backward")
def average_pool_backward(call: Call) -> Cost:
    """The gradient is spread over each window.

    FLOPs: 1 an element of each window
    Bytes: the result's gradient, the input's gradient
    Source: native_functions.yaml: avg_pool2d_backward(grad_output, self, kernel_size, stride, ...)
    """
    grad, x = call.tensor(0), call.tensor(1)
    window = math.prod(per_dimension(call.value(2), len(x.shape) - 2, "kernel"))
    return Cost.from_tensors(
        flops=grad.elements * window,
        precision=vector_precision(x.dtype),
        reads=(grad,),
        writes=(Tensor(x.shape, x.dtype),),
    )


@cost_model(FAMILY, r"aten::_adaptive_avg_pool[23]d")
def adaptive_average_pool(call: Call) -> Cost:
    """The mean of as many windows as the result has elements.

    FLOPs: 1 an element of the input
    Bytes: the input, the result
    Source: native_functions.yaml: _adaptive_avg_pool2d(self, output_size)
    """
    x = call.tensor(0)
    dimensions = len(x.shape) - 2
    sizes = per_dimension(call.value(1), dimensions, "output size")
    return Cost.from_tensors(
        flops=x.elements,
        precision=vector_precision(x.dtype),
        reads=(x,),
        writes=(Tensor((*x.shape[:2], *sizes), x.dtype),),
    )


@cost_model(FAMILY, r"aten::_adaptive_avg_pool[23]d_backward")
def adaptive_average_pool_backward(call: Call) -> Cost:
    """The gradient is spread over each window.

    FLOPs: 1 an element of the input
    Bytes: the result's gradient, the input's gradient
    Source: native_functions.yaml: _adaptive_avg_pool2d_backward(grad_output, self)
    """
    grad, x = call.tensor(0), call.tensor(1)
    return Cost.from_tensors(
        flops=x.elements,
        precision=vector_precision(x.dtype),
        reads=(grad,),
        writes=(Tensor(x.shape, x.dtype),),
    )
