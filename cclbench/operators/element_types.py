# SPDX-License-Identifier: Apache-2.0
"""Element types of results, of their arithmetic, and of tensors whose type only kernel names state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from cclbench.classify.arithmetic import kernel_arithmetic
from cclbench.classify.dtypes import catalog_precision
from cclbench.operators.call import Call, NoModel, Tensor

_SCALAR_TYPES: Final = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    15: "bfloat16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    25: "float8_e5m2fnuz",
    26: "float8_e4m3fnuz",
}
"""PyTorch's ScalarType, as traces record a dtype argument (c10/core/ScalarType.h)."""


def promotion_rank(dtype: str) -> int:
    """Rank of the type in PyTorch's promotion: bool 0, integer 1, floating 2, complex 3."""
    name = dtype.lower().removeprefix("c10::")
    if name.startswith("complex") or name in ("c64", "c128"):
        return 3
    if name in ("bool", "pred"):
        return 0
    return 1 if catalog_precision(dtype) in (None, "int8") else 2


def stated_type(value: Any, default: str) -> str:
    """The type that a recorded dtype argument names; `default` where there is none."""
    if value is None:
        return default
    if type(value) is not int or value not in _SCALAR_TYPES:
        raise NoModel(f"the element type of its result, {value!r}, is unknown")
    return _SCALAR_TYPES[value]


def promoted_type(tensors: Sequence[Tensor], scalars: Iterable[Any] = ()) -> str:
    """The type of an elementwise result (torch.result_type): tensors without dimensions and Python numbers
    count only where their kind is higher, and then as that kind's default type.
    """
    dimensioned = [tensor for tensor in tensors if tensor.shape] or list(tensors)
    widest = max(
        dimensioned,
        key=lambda tensor: (promotion_rank(tensor.dtype), tensor.bytes // max(tensor.elements, 1)),
    )
    floats = any(promotion_rank(tensor.dtype) == 2 for tensor in tensors) or any(
        isinstance(scalar, float) for scalar in scalars
    )
    if floats and promotion_rank(widest.dtype) < 2:
        return "float32"
    # Neither 16-bit floating type can represent the other.
    sixteen_bits = {"bf16", "fp16"}
    if widest.precision in sixteen_bits and sixteen_bits <= {tensor.precision for tensor in dimensioned}:
        return "float32"
    return widest.dtype


def vector_precision(dtype: str) -> str | None:
    """The peak of arithmetic outside matrix units: fp64 for doubles, fp32 for narrower floating types.

    PyTorch and others compute on narrower types in float (at::opmath_type).  None for integers; raises
    `NoModel` for complex numbers.
    """
    if promotion_rank(dtype) == 3:
        raise NoModel("arithmetic on complex numbers is not modelled")
    if promotion_rank(dtype) < 2:
        return None
    return "fp64" if catalog_precision(dtype) == "fp64" else "fp32"


def is_floating(dtype: str) -> bool:
    """Whether arithmetic on the type is floating-point; integer operations are no FLOPs."""
    return promotion_rank(dtype) >= 2


def matrix_precision(call: Call, operand: Tensor) -> str | None:
    """The peak of a matrix product: that of the operand's type, else of the type in its kernels' names.

    Of fp32 it is that of tf32 where a kernel's name states it.  Bytes (uint8) hold what the kernel unpacks.
    """
    if promotion_rank(operand.dtype) == 3:
        raise NoModel("products of complex numbers are not modelled")
    if operand.precision == "fp32":
        return "tf32" if "tf32" in _kernel_precisions(call) else "fp32"
    return operand.precision or kernels_precision(call)


def kernels_precision(call: Call) -> str | None:
    """The first precision that the names of the call's matrix kernels state; None without one."""
    return next(filter(None, _kernel_precisions(call)), None)


def _kernel_precisions(call: Call) -> list[str | None]:
    return [kernel_arithmetic(kernel).precision for kernel in call.kernels]


def type_in_kernels(call: Call) -> str | None:
    """The element type of lists of tensors, which traces do not record, from the kernels' names.

    `BinaryOpListAlphaFunctor<float, ...>` states the type, `OpaqueType<2u>` (of copies) only its size.
    """
    for kernel in call.kernels:
        if match := re.search(r"OpaqueType<(\d+)u?>", kernel):
            return f"uint{8 * int(match[1])}"
        if match := re.search(r"(?:Functor|CatArray\w+)<((?:c10::)?\w+)", kernel):
            return match[1]
    return None


def with_element_types(call: Call, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The tensors, with the kernels' element type where none is recorded; `NoModel` without either."""
    dtype = None
    tensors = tuple(tensors)
    if any(not tensor.dtype for tensor in tensors):
        dtype = type_in_kernels(call)
        if dtype is None:
            raise NoModel(
                "the element type of its tensor lists is neither recorded nor in its kernels' names"
            )
    return tuple(
        tensor if tensor.dtype else Tensor(tensor.shape, dtype or "", tensor.strides) for tensor in tensors
    )
