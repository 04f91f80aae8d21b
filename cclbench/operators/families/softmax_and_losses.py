# SPDX-License-Identifier: Apache-2.0
"""Softmax and losses; forward and backward."""

from __future__ import annotations

from typing import Any, Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import stated_type, vector_precision
from cclbench.operators.families.elementwise import elementwise_cost, operands_and_result

FAMILY = "softmax and losses"


@cost_model(FAMILY, r"aten::_(?:log_)?softmax")
def softmax(call: Call) -> Cost:
    """exp(x − max)/Σ, or its logarithm, along a dimension.

    FLOPs: 5 an element: maximum, difference, exponential, sum, and a division (difference)
    Bytes: the input, the result (float where half goes to float)
    Source: native_functions.yaml: _softmax(self, dim, half_to_float)
    """
    x = call.tensor(0)
    dtype = "float32" if call.value(2) is True else x.dtype
    return Cost.from_tensors(
        flops=5 * x.elements,
        precision=vector_precision(x.dtype),
        reads=(x,),
        writes=(Tensor(x.shape, dtype),),
    )


@cost_model(FAMILY, r"aten::_(?:log_)?softmax_backward_data")
def softmax_backward(call: Call) -> Cost:
    """y·(g − Σ g·y), of the logarithm g − exp(y)·Σ g.

    FLOPs: 4 an element
    Bytes: the result's gradient, the result, the input's gradient
    Source: native_functions.yaml: _softmax_backward_data(grad_output, output, dim, input_dtype)
    """
    grad, out = call.tensor(0), call.tensor(1)
    return Cost.from_tensors(
        flops=4 * out.elements,
        precision=vector_precision(out.dtype),
        reads=(grad, out),
        writes=(Tensor(out.shape, stated_type(call.value(3), out.dtype)),),
    )


LOSSES: Final = {
    "mse_loss": (2, 2),
    "smooth_l1_loss": (2, 5),
    "huber_loss": (2, 5),
    "binary_cross_entropy": (3, 8),
}
"""Tensors, and FLOPs per element: mse (x − t)²; binary cross entropy −(t·log x + (1 − t)·log(1 − x))."""

LOSS_GRADIENTS: Final = {
    "mse_loss_backward": (3, 3),
    "smooth_l1_loss_backward": (3, 5),
    "huber_loss_backward": (3, 5),
    "binary_cross_entropy_backward": (4, 5),
}
"""Tensors, and FLOPs per element: mse 2/n·(x − t)·g; binary cross entropy g·(x − t)/(x·(1 − x))."""


@cost_model(FAMILY, rf"aten::(?:{'|'.join(LOSSES)})")
def elementwise_loss(call: Call) -> Cost:
    """A loss of each element; its mean or sum is an operator of its own in it.

    FLOPs: an element: 2 of mse_loss, 8 of binary_cross_entropy
    Bytes: input, target, weight, the loss of each element
    Source: native_functions.yaml: mse_loss(self, target, reduction);
    binary_cross_entropy(self, target, weight, reduction)
    """
    count, flops = LOSSES[call.name.removeprefix("aten::")]
    operands, _ = operands_and_result(call, count)
    return elementwise_cost(call, operands, flops)


@cost_model(FAMILY, rf"aten::(?:{'|'.join(LOSS_GRADIENTS)})")
def elementwise_loss_backward(call: Call) -> Cost:
    """The gradient of a loss of each element.

    FLOPs: an element: 3 of mse_loss, 5 of binary_cross_entropy
    Bytes: the loss's gradient, input, target, weight, the input's gradient
    Source: native_functions.yaml: mse_loss_backward(grad_output, self, target, reduction)
    """
    count, flops = LOSS_GRADIENTS[call.name.removeprefix("aten::")]
    operands, _ = operands_and_result(call, count)
    return elementwise_cost(call, operands, flops, dtype=call.tensor(1).dtype)


def picked_elements(x: Tensor, target: Tensor) -> Tensor:
    """The elements of x that the targets select, one each."""
    if len(x.shape) not in (1, 2, 4) or target.elements * x.shape[1 if len(x.shape) > 1 else 0] != x.elements:
        raise NoModel("the sizes of input and target do not fit")
    return Tensor((target.elements,), x.dtype)


def is_reduced(value: Any) -> bool:
    """Whether a loss is reduced: 0 no, 1 to its mean, 2 to its sum; raises `NoModel` for other values."""
    if value not in (0, 1, 2):
        raise NoModel("its reduction is not recorded")
    return bool(value)


@cost_model(FAMILY, r"aten::nll_loss2?d?_forward")
def nll_loss(call: Call) -> Cost:
    """−Σ weight·x[target]: one element a target is read.

    FLOPs: 1 a target, 2 with weights
    Bytes: an element a target, targets, weights; the loss and the sum of weights
    Source: native_functions.yaml: nll_loss_forward(self, target, weight, reduction, ignore_index)
    """
    x, target, weight = call.tensor(0), call.tensor(1), call.optional_tensor(2)
    picked = picked_elements(x, target)
    loss = Tensor((), x.dtype) if is_reduced(call.value(3)) else Tensor(target.shape, x.dtype)
    return Cost.from_tensors(
        flops=(2 if weight is not None else 1) * target.elements,
        precision=vector_precision(x.dtype),
        reads=(picked, target, weight),
        writes=(loss, Tensor((), x.dtype)),
    )


@cost_model(FAMILY, r"aten::nll_loss2?d?_backward")
def nll_loss_backward(call: Call) -> Cost:
    """The gradient of nll_loss: one element a target; a `fill_` of its own makes the others zero before.

    FLOPs: 1 a target, 2 with weights
    Bytes: the loss's gradient, targets, weights, an element a target
    Source: native_functions.yaml: nll_loss_backward(grad_output, self, target, weight, reduction,
    ignore_index, total_weight)
    """
    grad, x, target, weight = call.tensor(0), call.tensor(1), call.tensor(2), call.optional_tensor(3)
    picked = picked_elements(x, target)
    return Cost.from_tensors(
        flops=(2 if weight is not None else 1) * target.elements,
        precision=vector_precision(x.dtype),
        reads=(grad, target, weight, call.optional_tensor(6)),
        writes=(picked,),
    )
