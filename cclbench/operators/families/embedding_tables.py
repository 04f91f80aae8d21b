# SPDX-License-Identifier: Apache-2.0
"""FBGEMM's embedding tables, many per operator, and the reordering of their inputs and results."""

from __future__ import annotations

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.families.lookups import DISTINCT

FAMILY = "embedding tables"
_SPLIT, _DENSE = (1, 6), (0, 2)
"""Positions of the tables, and of the widths, which the other arguments follow."""
_UNPOOLED = 2
"""`PoolingMode.NONE`: one row per index, not their sum."""


@cost_model(
    FAMILY,
    r"(?:fbgemm|fb)::split_embedding_codegen_lookup_\w+_function",
    r"(?:fbgemm|fb)::dense_embedding_codegen_lookup_function",
)
def table_batched_lookup(call: Call) -> Cost:
    """Rows of T tables, summed by bag, where all tables are equally wide: D = total_D / T.

    FLOPs: 1 an element of the rows that are summed, 2 where they are weighted; 0 unpooled
    Bytes: indices, offsets, weights of rows, a row each; the result
    Source: FBGEMM fbgemm_gpu/codegen: split_...(placeholder_autograd_tensor, dev_weights, uvm_weights,
    lxu_cache_weights, weights_placements, weights_offsets, D_offsets, total_D, max_D, hash_size_cumsum,
    total_hash_size_bits, indices, offsets, pooling_mode, indice_weights, ...); dense_...(dev_weights,
    weights_offsets, D_offsets, total_D, ...)
    """
    tables, widths = _SPLIT if "::split" in call.name else _DENSE
    weights, count = call.tensor(tables), call.tensor(widths).elements - 1
    total, widest, mode = call.value(widths + 1), call.value(widths + 2), call.value(widths + 7)
    if type(total) is not int or type(widest) is not int or type(mode) is not int:
        raise NoModel("the widths of its tables are not recorded")
    if widest * count != total:
        raise NoModel("its tables differ in width, and the number of indices of each is in device memory")
    indices, offsets = call.tensor(widths + 5), call.tensor(widths + 6)
    weighting = call.optional_tensor(widths + 8)
    rows = indices.elements * widest
    pooled = mode != _UNPOOLED
    bags = (offsets.elements - 1) // count
    return Cost.from_tensors(
        flops=rows * (2 if weighting else 1) * pooled,
        precision="fp32",
        reads=(indices, offsets, weighting, Tensor((rows,), weights.dtype)),
        writes=(Tensor((bags, total) if pooled else (rows,), "float"),),
        assumes=f"{DISTINCT}; the result is of float",
    )


@cost_model(
    FAMILY,
    r"(?:fbgemm|fb)::permute_pooled_embs\w*",
    r"(?:fbgemm|fb)::recat_embedding_grad_output_mixed_D(?:_batch)?",
    r"torch::autograd::CppNode<.*PermutePooledEmbsFunction.*>",
)
def pooled_permutation(call: Call) -> Cost:
    """Pooled embeddings, or their gradient, with their columns or parts in another order.

    FLOPs: 0
    Bytes: the embeddings; the same again
    Source: FBGEMM fbgemm_gpu/src/permute_pooled_embedding_ops: permute_pooled_embs(pooled_embs, ...);
    recat_embedding_grad_output_mixed_D_batch(grad_output, dim_sum_per_rank, cumsum_dim_sum_per_rank)
    """
    embeddings = call.tensor(0)
    return Cost.from_tensors(reads=(embeddings,), writes=(embeddings,))


@cost_model(FAMILY, r"(?:fbgemm|fb)::permute_(?:sparse_features|[12]D_sparse_data)")
def sparse_permutation(call: Call) -> Cost:
    """Features in another order: their lengths, indices and weights.

    FLOPs: 0
    Bytes: order, lengths, indices, weights; lengths, indices and weights again
    Source: FBGEMM fbgemm_gpu/src/sparse_ops: permute_2D_sparse_data(permute, lengths, indices, weights, ...)
    """
    order, lengths, indices, weights = call.tensor(0), call.tensor(1), call.tensor(2), call.optional_tensor(3)
    if order.elements != lengths.shape[0]:
        raise NoModel("it drops or repeats features, each of which has its own number of indices")
    moved = (lengths, indices, weights)
    return Cost.from_tensors(reads=(order, *moved), writes=moved)


@cost_model(FAMILY, r"torch::autograd::CppNode<.*LookupFunction.*>")
def table_batched_update(call: Call) -> Cost:
    """The update of the rows that a lookup read, by the gradient of its result.

    FLOPs: none stated
    Bytes: none stated
    Source: torch/csrc/autograd/custom_function.h: a C++ function's operands are saved in its context
    """
    raise NoModel(f"the tables and indices of {call.name} are not recorded: they are saved in its context")


@cost_model(FAMILY, r"fbgemm::bounds_check_indices")
def bounds_check(call: Call) -> Cost:
    """Indices and offsets are compared with the tables' sizes; wrong ones would be overwritten.

    FLOPs: 0
    Bytes: sizes, indices, offsets
    Source: FBGEMM fbgemm_gpu: bounds_check_indices(rows_per_table, indices, offsets, bounds_check_mode,
    warning, weights, ...)
    """
    return Cost.from_tensors(
        reads=map(call.tensor, range(3)), writes=(), assumes="no index is out of bounds and overwritten"
    )


@cost_model(FAMILY, r"(?:fbgemm|fb)::asynchronous_(?:complete|inclusive|exclusive)_cumsum")
def lengths_to_offsets(call: Call) -> Cost:
    """Running sums of integers.

    FLOPs: 0
    Bytes: the lengths; as many sums, one more a row where they are complete
    Source: FBGEMM fbgemm_gpu/src/sparse_ops: asynchronous_complete_cumsum(t_in)
    """
    lengths = call.tensor(0)
    *rows, length = lengths.shape
    sums = Tensor((*rows, length + ("complete" in call.name)), lengths.dtype)
    return Cost.from_tensors(reads=(lengths,), writes=(sums,))
