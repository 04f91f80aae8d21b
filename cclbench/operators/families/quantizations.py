# SPDX-License-Identifier: Apache-2.0
"""Quantisation to 8-bit types, with given or computed scales."""

from __future__ import annotations

from cclbench.operators.call import Call, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import vector_precision

FAMILY = "quantisation"
SCALE_GIVEN, SCALE_COMPUTED = 3, 5
"""FLOPs per element: a product and two bounds; computing the scale adds an absolute value and a maximum."""


def quantisation_cost(x: Tensor, out: Tensor, scales: Tensor, *, is_computed: bool) -> Cost:
    """The cost of quantising x to `out`; `is_computed`: the scales are computed, not given."""
    return Cost.from_tensors(
        flops=(SCALE_COMPUTED if is_computed else SCALE_GIVEN) * x.elements,
        precision=vector_precision(x.dtype),
        reads=(x, None if is_computed else scales),
        writes=(out, scales if is_computed else None),
    )


@cost_model(
    FAMILY,
    r"_C::(?:static|dynamic)(?:_per_token)?_scaled_(?:fp8|int8)_quant",
    r"aiter::(?:static_per_tensor|dynamic_per_tensor|dynamic_per_token_scaled)_quant",
)
def quantisation(call: Call) -> Cost:
    """Quantisation by vLLM and AITER.

    FLOPs: an element: 3 with a given scale (`static`), 5 where it is found (`dynamic`)
    Bytes: the input, a given scale; the result, scales that are found
    Source: vLLM csrc/torch_bindings.cpp: static_scaled_fp8_quant(result, input, scale),
    dynamic_per_token_scaled_fp8_quant(result, input, scale, scale_ub); AITER aiter/ops/quant.py alike
    Tested: no trace
    """
    out, x, scales = map(call.tensor, range(3))
    return quantisation_cost(x, out, scales, is_computed="dynamic" in call.name)


@cost_model(FAMILY, r"sgl_kernel::sgl_per_token(?:_group)?_quant_(?:fp8|int8|8bit)")
def sgl_quantisation(call: Call) -> Cost:
    """Quantisation by SGLang, a scale a token or a group of channels.

    FLOPs: 5 an element
    Bytes: the input; the result, scales
    Source: sgl_kernel/gemm.py: sgl_per_token_quant_fp8(input, output_q, output_s)
    Tested: no trace
    """
    x, out, scales = map(call.tensor, range(3))
    return quantisation_cost(x, out, scales, is_computed=True)
