# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention, fused: dense, causal, windowed, grouped-query, packed; forward and backward.

P is the number of query-key pairs that the mask leaves, over the query heads; E the size of a query and of a
key, E_v that of a value.  Forward: the scores and the sum of values, 2·P·(E + E_v).  Backward: the scores
again, and the gradients of scores, values, queries and keys, 2·P·(3·E + 2·E_v).  The softmax is left out, as
in FlopCounterMode.  FlopCounterMode counts all pairs whatever the mask (the convention of MFU); here only
pairs that the mask leaves count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from cclbench.classify.arithmetic import kernel_arithmetic
from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import matrix_precision
from cclbench.operators.masks import Mask

FAMILY = "attention"
MASKED: Final = "only query-key pairs inside the causal or windowed mask are counted, not the full square"
BOUND: Final = (
    "each sequence has as many queries as keys; lengths are not recorded: pairs of equally long sequences,"
    " a lower bound"
)
EMULATED: Final = "each product in fp32 is three in TF32: a third of its peak is the most it can reach"


def is_causal(value: Any) -> bool:
    """Whether the mask is causal; raises `NoModel` where it is not recorded."""
    if not isinstance(value, bool):
        raise NoModel("whether its mask is causal is not recorded")
    return value


def window_bound(value: Any) -> int:
    """A side of a window; −1 (unbounded) where the signature has no window or none is recorded."""
    return value if type(value) is int else -1


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of a dense operand, or of packed sequences.

    `longer` is None where the length is that of each sequence; else lengths are not recorded, and of equally
    long sequences that many would have one element more.
    """

    batch: int
    heads: int
    length: int
    size: int
    longer: int | None = None

    @property
    def elements(self) -> int:
        """Length of all sequences together."""
        return self.batch * self.length + (self.longer or 0)


def dense_heads(operand: Tensor, *, heads_first: bool) -> Heads:
    """Sizes of an operand (B, H, L, E) if `heads_first`, else (B, L, H, E)."""
    batch, dim1, dim2, size = operand.shape
    return Heads(batch, dim1, dim2, size) if heads_first else Heads(batch, dim2, dim1, size)


def packed_lengths(operand: Tensor, offsets: Tensor, longest: Any, *, bounded: bool) -> Heads:
    """Sizes of packed sequences (T, H, E); `NoModel` where lengths differ, unless they may be bounded."""
    total, heads, size = operand.shape
    batch = offsets.elements - 1
    if batch == 1 or (type(longest) is int and batch * longest == total):
        return Heads(batch, heads, total // batch, size)
    if not bounded:
        raise NoModel("its sequences differ in length, and the lengths are in device memory")
    length, longer = divmod(total, batch)
    return Heads(batch, heads, length, size, longer)


def attention_pairs(q: Heads, k: Heads, v: Heads, mask: Mask) -> int:
    """Pairs over batch and query heads; raises `NoModel` where the operands do not fit."""
    if (k.batch, k.heads, k.length) != (v.batch, v.heads, v.length) or q.batch != k.batch or q.size != k.size:
        raise NoModel("the sizes of query, key and value do not fit")
    if not k.heads or q.heads % k.heads:
        raise NoModel(f"{q.heads} query heads are not a multiple of {k.heads} key heads")
    longer = q.longer or 0
    pairs = (q.batch - longer) * mask.count_pairs(q.length, k.length)
    return q.heads * (pairs + longer * mask.count_pairs(q.length + 1, k.length + 1))


def assumptions(q: Heads, mask: Mask) -> str | None:
    """What the number of pairs assumes."""
    return "; ".join([MASKED] * mask.hides_keys + [BOUND] * (q.longer is not None)) or None


def forward_cost(
    call: Call, sizes: tuple[Heads, Heads, Heads], mask: Mask, *, bias: Tensor | None, statistics: bool
) -> Cost:
    """Forward; arguments 0 to 2 are query, key and value; statistics are a float per query and head."""
    q, k, v = sizes
    query, key, value = map(call.tensor, range(3))
    return Cost.from_tensors(
        flops=2 * attention_pairs(q, k, v, mask) * (q.size + v.size),
        precision=matrix_precision(call, query),
        reads=(query, key, value, bias),
        writes=(
            Tensor((*query.shape[:-1], v.size), query.dtype),
            Tensor((q.heads, q.elements), "float32") if statistics else None,
        ),
        assumes=_joined(assumptions(q, mask), _emulation(call)),
    )


def backward_cost(
    call: Call, sizes: tuple[Heads, Heads, Heads], mask: Mask, *, out: int, statistics: int, bias: int | None
) -> Cost:
    """Backward; arguments 0 to 3 are the result's gradient, query, key and value, others as given."""
    q, k, v = sizes
    operands = tuple(map(call.tensor, range(4)))
    bias_tensor = None if bias is None else call.optional_tensor(bias)
    return Cost.from_tensors(
        flops=2 * attention_pairs(q, k, v, mask) * (3 * q.size + 2 * v.size),
        precision=matrix_precision(call, operands[1]),
        reads=(*operands, call.tensor(out), call.tensor(statistics), bias_tensor),
        writes=tuple(Tensor(operand.shape, operand.dtype) for operand in operands[1:]),
        assumes=_joined(assumptions(q, mask), _emulation(call)),
    )


def _emulation(call: Call) -> str | None:
    """What a kernel of CUTLASS does for fp32 that runs on tensor cores."""
    fused = [kernel for kernel in call.kernels if re.match(r"fmha_cutlass[FB]_f32_", kernel)]
    return EMULATED if any(kernel_arithmetic(kernel).precision == "tf32" for kernel in fused) else None


def _joined(*assumed: str | None) -> str | None:
    return "; ".join(filter(None, assumed)) or None


def dense_sizes(call: Call, first: int, *, heads_first: bool) -> tuple[Heads, Heads, Heads]:
    """Sizes of query, key and value, from argument `first` on."""
    q, k, v = (dense_heads(call.tensor(first + i), heads_first=heads_first) for i in range(3))
    return q, k, v


def query_key_value(
    call: Call, first: int, offsets: tuple[int, int], longest: tuple[int, int]
) -> tuple[Heads, Heads, Heads]:
    """Sizes of query, key and value (B, L, H, E), or packed where sequence offsets are recorded.

    As many queries as keys, in as many sequences with the same longest one, are those of self-attention.
    """
    of_queries, of_keys = map(call.optional_tensor, offsets)
    if of_queries is None or of_keys is None:
        return dense_sizes(call, first, heads_first=False)
    query, key, value = (call.tensor(first + i) for i in range(3))
    most_queries, most_keys = map(call.value, longest)
    alike = (query.shape[0], of_queries.shape, most_queries) == (key.shape[0], of_keys.shape, most_keys)
    q = packed_lengths(query, of_queries, most_queries, bounded=alike)
    k, v = (packed_lengths(operand, of_keys, most_keys, bounded=alike) for operand in (key, value))
    return q, k, v


_FORWARD: Final = {
    "flash_attention": (4, None, None),
    "flash_attention_for_cpu": (4, 5, None),
    "efficient_attention": (6, 3, 4),
    "cudnn_attention": (6, 3, 4),
    "fused_attention_overrideable": (5, 3, None),
}
"""Positions of is_causal, of a bias, and of whether the statistics are computed."""

_BACKWARD: Final = {
    "flash_attention": (11, 4, 5, None),
    "flash_attention_for_cpu": (7, 4, 5, 8),
    "efficient_attention": (11, 5, 6, 4),
    "cudnn_attention": (14, 4, 5, 8),
    "fused_attention_overrideable": (13, 6, 7, 4),
}
"""Positions of is_causal, of the result, of its statistics and of a bias."""


@cost_model(FAMILY, *(f"aten::_scaled_dot_product_{name}" for name in _FORWARD))
def scaled_dot_product_attention(call: Call) -> Cost:
    """PyTorch's fused attention, heads first: (B, H, L, E).

    FLOPs: 2·P·(E + E_v); P = B·H·L·S, causal those with key ≤ query
    Bytes: query, key, value, bias; the result, and a float per query and head
    Source: native_functions.yaml: _scaled_dot_product_flash_attention(query, key, value, dropout_p,
    is_causal, ...), ..._efficient_attention(query, key, value, attn_bias, compute_log_sumexp, dropout_p,
    is_causal)
    """
    name = call.name.removeprefix("aten::_scaled_dot_product_")
    causal, bias, statistics = _FORWARD[name]
    if name == "flash_attention" and call.optional_tensor(3) is not None:
        causal += 3  # the overload of 8-bit types has three scales there
    return forward_cost(
        call,
        dense_sizes(call, 0, heads_first=True),
        Mask(causal=is_causal(call.value(causal))),
        bias=None if bias is None else call.optional_tensor(bias),
        statistics=statistics is None or call.value(statistics) is True,
    )


@cost_model(FAMILY, *(f"aten::_scaled_dot_product_{name}_backward" for name in _BACKWARD))
def scaled_dot_product_attention_backward(call: Call) -> Cost:
    """The gradients of PyTorch's fused attention, heads first: (B, H, L, E).

    FLOPs: 2·P·(3·E + 2·E_v): Q·Kᵀ is computed again
    Bytes: gradient, query, key, value, result, statistics, bias; three gradients
    Source: native_functions.yaml: _scaled_dot_product_flash_attention_backward(grad_out, query, key, value,
    out, logsumexp, ...)
    """
    name = call.name.removeprefix("aten::_scaled_dot_product_").removesuffix("_backward")
    causal, out, statistics, bias = _BACKWARD[name]
    mask = Mask(causal=is_causal(call.value(causal)))
    sizes = dense_sizes(call, 1, heads_first=True)
    return backward_cost(call, sizes, mask, out=out, statistics=statistics, bias=bias)


@cost_model(FAMILY, r"aten::_flash_attention_forward")
def flash_attention_forward(call: Call) -> Cost:
    """Flash attention as PyTorch's own operators call it: (B, L, H, E), or packed (T, H, E).

    FLOPs: 2·P·(E + E_v); the last query sees the last key
    Bytes: query, key, value; the result, and a float per query and head
    Source: native_functions.yaml: _flash_attention_forward(query, key, value, cum_seq_q, cum_seq_k, max_q,
    max_k, dropout_p, is_causal, return_debug_mask, scale, window_size_left, window_size_right)
    """
    if any(call.optional_tensor(index) is not None for index in (13, 15, 16)):
        raise NoModel("the lengths of its cached keys are in device memory, which no trace records")
    causal = is_causal(call.value(8))
    scales = 3 if call.optional_tensor(10) is not None else 0  # of the overload of 8-bit types
    left, right = window_bound(call.value(11 + scales)), window_bound(call.value(12 + scales))
    mask = Mask(causal=causal, aligned_at_end=True, left=left, right=right)
    return forward_cost(call, query_key_value(call, 0, (3, 4), (5, 6)), mask, bias=None, statistics=True)


@cost_model(FAMILY, r"aten::_flash_attention_backward")
def flash_attention_backward(call: Call) -> Cost:
    """The gradients of flash attention as PyTorch's own operators call it.

    FLOPs: 2·P·(3·E + 2·E_v)
    Bytes: gradient, query, key, value, result, statistics; three gradients
    Source: native_functions.yaml: _flash_attention_backward(grad_out, query, key, value, out, logsumexp,
    cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, rng_state, unused, scale, window_size_left,
    window_size_right)
    Tested: no trace
    """
    causal = is_causal(call.value(11))
    left, right = window_bound(call.value(15)), window_bound(call.value(16))
    mask = Mask(causal=causal, aligned_at_end=True, left=left, right=right)
    return backward_cost(call, query_key_value(call, 1, (6, 7), (8, 9)), mask, out=4, statistics=5, bias=None)


def mask_by_type(value: Any) -> Mask:
    """custom_mask_type: 0 none, 1 causal from the first key, 2 causal to the last key."""
    if value not in (0, 1, 2):
        raise NoModel("whether its mask is causal is not recorded")
    return Mask(causal=value > 0, aligned_at_end=value == 2)


@cost_model(FAMILY, r"aten::_efficient_attention_forward")
def efficient_attention_forward(call: Call) -> Cost:
    """Memory-efficient attention: (B, L, H, E).

    FLOPs: 2·P·(E + E_v)
    Bytes: query, key, value, bias; the result, and a float per query and head where computed
    Source: native_functions.yaml: _efficient_attention_forward(query, key, value, bias, cu_seqlens_q,
    cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, custom_mask_type, compute_log_sumexp, ...)
    """
    if call.optional_tensor(4) is not None:
        raise NoModel("the lengths of its sequences are in device memory, which no trace records")
    return forward_cost(
        call,
        dense_sizes(call, 0, heads_first=False),
        mask_by_type(call.value(9)),
        bias=call.optional_tensor(3),
        statistics=call.value(10) is True,
    )


@cost_model(FAMILY, r"aten::_efficient_attention_backward")
def efficient_attention_backward(call: Call) -> Cost:
    """The gradients of memory-efficient attention.

    FLOPs: 2·P·(3·E + 2·E_v)
    Bytes: gradient, query, key, value, result, statistics, bias; three gradients
    Source: native_functions.yaml: _efficient_attention_backward(grad_out_, query, key, value, bias, out,
    cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, logsumexp, dropout_p, philox_seed,
    philox_offset, custom_mask_type, ...)
    """
    if call.optional_tensor(6) is not None:
        raise NoModel("the lengths of its sequences are in device memory, which no trace records")
    mask = mask_by_type(call.value(14))
    sizes = dense_sizes(call, 1, heads_first=False)
    return backward_cost(call, sizes, mask, out=5, statistics=10, bias=4)


@cost_model(FAMILY, r"aten::_cudnn_attention_forward")
def cudnn_attention_forward(call: Call) -> Cost:
    """cuDNN's attention: (B, H, L, E).

    FLOPs: 2·P·(E + E_v)
    Bytes: query, key, value, bias; the result, and a float per query and head where computed
    Source: native_functions.yaml: _cudnn_attention_forward(query, key, value, attn_bias, cum_seq_q,
    cum_seq_k, max_q, max_k, compute_log_sumexp, dropout_p, is_causal, ...)
    """
    if call.optional_tensor(4) is not None:
        raise NoModel("the lengths of its sequences are in device memory, which no trace records")
    return forward_cost(
        call,
        dense_sizes(call, 0, heads_first=True),
        Mask(causal=is_causal(call.value(10))),
        bias=call.optional_tensor(3),
        statistics=call.value(8) is True,
    )
