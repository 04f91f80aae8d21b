# SPDX-License-Identifier: Apache-2.0
"""Layers of NVIDIA's Transformer Engine, by the names of their autograd functions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cclbench.classify import kernel_category
from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import kernels_precision
from cclbench.operators.families import matrix_products

_REDUCES: Final = re.compile(r"(?i)split_?k_?reduce|reduce_?split")

FAMILY = "Transformer Engine"
OWN_TYPE = "the product has the weight's type: its kernel's name states none"


def layer_cost(call: Call, x: Tensor, weights: Sequence[Tensor], others: Sequence[Tensor | None]) -> Cost:
    """Cost of x times the transposes of the weights, one after the other.

    It is of the kernels' type where they state one: a recipe of 8 bits quantises the recorded operands.
    """
    flops, out = _chained_products(x, weights)
    stated = kernels_precision(call)
    return Cost.from_tensors(
        flops=flops,
        precision=stated or weights[0].precision,
        reads=(x, *weights, *others),
        writes=(Tensor(out, x.dtype),),
        assumes=None if stated else OWN_TYPE,
    )


def gradients_cost(call: Call, x: Tensor, weights: Sequence[Tensor]) -> Cost:
    """Cost of the gradients of `layer_cost`: of the input and of the weights, a product each.

    With fewer product kernels than that, of the weights alone.
    """
    flops, out = _chained_products(x, weights)
    products = sum(
        kernel_category(kernel) == "gemm" and not _REDUCES.search(kernel) for kernel in call.kernels
    )
    if products < len(weights):
        raise NoModel(f"its kernels are {products} products: which gradients they compute does not follow")
    both = products >= 2 * len(weights)
    stated = kernels_precision(call)
    gradients = (x, *weights) if both else weights
    return Cost.from_tensors(
        flops=flops * (2 if both else 1),
        precision=stated or weights[0].precision,
        reads=(Tensor(out, x.dtype), x, *(weights if both else ())),
        writes=gradients,
        assumes="; ".join(
            [
                "gradients have the type of what they are of",
                *([] if both else ["its one product a weight is the weight's gradient"]),
                *([] if stated else [OWN_TYPE]),
            ]
        ),
    )


def _chained_products(x: Tensor, weights: Sequence[Tensor]) -> tuple[int, tuple[int, ...]]:
    """FLOPs of the products, and the sizes of their result.

    A gated activation between two of them halves its input.
    """
    *rows, inner = x.shape
    flops = 0
    for weight in weights:
        n, k = weight.shape
        if k not in (inner, inner // 2):
            raise NoModel(f"the inner sizes of its operands differ: {inner} and {k}")
        flops += 2 * math.prod(rows) * n * k
        inner = n
    return flops, (*rows, inner)


@cost_model(matrix_products.FAMILY, r"_Linear")
def te_linear(call: Call) -> Cost:
    """x·Wᵀ + bias.

    FLOPs: 2·M·N·K
    Bytes: input, weight, bias, result
    Source: transformer_engine/pytorch/module/linear.py: _Linear.forward(weight, inp, bias, ...)
    """
    return layer_cost(call, call.tensor(1), [call.tensor(0)], [call.optional_tensor(2)])


@cost_model(matrix_products.FAMILY, r"_LayerNormLinear")
def te_layer_norm_linear(call: Call) -> Cost:
    """norm(x)·Wᵀ + bias.

    FLOPs: 2·M·N·K, those of the norm left out
    Bytes: input, weights and biases of both, result
    Source: transformer_engine/pytorch/module/layernorm_linear.py: _LayerNormLinear.forward(inp, ln_weight,
    ln_bias, weight, bias, ...)
    """
    others = [call.optional_tensor(index) for index in (1, 2, 4)]
    return layer_cost(call, call.tensor(0), [call.tensor(3)], others)


@cost_model(matrix_products.FAMILY, r"_LayerNormMLP")
def te_layer_norm_mlp(call: Call) -> Cost:
    """act(norm(x)·W₁ᵀ + b₁)·W₂ᵀ + b₂.

    FLOPs: 2·M·N·K of both products, those of norm and activation left out
    Bytes: input, weights, result
    Source: transformer_engine/pytorch/module/layernorm_mlp.py: _LayerNormMLP.forward(inp, ln_weight, ln_bias,
    fc1_weight, fc1_bias, fc2_weight, fc2_bias, ...)
    """
    x = call.tensor(0)
    return layer_cost(call, x, _mlp_weights(call), ())


def _mlp_weights(call: Call) -> list[Tensor]:
    """Both weights of `_LayerNormMLP`: its matrices after the input."""
    matrices = [tensor for tensor in call.tensors[1:] if len(tensor.shape) == 2]
    if len(matrices) != 2:
        raise NoModel("its two weights are not recorded")
    return matrices


@cost_model(matrix_products.FAMILY, r"_GroupedLinear")
def te_grouped_linear(call: Call) -> Cost:
    """x·Wᵀ + bias, a group of the rows of x with a weight and bias of its own each.

    FLOPs: 2·M·N·K, M the rows of all groups
    Bytes: input, weights, biases, result
    Source: transformer_engine/pytorch/module/grouped_linear.py: _GroupedLinear.forward(inp, ...,
    *weights_and_biases)
    """
    x, *others = call.tensors
    weights = _group_weights(call)
    biases = [tensor for tensor in others if tensor.shape == weights[0].shape[:1]]
    cost = layer_cost(call, x, weights[:1], (*weights[1:], *biases))
    return replace(cost, assumes="; ".join(filter(None, (cost.assumes, "no group is empty"))))


def _group_weights(call: Call) -> list[Tensor]:
    """The weights of the groups, all of one size."""
    x, *others = call.tensors
    weights = [tensor for tensor in others if len(tensor.shape) == 2 and tensor.shape[1] == x.shape[-1]]
    if not weights or len({tensor.shape for tensor in weights}) > 1:
        raise NoModel("its weights are not recorded or differ in size")
    return weights


@cost_model(matrix_products.FAMILY, r"_(?:Linear|LayerNormLinear|LayerNormMLP)Backward")
def te_gradients(call: Call) -> Cost:
    """Gradients of input and weights: dy·W and dyᵀ·x, by the operands of the forward call with its number.

    FLOPs: 2·M·N·K for each product among its kernels, at most two a weight; those of norms left out
    Bytes: the result's gradient, input, weight; each gradient
    Source: transformer_engine/pytorch/module/linear.py: _Linear.backward (dgrad, wgrad), the others alike
    """
    forward = _forward_of(call)
    match forward.name:
        case "_Linear":
            return gradients_cost(call, forward.tensor(1), [forward.tensor(0)])
        case "_LayerNormLinear":
            return gradients_cost(call, forward.tensor(0), [forward.tensor(3)])
        case _:
            return gradients_cost(call, forward.tensor(0), _mlp_weights(forward))


@cost_model(matrix_products.FAMILY, r"_GroupedLinearBackward")
def te_grouped_gradients(call: Call) -> Cost:
    """Gradients of input and weights of all groups, by the operands of the forward call with its number.

    FLOPs: 4·M·N·K, M the rows of all groups
    Bytes: the result's gradient, input, weights; each gradient
    Source: transformer_engine/pytorch/module/grouped_linear.py: _GroupedLinear.backward (dgrad, wgrad)
    """
    x, weights = _forward_of(call).tensors[0], _group_weights(_forward_of(call))
    flops, out = _chained_products(x, weights[:1])
    stated = kernels_precision(call)
    return Cost.from_tensors(
        flops=2 * flops,
        precision=stated or weights[0].precision,
        reads=(Tensor(out, x.dtype), x, *weights),
        writes=(x, *weights),
        assumes="; ".join(
            ["both gradients are computed, no group is empty", *([] if stated else [OWN_TYPE])]
        ),
    )


def _forward_of(call: Call) -> Call:
    if call.forward is None:
        raise NoModel(
            f"the operands of {call.name} are not recorded: no forward call has its sequence number"
        )
    return call.forward


@cost_model(FAMILY, r"FusedAttnFunc(?:Backward)?")
def te_unrecorded(call: Call) -> Cost:
    """Layers whose operands, or what says how they meet, are no arguments.

    FLOPs: none stated
    Bytes: none stated
    Source: transformer_engine/pytorch: what backward needs is saved in the context
    """
    raise NoModel(f"the operands of {call.name} are not recorded: they are saved in its context")
