# SPDX-License-Identifier: Apache-2.0
"""Kernels that torch.compile generates with Triton, recorded under their own names."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import is_floating, matrix_precision, vector_precision
from cclbench.operators.families import attention, matrix_products
from cclbench.operators.fused_names import fused_flops
from cclbench.operators.masks import Mask

FAMILY = "compiled kernel"
_INTEGERS: Final = r"(?i)(?:c10::)?(?:(?:unsigned )?(?:int|long|short)\w*(?: int)?|u?int\d+)"
_SCATTERS: Final = "scatter|index_put|embedding_dense_backward"
"""Operators whose result may have fewer elements than the kernel has points."""


@cost_model(FAMILY, r"triton_(?:poi|red|per|for|unk|mix)_\w+")
def fused_kernel(call: Call) -> Cost:
    """A fused pointwise or reduction kernel, of recorded tensors and sizes and the operators in its name.

    A kernel touches no more elements of a tensor than it has points (xnumel, times the size of a reduction):
    of a larger one, as of a slice, that many.  Where the last tensor cannot be a result, the first is
    `in_out_ptr`, read and overwritten.

    FLOPs: those of each operator in its name, once a point; none of operators that are not known
    Bytes: each tensor once, to the number of points; one in place twice
    Source: torch/_inductor/codegen/triton.py and common.py (KernelArgs.python_argdefs): in_out_ptr, in_ptr,
    out_ptr, sizes, in that order
    """
    tensors = call.tensors
    if not tensors:
        raise NoModel("no tensor is recorded among its arguments")
    points = _points(call)
    indexed = any(re.fullmatch(_INTEGERS, tensor.dtype) for tensor in tensors[:-1])
    if indexed and points is None:
        raise NoModel("what it reads is unknown: one of its operands is of integers, which may index others")
    touched = [_touched(tensor, points) for tensor in tensors]
    in_place = _overwrites_first(call, points)
    read, written = (touched, touched[:1]) if in_place else (touched[:-1], touched[-1:])
    flops, unknown = fused_flops(call.name)
    floating = [tensor.dtype for tensor in tensors if is_floating(tensor.dtype)]
    assumes = [
        "each tensor is used once" + ("" if points is None else ", to the kernel's size"),
        "the first is read and overwritten" if in_place else "the last is the result, none is overwritten",
        "each operator in its name counts once an element",
        *([f"the arithmetic of {', '.join(unknown)} is not counted"] if unknown else []),
        *(["indices are distinct"] if indexed else []),
    ]
    return Cost.from_tensors(
        flops=flops * (points or max(tensor.elements for tensor in tensors)) if floating else 0,
        precision=vector_precision(floating[0]) if floating else None,
        reads=read,
        writes=written,
        assumes="; ".join(assumes),
    )


def _points(call: Call) -> int | None:
    """Points of the kernel's grid, reductions included: the product of its last sizes; None where unknown.

    Symbols of dynamic shapes precede the sizes, of which there are one to three: the largest product that is
    the number of a tensor's elements, else the one size of a pointwise kernel, or the two of a reduction.
    """
    sizes = _sizes(call)
    products = [math.prod(sizes[-count:]) for count in range(1, min(len(sizes), 4) + 1)]
    fitting = [product for product in products if product in {tensor.elements for tensor in call.tensors}]
    fewest = 1 if call.name.startswith("triton_poi_") else 2
    if call.name.startswith("triton_for_") or len(products) < fewest:
        return None  # a kernel for lists has sizes of its own for each tensor
    return max(fitting, default=products[fewest - 1])


def _sizes(call: Call) -> list[int]:
    """Numbers among the arguments: symbols of dynamic shapes, then the kernel's sizes."""
    return [value for value in call.arguments if type(value) is int and value > 0]


def _touched(tensor: Tensor, points: int | None) -> Tensor:
    """The tensor, or as many elements as the kernel has points where it has more."""
    if points is None or tensor.elements <= points:
        return tensor
    return Tensor((points,), tensor.dtype)


def _overwrites_first(call: Call, points: int | None) -> bool:
    """Whether the first tensor is a result, as the last cannot be.

    A pointwise kernel writes all points of its results, unless it scatters, a reduction each row of them.
    `_unsafe_view` is of a matrix product's result, of fewer dimensions than what is computed from it: where
    only the last tensor of that size has them, it is that operand.
    """
    if points is None or len(call.tensors) < 2 or re.search(_SCATTERS, call.name):
        return False
    first, *_, last = call.tensors
    rows, *inner = _sizes(call)
    least = points if call.name.startswith("triton_poi_") else rows if len(inner) == 1 else 0
    if last.elements < least <= first.elements:
        return True
    alike = [tensor for tensor in call.tensors[:-1] if tensor.elements == last.elements]
    narrower = all(len(tensor.shape) > len(last.shape) for tensor in alike)
    return bool(alike) and narrower and "_unsafe_view" in call.name and first.elements == last.elements


# Names that template_kernel matches too are theirs: of several models the first by name counts.
@cost_model(attention.FAMILY, r"triton_(?:tem_\w*)?flex_(?:attention|decoding)\w*")
def flex_attention(call: Call) -> Cost:
    """Flex attention from a template, or its gradients: query, key, value (B, H, L, E), statistics.

    Which blocks of keys a mask keeps is in device memory.  Without one there is a single block, and no list
    of blocks that the mask keeps whole: the score function sees all pairs.

    FLOPs: 2·P·(E + E_v); backward 2·P·(3·E + 2·E_v): Q·Kᵀ is computed again; the score function's are not
    recorded
    Bytes: each tensor once
    Source: torch/_inductor/kernel/flex/flex_attention.py: input_nodes (query, key, value, logsumexp, ...,
    kv_num_blocks, kv_indices, full_kv_num_blocks, ...); torch/nn/attention/flex_attention.py:
    _create_empty_block_mask
    Tested: no trace
    """
    numbers = [tensor for tensor in call.tensors if is_floating(tensor.dtype) and tensor.elements]
    statistics = numbers[3].shape
    if (statistics[0], *statistics[-2:]) != numbers[0].shape[:3]:
        raise NoModel("its operands are recorded as stored: the order of their dimensions is not certain")
    sizes = attention.dense_sizes(call, 0, heads_first=True)
    (q, _, v), backward = sizes, "flex_attention_backward" in call.name
    pairs = attention.attention_pairs(*sizes, Mask())
    flops = 2 * pairs * (3 * q.size + 2 * v.size if backward else q.size + v.size)
    blocks = [tensor for tensor in call.tensors if re.fullmatch(_INTEGERS, tensor.dtype) and tensor.elements]
    if len(blocks) != (4 if backward else 2) or any(tensor.elements > 1 for tensor in blocks):
        raise NoModel(
            f"which blocks of keys its mask keeps is in device memory; all pairs take {flops:.3g} FLOPs"
        )
    read = 6 if backward else 3  # backward: statistics, delta and the result's gradient
    return Cost.from_tensors(
        flops=flops,
        precision=matrix_precision(call, numbers[0]),
        reads=numbers[:read],
        writes=numbers[read:],
        assumes="it has no mask; the arithmetic of its score function is not counted",
    )


@cost_model(matrix_products.FAMILY, r"triton_tem_fused_\w*mm\w*")
def template_product(call: Call) -> Cost:
    """A product of two matrices from a template, with what is fused to it.

    Its tensors are recorded as they are stored, views undone: the sizes follow from the elements, which are
    M·K, K·N and M·N of the result, the last tensor: K² = |A|·|B| / |C|.

    FLOPs: 2·M·N·K
    Bytes: each tensor once
    Source: torch/_inductor/select_algorithm.py: (prefix inputs, arg_A, arg_B, further inputs, out_ptr)
    Tested: no trace
    """
    *read, out = call.tensors
    pairs = [(a, b, matrix_products.fitting_inner_size(a, b, out)) for a, b in pairwise(read)]
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


@cost_model(
    FAMILY,
    r"triton_(?:tem|mm|bmm|addmm)\w*(?:bmm|conv|attention)\w*",
    r"triton_(?:mm|bmm|addmm)\w*",
)
def template_kernel(call: Call) -> Cost:
    """A batched product, convolution or attention: its sizes do not follow from its arguments.

    FLOPs: none stated
    Bytes: none stated
    Source: torch/_inductor/select_algorithm.py
    """
    raise NoModel(f"{call.name} is a template kernel: its arguments do not determine its arithmetic")
