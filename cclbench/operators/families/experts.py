# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: routing, and the experts' products."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

from cclbench.classify.dtypes import catalog_precision
from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import kernels_precision, matrix_precision, vector_precision
from cclbench.operators.families import matrix_products

FAMILY = "experts"


@cost_model(
    matrix_products.FAMILY,
    r"(?:vllm|sglang)::(?:inplace|outplace)?_?fused_experts",
    r"aiter::fused_moe_?",
    r"vllm::rocm_aiter_fused_moe",
)
def fused_experts(call: Call) -> Cost:
    """Each token's chosen experts: up (and gate), activation, down, and their weighted sum.

    FLOPs: 2·T·k·(N_up·H + H·I), T tokens, k experts each, H hidden, I inner, N_up = 2·I with a gate
    Bytes: tokens, choices, weights of min(E, T·k) experts; the result
    Source: vLLM vllm/model_executor/layers/fused_moe: inplace_fused_experts(hidden_states, w1, w2,
    topk_weights, topk_ids, ...), w1 (E, N_up, H), w2 (E, H, I); SGLang and AITER alike
    Tested: no trace
    """
    x, up, down, weights, choices = map(call.tensor, range(5))
    (tokens, hidden), (experts, rows, stored_width) = x.shape, up.shape
    if stored_width not in (hidden, hidden // 2) or down.shape[:2] != (experts, hidden):
        raise NoModel("the sizes of tokens and experts do not fit")
    # A byte holds two four-bit numbers.
    inner = down.shape[2] * (hidden // stored_width)
    if rows not in (inner, 2 * inner):
        raise NoModel("the sizes of tokens and experts do not fit")
    chosen = choices.elements
    used = min(experts, chosen)
    read = (Tensor((used, *weight.shape[1:]), weight.dtype) for weight in (up, down))
    return Cost.from_tensors(
        flops=2 * chosen * (rows * hidden + hidden * inner),
        precision=_experts_precision(call, x, up),
        reads=(x, weights, choices, *read),
        writes=(Tensor((tokens, hidden), x.dtype),),
        assumes="tokens choose as many distinct experts as possible; activation functions are not counted",
    )


def _experts_precision(call: Call, x: Tensor, weight: Tensor) -> str | None:
    """The type of the products: that in the kernels' names, else of the tokens.

    With weights of fp8 and a flag that is set (`use_fp8_w8a8`), tokens are quantised before the products.
    """
    if weight.precision == "fp8" and any(argument is True for argument in call.arguments):
        return "fp8"
    return kernels_precision(call) or matrix_precision(call, x)


_STORED_BYTES: Final = {"bf16": Fraction(2), "fp16": Fraction(2), "mxfp4": Fraction(17, 32)}
"""Bytes of a weight by its type in names of kernels; 32 numbers of mxfp4 share a scale of a byte."""


@cost_model(
    matrix_products.FAMILY,
    r"(?:vllm|sglang)::\w*moe_forward\w*",
    r"aiter::(?:moe_\w+|ck_moe\w*|asm_moe\w*)",
    r"vllm::rocm_aiter_(?:asm_moe|ck_moe)\w*",
    reads_inner=("aten::empty",),
)
def experts_of_a_layer(call: Call) -> Cost:
    """Experts whose weights are no argument: their sizes by the tensor between the products, where recorded.

    vLLM with Triton's matmul_ogs allocates it as (1, T·k, I); kernels' names state the weights' type, and the
    gate (`swiglu`).

    FLOPs: 2·T·k·(N_up·H + H·I), as of fused experts
    Bytes: tokens, logits, weights of min(E, T·k) experts; the result
    Source: vLLM vllm/model_executor/layers/fused_moe/layer.py: moe_forward(hidden_states, router_logits,
    layer_name); triton_kernels/matmul_ogs.py
    """
    product = re.compile(
        r"_matmul_ogs_[A-Z]+_\w+?x(?P<x>\w+?)x(?P<weight>\w+?)_\d+x\d+x\d+x\d+(?P<fused>\w*)"
    )
    kernels = [match for kernel in call.kernels if (match := product.match(kernel))]
    allocated = [inner_call.value(0) for inner_call in call.inner if inner_call.name == "aten::empty"]
    between = next((sizes for sizes in allocated if isinstance(sizes, tuple) and len(sizes) == 3), None)
    if len(kernels) != 2 or between is None or kernels[0]["weight"] not in _STORED_BYTES:
        raise NoModel(f"the weights of its experts are not arguments of {call.name}")
    x, logits = call.tensor(0), call.tensor(1)
    (tokens, hidden), experts = x.shape, logits.shape[-1]
    _, rows, inner = between
    chosen, remaining = divmod(rows, tokens)
    if remaining or not 1 <= chosen <= experts:
        raise NoModel("the sizes of tokens and experts do not fit")
    is_gated = any("swiglu" in match["fused"] for match in kernels)
    weights = (2 if is_gated else 1) * inner * hidden + hidden * inner
    tokens_bytes = x.bytes
    return Cost(
        flops=2 * rows * weights,
        precision=catalog_precision(kernels[0]["x"]),
        read_bytes=tokens_bytes
        + logits.bytes
        + math.ceil(min(experts, rows) * weights * _STORED_BYTES[kernels[0]["weight"]]),
        written_bytes=tokens_bytes,
        assumes="tokens choose as many distinct experts as possible; the size between the products is that of"
        " the tensor that is allocated for it; activation functions are not counted",
    )


@cost_model(FAMILY, r"(?:_moe_C|sgl_kernel|aiter|vllm)::topk_softmax")
def topk_softmax(call: Call) -> Cost:
    """Softmax over experts, and the k largest of each token.

    FLOPs: 5 a logit
    Bytes: logits; weights and positions of the chosen, and the other recorded results
    Source: vLLM csrc/moe/torch_bindings.cpp: topk_softmax(topk_weights, topk_indices, token_expert_indices,
    gating_output)
    Tested: no trace
    """
    logits = call.tensors[-1]
    results = call.tensors[:-1]
    if len(results) < 2:
        raise NoModel("its results are not recorded")
    return Cost.from_tensors(
        flops=5 * logits.elements,
        precision=vector_precision(logits.dtype),
        reads=(logits,),
        writes=results,
    )


@cost_model(FAMILY, r"(?:_moe_C|vllm)::moe_sum", r"sgl_kernel::moe_sum(?:_reduce)?")
def sum_of_experts(call: Call) -> Cost:
    """The sum of each token's k results.

    FLOPs: 1 an element of the input
    Bytes: the input (T, k, H), the result (T, H)
    Source: vLLM csrc/moe/torch_bindings.cpp: moe_sum(input, output)
    Tested: no trace
    """
    x, out = call.tensor(0), call.tensor(1)
    precision = vector_precision(x.dtype)
    return Cost.from_tensors(flops=x.elements, precision=precision, reads=(x,), writes=(out,))
