# SPDX-License-Identifier: Apache-2.0
"""Kernels that torch.compile generates with Triton, recorded under their own names."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import matrix_precision

FAMILY = "compiled kernel"
_INTEGERS: Final = r"(?i)(?:c10::)?(?:(?:unsigned )?(?:int|long|short)\w*(?: int)?|u?int\d+)"


@cost_model(FAMILY, r"triton_(?:poi|red|per|for|unk|mix)_\w+")
def fused_kernel(call: Call) -> Cost:
    """A fused pointwise or reduction kernel: its tensors are arguments, its arithmetic is not.

    FLOPs: 0: not recorded
    Bytes: each tensor once; none stated where an operand of integers may index others
    Source: torch/_inductor/codegen/triton.py: in_out_ptr, in_ptr, out_ptr, sizes, in that order
    """
    if not call.tensors:
        raise NoModel("no tensor is recorded among its arguments")
    *read, written = call.tensors
    if any(re.fullmatch(_INTEGERS, tensor.dtype) for tensor in read):
        raise NoModel("what it reads is unknown: one of its operands is of integers, which may index others")
    return Cost.from_tensors(
        reads=read,
        writes=(written,),
        assumes="each tensor is used once and whole, the last is the result; its arithmetic is not recorded",
    )


# Names that template_kernel matches too are its own: of several models the first by name counts.
@cost_model(FAMILY, r"triton_tem_fused_\w*mm\w*")
def template_product(call: Call) -> Cost:
    """A product of two matrices from a template, with what is fused to it.

    Its tensors are recorded as they are stored, views undone: the sizes follow from the elements, which are
    M·K, K·N and M·N of the result, the last tensor: K² = |A|·|B| / |C|.

    FLOPs: 2·M·N·K
    Bytes: each tensor once
    Source: torch/_inductor/select_algorithm.py: (prefix inputs, arg_A, arg_B, further inputs, out_ptr)
    """
    *read, out = call.tensors
    pairs = [(a, b, _inner_size(a, b, out)) for a, b in pairwise(read)]
    products = [(a, k) for a, _, k in pairs if k is not None]
    if len(products) != 1:
        raise NoModel("which of its tensors are multiplied does not follow from their sizes")
    ((a, k),) = products
    return Cost.from_tensors(
        flops=2 * out.elements * k,
        precision=matrix_precision(call, a),
        reads=read,
        writes=(out,),
        assumes="arithmetic fused to the product is not recorded",
    )


def _inner_size(a: Tensor, b: Tensor, out: Tensor) -> int | None:
    """Inner size K of the matrix product of a and b with result `out`; None where none fits."""
    if min(len(a.shape), len(b.shape), len(out.shape)) < 2 or not out.elements:
        return None
    k = math.isqrt(a.elements * b.elements // out.elements)
    fits = k * k * out.elements == a.elements * b.elements
    return k if fits and k in a.shape and k in b.shape else None


@cost_model(
    FAMILY,
    r"triton_(?:tem|mm|bmm|addmm|flex)\w*(?:bmm|conv|attention)\w*",
    r"triton_(?:mm|bmm|addmm|flex)\w*",
)
def template_kernel(call: Call) -> Cost:
    """A batched product, convolution or attention: its sizes do not follow from its arguments.

    FLOPs: none stated
    Bytes: none stated
    Source: torch/_inductor/select_algorithm.py
    """
    raise NoModel(f"{call.name} is a template kernel: its arguments do not determine its arithmetic")
