# SPDX-License-Identifier: Apache-2.0
"""Matrix products: dense, batched, quantised and grouped.

An addend (bias, beta·C) initialises the accumulator, so it adds no operation to the K multiplications and
additions of an element: FLOPs are 2·M·N·K with and without it, as in PyTorch's FlopCounterMode.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import matrix_precision, stated_type
from cclbench.operators.shapes import broadcast_shape

FAMILY = "matrix product"
COVERED: Final = "the groups cover all rows, and none is empty"


def inner_size(operand: Tensor, axis: int) -> int:
    """Numbers along the inner dimension: a stored element of float4_e2m1fn_x2 holds two."""
    return operand.shape[axis] * (2 if operand.dtype.lower().endswith("_x2") else 1)


def fitting_inner_size(a: Tensor, b: Tensor, out: Tensor) -> int | None:
    """K of the product of two matrices with result `out`, by K² = |A|·|B| / |C|; None where none fits."""
    if min(len(a.shape), len(b.shape), len(out.shape)) < 2 or not out.elements:
        return None
    k = math.isqrt(a.elements * b.elements // out.elements)
    fits = k * k * out.elements == a.elements * b.elements
    return k if fits and k in a.shape and k in b.shape else None


def product_cost(
    call: Call,
    a: Tensor,
    b: Tensor,
    out: tuple[int, ...],
    *,
    inner: tuple[int, int],
    dtype: str | None = None,
    extra_reads: tuple[Tensor | None, ...] = (),
    assumes: str | None = None,
) -> Cost:
    """Cost of a·b with a result of shape `out`; `inner` is K by a and by b, which must agree."""
    if inner[0] != inner[1]:
        raise NoModel(f"the inner sizes of its operands differ: {inner[0]} and {inner[1]}")
    return Cost.from_tensors(
        flops=2 * math.prod(out) * inner[0],
        precision=matrix_precision(call, a),
        reads=(a, b, *extra_reads),
        writes=(Tensor(out, a.dtype if dtype is None else dtype),),
        assumes=assumes,
    )


def matrix_product_cost(call: Call, a: Tensor, b: Tensor, addend: Tensor | None = None) -> Cost:
    """Cost of a (..., M, K) times b (..., K, N), of the same batch dimensions."""
    *batch, m, _ = a.shape
    *batches, _, n = b.shape
    if batch != batches:
        raise NoModel("the batch dimensions of its operands differ")
    inner = inner_size(a, -1), inner_size(b, -2)
    return product_cost(call, a, b, (*batch, m, n), inner=inner, extra_reads=(addend,))


@cost_model(FAMILY, r"aten::mm", r"aten::bmm", r"aten::_int_mm")
def matrix_product(call: Call) -> Cost:
    """The product of two matrices, or of as many as the batch has.

    FLOPs: 2·B·M·N·K
    Bytes: both operands, the result
    Source: native_functions.yaml: mm(self, mat2), bmm(self, mat2), _int_mm(self, mat2), int32 result
    """
    a, b = call.tensor(0), call.tensor(1)
    cost = matrix_product_cost(call, a, b)
    if call.name != "aten::_int_mm":
        return cost
    return product_cost(call, a, b, (a.shape[0], b.shape[1]), inner=(a.shape[1], b.shape[0]), dtype="int32")


@cost_model(FAMILY, r"aten::addmm_?", r"aten::baddbmm_?", r"aten::_addmm_activation")
def product_and_addend(call: Call) -> Cost:
    """beta·C + alpha·A·B: the addend starts the accumulator.

    FLOPs: 2·B·M·N·K
    Bytes: both operands, the addend at its own size unless beta is 0, the result
    Source: native_functions.yaml: addmm(self, mat1, mat2, beta, alpha), baddbmm alike
    """
    addend = None if call.value(3) == 0 else call.tensor(0)
    return matrix_product_cost(call, call.tensor(1), call.tensor(2), addend)


@cost_model(FAMILY, r"aten::addbmm_?")
def product_summed_over_batch(call: Call) -> Cost:
    """beta·C + alpha·Σ_b A_b·B_b.

    FLOPs: 2·B·M·N·K
    Bytes: both operands, the addend unless beta is 0, the result (M, N)
    Source: native_functions.yaml: addbmm(self, batch1, batch2, beta, alpha)
    Tested: no trace
    """
    a, b = call.tensor(1), call.tensor(2)
    (batch, m, k), n = a.shape, b.shape[2]
    addend = None if call.value(3) == 0 else call.tensor(0)
    inner = batch * k, b.shape[0] * b.shape[1]
    return product_cost(call, a, b, (m, n), inner=inner, extra_reads=(addend,))


@cost_model(FAMILY, r"aten::mv")
def matrix_times_vector(call: Call) -> Cost:
    """The product of a matrix and a vector.

    FLOPs: 2·M·K
    Bytes: both operands, the result
    Source: native_functions.yaml: mv(self, vec)
    Tested: no trace
    """
    a, x = call.tensor(0), call.tensor(1)
    (m, k), (length,) = a.shape, x.shape
    return product_cost(call, a, x, (m,), inner=(k, length))


@cost_model(FAMILY, r"aten::addmv_?")
def matrix_times_vector_and_addend(call: Call) -> Cost:
    """beta·y + alpha·A·x.

    FLOPs: 2·M·K
    Bytes: both operands, the addend unless beta is 0, the result
    Source: native_functions.yaml: addmv(self, mat, vec, beta, alpha)
    Tested: no trace
    """
    a, x = call.tensor(1), call.tensor(2)
    (m, k), (length,) = a.shape, x.shape
    addend = None if call.value(3) == 0 else call.tensor(0)
    return product_cost(call, a, x, (m,), inner=(k, length), extra_reads=(addend,))


@cost_model(FAMILY, r"aten::v?dot")
def dot_product(call: Call) -> Cost:
    """The product of two vectors.

    FLOPs: 2·K
    Bytes: both operands, one number
    Source: native_functions.yaml: dot(self, tensor)
    Tested: no trace
    """
    x, y = call.tensor(0), call.tensor(1)
    (length,), (other,) = x.shape, y.shape
    return product_cost(call, x, y, (), inner=(length, other))


@cost_model(FAMILY, r"aten::matmul")
def broadcast_product(call: Call) -> Cost:
    """torch.matmul where it launches kernels itself (elsewhere mm, bmm or mv in it are counted).

    FLOPs: 2·B·M·N·K, B the broadcast batch
    Bytes: both operands, the result
    Source: torch.matmul's documentation: vectors become matrices, batch dimensions broadcast
    """
    a, b = call.tensor(0), call.tensor(1)
    rows, columns = a.shape[-2:-1], b.shape[-1:] if len(b.shape) > 1 else ()
    inner = a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[-1]
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    return product_cost(call, a, b, (*batch, *rows, *columns), inner=inner)


def rows_times_weight(
    call: Call,
    x: Tensor,
    weight: Tensor,
    *,
    dtype: str | None = None,
    extra_reads: tuple[Tensor | None, ...] = (),
) -> Cost:
    """Cost of x (..., K) times the transpose of weight (N, K)."""
    n, _ = weight.shape
    inner = inner_size(x, -1), inner_size(weight, -1)
    return product_cost(
        call, x, weight, (*x.shape[:-1], n), inner=inner, dtype=dtype, extra_reads=extra_reads
    )


@cost_model(FAMILY, r"aten::linear", r"aten::mkldnn_linear", r"vllm::rocm_unquantized_gemm(?:_impl)?")
def linear_layer(call: Call) -> Cost:
    """x·Wᵀ + bias where it launches kernels itself (elsewhere addmm or mm in it are counted).

    FLOPs: 2·M·N·K
    Bytes: input, weight, bias, result
    Source: native_functions.yaml: linear(input, weight, bias); vLLM rocm_unquantized_gemm(x, weight, bias)
    """
    return rows_times_weight(call, call.tensor(0), call.tensor(1), extra_reads=(call.optional_tensor(2),))


@cost_model(FAMILY, r"aiter::gemm_a16w16(?:_\w+)?", r"vllm::rocm_aiter_tuned_gemm")
def aiter_product(call: Call) -> Cost:
    """AITER's product of 16-bit types.

    FLOPs: 2·M·N·K
    Bytes: input, weight, bias, result of the stated type
    Source: aiter/tuned_gemm.py: gemm_a16w16(A, B, bias, otype, ...), B of shape (N, K)
    """
    x = call.tensor(0)
    dtype = stated_type(call.value(3), x.dtype)
    return rows_times_weight(call, x, call.tensor(1), dtype=dtype, extra_reads=(call.optional_tensor(2),))


@cost_model(
    FAMILY,
    r"aiter::gemm_a(?:8w8|4w4)\w*",
    r"vllm::rocm_aiter_gemm_(?:a8w8|w8a8)\w*",
    r"vllm::w8a8_\w+_scaled_mm_func",
)
def quantised_rows_times_weight(call: Call) -> Cost:
    """x·Wᵀ of 8-bit or 4-bit types with scales.

    FLOPs: 2·M·N·K
    Bytes: input, weight, their scales, result
    Source: aiter/ops/gemm_op_a8w8.py: gemm_a8w8(XQ, WQ, x_scale, w_scale, ...), WQ of shape (N, K)
    Tested: no trace
    """
    x, weight = call.tensor(0), call.tensor(1)
    stated = next((v for v in map(call.value, range(4, 7)) if type(v) is int and v in (5, 6, 15)), None)
    cost = rows_times_weight(
        call,
        x,
        weight,
        dtype=stated_type(stated, "bfloat16"),
        extra_reads=(call.optional_tensor(2), call.optional_tensor(3)),
    )
    if stated is None:
        cost = replace(cost, assumes="its result is of a 16-bit type")
    if "a4w4" in call.name and not x.dtype.lower().endswith("_x2"):
        assumption = "each byte of its operands holds two numbers, and its result is of a 16-bit type"
        return replace(cost, flops=2 * cost.flops, precision="fp4", assumes=assumption)
    return cost


@cost_model(FAMILY, r"aten::_weight_int8pack_mm")
def int8_weight_product(call: Call) -> Cost:
    """x·Wᵀ with weights of 8 bits.

    FLOPs: 2·M·N·K, in the type of x
    Bytes: input, weight at its own size, scales, result
    Source: native_functions.yaml: _weight_int8pack_mm(self, mat2, scales)
    Tested: no trace
    """
    return rows_times_weight(call, call.tensor(0), call.tensor(1), extra_reads=(call.optional_tensor(2),))


@cost_model(FAMILY, r"aten::_weight_int4pack_mm")
def int4_weight_product(call: Call) -> Cost:
    """x·Wᵀ with weights of 4 bits, packed in tiles.

    FLOPs: 2·M·N·K, in the type of x
    Bytes: input, packed weight, scales and zeros, result
    Source: native_functions.yaml: _weight_int4pack_mm(self, mat2, qGroupSize, qScaleAndZeros), the last of
    shape (K/group, N, 2)
    """
    x, packed, scales = call.tensor(0), call.tensor(1), call.tensor(3)
    (m, k), (_, n, _) = x.shape, scales.shape
    return product_cost(call, x, packed, (m, n), inner=(k, k), extra_reads=(scales,))


@cost_model(FAMILY, r"aten::_scaled_mm")
def scaled_product(call: Call) -> Cost:
    """The product of two matrices of 8-bit or 4-bit types with scales.

    FLOPs: 2·M·N·K
    Bytes: both operands, their scales, bias, result of the stated type
    Source: native_functions.yaml: _scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype)
    """
    a, b = call.tensor(0), call.tensor(1)
    (m, _), (_, n) = a.shape, b.shape
    return product_cost(
        call,
        a,
        b,
        (m, n),
        inner=(inner_size(a, 1), inner_size(b, 0)),
        dtype=stated_type(call.value(6), a.dtype),
        extra_reads=tuple(map(call.optional_tensor, range(2, 6))),
    )


@cost_model(FAMILY, r"sgl_kernel::(?:fp8|int8)_scaled_mm", r"sgl_kernel::fp8_blockwise_scaled_mm")
def sgl_scaled_product(call: Call) -> Cost:
    """SGLang's product of two matrices of 8-bit types with scales.

    FLOPs: 2·M·N·K
    Bytes: both operands, their scales, bias, result of the stated type
    Source: sgl_kernel/gemm.py: fp8_scaled_mm(mat_a, mat_b, scales_a, scales_b, out_dtype, bias)
    Tested: no trace
    """
    a, b = call.tensor(0), call.tensor(1)
    (m, k), (inner, n) = a.shape, b.shape
    dtype = stated_type(call.value(4), "bfloat16")
    scales = tuple(map(call.optional_tensor, (2, 3, 5)))
    return product_cost(call, a, b, (m, n), inner=(k, inner), dtype=dtype, extra_reads=scales)


@cost_model(FAMILY, r"_C::cutlass_scaled_mm")
def cutlass_scaled_product(call: Call) -> Cost:
    """vLLM's product of two matrices of 8-bit types with scales.

    FLOPs: 2·M·N·K
    Bytes: both operands, their scales, bias, result
    Source: vLLM csrc/torch_bindings.cpp: cutlass_scaled_mm(out, a, b, a_scales, b_scales, bias)
    Tested: no trace
    """
    out, a, b = map(call.tensor, range(3))
    (m, k), (inner, n) = a.shape, b.shape
    scales = tuple(map(call.optional_tensor, (3, 4, 5)))
    return product_cost(call, a, b, (m, n), inner=(k, inner), dtype=out.dtype, extra_reads=scales)


@cost_model(FAMILY, r"_rocm_C::(?:wvSplitK|LLMM1)")
def skinny_product(call: Call) -> Cost:
    """vLLM's product for few rows on ROCm: weight (N, K) and input (M, K).

    FLOPs: 2·M·N·K
    Bytes: both operands, the result (M, N)
    Source: vLLM csrc/rocm/torch_bindings.cpp: wvSplitK(in_a, in_b, ...), LLMM1(in_a, in_b, rows_per_block)
    Tested: no trace
    """
    return rows_times_weight(call, call.tensor(1), call.tensor(0))


@cost_model(FAMILY, r"aten::_grouped_mm", r"aten::_scaled_grouped_mm")
def grouped_product(call: Call) -> Cost:
    """Products of one group of rows (or of the inner dimension) each, as `offs` cuts them.

    FLOPs: 2·M·N·K, M (or N, or K) the sum over the groups
    Bytes: both operands, scales, result
    Source: native_functions.yaml: _grouped_mm(self, mat2, offs, bias, out_dtype),
    _scaled_grouped_mm(self, mat2, scale_a, scale_b, offs, bias, scale_result, out_dtype)
    """
    a, b = call.tensor(0), call.tensor(1)
    scaled = "scaled" in call.name
    offsets = call.optional_tensor(4 if scaled else 2)
    (m, _), (_, n) = a.shape[-2:], b.shape[-2:]
    inner = inner_size(a, -1), inner_size(b, -2)
    match len(a.shape), len(b.shape):
        case 2, 3 | 2:
            out: tuple[int, ...] = (m, n)
            if len(b.shape) == 2:
                if offsets is None:
                    raise NoModel("the number of groups is not recorded")
                out = (offsets.elements, m, n)
        case 3, 2:
            out = (m, n)
        case 3, 3 if a.shape[0] == b.shape[0]:
            out = (a.shape[0], m, n)
        case _:
            raise NoModel("its operands have other dimensions than its documentation states")
    dtype = stated_type(call.value(7), "bfloat16") if scaled else stated_type(call.value(4), a.dtype)
    others = (call.optional_tensor(2), call.optional_tensor(3), offsets) if scaled else (offsets,)
    cost = product_cost(call, a, b, out, inner=inner, dtype=dtype, extra_reads=others)
    if len(a.shape) == len(b.shape) == 3:
        return cost
    # Where matrices are split along the inner dimension, each group has its part of K.
    flops = cost.flops // out[0] if len(out) == 3 else cost.flops
    return replace(cost, flops=flops, assumes=COVERED)
