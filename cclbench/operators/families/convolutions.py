# SPDX-License-Identifier: Apache-2.0
"""Convolutions of any number of dimensions, grouped, dilated and transposed; forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import matrix_precision
from cclbench.operators.shapes import per_dimension

FAMILY = "convolution"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentPositions:
    """Argument positions in an operator's signature; None for those that it lacks."""

    bias: int | None = None
    stride: int
    padding: int
    dilation: int | None = None
    output_padding: int | None = None
    groups: int | None = None


_TRANSPOSED: Final = ArgumentPositions(bias=2, padding=3, output_padding=4, stride=5, dilation=6, groups=7)
_SLOW: Final = ArgumentPositions(bias=3, stride=4, padding=5, dilation=6)
_POSITIONS: Final = {
    "cudnn_convolution": ArgumentPositions(padding=2, stride=3, dilation=4, groups=5),
    "cudnn_convolution_relu": ArgumentPositions(bias=2, stride=3, padding=4, dilation=5, groups=6),
    "cudnn_convolution_transpose": ArgumentPositions(
        padding=2, output_padding=3, stride=4, dilation=5, groups=6
    ),
    "miopen_convolution": ArgumentPositions(bias=2, padding=3, stride=4, dilation=5, groups=6),
    "miopen_convolution_relu": ArgumentPositions(bias=2, stride=3, padding=4, dilation=5, groups=6),
    "miopen_convolution_transpose": _TRANSPOSED,
    "miopen_depthwise_convolution": ArgumentPositions(bias=2, padding=3, stride=4, dilation=5, groups=6),
    "mkldnn_convolution": ArgumentPositions(bias=2, padding=3, stride=4, dilation=5, groups=6),
    "_slow_conv2d_forward": ArgumentPositions(bias=3, stride=4, padding=5),
    "slow_conv3d_forward": ArgumentPositions(bias=3, stride=4, padding=5),
    "_conv_depthwise2d": _SLOW,
    "conv_depthwise3d": _SLOW,
    "slow_conv_dilated2d": _SLOW,
    "slow_conv_dilated3d": _SLOW,
    "slow_conv_transpose2d": ArgumentPositions(bias=3, stride=4, padding=5, output_padding=6, dilation=7),
    "slow_conv_transpose3d": ArgumentPositions(bias=3, stride=4, padding=5, output_padding=6, dilation=7),
}
"""As in native_functions.yaml; arguments 0 and 1 are the input and the weight."""


def spatial_sizes(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Sizes of the result without batch and channels; transposed if there is an output padding.

    ⌊(n + 2p − d(k−1) − 1) / s⌋ + 1, transposed (n − 1)s − 2p + d(k−1) + output padding + 1: the
    documentation of torch.nn.Conv2d and ConvTranspose2d.
    """
    columns = list(zip(sizes, kernel, stride, padding, dilation, strict=True))
    if output_padding is None:
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in columns)
    return tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for (n, k, s, p, d), extra in zip(columns, output_padding, strict=True)
    )


def count_multiplications(x: Tensor, weight: Tensor, out: Tensor, *, transposed: bool) -> int:
    """Elements of the result (transposed: of the input) times the weight's elements per filter.

    Multiplications with padding count, as in FlopCounterMode and as most kernels compute them.
    """
    return (x if transposed else out).elements * math.prod(weight.shape[1:])


def forward_cost(call: Call, positions: ArgumentPositions, *, transposed: bool) -> Cost:
    """The cost of a convolution with its arguments at these positions."""
    x, weight = call.tensor(0), call.tensor(1)
    bias = None if positions.bias is None else call.optional_tensor(positions.bias)
    batch, channels, *sizes = x.shape
    filters, per_group, *kernel = weight.shape
    dimensions = len(sizes)
    stride = per_dimension(call.value(positions.stride), dimensions, "stride")
    padding = per_dimension(call.value(positions.padding), dimensions, "padding")
    dilation = (1,) * dimensions
    if positions.dilation is not None:
        dilation = per_dimension(call.value(positions.dilation), dimensions, "dilation")
    output_padding = None
    if transposed:
        if positions.output_padding is None:
            raise NoModel("its output padding is not recorded")
        output_padding = per_dimension(call.value(positions.output_padding), dimensions, "output padding")
    groups = 1
    if positions.groups is not None:
        (groups,) = per_dimension(call.value(positions.groups), 1, "number of groups")
    elif not transposed:
        groups = channels // per_group
    if channels != (filters if transposed else groups * per_group):
        raise NoModel(f"{channels} channels do not fit a weight of {weight.shape}")
    spatial = spatial_sizes(sizes, kernel, stride, padding, dilation, output_padding)
    if any(size < 0 for size in spatial):
        raise NoModel("the kernel is larger than the input")
    out = Tensor((batch, per_group * groups if transposed else filters, *spatial), x.dtype)
    return Cost.from_tensors(
        flops=2 * count_multiplications(x, weight, out, transposed=transposed),
        precision=matrix_precision(call, x),
        reads=(x, weight, bias),
        writes=(out,),
    )


@cost_model(FAMILY, r"aten::_?convolution", r"aten::convolution_overrideable")
def convolution(call: Call) -> Cost:
    """A convolution where it launches kernels itself (elsewhere the backend's operator in it is counted).

    FLOPs: 2·N·C_out·∏out·(C_in/groups)·∏kernel; transposed, ∏in in place of ∏out and C_in, C_out exchanged
    Bytes: input, weight, bias, result
    Source: native_functions.yaml: convolution(input, weight, bias, stride, padding, dilation, transposed,
    output_padding, groups); FlopCounterMode
    """
    transposed = call.value(6)
    if not isinstance(transposed, bool):
        raise NoModel("its stride, padding and dilation are not recorded")
    positions = ArgumentPositions(bias=2, stride=3, padding=4, dilation=5, output_padding=7, groups=8)
    return forward_cost(call, positions, transposed=transposed)


@cost_model(FAMILY, *(f"aten::{name}" for name in _POSITIONS))
def backend_convolution(call: Call) -> Cost:
    """A convolution by cuDNN, MIOpen, oneDNN or PyTorch's own kernels.

    FLOPs: 2·N·C_out·∏out·(C_in/groups)·∏kernel; transposed, ∏in in place of ∏out and C_in, C_out exchanged
    Bytes: input, weight, bias, result
    Source: native_functions.yaml, each in an order of its own
    """
    name = call.name.removeprefix("aten::")
    return forward_cost(call, _POSITIONS[name], transposed="transpose" in name)


@cost_model(FAMILY, r"aten::cudnn_convolution_add_relu", r"aten::miopen_convolution_add_relu")
def convolution_add_relu(call: Call) -> Cost:
    """relu(convolution(x) + alpha·z + bias) in one kernel.

    FLOPs: those of the convolution, and 3 an element of the result (scale, add, relu)
    Bytes: input, weight, z, bias, result
    Source: native_functions.yaml: cudnn_convolution_add_relu(self, weight, z, alpha, bias, stride, padding,
    dilation, groups)
    Tested: no trace
    """
    cost = forward_cost(
        call, ArgumentPositions(bias=4, stride=5, padding=6, dilation=7, groups=8), transposed=False
    )
    z = call.tensor(2)
    return replace(cost, flops=cost.flops + 3 * z.elements, read_bytes=cost.read_bytes + z.distinct_bytes)


def backward_cost(
    call: Call, grad: Tensor, x: Tensor, weight: Tensor, *, transposed: bool, gradients: tuple[bool, ...]
) -> Cost:
    """A product of the forward size for each of the input's and the weight's gradient, if wanted."""
    to_input, to_weight, to_bias = gradients
    products = 2 * count_multiplications(x, weight, grad, transposed=transposed)
    return Cost.from_tensors(
        flops=products * (to_input + to_weight),
        precision=matrix_precision(call, grad),
        reads=(grad, x if to_weight else None, weight if to_input else None),
        writes=(
            Tensor(x.shape, x.dtype) if to_input else None,
            Tensor(weight.shape, weight.dtype) if to_weight else None,
            Tensor(grad.shape[1:2], weight.dtype) if to_bias else None,
        ),
    )


def gradient_mask(value: Any) -> tuple[bool, ...]:
    """The output mask: whether the gradients of input, weight and bias are computed."""
    if not isinstance(value, tuple) or len(value) != 3 or not all(isinstance(flag, bool) for flag in value):
        raise NoModel("which gradients it computes is not recorded")
    return value


@cost_model(FAMILY, r"aten::convolution_backward(?:_overrideable)?")
def convolution_backward(call: Call) -> Cost:
    """The gradients of a convolution that its output mask asks for.

    FLOPs: the forward's for the input's gradient, the same for the weight's; sums of the bias's are left out
    Bytes: the result's gradient, the input (for the weight's), the weight (for the input's), each gradient
    Source: native_functions.yaml: convolution_backward(grad_output, input, weight, bias_sizes, stride,
    padding, dilation, transposed, output_padding, groups, output_mask)
    """
    is_overrideable = "overrideable" in call.name
    transposed = call.value(6 if is_overrideable else 7)
    if not isinstance(transposed, bool):
        raise NoModel("which gradients it computes is not recorded")
    gradients = gradient_mask(call.value(9 if is_overrideable else 10))
    grad, x, weight = map(call.tensor, range(3))
    return backward_cost(call, grad, x, weight, transposed=transposed, gradients=gradients)


@cost_model(FAMILY, r"aten::mkldnn_convolution_backward")
def mkldnn_convolution_backward(call: Call) -> Cost:
    """The gradients of a convolution by oneDNN, PyTorch before 1.11.

    FLOPs: the forward's for the input's gradient, the same for the weight's; sums of the bias's are left out
    Bytes: the result's gradient, the input (for the weight's), the weight (for the input's), each gradient
    Source: native_functions.yaml of 1.10: mkldnn_convolution_backward(self, grad_output, weight, padding,
    stride, dilation, groups, output_mask)
    Tested: no trace
    """
    x, grad, weight = map(call.tensor, range(3))
    return backward_cost(call, grad, x, weight, transposed=False, gradients=gradient_mask(call.value(7)))


@cost_model(FAMILY, r"aten::(?:cudnn|miopen)_convolution_backward_(?:input|weight)")
def backend_convolution_backward(call: Call) -> Cost:
    """One gradient of a convolution by cuDNN or MIOpen, PyTorch before 1.11.

    FLOPs: the forward's
    Bytes: the result's gradient, the other operand, the gradient
    Source: native_functions.yaml of 1.10: cudnn_convolution_backward_input(self_size, grad_output, weight,
    ...), cudnn_convolution_backward_weight(weight_size, grad_output, self, ...)
    Tested: no trace
    """
    size, grad, other = call.value(0), call.tensor(1), call.tensor(2)
    if not isinstance(size, tuple) or not size or not all(type(extent) is int for extent in size):
        raise NoModel("the size of the gradient is not recorded")
    to_input = call.name.endswith("input")
    gradient = Tensor(size, other.dtype)
    x, weight = (gradient, other) if to_input else (other, gradient)
    return backward_cost(call, grad, x, weight, transposed=False, gradients=(to_input, not to_input, False))
