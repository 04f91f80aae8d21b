# SPDX-License-Identifier: Apache-2.0
"""Normalisations: layer, RMS, batch and group; forward and backward.

FLOPs are per element; the few per row or channel (a division, a root) are left out.
"""

from __future__ import annotations

import math
from typing import Any

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import vector_precision

FAMILY = "normalisation"


def tensor_like(tensor: Tensor) -> Tensor:
    """A dense result of the same sizes and type."""
    return Tensor(tensor.shape, tensor.dtype)


def statistics_tensor(count: int, x: Tensor) -> Tensor:
    """`count` means or deviations: float64 for doubles, else float32."""
    return Tensor((count,), "float64" if vector_precision(x.dtype) == "fp64" else "float32")


def recorded_flag(value: Any, label: str) -> bool:
    """A recorded boolean; raises `NoModel` where it is not recorded."""
    if not isinstance(value, bool):
        raise NoModel(f"{label} is not recorded")
    return value


def gradient_mask(value: Any) -> tuple[bool, bool, bool]:
    """Which of three gradients are computed; raises `NoModel` where it is not recorded."""
    if not isinstance(value, tuple) or len(value) != 3:
        raise NoModel("which gradients it computes is not recorded")
    first, second, third = (recorded_flag(flag, "which gradients it computes") for flag in value)
    return first, second, third


@cost_model(FAMILY, r"aten::native_layer_norm")
def layer_norm(call: Call) -> Cost:
    """(x − mean)/deviation·weight + bias over the last dimensions.

    FLOPs: an element: 3 for Σx and Σx², 2 to normalise, 1 for the weight, 1 for the bias
    Bytes: input, weight, bias; result, mean and deviation of a row
    Source: native_functions.yaml: native_layer_norm(input, normalized_shape, weight, bias, eps)
    """
    x, weight, bias = call.tensor(0), call.optional_tensor(2), call.optional_tensor(3)
    shape = call.value(1)
    row = weight or bias
    if row is None and not isinstance(shape, tuple):
        raise NoModel("the normalised dimensions are not recorded")
    length = row.elements if row is not None else math.prod(shape)
    rows = statistics_tensor(x.elements // length, x)
    return Cost.from_tensors(
        flops=(5 + (weight is not None) + (bias is not None)) * x.elements,
        precision=vector_precision(x.dtype),
        reads=(x, weight, bias),
        writes=(tensor_like(x), rows, rows),
    )


@cost_model(FAMILY, r"aten::native_layer_norm_backward")
def layer_norm_backward(call: Call) -> Cost:
    """The gradients of layer_norm that its output mask asks for.

    FLOPs: an element: 2 for x̂; input: 7 (8 with a weight); weight: 2; bias: 1
    Bytes: the result's gradient, input, mean, deviation, weight; each gradient
    Source: native_functions.yaml: native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd,
    weight, bias, output_mask)
    """
    grad, x, weight, bias = call.tensor(0), call.tensor(1), call.optional_tensor(5), call.optional_tensor(6)
    to_input, to_weight, to_bias = gradient_mask(call.value(7))
    per_element = 2 + (7 + (weight is not None)) * to_input + 2 * to_weight + to_bias
    return Cost.from_tensors(
        flops=per_element * x.elements,
        precision=vector_precision(x.dtype),
        reads=(grad, x, call.tensor(3), call.tensor(4), weight),
        writes=(
            tensor_like(x) if to_input else None,
            tensor_like(weight) if to_weight and weight is not None else None,
            tensor_like(bias) if to_bias and bias is not None else None,
        ),
    )


@cost_model(FAMILY, r"aten::_fused_rms_norm")
def fused_rms_norm(call: Call) -> Cost:
    """x/√(mean x²)·weight in one kernel.

    FLOPs: an element: 2 for Σx², 1 to normalise, 1 for the weight
    Bytes: input, weight; result, a deviation a row
    Source: native_functions.yaml: _fused_rms_norm(input, normalized_shape, weight, eps)
    """
    x, weight, shape = call.tensor(0), call.optional_tensor(2), call.value(1)
    if weight is None and not isinstance(shape, tuple):
        raise NoModel("the normalised dimensions are not recorded")
    length = weight.elements if weight is not None else math.prod(shape)
    return Cost.from_tensors(
        flops=(3 + (weight is not None)) * x.elements,
        precision=vector_precision(x.dtype),
        reads=(x, weight),
        writes=(tensor_like(x), statistics_tensor(x.elements // length, x)),
    )


@cost_model(FAMILY, r"aten::_fused_rms_norm_backward")
def fused_rms_norm_backward(call: Call) -> Cost:
    """The gradients of _fused_rms_norm.

    FLOPs: an element: 1 for x̂; input: 5 (6 with a weight); weight: 2
    Bytes: the result's gradient, input, deviation, weight; each gradient
    Source: native_functions.yaml: _fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight,
    output_mask)
    """
    grad, x, weight = call.tensor(0), call.tensor(1), call.optional_tensor(4)
    mask = call.value(5)
    if not isinstance(mask, tuple) or len(mask) != 2:
        raise NoModel("which gradients it computes is not recorded")
    to_input, to_weight = (recorded_flag(flag, "which gradients it computes") for flag in mask)
    per_element = 1 + (5 + (weight is not None)) * to_input + 2 * to_weight
    return Cost.from_tensors(
        flops=per_element * x.elements,
        precision=vector_precision(x.dtype),
        reads=(grad, x, call.tensor(3), weight),
        writes=(
            tensor_like(x) if to_input else None,
            tensor_like(weight) if to_weight and weight is not None else None,
        ),
    )


@cost_model(
    FAMILY,
    r"(?:_C|aiter|vllm|sgl_kernel|flashinfer)::(?:gemma_)?(?:rocm_aiter_)?"
    r"(?:rms_?norm\w*|fused_add_rms_?norm\w*|add_rmsnorm\w*|rmsnorm2d_fwd\w*)",
)
def served_rms_norm(call: Call) -> Cost:
    """RMS norm of vLLM, SGLang and AITER, alone or after an addition (`add` in the name).

    FLOPs: 4 an element, 5 with the addition
    Bytes: input, weight, with the addition the residual; result, with the addition the sum
    Source: vLLM csrc/torch_bindings.cpp: rms_norm(result, input, weight, epsilon),
    fused_add_rms_norm(input, residual, weight, epsilon) in place; AITER aiter/ops/rmsnorm.py:
    rmsnorm2d_fwd(input, weight, epsilon), rmsnorm2d_fwd_with_add(out, input, residual_in, residual_out,
    weight, epsilon)
    """
    if "quant" in call.name:
        raise NoModel("normalisation with quantisation is not modelled")
    tensors = call.tensors
    x = tensors[0]
    weight = next((t for t in tensors if len(t.shape) == 1 and t.shape == x.shape[-1:]), None)
    adds = "add" in call.name
    if (
        weight is None
        or len(x.shape) < 2
        or sum(tensor.shape == x.shape for tensor in tensors) not in ((2, 4) if adds else (1, 2))
    ):
        raise NoModel("its operands have other sizes than its documentation states")
    return Cost.from_tensors(
        flops=(5 if adds else 4) * x.elements,
        precision=vector_precision(x.dtype),
        reads=(tensor_like(x), tensor_like(x) if adds else None, weight),
        writes=(tensor_like(x), tensor_like(x) if adds else None),
    )


@cost_model(
    FAMILY,
    r"aten::batch_norm",
    r"aten::native_batch_norm",
    r"aten::(?:cudnn|miopen)_batch_norm",
    r"aten::_native_batch_norm_legit",
)
def batch_norm(call: Call) -> Cost:
    """(x − mean)/deviation·weight + bias by channel, mean and deviation of the batch in training.

    FLOPs: an element: 2 (a scale and a shift), in training 3 more for Σx and Σx²
    Bytes: input, weight, bias, running statistics; result, in training running and saved statistics
    Source: native_functions.yaml: native_batch_norm(input, weight, bias, running_mean, running_var,
    training, momentum, eps), the others in the same order
    """
    return channel_norm_cost(call, training=recorded_flag(call.value(5), "whether it is in training mode"))


@cost_model(FAMILY, r"aten::_batch_norm_(?:with|no)_update")
def batch_norm_with_update(call: Call) -> Cost:
    """Batch norm of newer exports, whose name says whether it trains.

    FLOPs: an element: 2, in training 3 more
    Bytes: input, weight, bias, running statistics; result, in training running and saved statistics
    Source: native_functions.yaml: _batch_norm_with_update(input, weight, bias, running_mean, running_var,
    momentum, eps)
    Tested: no trace
    """
    return channel_norm_cost(call, training="with_update" in call.name)


def channel_norm_cost(call: Call, *, training: bool) -> Cost:
    """The cost of a batch norm."""
    x, parameters = call.tensor(0), tuple(map(call.optional_tensor, range(1, 5)))
    saved = statistics_tensor(x.shape[1], x)
    updated = tuple(tensor_like(tensor) for tensor in parameters[2:] if tensor is not None)
    return Cost.from_tensors(
        flops=(5 if training else 2) * x.elements,
        precision=vector_precision(x.dtype),
        reads=(x, *parameters),
        writes=(tensor_like(x), *updated, saved, saved) if training else (tensor_like(x),),
    )


@cost_model(FAMILY, r"aten::native_batch_norm_backward", r"aten::batch_norm_backward")
def batch_norm_backward(call: Call) -> Cost:
    """The gradients of batch norm.

    FLOPs: an element: 4 for Σg and Σg·(x − mean); input, in training 5, else 1
    Bytes: the result's gradient, input, weight, statistics; each gradient
    Source: native_functions.yaml: native_batch_norm_backward(grad_out, input, weight, running_mean,
    running_var, save_mean, save_invstd, train, eps, output_mask)
    """
    grad, x, weight = call.tensor(0), call.tensor(1), call.optional_tensor(2)
    training = recorded_flag(call.value(7), "whether it is in training mode")
    to_input, to_weight, to_bias = gradient_mask(call.value(9))
    saved = (5, 6) if training else (3, 4)
    affine = weight if weight is not None else statistics_tensor(x.shape[1], x)
    return Cost.from_tensors(
        flops=(4 + (5 if training else 1) * to_input) * x.elements,
        precision=vector_precision(x.dtype),
        reads=(grad, x, weight, *map(call.optional_tensor, saved)),
        writes=(
            tensor_like(x) if to_input else None,
            tensor_like(affine) if to_weight else None,
            tensor_like(affine) if to_bias else None,
        ),
    )


@cost_model(FAMILY, r"aten::(?:cudnn|miopen)_batch_norm_backward")
def backend_batch_norm_backward(call: Call) -> Cost:
    """The gradients of batch norm in training by cuDNN or MIOpen.

    FLOPs: 9 an element
    Bytes: input, the result's gradient, weight, saved statistics; three gradients
    Source: native_functions.yaml: cudnn_batch_norm_backward(input, grad_output, weight, running_mean,
    running_var, save_mean, save_var, epsilon, reserveSpace)
    """
    x, grad, weight = map(call.tensor, range(3))
    return Cost.from_tensors(
        flops=9 * x.elements,
        precision=vector_precision(x.dtype),
        reads=(x, grad, weight, call.optional_tensor(5), call.optional_tensor(6)),
        writes=(tensor_like(x), tensor_like(weight), tensor_like(weight)),
    )


@cost_model(FAMILY, r"aten::native_group_norm")
def group_norm(call: Call) -> Cost:
    """Normalisation of groups of channels, a scale and a shift by channel.

    FLOPs: an element: 3 for Σx and Σx², 2 for a scale and a shift
    Bytes: input, weight, bias; result, mean and deviation of a group
    Source: native_functions.yaml: native_group_norm(input, weight, bias, N, C, HxW, group, eps)
    """
    x, groups = call.tensor(0), call.value(6)
    if type(groups) is not int:
        raise NoModel("the number of groups is not recorded")
    saved = statistics_tensor(x.shape[0] * groups, x)
    return Cost.from_tensors(
        flops=5 * x.elements,
        precision=vector_precision(x.dtype),
        reads=(x, call.optional_tensor(1), call.optional_tensor(2)),
        writes=(tensor_like(x), saved, saved),
    )


@cost_model(FAMILY, r"aiter::_groupnorm_run")
def aiter_group_norm(call: Call) -> Cost:
    """AITER's normalisation of groups of channels.

    FLOPs: 5 an element
    Bytes: input, weight, bias; result
    Source: aiter/ops/groupnorm.py: _groupnorm_run(input, num_groups, weight, bias, eps)
    """
    x, weight, bias = call.tensor(0), call.tensor(2), call.tensor(3)
    return Cost.from_tensors(
        flops=5 * x.elements,
        precision=vector_precision(x.dtype),
        reads=(x, weight, bias),
        writes=(tensor_like(x),),
    )


@cost_model(FAMILY, r"aten::native_group_norm_backward")
def group_norm_backward(call: Call) -> Cost:
    """The gradients of group norm that its output mask asks for.

    FLOPs: an element: 3 for Σg·x and Σg, 4 for the input's (two products, two additions)
    Bytes: the result's gradient, input, mean, deviation, weight; each gradient
    Source: native_functions.yaml: native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW,
    group, output_mask)
    """
    grad, x, weight = call.tensor(0), call.tensor(1), call.optional_tensor(4)
    to_input, to_weight, to_bias = gradient_mask(call.value(9))
    channels = weight if weight is not None else statistics_tensor(x.shape[1], x)
    return Cost.from_tensors(
        flops=(3 + 4 * to_input) * x.elements,
        precision=vector_precision(x.dtype),
        reads=(grad, x, call.tensor(2), call.tensor(3), weight),
        writes=(
            tensor_like(x) if to_input else None,
            tensor_like(channels) if to_weight else None,
            tensor_like(channels) if to_bias else None,
        ),
    )
