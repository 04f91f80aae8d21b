# SPDX-License-Identifier: Apache-2.0
"""Instructions of a compiled program that have a cost model of their own, as calls of an operator.

A product and a convolution may stand alone, in a fusion, or be a custom call of cuBLAS or cuDNN (AMD: of
rocBLAS or MIOpen under the same names); attention, factorisations and solutions are custom calls.
Field numbers and enumerations: xla_data.proto and hlo.proto; the configurations of custom calls:
xla/service/gpu/backend_configs.proto.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

CONTRACTIONS: Final = ("dot", "ragged-dot", "convolution")
_GEMM: Final = re.compile(r"__cublas\$(?:gemm|lt\$matmul)")
_CONVOLUTION: Final = {
    "__cudnn$convForward": "output",
    "__cudnn$convForwardGraph": "output",
    "__cudnn$convBiasActivationForward": "output",
    "__cudnn$convBackwardInput": "input",
    "__cudnn$convBackwardFilter": "kernel",
}
"""What a custom call of cuDNN computes: its result is that part of a convolution."""
_ATTENTION: Final = re.compile(r"__cudnn\$fmha\w*")
_ROUTINE: Final = re.compile(r"(?:cusolver_|hipsolver_|lapack_[sdcz])(\w+)_ffi|__cusolver\$(cholesky)")
_OPERATORS: Final = {
    **dict.fromkeys(("potrf", "cholesky"), "cholesky"),
    "getrf": "lu",
    "geqrf": "geqrf",
    **dict.fromkeys(("orgqr", "ungqr"), "householder_product"),
    "trsm": "triangular_solve",
    **dict.fromkeys(("syevd", "heevd"), "eigh"),
    **dict.fromkeys(("gesdd", "gesvd", "gesvdj", "gesvdp"), "svd"),
    "geev": "eig",
    "gees": "schur",
}
"""JAX's operator by the routine of LAPACK or cuSOLVER."""
_ENGINE_PRODUCT: Final = re.compile(r"te_gemm(_v2)?_ffi")
_SOLUTION: Final = re.compile(r"__cublas\$triangularSolve")
_WORKSPACE: Final = (2, 6)
"""Types of scratch memory among the results of a custom call: s8, u8."""
_TUPLE: Final = 13
_ALGORITHMS: Final = (
    "",
    "DOT_ANY_F8_ANY_F8_F32",
    "DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM",
    "DOT_F16_F16_F16",
    "DOT_F16_F16_F32",
    "DOT_BF16_BF16_BF16",
    "DOT_BF16_BF16_F32",
    "DOT_BF16_BF16_F32_X3",
    "DOT_BF16_BF16_F32_X6",
    "DOT_TF32_TF32_F32",
    "DOT_TF32_TF32_F32_X3",
    "DOT_F32_F32_F32",
    "DOT_F64_F64_F64",
    "DOT_BF16_BF16_F32_X9",
)
"""PrecisionConfig.Algorithm, by number."""
_COMPLEX_TO_COMPLEX: Final = (0, 1)

Value = str | list[int]
Size = Callable[[Iterable[Any | None]], int | None]
TypeName = Callable[[Any], str]


class OperatorCall(msgspec.Struct, frozen=True):
    """An operator, its operands' shapes, its attributes."""

    operator: str
    operands: Sequence[Any | None]
    values: tuple[Value, ...]
    path: str = ""
    """Framework op of an instruction in a fusion."""


def shape_leaves(shape: Any) -> Iterable[Any]:
    """The arrays of a shape, in order."""
    if shape.element_type != _TUPLE:
        yield shape
    for part in shape.tuple_shapes:
        yield from shape_leaves(part)  # protobuf limits the depth to 100


class _Precision(msgspec.Struct):
    algorithm: str = ""
    operand_precision: list[str] = []


class _DotDimensions(msgspec.Struct):
    """Dimensions of a product as the configuration of a custom call states them."""

    lhs_contracting_dimensions: list[int] = []
    rhs_contracting_dimensions: list[int] = []
    lhs_batch_dimensions: list[int] = []
    rhs_batch_dimensions: list[int] = []


class _Gemm(msgspec.Struct):
    dot_dimension_numbers: _DotDimensions
    precision_config: _Precision = msgspec.field(default_factory=_Precision)


class _Scores(msgspec.Struct):
    dimensions: list[int]


class _Attention(msgspec.Struct):
    intermediate_tensor_shape: _Scores
    mask_type: str = "NO_MASK"
    sliding_window_length: int = 0
    is_paged_attention: bool = False
    max_seg_per_batch: int = 1


class _CallConfig(msgspec.Struct):
    """The configuration of a custom call of XLA."""

    gemm_backend_config: _Gemm | None = None
    cudnn_fmha_backend_config: _Attention | None = None


def redact_config(config: bytes, publish: Callable[[str], str]) -> bytes:
    """A custom call's configuration with the fields that are read, their texts published; else nothing."""

    def published(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: published(held) for name, held in value.items() if held is not None}
        if isinstance(value, list):
            return [published(held) for held in value]
        return publish(value) if isinstance(value, str) else value

    try:
        read = msgspec.to_builtins(msgspec.json.decode(config, type=_CallConfig, strict=False))
    except msgspec.MsgspecError:
        return b""
    return msgspec.json.encode(published(read)) if any(read.values()) else b""


def is_library_product(i: Any) -> bool:
    """Whether an instruction is a product that cuBLAS computes."""
    return i.opcode == "custom-call" and _GEMM.match(i.target) is not None


def operator_call(
    i: Any, operands: Sequence[Any | None], *, size: Size, type_name: TypeName
) -> OperatorCall | None:
    """The call that an instruction is; None if it has no operator of its own, or lacks its attributes."""
    if i.opcode == "dot":
        sides = i.dot.lhs_contracting, i.dot.rhs_contracting, i.dot.lhs_batch, i.dot.rhs_batch
        return _product(i.shape, operands, sides, _stated_precision(i), type_name)
    if i.opcode == "ragged-dot":
        numbers = i.ragged_dot.dot
        sides = numbers.lhs_contracting, numbers.rhs_contracting, numbers.lhs_batch, numbers.rhs_batch
        grouped = list(i.ragged_dot.rhs_group), list(i.shape.dimensions), type_name(i.shape)
        attributes: tuple[Value, ...] = (*map(list, sides), *grouped, _stated_precision(i))
        return OperatorCall("ragged_dot_general", operands, attributes)
    if i.opcode == "convolution":
        return _convolution(i, "output", operands, type_name)
    if i.opcode == "fft":
        result = i.shape
        values = list(i.fft_length), list(result.dimensions), type_name(result)
        return OperatorCall("fft", operands, values)
    if i.opcode != "custom-call":
        return None
    if i.target in _CONVOLUTION:
        return _convolution(i, _CONVOLUTION[i.target], operands, type_name)
    result = next(iter(shape_leaves(i.shape)), None)
    routine = _ROUTINE.fullmatch(i.target)
    if routine and result is not None and (operator := _OPERATORS.get(routine[1] or routine[2])):
        return OperatorCall(operator, operands, (list(result.dimensions),))
    if _ENGINE_PRODUCT.fullmatch(i.target) and result is not None:
        return OperatorCall("te_gemm", operands, (list(result.dimensions), type_name(result)))
    return _configured_call(i, operands, size, type_name)


def _configured_call(
    i: Any, operands: Sequence[Any | None], size: Size, type_name: TypeName
) -> OperatorCall | None:
    """A custom call that is described by its configuration in JSON."""
    try:
        # integers are written as texts
        config = msgspec.json.decode(i.config, type=_CallConfig, strict=False)
    except msgspec.MsgspecError:
        return None
    if _GEMM.match(i.target) and (gemm := config.gemm_backend_config) is not None:
        numbers = gemm.dot_dimension_numbers
        sides = (
            numbers.lhs_contracting_dimensions,
            numbers.rhs_contracting_dimensions,
            numbers.lhs_batch_dimensions,
            numbers.rhs_batch_dimensions,
        )
        stated = gemm.precision_config
        algorithm = stated.algorithm.removeprefix("ALG_").removeprefix("UNSET")
        default = set(stated.operand_precision) == {"DEFAULT"}
        return _product(
            next(iter(shape_leaves(i.shape))),
            operands[:2],
            sides,
            algorithm or "DEFAULT" * default,
            type_name,
        )
    if _ATTENTION.fullmatch(i.target) and (attention := config.cudnn_fmha_backend_config) is not None:
        packed = attention.is_paged_attention or attention.max_seg_per_batch > 1
        written = size(leaf for leaf in shape_leaves(i.shape) if leaf.element_type not in _WORKSPACE)
        return OperatorCall(
            f"dot_product_attention_{'bwd' if 'Backward' in i.target else 'fwd'}",
            operands,
            (
                "PACKED" if packed else attention.mask_type,
                str(attention.sliding_window_length),
                attention.intermediate_tensor_shape.dimensions,
                str(written),
            ),
        )
    if _SOLUTION.fullmatch(i.target):
        result = next(iter(shape_leaves(i.shape)))
        return OperatorCall("triangular_solve", operands[:2], (list(result.dimensions),))
    return None


def _stated_precision(i: Any) -> str:
    """The algorithm of a product, `DEFAULT`, or nothing where its operands' precisions are stated."""
    number = i.precision.algorithm
    algorithm = _ALGORITHMS[number] if number < len(_ALGORITHMS) else ""
    default = i.HasField("precision") and not number and not any(i.precision.operand_precision)
    return algorithm or "DEFAULT" * default


def _product(
    shape: Any,
    operands: Sequence[Any | None],
    sides: Iterable[Sequence[int]],
    precision: str,
    type_name: TypeName,
) -> OperatorCall:
    """A product: its contracting and batch dimensions, left and right, its result's type, its precision."""
    values: tuple[Value, ...] = (*map(list, sides), type_name(shape))
    return OperatorCall("dot_general", operands, (*values, precision) if precision else values)


def _convolution(
    i: Any, computed: str, operands: Sequence[Any | None], type_name: TypeName
) -> OperatorCall | None:
    """A convolution.

    Its attributes: which part of it is the result, its sizes and type; the spatial dimensions of the input,
    the output feature and the spatial dimensions of the kernel, the spatial ones of the output; of each of
    these dimensions the window's size, stride, padding before, dilation of the input and of the kernel.
    """
    if not i.HasField("convolution"):
        return None
    result = next(iter(shape_leaves(i.shape)))
    numbers, window = i.convolution, i.window.dimensions
    return OperatorCall(
        "conv_general_dilated",
        operands,
        (
            computed,
            list(result.dimensions),
            type_name(result),
            list(numbers.input),
            [numbers.kernel_out, *numbers.kernel],
            list(numbers.output),
            [dimension.size for dimension in window],
            [dimension.stride or 1 for dimension in window],
            [dimension.before for dimension in window],
            [dimension.spread or 1 for dimension in window],
            [dimension.dilation or 1 for dimension in window],
        ),
    )
