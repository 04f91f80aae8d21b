# SPDX-License-Identifier: Apache-2.0
"""Quantisation to 8-bit types, with given or computed scales."""

from __future__ import annotations

from typing import Final

from cclbench.operators.call import Call, NoModel, Tensor
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


_ROW_SCALE: Final = 8
"""Bytes that FBGEMM appends to each row: its scale, padded."""


@cost_model(FAMILY, r"fbgemm::FloatToFP8RowwiseQuantized", r"fbgemm::FP8RowwiseQuantizedToFloat")
def rowwise_conversion(call: Call) -> Cost:
    """Conversion between float and FBGEMM's rows of 8-bit numbers, each with its scale behind it.

    FLOPs: an element: 5 to 8 bits (the scale is found), 1 back
    Bytes: the input, the result; rows of 8 bits have n bytes rounded up to 4, and 8 more
    Source: FBGEMM fbgemm_gpu/src/quantize_ops/quantize_fp8_rowwise.cu: output columns of _float_to_FP8rowwise
    """
    x = call.tensor(0)
    *rows, width = x.shape
    if "ToFP8" in call.name:
        stored = Tensor((*rows, -(-width // 4) * 4 + _ROW_SCALE), "uint8")
        return Cost.from_tensors(flops=5 * x.elements, precision="fp32", reads=(x,), writes=(stored,))
    out = Tensor((*rows, width - _ROW_SCALE), "float32")
    return Cost.from_tensors(flops=out.elements, precision="fp32", reads=(x,), writes=(out,))


@cost_model(FAMILY, r"fbgemm::FloatToHFP8Quantized", r"fbgemm::HFP8QuantizedToFloat")
def hybrid_conversion(call: Call) -> Cost:
    """Conversion between float and 8-bit floating-point numbers of a given bias.

    FLOPs: 3 an element to 8 bits, 1 back
    Bytes: the input, the result
    Source: FBGEMM fbgemm_gpu/src/quantize_ops/quantize_hfp8.cu: FloatToHFP8Quantized(input, ebits,
    exponent_bias, max_pos), HFP8QuantizedToFloat(input, ebits, exponent_bias)
    """
    x = call.tensor(0)
    to_8_bits = "ToHFP8" in call.name
    out = Tensor(x.shape, "uint8" if to_8_bits else "float32")
    flops = (SCALE_GIVEN if to_8_bits else 1) * x.elements
    return Cost.from_tensors(flops=flops, precision="fp32", reads=(x,), writes=(out,))


@cost_model(FAMILY, r"sage_quant_kernel(?:_\d+)?")
def sage_quantisation(call: Call) -> Cost:
    """AITER's quantisation of query, key and value for SageAttention, in one kernel.

    FLOPs: 5 an element
    Bytes: query, key and value; each in 8 bits, their scales
    Source: aiter/ops/triton: sage_quant_kernel(Q, Q_Int8, Q_Scale, K, K_Int8, K_Scale, V, V_FP8, V_Scale,
    ...)
    """
    tensors = tuple(map(call.tensor, range(9)))
    inputs = tensors[::3]
    if any(x.shape != out.shape for x, out in zip(inputs, tensors[1::3], strict=True)):
        raise NoModel("its operands have other sizes than its documentation states")
    return Cost.from_tensors(
        flops=SCALE_COMPUTED * sum(x.elements for x in inputs),
        precision=vector_precision(inputs[0].dtype),
        reads=inputs,
        writes=(*tensors[1::3], *tensors[2::3]),
    )
