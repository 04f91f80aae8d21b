# SPDX-License-Identifier: Apache-2.0
"""Lookups by index: embeddings, gathers and scatters.

Repeated indices are not recorded: each index is assumed to read an element (a row) of its own, up to all
that there are.
"""

from __future__ import annotations

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import is_floating, vector_precision

FAMILY = "lookup"
DISTINCT = "no index occurs twice"


def looked_up_rows(table: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """The part of the table that the indices read if all are distinct."""
    shape = list(table.shape)
    shape[axis] = min(shape[axis], indices.elements)
    return Tensor(tuple(shape), table.dtype)


@cost_model(FAMILY, r"aten::embedding")
def embedding(call: Call) -> Cost:
    """Rows of a table, where it launches kernels itself (elsewhere index_select in it is counted).

    FLOPs: 0
    Bytes: indices, a row each, the result
    Source: native_functions.yaml: embedding(weight, indices, padding_idx, ...)
    """
    table, indices = call.tensor(0), call.tensor(1)
    (_, width) = table.shape
    result = Tensor((*indices.shape, width), table.dtype)
    return Cost.from_tensors(
        reads=(indices, looked_up_rows(table, indices)), writes=(result,), assumes=DISTINCT
    )


@cost_model(FAMILY, r"aten::embedding_dense_backward")
def embedding_backward(call: Call) -> Cost:
    """The gradient of a table of embeddings, whole.

    FLOPs: 1 an element of the result's gradient
    Bytes: the result's gradient, indices; the table's gradient
    Source: native_functions.yaml: embedding_dense_backward(grad_output, indices, num_weights, ...)
    """
    grad, indices, rows = call.tensor(0), call.tensor(1), call.value(2)
    if type(rows) is not int:
        raise NoModel("the number of rows is not recorded")
    return Cost.from_tensors(
        flops=grad.elements,
        precision=vector_precision(grad.dtype),
        reads=(grad, indices),
        writes=(Tensor((rows, grad.shape[-1]), grad.dtype),),
    )


@cost_model(FAMILY, r"aten::_embedding_bag(?:_forward_only)?")
def embedding_bag(call: Call) -> Cost:
    """Sums of rows of a table, a bag each.

    FLOPs: 1 an element of the rows
    Bytes: indices, offsets, a row each, the result
    Source: native_functions.yaml: _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse,
    per_sample_weights, include_last_offset, padding_idx)
    Tested: no trace
    """
    table, indices, offsets = map(call.tensor, range(3))
    (_, width) = table.shape
    bags = offsets.elements - (call.value(7) is True)
    return Cost.from_tensors(
        flops=indices.elements * width,
        precision=vector_precision(table.dtype),
        reads=(indices, offsets, looked_up_rows(table, indices), call.optional_tensor(6)),
        writes=(Tensor((bags, width), table.dtype),),
        assumes=DISTINCT,
    )


@cost_model(FAMILY, r"aten::index_select")
def index_select(call: Call) -> Cost:
    """Slices of a tensor along a dimension.

    FLOPs: 0
    Bytes: indices, a slice each, the result
    Source: native_functions.yaml: index_select(self, dim, index)
    """
    x, indices, axis = call.tensor(0), call.tensor(2), call.value(1)
    if type(axis) is not int:
        raise NoModel("the dimension of the indices is not recorded")
    shape = list(x.shape)
    shape[axis] = indices.elements
    result = Tensor(tuple(shape), x.dtype)
    return Cost.from_tensors(
        reads=(indices, looked_up_rows(x, indices, axis)), writes=(result,), assumes=DISTINCT
    )


@cost_model(FAMILY, r"aten::gather")
def gather(call: Call) -> Cost:
    """An element an index.

    FLOPs: 0
    Bytes: indices, an element each, the result
    Source: native_functions.yaml: gather(self, dim, index, sparse_grad)
    """
    x, indices = call.tensor(0), call.tensor(2)
    read = Tensor((min(x.elements, indices.elements),), x.dtype)
    result = Tensor(indices.shape, x.dtype)
    # An expanded index is small, yet each of its elements is looked up.
    return Cost.from_tensors(reads=(indices, read), writes=(result,), assumes=DISTINCT)


@cost_model(FAMILY, r"aten::scatter_(?:add_)?")
def scatter(call: Call) -> Cost:
    """An element an index is written in place, of scatter_add_ added to.

    FLOPs: 0, of scatter_add_ 1 an index
    Bytes: indices, source, of scatter_add_ the elements; the elements that are written
    Source: native_functions.yaml: scatter_.src(self, dim, index, src), scatter_add_(self, dim, index, src)
    """
    x, indices, source = call.tensor(0), call.tensor(2), call.optional_tensor(3)
    touched = Tensor((min(x.elements, indices.elements),), x.dtype)
    adds = call.name.endswith("add_")
    return Cost.from_tensors(
        flops=indices.elements if adds and is_floating(x.dtype) else 0,
        precision=vector_precision(x.dtype),
        reads=(indices, source, touched if adds else None),
        writes=(touched,),
        assumes=DISTINCT,
    )


@cost_model(FAMILY, r"aten::index_(?:add|copy)_")
def index_add(call: Call) -> Cost:
    """Slices along a dimension are written in place, of index_add_ added to.

    FLOPs: 0, of index_add_ 1 an element of the source
    Bytes: indices, source, of index_add_ the slices; the slices that are written
    Source: native_functions.yaml: index_add_(self, dim, index, source, alpha), index_copy_ alike
    """
    x, indices, source = call.tensor(0), call.tensor(2), call.tensor(3)
    touched = Tensor((min(x.elements, source.elements),), x.dtype)
    adds = "add" in call.name
    return Cost.from_tensors(
        flops=source.elements if adds and is_floating(x.dtype) else 0,
        precision=vector_precision(x.dtype),
        reads=(indices, source, touched if adds else None),
        writes=(touched,),
        assumes=DISTINCT,
    )


@cost_model(
    FAMILY,
    r"aten::index",
    r"aten::_?index_put(?:_impl)?_?",
    r"aten::(?:masked_select|nonzero|repeat_interleave|unique\w*|_unique2?)",
)
def lookup_of_unknown_size(call: Call) -> Cost:
    """Lookups whose indices or results are recorded nowhere.

    FLOPs: none stated
    Bytes: none stated
    Source: PyTorch's profiler records no tensors of a list of optional tensors (torch/csrc/profiler)
    """
    raise NoModel(f"the indices of {call.name}, or the size of its result, are not recorded")


@cost_model(
    FAMILY,
    r"_C_cache_ops::reshape_and_cache(?:_flash)?",
    r"aiter::reshape_and_cache(?:_flash)?",
    r"sglang::store_cache",
)
def store_cache(call: Call) -> Cost:
    """Keys and values of new tokens are written to their slots in the cache.

    FLOPs: 0
    Bytes: keys, values, slots; the same elements in the cache's type
    Source: vLLM csrc/torch_bindings.cpp: reshape_and_cache_flash(key, value, key_cache, value_cache,
    slot_mapping, ...); SGLang store_cache(k, v, k_cache, v_cache, indices, ...)
    """
    key, value, key_cache, value_cache, slots = map(call.tensor, range(5))
    stored = (Tensor(key.shape, key_cache.dtype), Tensor(value.shape, value_cache.dtype))
    return Cost.from_tensors(reads=(key, value, slots), writes=stored)
