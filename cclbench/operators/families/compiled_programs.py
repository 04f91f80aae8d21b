# SPDX-License-Identifier: Apache-2.0
"""Operators of programs that XLA compiled: products, convolutions, attention and what libraries compute.

Their arguments are the operands and then the attributes of the instruction, as formats/xplane/hlo_products.py
lists them.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any, Final

from cclbench.classify.arithmetic import kernel_arithmetic
from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model, with_fused_work
from cclbench.operators.element_types import matrix_precision, promotion_rank
from cclbench.operators.families import (
    attention,
    convolutions,
    fourier_transforms,
    linear_algebra,
    matrix_products,
)
from cclbench.operators.families.matrix_products import product_cost
from cclbench.operators.masks import Mask
from cclbench.operators.shapes import valid_positions

_ALGORITHMS: Final = {
    **dict.fromkeys(("DOT_ANY_F8_ANY_F8_F32", "DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM"), "fp8"),
    **dict.fromkeys(("DOT_F16_F16_F16", "DOT_F16_F16_F32"), "fp16"),
    **dict.fromkeys(
        ("DOT_BF16_BF16_BF16", *(f"DOT_BF16_BF16_F32{parts}" for parts in ("", "_X3", "_X6", "_X9"))), "bf16"
    ),
    **dict.fromkeys(("DOT_TF32_TF32_F32", "DOT_TF32_TF32_F32_X3"), "tf32"),
    "DOT_F32_F32_F32": "fp32",
    "DOT_F64_F64_F64": "fp64",
}
"""Precision of the multiplications by XLA's algorithm of a product; of several parts, of each."""
_OF_TRITON: Final = re.compile(r"(?:gemm_fusion|triton_gemm)\w*")


def attributes(call: Call, count: int) -> tuple[Any, ...]:
    """The first attributes of an instruction; `NoModel` where the profile has only its name and operands."""
    listed: tuple[Any, ...] = call.parameters
    if len(listed) < count:
        raise NoModel("its attributes are not recorded")
    return listed[:count]


def result_tensor(sizes: Any, dtype: Any) -> Tensor:
    """The result that attributes state; `NoModel` if they are none of a tensor."""
    if not isinstance(sizes, tuple) or not isinstance(dtype, str):
        raise NoModel("the sizes and type of its result are not recorded")
    return Tensor(sizes, dtype)


def compiled_precision(call: Call, a: Tensor, stated: Any) -> str | None:
    """The peak of a compiled product: that of its algorithm, else of the operand's type.

    XLA's default precision allows TF32 for fp32: on NVIDIA's GPUs its Triton kernels use it, and those of
    cuBLAS that run on tensor cores.
    """
    if stated in _ALGORITHMS:
        return _ALGORITHMS[stated]
    precision = matrix_precision(call, a)
    if precision != "fp32" or stated != "DEFAULT":
        return precision
    kernels = [(kernel, kernel_arithmetic(kernel)) for kernel in call.kernels]
    on_tensor_cores = any(
        _OF_TRITON.fullmatch(kernel) or (arithmetic.tensor_cores and arithmetic.precision is None)
        for kernel, arithmetic in kernels
    )
    return "tf32" if on_tensor_cores else precision


@cost_model(matrix_products.FAMILY, r"dot_general", r"(Batch)?MatMul(V[23])?", r"Einsum")
def compiled_product(call: Call) -> Cost:
    """A product in a program that XLA compiled, summed over any dimensions: batch B, rows M, columns N.

    FLOPs: 2·B·M·N·K, K the product of the dimensions that are contracted; what is fused to it, 1 an operation
    Bytes: both operands, the result; of a fusion its operands and result
    Source: openxla.org/xla/operation_semantics: DotGeneral; JAX: lax.dot_general(lhs, rhs, dimension_numbers)
    """
    a, b = call.tensor(0), call.tensor(1)
    *dimensions, dtype = attributes(call, 5)
    contracted, batch = dimensions[:2], dimensions[2:]
    free = [
        [size for axis, size in enumerate(operand.shape) if axis not in (*contracted[side], *batch[side])]
        for side, operand in enumerate((a, b))
    ]
    out = (*(a.shape[axis] for axis in batch[0]), *free[0], *free[1])
    inner = tuple(math.prod(x.shape[axis] for axis in contracted[side]) for side, x in enumerate((a, b)))
    cost = product_cost(call, a, b, out, inner=(inner[0], inner[1]), dtype=dtype)
    return with_fused_work(call, replace(cost, precision=compiled_precision(call, a, call.value(7))))


@cost_model(convolutions.FAMILY, r"conv_general_dilated")
def compiled_convolution(call: Call) -> Cost:
    """A convolution in a program that XLA compiled, by a library or fused, or one of its gradients.

    Multiplications with padding are left out, as in XLA's own analysis. A bias, an activation and what else
    a library's graph adds count none; what XLA fuses to it does.

    FLOPs: 2·N·C_out·(C_in/groups) a pair of positions in the result and in the kernel that is not padding
    Bytes: operands, the result; of a fusion its operands and result
    Source: openxla.org/xla/operation_semantics: Conv (convolution); HloCostAnalysis
    """
    computed, sizes, dtype, *dimensions = attributes(call, 11)
    places, window = dimensions[:3], dimensions[3:8]
    result, lhs, rhs = result_tensor(sizes, dtype), call.tensor(0), call.tensor(1)
    x, kernel, out = {
        "output": (lhs, rhs, result),
        "input": (result, rhs, lhs),
        "kernel": (lhs, result, rhs),
    }[computed]
    filters, *kernel_places = places[1]
    pairs = math.prod(
        valid_positions(
            x.shape[i], out.shape[o], size, stride=stride, before=before, dilation=dilation, spread=spread
        )
        for i, o, size, stride, before, spread, dilation in zip(places[0], places[2], *window, strict=True)
    )
    rows = math.prod(size for axis, size in enumerate(out.shape) if axis not in places[2])
    inner = math.prod(size for axis, size in enumerate(kernel.shape) if axis not in (filters, *kernel_places))
    cost = Cost.from_tensors(
        flops=2 * rows * inner * pairs,
        precision=matrix_precision(call, lhs),
        reads=call.tensors,
        writes=(result,),
    )
    return with_fused_work(call, cost)


@cost_model(attention.FAMILY, r"dot_product_attention_(?:fwd|bwd)")
def compiled_attention(call: Call) -> Cost:
    """cuDNN's attention in a program that XLA compiled.

    FLOPs: 2·P·(E + E_v); backward 2·P·(3·E + 2·E_v)
    Bytes: operands, results
    Source: xla/service/gpu/backend_configs.proto: CudnnfMHABackendConfig; jax.nn.dot_product_attention
    """
    mask, window, scores, written = attributes(call, 4)
    if mask not in ("NO_MASK", "CAUSAL", "ALIBI"):
        raise NoModel(f"its mask is {mask}: the lengths are in device memory")
    query, value = call.tensor(0), call.tensor(2)
    batch, heads, queries, keys = scores
    chosen = Mask(causal=mask == "CAUSAL", left=window - 1 if window else -1)
    pairs = batch * heads * chosen.count_pairs(queries, keys)
    e, e_v = query.shape[-1], value.shape[-1]
    return Cost(
        flops=2 * pairs * (e + e_v if call.name.endswith("fwd") else 3 * e + 2 * e_v),
        precision=matrix_precision(call, query),
        read_bytes=sum(tensor.bytes for tensor in call.tensors),
        written_bytes=written,
        assumes=attention.MASKED if chosen.hides_keys else None,
    )


@cost_model(linear_algebra.FAMILY, r"cholesky")
def compiled_cholesky(call: Call) -> Cost:
    """The triangle L with L·Lᵀ = A, by cuSOLVER or LAPACK.

    FLOPs: B·n³/3
    Bytes: a triangle of the matrix; the result, whole
    Source: openxla.org/xla/operation_semantics: Cholesky; jaxlib: cusolver_potrf_ffi; LAPACK potrf
    """
    attributes(call, 1)  # also what follows it may have its name
    return linear_algebra.cholesky(call)


@cost_model(linear_algebra.FAMILY, r"triangular_solve")
def compiled_triangular_solution(call: Call) -> Cost:
    """The solution of A·X = B or X·A = B for a triangle A, by cuBLAS or LAPACK.

    FLOPs: n an element of B, on either side
    Bytes: the triangle, B; X
    Source: openxla.org/xla/operation_semantics: TriangularSolve; BLAS trsm
    """
    attributes(call, 1)
    a, b = call.tensor(0), call.tensor(1)
    return linear_algebra.solved_cost(call, a, b, passes=1, left=b.shape[-2] == a.shape[-1])


@cost_model(linear_algebra.FAMILY, r"lu")
def compiled_lu(call: Call) -> Cost:
    """The triangles L and U with P·L·U = A, by cuSOLVER or LAPACK.

    FLOPs: B·(l·k² − k³/3), k the smaller of rows and columns, l the larger
    Bytes: the matrix; the triangles in its place, k pivots in int32
    Source: jax.lax.linalg.lu; jaxlib: cusolver_getrf_ffi; LAPACK getrf
    """
    attributes(call, 1)
    return linear_algebra.lu_factorisation(call)


@cost_model(linear_algebra.FAMILY, r"geqrf")
def compiled_reflections(call: Call) -> Cost:
    """The triangle R of Q·R = A, and the reflections whose product is Q, by cuSOLVER or LAPACK.

    FLOPs: B·(2·l·k² − 2·k³/3), k the smaller of rows and columns, l the larger
    Bytes: the matrix; R and the reflections in its place, k factors
    Source: jax.lax.linalg.qr; jaxlib: cusolver_geqrf_ffi; LAPACK geqrf
    """
    attributes(call, 1)
    return linear_algebra.reflections_cost(call)


@cost_model(linear_algebra.FAMILY, r"householder_product")
def compiled_orthonormal_columns(call: Call) -> Cost:
    """The columns Q (m, n) of k reflections, by cuSOLVER or LAPACK.

    FLOPs: B·(4·m·n·k − 2·(m + n)·k² + 4·k³/3)
    Bytes: the reflections, k factors; Q
    Source: jax.lax.linalg.householder_product; jaxlib: cusolver_orgqr_ffi; LAPACK orgqr
    """
    attributes(call, 1)
    return linear_algebra.orthonormal_columns_cost(call)


@cost_model(linear_algebra.FAMILY, r"eigh|eig|svd|schur")
def compiled_iterations(call: Call) -> Cost:
    """Eigenvalues, singular values or a Schur form, by cuSOLVER or LAPACK, in iterations.

    FLOPs: none stated
    Bytes: none stated
    Source: jax.lax.linalg; LAPACK syevd, gesdd, geev, gees
    """
    attributes(call, 1)
    return linear_algebra.iterative_factorisation(call)


@cost_model(matrix_products.FAMILY, r"ragged_dot_general")
def compiled_grouped_product(call: Call) -> Cost:
    """Products of groups of rows, of the inner dimension or of the batch, whose sizes are on the device.

    FLOPs: 2·B·M·N·K, the grouped dimension the sum over the groups; what is fused to it, 1 an operation
    Bytes: both operands, the sizes of the groups, the result; of a fusion its operands and result
    Source: jax.lax.ragged_dot_general; xla_data.proto: RaggedDotDimensionNumbers
    Tested: no trace
    """
    a, b, sizes = call.tensor(0), call.tensor(1), call.tensor(2)
    left, right, _, batch, groups, shape, dtype, precision = attributes(call, 8)
    out = result_tensor(shape, dtype)
    inner = [math.prod(x.shape[axis] for axis in axes) for x, axes in ((a, left), (b, right))]
    if inner[0] != inner[1]:
        raise NoModel(f"the inner sizes of its operands differ: {inner[0]} and {inner[1]}")
    columns = math.prod(n for axis, n in enumerate(b.shape) if axis not in (*right, *batch, *groups))
    cost = Cost.from_tensors(
        flops=2 * a.elements * columns,
        precision=compiled_precision(call, a, precision),
        reads=(a, b, sizes),
        writes=(out,),
        assumes=matrix_products.COVERED,
    )
    return with_fused_work(call, cost)


@cost_model(matrix_products.FAMILY, r"te_gemm")
def engine_product(call: Call) -> Cost:
    """Transformer Engine's product in JAX: of A, its scale, B, its scale and a bias; without a batch.

    Which dimensions it contracts follows from the elements, which are M·K, K·N and M·N.

    FLOPs: 2·M·N·K
    Bytes: all operands, those that it does not use are empty; the result
    Source: NVIDIA/TransformerEngine, transformer_engine/jax/cpp_extensions/gemm.py: GemmPrimitive.lowering:
    te_gemm_ffi (lhs, lhs_scale_inv, rhs, rhs_scale_inv, bias, gelu_input), te_gemm_v2_ffi without gelu_input
    Tested: no trace
    """
    a, b = call.tensor(0), call.tensor(2)
    out = result_tensor(*attributes(call, 2))
    k = matrix_products.fitting_inner_size(a, b, out)
    if k is None:
        raise NoModel("which dimensions it contracts does not follow from the sizes of its operands")
    return Cost.from_tensors(
        flops=2 * out.elements * k, precision=matrix_precision(call, a), reads=call.tensors, writes=(out,)
    )


@cost_model(fourier_transforms.FAMILY, r"fft")
def compiled_transform(call: Call) -> Cost:
    """Transforms of all N points along the last dimensions, over the others; real where one side is real.

    FLOPs: 5·log2 N an element, N the product of the transformed sizes; half of it where one side is real
    Bytes: the input; the result
    Source: openxla.org/xla/operation_semantics: Fft; fftw.org/speed: mflops = 5 N log2(N) / t, 2.5 for real
    """
    lengths, sizes, dtype = attributes(call, 3)
    x, result = call.tensor(0), result_tensor(sizes, dtype)
    sides = [side for side in (x, result) if promotion_rank(side.dtype) < 3]
    elements = max(x.elements, result.elements)
    return Cost.from_tensors(
        flops=round((2.5 if sides else 5) * elements * math.log2(math.prod(lengths))),
        precision="fp64" if "c128" in (x.dtype, dtype) else "fp32",
        reads=(x,),
        writes=(result,),
        assumes=fourier_transforms.CONVENTION,
    )
