# SPDX-License-Identifier: Apache-2.0
"""Layers of NVIDIA's Transformer Engine, by the names of their autograd functions."""

from __future__ import annotations

from dataclasses import replace

from cclbench.operators.call import Call, NoModel
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.families.matrix_products import rows_times_weight

FAMILY = "Transformer Engine"
OWN_TYPE = "the product has the weight's type: an FP8 recipe is not recorded"


@cost_model(FAMILY, r"_Linear")
def te_linear(call: Call) -> Cost:
    """x·Wᵀ + bias.

    FLOPs: 2·M·N·K
    Bytes: input, weight, bias, result
    Source: transformer_engine/pytorch/module/linear.py: _Linear.forward(weight, inp, bias, ...)
    """
    weight, x, bias = call.tensor(0), call.tensor(1), call.optional_tensor(2)
    return replace(rows_times_weight(call, x, weight, extra_reads=(bias,)), assumes=OWN_TYPE)


@cost_model(FAMILY, r"_LayerNormLinear")
def te_layer_norm_linear(call: Call) -> Cost:
    """norm(x)·Wᵀ + bias.

    FLOPs: 2·M·N·K, and 7 an element of the input
    Bytes: input, weights and biases of both, result
    Source: transformer_engine/pytorch/module/layernorm_linear.py: _LayerNormLinear.forward(inp, ln_weight,
    ln_bias, weight, bias, ...)
    """
    x, scale, shift = call.tensor(0), call.tensor(1), call.optional_tensor(2)
    weight, bias = call.tensor(3), call.optional_tensor(4)
    cost = rows_times_weight(call, x, weight, extra_reads=(scale, shift, bias))
    return replace(cost, flops=cost.flops + 7 * x.elements, assumes=OWN_TYPE)


@cost_model(FAMILY, r"_GroupedLinear")
def te_grouped_linear(call: Call) -> Cost:
    """x·Wᵀ + bias, a group of the rows of x with a weight and bias of its own each.

    FLOPs: 2·M·N·K, M the rows of all groups
    Bytes: input, weights, biases, result
    Source: transformer_engine/pytorch/module/grouped_linear.py: _GroupedLinear.forward(inp, ...,
    *weights_and_biases)
    """
    x, *others = call.tensors
    weights = [tensor for tensor in others if len(tensor.shape) == 2 and tensor.shape[1] == x.shape[-1]]
    if not weights or len({tensor.shape for tensor in weights}) > 1:
        raise NoModel("its weights are not recorded or differ in size")
    biases = [tensor for tensor in others if tensor.shape == weights[0].shape[:1]]
    cost = rows_times_weight(call, x, weights[0], extra_reads=(*weights[1:], *biases))
    return replace(cost, assumes=f"{OWN_TYPE}; no group is empty")


@cost_model(
    FAMILY,
    r"_(?:Linear|LayerNormLinear|LayerNormMLP|GroupedLinear)Backward",
    r"_LayerNormMLP",
    r"FusedAttnFunc(?:Backward)?",
)
def te_unrecorded(call: Call) -> Cost:
    """Layers whose operands, or what says how they meet, are no arguments.

    FLOPs: none stated
    Bytes: none stated
    Source: transformer_engine/pytorch: what backward needs is saved in the context
    """
    raise NoModel(f"the operands of {call.name} are not recorded: they are saved in its context")
