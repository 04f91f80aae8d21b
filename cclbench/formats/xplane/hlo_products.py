# SPDX-License-Identifier: Apache-2.0
"""Matrix products of a compiled program: fusions that are one, and custom calls of cuBLAS."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

_KEEPS: Final = re.compile(r"parameter|dot|bitcast|reshape|transpose|copy")
"""Opcodes in a fusion that is only a matrix product: none that computes or converts."""
_LIBRARY_PRODUCT: Final = re.compile(r"__cublas\$(?:gemm|lt\$matmul)")
"""Targets of custom calls that are one matrix product."""
_TUPLE: Final = 13


def shape_leaves(shape: Any) -> Iterable[Any]:
    """The arrays of a shape, in order."""
    if shape.element_type != _TUPLE:
        yield shape
    for part in shape.tuple_shapes:
        yield from shape_leaves(part)  # protobuf limits the depth to 100


class _DotDimensions(msgspec.Struct):
    """Dimensions of a product as the configuration of a custom call states them."""

    lhs_contracting: list[int] = msgspec.field(default_factory=list, name="lhs_contracting_dimensions")
    rhs_contracting: list[int] = msgspec.field(default_factory=list, name="rhs_contracting_dimensions")
    lhs_batch: list[int] = msgspec.field(default_factory=list, name="lhs_batch_dimensions")
    rhs_batch: list[int] = msgspec.field(default_factory=list, name="rhs_batch_dimensions")


class _Gemm(msgspec.Struct):
    dot_dimension_numbers: _DotDimensions


class _ProductConfig(msgspec.Struct):
    gemm_backend_config: _Gemm


class Product(msgspec.Struct, frozen=True):
    """Dimensions of a dot, the shape of its result, its operands, and its framework op."""

    dot: Any
    shape: Any
    operands: list[Any | None]
    op_name: str = ""


def sole_product(computation: Any) -> Product | None:
    """The dot of a fusion that is only a product; None for any other."""
    dots = [i for i in computation.instructions if i.opcode == "dot"]
    if len(dots) != 1 or not all(_KEEPS.fullmatch(i.opcode) for i in computation.instructions):
        return None
    shapes = {i.id: i.shape for i in computation.instructions}
    dot = dots[0]
    operands = [shapes.get(operand) for operand in dot.operand_ids]
    return Product(dot.dot, dot.shape, operands, dot.metadata.op_name)


def is_library_product(i: Any) -> bool:
    """Whether an instruction is a product that cuBLAS computes."""
    return i.opcode == "custom-call" and _LIBRARY_PRODUCT.match(i.target) is not None


def library_product(i: Any, operands: list[Any | None]) -> Product | None:
    """The product that a custom call of cuBLAS is; None if its configuration states no dimensions."""
    try:
        # integers are written as texts
        config = msgspec.json.decode(i.config, type=_ProductConfig, strict=False)
    except msgspec.MsgspecError:
        return None
    return Product(
        config.gemm_backend_config.dot_dimension_numbers, next(iter(shape_leaves(i.shape))), operands[:2]
    )
