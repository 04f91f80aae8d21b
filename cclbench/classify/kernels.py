# SPDX-License-Identifier: Apache-2.0
"""What a kernel or op does, by its name: an ordered table, the first rule that matches wins.

A rule looks for its pattern in the name's head (lower case; of a CUTLASS or CK launcher in what it
launches), and where it has a second pattern, for that in the whole name as well.  The order carries the
meaning: a fused MoE GEMM is `moe`, an attention kernel that holds a GEMM is `attention`, the
optimizer inside a fused embedding backward is `embedding`.

Choices where the field has no word of its own: pooling, losses, softmax, sorts and scans are
`reduction`; activations, rotary embeddings, quantization and random numbers are `elementwise`;
transposes, concatenations, casts by copy and writes to a KV cache are `copy`; foreach kernels
(`multi_tensor_apply`) are `optimizer`; state-space and linear attention are `attention`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from cclbench.classify.collectives import of_head
from cclbench.classify.names import head, launched


class Rule(NamedTuple):
    """One line of the taxonomy."""

    category: str | None
    pattern: str
    inside: str | None = None


_COPIES: Final = r"copy_kernel|copy_device_to_device|native::copy<|copyfunctor"

RULES: Final = (
    Rule(None, r"\.py$|^<built-in|^nn\.module"),  # Python frames and modules
    # Frameworks' generic kernels: the functor they run is a template argument.
    Rule("copy", r"^memcpy|^memset|^\[cuda mem"),
    Rule("copy", r"elementwise_kernel|multi_tensor_apply", _COPIES),
    Rule("normalization", r"elementwise_kernel", r"native::\S{0,24}(?:batch|layer|group)_norm"),
    Rule("elementwise", r"elementwise_kernel"),
    Rule("optimizer", r"multi_tensor_apply|multi_tensor_l2norm|multi_tensor_\w+_kernel"),
    # Inductor: the name lists what was fused.
    Rule("attention", r"^triton_tem_\w*(?:attention|flex)"),
    Rule("convolution", r"^triton_tem_\w*conv(?!er)"),
    Rule("gemm", r"^triton_(?:tem|mm|bmm|matmul)_"),
    Rule("normalization", r"^triton_(?:red|per)_\w*_norm"),
    Rule("embedding", r"^triton_\w*_embedding"),
    Rule("reduction", r"^triton_(?:red|per|mix)_"),
    Rule("optimizer", r"^triton_for_"),
    Rule("copy", r"^triton_poi_fused(?:_(?:clone|_to_copy|copy_?|cat|transpose|permute|t|view|slice))+_\d+$"),
    Rule("elementwise", r"^triton_poi_"),
    # Libraries.
    Rule(
        "copy",
        r"reshape_and_cache|concat_and_cache|cat_and_cache|(?:store|set|write|append|copy)_?(?:paged_?)?kv",
    ),
    Rule(
        "moe",
        r"moe|top_?k_?gating|grouped_topk|expert|(?:un)?permute_(?:kernel|topk)|get_dispatch_layout"
        r"|sort_chunks_by|row_id_map|route[rd]_|routing",
    ),
    Rule(
        "sampling",
        r"(?<!up)(?<!down)sampling|multinomial|gumbel|topk|top_k|top_p|argmax|penalt|speculative"
        r"|verify_tree|eagle|future_token|logits_processor",
    ),
    Rule("elementwise", r"rotary|(?<![a-z])rope|_rope"),
    Rule(
        "attention",
        r"attention|attn|flash_|flash::|fmha|(?:^|[_:\d])m[hlqg]a(?:_|\d|$)|(?:^|[_:])gqa_|paged_?att|kv_indices"
        r"|batch(?:prefill|decode)with|single(?:prefill|decode)with|merge_?(?:attn_)?states?|xqa|\bpa_(?:bf|fp|fwd|decode)"
        r"|splitkv|selective_scan|chunk_(?:scan|state|gated|fwd|bwd|local)|delta_rule|flashdecod",
    ),
    Rule(
        "normalization",
        r"batch_?norm|layer_?norm|rms_?norm|group_?norm|instance_?norm|weight_?norm|l2_?norm|norm::|\bln_(?:fwd|bwd)"
        r"|\bbn_(?:fw|bw|inf)|rowwisemoments|gammabeta|cucompute(?:part)?grad|cuapplylayernorm|qk_?norm|norm_kernel",
    ),
    Rule("copy", r"transpose|n[cd]*hw[cd]?(?:to|2)n[cd]*hwc?"),
    Rule(
        "convolution",
        r"conv(?!er)|fprop|dgrad|wgrad|winograd|im2col|im2d|col2im|scudnn|cudnn_infer|cudnn_train|cudnn::cnn"
        r"|cask_cudnn|igemm_(?:fwd|bwd|wrw)|subtensorop|miopen(?!.*cvt)|bwd_weight|bwd_data|\bsp3asm|depthwise",
    ),
    Rule(
        "embedding",
        r"embedding|index_?select|indexing_backward|vectorized_gather|indexfunc(?:large|small)"
        r"|bounds_check_indices|linearize_index|pooled_embs|permute_(?:2d|1d|indices|pooled)|_offsets_range"
        r"|recat_|jagged|asynchronous_complete_cumsum|block_bucketize|sparse_features",
    ),
    Rule("optimizer", r"adam|\bsgd|_sgd|sgd_|fused_?lamb|lamb_(?!da)|adagrad|optimizer|_foreach_"),
    Rule(
        "elementwise",
        r"^(?!.*(?:(?<!fb)gemm|gemv|_mm)).*(?:dequant|quantize|quant_(?!gemm)|_quant|qparam|fp8rowwise|float_to|_to_float)",
    ),
    Rule(
        "gemm",
        r"(?<!fb)gemm|gemv|nvjet|^cijk_|xmma|splitk|split_k|matmul|\bbmm_|\bmm_|_mm_|cublas|marlin|awq|gptq|machete|exllama"
        r"|deep_gemm|tinygemm|wvsplit|llmm1|mul_mat|mat_?vec|^cutlass|triton_mm|skinny|hgemm",
    ),
    Rule("gemm", r"^(?:dot|reduce_1block|scal|asum|nrm2|axpy)_kernel$|epilogue::impl", r"cublas"),
    Rule(
        "gemm",
        r"^aten::_?(?:addmm|addbmm|baddbmm|bmm|mm|linear|einsum|mv|addmv|dot|scaled_mm|grouped_mm)$"
        r"|(?:^|[: ])(?:add|b|baddb)?(?:mm|mv)backward|linearbackward|^dot(?:\.\d+)?$",
    ),
    Rule(
        "copy",
        r"copy|memcpy|memset|fillbuffer|catarray|concat|_cat_|cat_kernel|chunk_cat|split_with_sizes|set_value|pad_kernel"
        r"|constant_pad|\bflip_kernel|\broll_|kv_?cache|store_cache|permute",
    ),
    Rule("copy", r"^aten::(?:cat|stack|clone|contiguous|to|_to_copy|roll|flip|repeat)$"),
    Rule(
        "reduction",
        r"reduce|softmax|logsumexp|cub::|rocprim|thrust|hipcub|radix|sort|scan|cumsum|histogram|unique|select_if"
        r"|nll|cross_?entropy|criterion|loss|(?:max|avg|average|adaptive)_?pool|pooling|trilinear|norm_two|segment",
    ),
    Rule(
        "reduction",
        r"^aten::_?(?:sum|mean|max|min|amax|amin|prod|norm|linalg_vector_norm|var|std|var_mean|all|any|argsort)$",
    ),
    Rule(
        "elementwise",
        r"elementwise|pointwise|activation|act_and_mul|and_mul|silu|gelu|(?<!p)relu|swiglu|geglu|swish|sigmoid|tanh"
        r"|dropout|cast_|_cast|convert|fill|arange|range_kernel|clamp|mask|where|residual|bias|scale_|_scale|scalepacked"
        r"|distribution|philox|random|triu|tril|upsample|interpolat|grid_sampl|axpy|fused_add|add_kernel|_add|mul_kernel"
        r"|index_put|scatter|gather|to_dense|nonzero|compute_cuda_kernel|loop_\w*fusion|broadcast_\w+_fusion",
    ),
    Rule(
        "elementwise",
        r"^aten::_?(?:add|sub|rsub|mul|div|pow|exp|log|sqrt|rsqrt|neg|abs|sin|cos|erf|reciprocal|square|maximum|minimum"
        r"|eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+|zero|ones|zeros|full|index|lerp|addcmul|addcdiv|rand\w*|normal"
        r"|uniform|bernoulli)_?$|accumulategrad|(?:mul|add|sub|div|pow|neg|exp)backward",
    ),
)

_RULES: Final = tuple(
    (rule.category, re.compile(rule.pattern), re.compile(rule.inside) if rule.inside else None)
    for rule in RULES
)


def category(name: str) -> str | None:
    """The category of a kernel or op (`gemm`, `attention`, ..., `communication`), None if unknown."""
    subject = (launched(name) or head(name)).lower()
    for word, inside in _candidates(subject):
        if inside is None or inside.search(name.lower()):
            return word
    return None


@lru_cache(maxsize=1 << 14)
def _candidates(subject: str) -> tuple[tuple[str | None, re.Pattern[str] | None], ...]:
    """The rules that a head satisfies, up to the first without a second pattern.

    Cached because a trace has many times more names than heads: one for each functor or tile size.
    """
    if of_head(subject):
        return (("communication", None),)
    found: list[tuple[str | None, re.Pattern[str] | None]] = []
    for word, pattern, inside in _RULES:
        if pattern.search(subject):
            found.append((word, inside))
            if inside is None:
                break
    return tuple(found)
