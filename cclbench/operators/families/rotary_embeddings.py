# SPDX-License-Identifier: Apache-2.0
"""Rotary position embeddings."""

from __future__ import annotations

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import vector_precision
from cclbench.operators.families.lookups import looked_up_rows

FAMILY = "rotary embedding"


@cost_model(FAMILY, r"(?:_C|sgl_kernel|vllm)::rotary_embedding")
def rotary_embedding(call: Call) -> Cost:
    """Pairs of queries and keys are rotated in place by cosine and sine of their position.

    FLOPs: 3 a rotated element: 4 products and 2 sums a pair
    Bytes: positions, a row of cosines and sines each, query and key; query and key
    Source: vLLM csrc/torch_bindings.cpp: rotary_embedding(positions, query, key, head_size, cos_sin_cache,
    is_neox)
    """
    positions, query, key = call.tensor(0), call.tensor(1), call.optional_tensor(2)
    head, table = call.value(3), call.tensor(4)
    if type(head) is not int or head <= 0:
        raise NoModel("the size of a head is not recorded")
    (_, rotated) = table.shape
    operands = [query] if key is None else [query, key]
    elements = sum(operand.elements for operand in operands)
    parts = [Tensor((operand.elements * rotated // head,), operand.dtype) for operand in operands]
    return Cost.from_tensors(
        flops=3 * elements * rotated // head,
        precision=vector_precision(query.dtype),
        reads=(positions, looked_up_rows(table, positions), *parts),
        writes=parts,
        assumes="no position occurs twice",
    )
