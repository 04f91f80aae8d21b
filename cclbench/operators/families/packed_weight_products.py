# SPDX-License-Identifier: Apache-2.0
"""Products with weights of few bits by vLLM, FBGEMM and bitsandbytes."""

from __future__ import annotations

from typing import Final

from cclbench.operators.call import Call, NoModel
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.families.matrix_products import FAMILY, inner_size, product_cost, rows_times_weight

_PER_INT32: Final = 8
"""Numbers of 4 bits in an int32."""


@cost_model(FAMILY, r"_C::awq_gemm", r"_C::gptq_gemm")
def packed_weight_product(call: Call) -> Cost:
    """vLLM's product of x and weights of few bits by AWQ or GPTQ, in int32, a scale a group and column.

    FLOPs: 2·M·N·K, in the type of x; dequantisation is not counted
    Bytes: input, packed weight, scales, packed zeros, the order of the groups (GPTQ), result
    Source: vLLM csrc/torch_bindings.cpp: awq_gemm(_in_feats, _kernel, _scaling_factors, _zeros, ...), kernel
    (K, N/8); gptq_gemm(a, b_q_weight, b_gptq_qzeros, b_gptq_scales, b_g_idx, ...); scales (groups, N)
    Tested: no trace
    """
    x, packed = call.tensor(0), call.tensor(1)
    is_awq = call.name.endswith("awq_gemm")
    scales, zeros = call.tensor(2 if is_awq else 3), call.tensor(3 if is_awq else 2)
    (m, k), (_, n) = x.shape, scales.shape
    rows, columns = packed.shape
    if columns * (_PER_INT32 if is_awq else 1) != n:
        raise NoModel(f"its weight has other columns than its scales, which have {n}")
    inner = k, rows if is_awq else k
    order = None if is_awq else call.optional_tensor(4)
    return product_cost(call, x, packed, (m, n), inner=inner, extra_reads=(scales, zeros, order))


@cost_model(FAMILY, r"_C::(?:gptq_)?marlin_gemm")
def marlin_product(call: Call) -> Cost:
    """vLLM's product of x and weights of 4 or 8 bits in Marlin's layout.

    FLOPs: 2·M·N·K, in the type of x; dequantisation is not counted
    Bytes: input, packed weight, bias, scales, zeros, orders; the result
    Source: vLLM csrc/torch_bindings.cpp: marlin_gemm(a, c_or_none, b_q_weight, ..., workspace, b_type_id,
    size_m, size_n, size_k, is_k_full, ...), before gptq_marlin_gemm with fewer arguments
    Tested: no trace
    """
    x, *others = call.tensors
    sizes = [value for value in call.arguments if type(value) is int][-3:]
    packed = next((i for i, tensor in enumerate(others) if tensor.dtype == "int"), None)
    if len(sizes) < 3 or packed is None:
        raise NoModel("its sizes or its packed weight are not recorded")
    m, n, k = sizes
    if x.shape != (m, k):
        raise NoModel(f"its input is {list(x.shape)}, not {[m, k]} as its sizes state")
    if x.precision not in ("bf16", "fp16"):
        raise NoModel("the type of its result is not recorded")
    # the first tensors may be the result, the last is the workspace
    weight, *extra = others[packed:-1]
    return product_cost(call, x, weight, (m, n), inner=(k, k), extra_reads=tuple(extra))


@cost_model(
    FAMILY, r"fbgemm::f8f8bf16(?:_rowwise|_blockwise|_tensorwise)?", r"fbgemm::(?:f8|bf16)i4bf16_rowwise"
)
def fbgemm_product(call: Call) -> Cost:
    """FBGEMM's product of 8-bit types with scales, or with weights of 4 bits, two a byte.

    FLOPs: 2·M·N·K
    Bytes: input, weight at its own size, scales and zeros, bias, result in bf16
    Source: FBGEMM fbgemm_gpu/experimental/gen_ai/src/quantize/quantize.cpp: f8f8bf16_rowwise(XQ, WQ, x_scale,
    w_scale, bias, ...), WQ (N, K); bf16i4bf16_rowwise(X, WQ, w_scale, w_zp), WQ (N, K/2)
    Tested: no trace
    """
    x, weight = call.tensor(0), call.tensor(1)
    per_byte = 2 if "i4" in call.name else 1
    n, stored = weight.shape
    out = (*x.shape[:-1], n)
    inner = inner_size(x, -1), stored * per_byte
    extra = tuple(map(call.optional_tensor, range(2, 5)))
    return product_cost(call, x, weight, out, inner=inner, dtype="bfloat16", extra_reads=extra)


@cost_model(FAMILY, r"bitsandbytes::int8_linear_matmul")
def bitsandbytes_int8_product(call: Call) -> Cost:
    """bitsandbytes' product x·Wᵀ of 8-bit integers.

    FLOPs: 2·M·N·K
    Bytes: input, weight (N, K), result in int32
    Source: bitsandbytes/_ops.py: int8_linear_matmul(A, B), a result (..., N)
    Tested: no trace
    """
    return rows_times_weight(call, call.tensor(0), call.tensor(1), dtype="int")


@cost_model(FAMILY, r"bitsandbytes::gemv_4bit")
def bitsandbytes_4bit_product(call: Call) -> Cost:
    """bitsandbytes' product of a vector and a matrix of 4-bit numbers, a scale a block.

    FLOPs: 2·N·K, in the type of the vector; dequantisation is not counted
    Bytes: the vector, packed weight, scales, the table of values; the result
    Source: bitsandbytes/_ops.py: gemv_4bit(A, B, shapeB, absmax, code, blocksize), shapeB (N, K)
    Tested: no trace
    """
    x, packed, sizes = call.tensor(0), call.tensor(1), call.value(2)
    if not isinstance(sizes, tuple) or len(sizes) != 2 or any(type(size) is not int for size in sizes):
        raise NoModel("the size of its weight is not recorded")
    n, k = sizes
    extra = call.optional_tensor(3), call.optional_tensor(4)
    return product_cost(call, x, packed, (*x.shape[:-1], n), inner=(inner_size(x, -1), k), extra_reads=extra)
