# SPDX-License-Identifier: Apache-2.0
"""Lookups by index: embeddings, gathers and scatters.

Repeated indices are not recorded: each index is assumed to read an element (a row) of its own, up to all
that there are.
"""

from __future__ import annotations

from typing import Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import is_floating, vector_precision

FAMILY = "lookup"
DISTINCT = "no index occurs twice"
_VIEWS: Final = ("aten::as_strided", "aten::reshape")
"""Views that an index makes of its operands."""


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
    """The rows of a table's gradient that the indices read; zeros, which it calls, fills the table.

    FLOPs: 1 an element of the result's gradient
    Bytes: the result's gradient, indices; a row each
    Source: native_functions.yaml: embedding_dense_backward(grad_output, indices, num_weights, ...)
    """
    grad, indices, rows = call.tensor(0), call.tensor(1), call.value(2)
    if type(rows) is not int:
        raise NoModel("the number of rows is not recorded")
    return Cost.from_tensors(
        flops=grad.elements,
        precision=vector_precision(grad.dtype),
        reads=(grad, indices),
        writes=(looked_up_rows(Tensor((rows, grad.shape[-1]), grad.dtype), indices),),
        assumes=DISTINCT,
    )


@cost_model(FAMILY, r"aten::_embedding_bag(?:_forward_only)?")
def embedding_bag(call: Call) -> Cost:
    """Sums of rows of a table, a bag each.

    FLOPs: 1 an element of the rows
    Bytes: indices, offsets, a row each, the result
    Source: native_functions.yaml: _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse,
    per_sample_weights, include_last_offset, padding_idx)
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


@cost_model(FAMILY, r"aten::scatter_?(?:add_?)?")
def scatter(call: Call) -> Cost:
    """An element an index is written, of scatter_add added to; copy_, which it calls, copies the tensor.

    FLOPs: 0, of scatter_add 1 an index
    Bytes: indices, source, of scatter_add the elements; the elements that are written
    Source: native_functions.yaml: scatter.src(self, dim, index, src), scatter_add(self, dim, index, src)
    """
    x, indices, source = call.tensor(0), call.tensor(2), call.optional_tensor(3)
    touched = Tensor((min(x.elements, indices.elements),), x.dtype)
    adds = "add" in call.name
    return Cost.from_tensors(
        flops=indices.elements if adds and is_floating(x.dtype) else 0,
        precision=vector_precision(x.dtype),
        reads=(indices, source, touched if adds else None),
        writes=(touched,),
        assumes=DISTINCT,
    )


@cost_model(FAMILY, r"aten::index_(?:add|copy)_?")
def index_add(call: Call) -> Cost:
    """Slices along a dimension are written, of index_add added to; copy_, which it calls, copies the tensor.

    FLOPs: 0, of index_add 1 an element of the source
    Bytes: indices, source, of index_add the slices; the slices that are written
    Source: native_functions.yaml: index_add(self, dim, index, source, alpha), index_copy alike
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


@cost_model(FAMILY, r"aten::index_fill_?")
def index_fill(call: Call) -> Cost:
    """Slices along a dimension are overwritten with one number.

    FLOPs: 0
    Bytes: indices; the slices
    Source: native_functions.yaml: index_fill_(self, dim, index, value)
    """
    x, axis, indices = call.tensor(0), call.value(1), call.tensor(2)
    if type(axis) is not int:
        raise NoModel("the dimension of the indices is not recorded")
    return Cost.from_tensors(reads=(indices,), writes=(looked_up_rows(x, indices, axis),), assumes=DISTINCT)


@cost_model(FAMILY, r"aten::_embedding_bag_dense_backward")
def embedding_bag_backward(call: Call) -> Cost:
    """Each row of a table's gradient that a bag read, summed over the bags; zeros, which it calls, fills it.

    FLOPs: 1 an element of the rows
    Bytes: the result's gradient, indices and the bag of each; the rows that are read
    Source: native_functions.yaml: _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size,
    maximum_indices, num_weights, ...)
    """
    grad, indices, bags, rows = call.tensor(0), call.tensor(1), call.tensor(2), call.value(5)
    if type(rows) is not int:
        raise NoModel("the number of rows is not recorded")
    width = grad.shape[-1]
    return Cost.from_tensors(
        flops=indices.elements * width,
        precision=vector_precision(grad.dtype),
        reads=(grad, indices, bags),
        writes=(looked_up_rows(Tensor((rows, width), grad.dtype), indices),),
        assumes=DISTINCT,
    )


def indexed_elements(call: Call) -> tuple[Tensor, tuple[Tensor, ...]] | None:
    """The elements that a list of indices selects, and the indices, by the views that index makes of them.

    It views the tensor in the shape of the result (`restride_src`), and each index in that of the broadcast
    indices (`reshape_indexer`: aten/src/ATen/native/TensorAdvancedIndexing.cpp).  None where neither is
    recorded.
    """
    x = call.tensor(0)
    views = (
        inner_call
        for inner_call in call.inner
        if inner_call.name == "aten::as_strided" and inner_call.tensor(0) == x
    )
    shape = next((view.value(1) for view in views), None)
    indices = tuple(inner_call.tensor(0) for inner_call in call.inner if inner_call.name == "aten::reshape")
    if not isinstance(shape, tuple) or not indices or not all(type(size) is int for size in shape):
        return None
    return Tensor(shape, x.dtype), indices


@cost_model(FAMILY, r"aten::index", reads_inner=_VIEWS)
def index(call: Call) -> Cost:
    """Elements or slices at lists of indices, x[i, j].

    FLOPs: 0
    Bytes: indices, an element each, the result
    Source: native_functions.yaml: index(self, indices); PyTorch's profiler records no tensors of a list of
    optional tensors (torch/csrc/profiler), but those of the views that index makes
    """
    x, selected = call.tensor(0), indexed_elements(call)
    if selected is None:
        raise NoModel(f"neither the indices of {call.name} nor the size of its result are recorded")
    result, indices = selected
    read = Tensor((min(x.elements, result.elements),), x.dtype)
    return Cost.from_tensors(reads=(*indices, read), writes=(result,), assumes=DISTINCT)


@cost_model(FAMILY, r"aten::_?index_put(?:_impl)?_?", reads_inner=_VIEWS)
def index_put(call: Call) -> Cost:
    """Values are written where the indices point, or added.

    FLOPs: 0, where they are added 1 an element
    Bytes: indices where recorded, values, where they are added the elements; the elements that are written
    Source: native_functions.yaml: _index_put_impl_(self, indices, values, accumulate, unsafe)
    """
    x, values, adds, selected = call.tensor(0), call.tensor(2), call.value(3) is True, indexed_elements(call)
    if adds or selected is None:
        # Added values are sorted by their indices: the views are of other tensors.
        if not values.shape:
            raise NoModel(f"the indices of {call.name} are not recorded: its one value may fill any number")
        selected = values, ()
    written, indices = selected
    touched = Tensor((min(x.elements, written.elements),), x.dtype)
    return Cost.from_tensors(
        flops=written.elements if adds and is_floating(x.dtype) else 0,
        precision=vector_precision(x.dtype),
        reads=(*indices, values, touched if adds else None),
        writes=(touched,),
        assumes=DISTINCT
        if indices
        else f"{DISTINCT}, one a value; their bytes are not recorded: a lower bound",
    )


@cost_model(FAMILY, r"aten::(?:nonzero|_?unique\w*)")
def selection(call: Call) -> Cost:
    """Positions or values that only the data determine.

    FLOPs: 0
    Bytes: the input; the result's size is recorded nowhere and is not counted
    Source: native_functions.yaml: nonzero(self), _unique2(self, sorted, return_inverse, return_counts)
    """
    return Cost.from_tensors(
        reads=(call.tensor(0),), writes=(), assumes="the size of its result is not recorded: a lower bound"
    )


@cost_model(FAMILY, r"aten::(?:masked_select|repeat_interleave)")
def lookup_of_unknown_size(call: Call) -> Cost:
    """Lookups whose results' sizes are recorded nowhere.

    FLOPs: none stated
    Bytes: none stated
    Source: native_functions.yaml: masked_select(self, mask), repeat_interleave(self, repeats, dim)
    """
    raise NoModel(f"the size of the result of {call.name} is not recorded")


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
