# SPDX-License-Identifier: Apache-2.0
"""Kernels that torch.compile generates with Triton, recorded under their own names."""

from __future__ import annotations

import re
from typing import Final

from cclbench.operators.call import Call, NoModel
from cclbench.operators.cost import Cost, cost_model

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
        raise NoModel("one of its operands is of integers, which may tell what it reads of the others")
    return Cost.of(
        reads=read,
        writes=(written,),
        assumes="each tensor is used whole and once, the last is the result; its arithmetic is not recorded",
    )


@cost_model(FAMILY, r"triton_(?:tem|mm|bmm|addmm|flex)\w*")
def template_kernel(call: Call) -> Cost:
    """A product or attention from a template: which of its arguments are multiplied is not recorded.

    FLOPs: none stated
    Bytes: none stated
    Source: torch/_inductor/select_algorithm.py
    """
    raise NoModel(f"{call.name} is made from a template: its arithmetic is not in its arguments")
