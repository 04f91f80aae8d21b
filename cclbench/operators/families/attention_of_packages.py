# SPDX-License-Identifier: Apache-2.0
"""Attention of the packages flash-attn, AITER and xFormers, and of serving engines."""

from __future__ import annotations

from typing import Final

from cclbench.classify.serving_steps import prefill_lengths, request_lengths
from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import matrix_precision
from cclbench.operators.families.attention import (
    FAMILY,
    backward_cost,
    dense_sizes,
    forward_cost,
    is_causal,
    query_key_value,
    window_bound,
)
from cclbench.operators.masks import Mask

_STATED: Final = "lengths of requests as the engine's annotation of the step states them"
_FEWEST: Final = "requests of a prefill step are equally long and have no cached keys: a lower bound"
_KEYS: Final = {"vllm::unified_attention": 1, "sglang_profiler::attention_paged_attention_ragged": 3}
"""Position of the keys argument, for operators of known layout."""


@cost_model(
    FAMILY,
    r"(?:flash_attn|aiter)::_flash_attn_forward",
    r"aiter::(?:wrapper_)?(?:mha|fmha_v3)_fwd",
    r"FlashAttnFunc",
)
def flash_attn_forward(call: Call) -> Cost:
    """Flash attention by the packages flash_attn and AITER: (B, L, H, E).

    FLOPs: 2·P·(E + E_v); the last query sees the last key
    Bytes: query, key, value; the result, and a float per query and head
    Source: flash_attn_interface.py: _flash_attn_forward(q, k, v, dropout_p, softmax_scale, causal,
    window_size_left, window_size_right, ...)
    """
    causal = is_causal(call.value(5))
    left, right = window_bound(call.value(6)), window_bound(call.value(7))
    mask = Mask(causal=causal, aligned_at_end=True, left=left, right=right)
    return forward_cost(call, dense_sizes(call, 0, heads_first=False), mask, bias=None, statistics=True)


@cost_model(FAMILY, r"flash_attn::_flash_attn_varlen_forward")
def flash_attn_varlen_forward(call: Call) -> Cost:
    """Flash attention by the package flash_attn on packed sequences: (T, H, E).

    FLOPs: 2·P·(E + E_v), where lengths differ, a lower bound
    Bytes: query, key, value; the result, and a float per query and head
    Source: flash_attn_interface.py: _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k,
    max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, window_size_left, window_size_right, ...)
    Tested: no trace
    """
    call.tensor(3), call.tensor(4)
    if call.optional_tensor(15) is not None:
        raise NoModel("the lengths of its paged keys are in device memory, which no trace records")
    causal = is_causal(call.value(9))
    left, right = window_bound(call.value(10)), window_bound(call.value(11))
    mask = Mask(causal=causal, aligned_at_end=True, left=left, right=right)
    return forward_cost(call, query_key_value(call, 0, (3, 4), (5, 6)), mask, bias=None, statistics=True)


_PACKAGE_BACKWARD: Final = {
    "flash_attn::_flash_attn_backward": 11,
    "aiter::_flash_attn_backward": 12,
    "aiter::mha_bwd": 8,
    "aiter::fmha_v3_bwd": 8,
}


@cost_model(FAMILY, *_PACKAGE_BACKWARD)
def flash_attn_backward(call: Call) -> Cost:
    """The gradients of flash attention by the packages flash_attn and AITER.

    FLOPs: 2·P·(3·E + 2·E_v)
    Bytes: gradient, query, key, value, result, statistics; three gradients
    Source: flash_attn_interface.py: _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv,
    dropout_p, softmax_scale, causal, window_size_left, window_size_right, ...); aiter/ops/mha.py
    Tested: no trace
    """
    at = _PACKAGE_BACKWARD[call.name]
    left, right = window_bound(call.value(at + 1)), window_bound(call.value(at + 2))
    mask = Mask(causal=is_causal(call.value(at)), aligned_at_end=True, left=left, right=right)
    return backward_cost(call, dense_sizes(call, 1, heads_first=False), mask, out=4, statistics=5, bias=None)


@cost_model(FAMILY, r"flash_attn::_flash_attn_varlen_backward")
def flash_attn_varlen_backward(call: Call) -> Cost:
    """The gradients of flash attention by the package flash_attn on packed sequences.

    FLOPs: 2·P·(3·E + 2·E_v), where lengths differ, a lower bound
    Bytes: gradient, query, key, value, result, statistics; three gradients
    Source: flash_attn_interface.py: _flash_attn_varlen_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv,
    cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, ...)
    Tested: no trace
    """
    call.tensor(9), call.tensor(10)
    left, right = window_bound(call.value(16)), window_bound(call.value(17))
    mask = Mask(causal=is_causal(call.value(15)), aligned_at_end=True, left=left, right=right)
    return backward_cost(
        call, query_key_value(call, 1, (9, 10), (11, 12)), mask, out=4, statistics=5, bias=None
    )


def _xformers_mask(call: Call, causal: int) -> Mask:
    """The mask of an operator whose window is recorded after `is_causal`, as in xFormers since it has one."""
    left, right = call.value(causal + 1), call.value(causal + 2)
    if type(left) is not int or type(right) is not int:
        raise NoModel("its window is not recorded")
    return Mask(causal=is_causal(call.value(causal)), aligned_at_end=True, left=left, right=right)


@cost_model(FAMILY, r"xformers_flash::flash_fwd")
def xformers_forward(call: Call) -> Cost:
    """Flash attention as xFormers calls it: (B, L, H, E), or packed (T, H, E).

    FLOPs: 2·P·(E + E_v), where lengths differ, a lower bound; the last query sees the last key
    Bytes: query, key, value; the result, and a float per query and head
    Source: xformers/ops/fmha/flash.py: flash_fwd(query, key, value, cu_seqlens_q, cu_seqlens_k, seqused_k,
    max_seqlen_q, max_seqlen_k, p, softmax_scale, is_causal, window_left, window_right, return_softmax,
    block_tables); before that without seqused_k and block_tables
    Tested: no trace
    """
    if any(call.optional_tensor(index) is not None for index in (5, 14)):
        raise NoModel("the lengths of its cached keys are in device memory, which no trace records")
    longest = 5 if type(call.value(5)) is int else 6
    sizes = query_key_value(call, 0, (3, 4), (longest, longest + 1))
    return forward_cost(call, sizes, _xformers_mask(call, longest + 4), bias=None, statistics=True)


@cost_model(FAMILY, r"xformers_flash::flash_bwd")
def xformers_backward(call: Call) -> Cost:
    """The gradients of flash attention as xFormers calls it.

    FLOPs: 2·P·(3·E + 2·E_v), where lengths differ, a lower bound
    Bytes: gradient, query, key, value, result, statistics; three gradients
    Source: xformers/ops/fmha/flash.py: flash_bwd(dout, query, key, value, out, softmax_lse, dq, dk, dv,
    cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, p, softmax_scale, is_causal, window_left,
    window_right, rng_state)
    Tested: no trace
    """
    sizes = query_key_value(call, 1, (9, 10), (11, 12))
    return backward_cost(call, sizes, _xformers_mask(call, 15), out=4, statistics=5, bias=None)


@cost_model(FAMILY, r"flash_attn_3::(?:fwd|_flash_attn_forward)")
def flash_attn_3_forward(call: Call) -> Cost:
    """FlashAttention-3: (B, L, H, E), or packed (T, H, E).

    FLOPs: 2·P·(E + E_v); the last query sees the last key
    Bytes: query, key, value; the result, and a float per query and head
    Source: flash-attention hopper/flash_api.cpp: fwd(q, k, v, k_new, v_new, q_v, out, cu_seqlens_q,
    cu_seqlens_k, cu_seqlens_k_new, seqused_q, seqused_k, max_seqlen_q, max_seqlen_k, page_table, ...,
    softmax_scale, is_causal, window_size_left, window_size_right, ...), is_causal being argument 24
    Tested: no trace
    """
    if any(call.optional_tensor(index) is not None for index in (3, 10, 11, 14)):
        raise NoModel("the lengths of its cached keys lie in device memory: no trace records them")
    left, right = window_bound(call.value(25)), window_bound(call.value(26))
    mask = Mask(causal=is_causal(call.value(24)), aligned_at_end=True, left=left, right=right)
    return forward_cost(call, query_key_value(call, 0, (7, 8), (12, 13)), mask, bias=None, statistics=True)


@cost_model(FAMILY, r"flash_attn_3::bwd")
def flash_attn_3_backward(call: Call) -> Cost:
    """The gradients of FlashAttention-3.

    FLOPs: 2·P·(3·E + 2·E_v)
    Bytes: gradient, query, key, value, result, statistics; three gradients
    Source: flash-attention hopper/flash_api.cpp: bwd(dout, q, k, v, out, softmax_lse, dq, dk, dv,
    cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, max_seqlen_q, max_seqlen_k, softmax_scale, is_causal,
    window_size_left, window_size_right, ...)
    Tested: no trace
    """
    if any(call.optional_tensor(index) is not None for index in (11, 12)):
        raise NoModel("its sequences' lengths lie in device memory: no trace records them")
    left, right = window_bound(call.value(17)), window_bound(call.value(18))
    mask = Mask(causal=is_causal(call.value(16)), aligned_at_end=True, left=left, right=right)
    return backward_cost(
        call, query_key_value(call, 1, (9, 10), (13, 14)), mask, out=4, statistics=5, bias=None
    )


@cost_model(
    FAMILY,
    r"vllm::unified_(?:mla_)?attention(?:_with_output)?",
    r"sglang_profiler::attention_\w+",
    r"sglang::unified_attention_with_output",
    r"(?:_C|aiter)::paged_attention\w*",
    r"(?:_vllm_fa[23]_C|sgl_kernel)::(?:varlen_)?fwd(?:_kvcache)?",
    r"aiter::(?:mha_varlen_fwd|pa_fwd\w*|mla_\w+)",
    r"FlashAttnVarlenFunc",
)
def attention_with_cached_keys(call: Call) -> Cost:
    """Attention to keys in a paged cache: how many, the engine's annotation states where it has sums.

    Of a step that only prefills it states the tokens, which have fewest pairs if no keys are cached.

    FLOPs: 2·P·H·(E + E_v)
    Bytes: query; keys and values of the step's requests; the result
    Source: vLLM vllm/attention/layer.py: unified_attention_with_output(query, key, value, output,
    layer_name), the metadata in a forward context; SGLang's attention_paged_attention_ragged(query,
    workspace, output, cache of keys, cache of values, ...)
    """
    first = next((at for name, at in _KEYS.items() if call.name.startswith(name)), None)
    lengths = request_lengths(call.annotation or "")
    assumes = _STATED
    if lengths is None:
        lengths, assumes = prefill_lengths(call.annotation or ""), _FEWEST
    if first is None or lengths is None:
        raise NoModel(f"how many keys {call.name} attends to lies in device memory: no trace records it")
    query, key, value = call.tensor(0), call.tensor(first), call.tensor(first + 1)
    heads, size = query.shape[-2:]
    key_heads, value_size = key.shape[-2], value.shape[-1]
    rows = Tensor((lengths.keys, key_heads, size + value_size), key.dtype)
    return Cost.from_tensors(
        flops=2 * lengths.pairs * heads * (size + value_size),
        precision=matrix_precision(call, query),
        reads=(query, rows),
        writes=(Tensor((query.elements // (heads * size), heads, value_size), query.dtype),),
        assumes=f"{assumes}; cached keys in the element type of the key",
    )


@cost_model(FAMILY, r"sage_fwd(?:_\d+)?")
def sage_attention(call: Call) -> Cost:
    """SageAttention of AITER: query and key in int8, value in fp8.

    FLOPs: none stated
    Bytes: none stated
    Source: aiter/ops/triton: sage_fwd, whose mask is a constant of the compiled kernel
    """
    raise NoModel(f"whether the mask of {call.name} is causal is not recorded")
