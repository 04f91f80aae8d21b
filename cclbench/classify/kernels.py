# SPDX-License-Identifier: Apache-2.0
"""Category of a kernel or op by its name: an ordered table, the first rule that matches wins.

A rule searches the name's subject for its pattern, and where it has a second pattern, the whole name
(lower case) for that as well.  The order matters: a fused MoE GEMM is `moe`, an attention kernel that
contains a GEMM is `attention`, the optimizer inside a fused embedding backward is `embedding`.  `fused`
kernels compute and communicate in one launch (cclbench.classify.fused).

Choices where there is no established term: pooling, losses, softmax, sorts and scans are
`reduction`; activations, rotary embeddings, quantization and random numbers are `elementwise`;
transposes, concatenations, casts by copy and writes to a KV cache are `copy`; foreach kernels
(`multi_tensor_apply`) are `optimizer`; state-space and linear attention are `attention`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final, NamedTuple

from cclbench.classify.collectives import alternatives_pattern, subject_collective
from cclbench.classify.fused import FUSED, FUSED_BY_ARGUMENT
from cclbench.classify.names import rule_subject


class Rule(NamedTuple):
    """One line of the taxonomy; white space separates the alternatives of a pattern."""

    category: str | None
    pattern: str
    inside: str | None = None


RULES: Final = (
    # Python frames and modules have no category.
    Rule(None, r"\.py$  ^<built-in  ^nn\.module"),
    # Frameworks' generic kernels: the functor they run is a template argument.
    Rule("copy", r"^memcpy  ^memset  ^\[cuda\smem"),
    Rule(
        "copy",
        "elementwise_kernel  multi_tensor_apply",
        inside="copy_kernel  copy_device_to_device  native::copy<  copyfunctor",
    ),
    Rule("normalization", "elementwise_kernel", inside=r"native::\S{0,24}(?:batch|layer|group)_norm"),
    Rule("elementwise", "elementwise_kernel"),
    Rule("optimizer", r"multi_tensor_apply  multi_tensor_l2norm  multi_tensor_\w+_kernel"),
    # Inductor: the name lists what was fused.
    Rule("attention", r"^triton_tem_\w*(?:attention|flex)"),
    Rule("convolution", r"^triton_tem_\w*conv(?!er)"),
    Rule("gemm", "^triton_(?:tem|mm|bmm|matmul)_"),
    Rule("normalization", r"^triton_(?:red|per)_\w*_norm"),
    Rule("embedding", r"^triton_\w*_embedding"),
    Rule("reduction", "^triton_(?:red|per|mix)_"),
    Rule("optimizer", "^triton_for_"),
    Rule("copy", r"^triton_poi_fused(?:_(?:clone|_to_copy|copy_?|cat|transpose|permute|t|view|slice))+_\d+$"),
    Rule("elementwise", "^triton_poi_"),
    # Libraries; the more specific rules come first.
    Rule("fused", FUSED),
    Rule("fused", *FUSED_BY_ARGUMENT),
    Rule("copy", "reshape_and_cache  cat_and_cache  (?:store|set|write|append|copy)_?(?:paged_?)?kv"),
    Rule(
        "moe",
        """
        moe  expert  router  routing  top_?k_?gating  grouped_topk  dispatch_?layout
        (?:un)?permute_(?:kernel|topk)  sort_chunks_by  row_id_map  expandinputrows
        dispatch_deterministic  trtllm_alltoall::  ^epcombine  topk_reduce  reduce_topk
        """,
    ),
    Rule(
        "sampling",
        """
        (?<!up)(?<!down)sampling  multinomial  gumbel  topk  top_k  top_p  argmax  penalt
        speculative  verify_tree  eagle  future_token  logits_processor
        """,
    ),
    Rule("elementwise", "rotary  (?<![a-z])rope  _rope"),
    Rule(
        "attention",
        r"""
        attention  attn  flash_(?!comm::)  flash::  flashdecod  fmha  xqa  paged_?att  splitkv  kv_indices
        (?:^|[_:\d])m[hlqg]a(?:_|\d|$)  (?:^|[_:])gqa_  \bpa_(?:bf|fp|fwd|decode)
        ^_(?:fwd|bwd)_(?:grouped_)?kernel(?:_stage\d|_d\w+)?$
        (?:batch|single)(?:prefill|decode)with  merge_?(?:attn_)?states?
        selective_scan  chunk_(?:scan|state|gated|fwd|bwd|local)  state_passing
        delta_rule  fused_recurrent  gdn_
        """,
    ),
    Rule(
        "normalization",
        r"""
        (?:batch|layer|rms|group|instance|weight|l2|qk)_?norm  norm::  norm_kernel  \bln_(?:fwd|bwd)
        \bbn_(?:fw|bw|inf)  rowwisemoments  gammabeta  cucompute(?:part)?grad  cuapplylayernorm
        """,
    ),
    Rule("copy", "transpose  n[cd]*hw[cd]?(?:to|2)n[cd]*hwc?"),
    Rule(
        "convolution",
        r"""
        conv(?!er)  fprop  dgrad  wgrad  winograd  depthwise  bwd_weight  bwd_data
        im2col  im2d  im3d  col2im  scudnn  cudnn_infer  cudnn_train  cudnn::cnn  cask_cudnn
        igemm_(?:fwd|bwd|wrw)  subtensorop  miopen(?!\w*(?:cvt|softmax|pool))
        """,
    ),
    Rule(
        "embedding",
        """
        embedding  index_?select  indexing_backward  vectorized_gather  indexfunc(?:large|small)
        compute_grad_weight  krn_partial  sum_and_scatter  write_num_of_segments
        bounds_check_indices  linearize_index  pooled_embs  permute_(?:2d|1d|indices|pooled)
        _offsets_range  recat_  jagged  complete_cumsum  block_bucketize  sparse_features
        """,
    ),
    Rule(
        "optimizer",
        r"adam  \bsgd  _sgd  sgd_  fused_?lamb  lamb_(?!da)  adagrad  lpnorm_  optimizer  _foreach_",
    ),
    Rule(
        "elementwise",
        "^(?!.*(?:(?<!fb)gemm|gemv|_mm)).*(?:quantize|quant_|_quant|qparam|fp8rowwise|float_to|_to_float)",
    ),
    Rule(
        "gemm",
        r"""
        (?<!fb)gemm  gemv  matmul  \bmm_  _mm(?:_|$)  \bbmm_  mul_mat  mat_?vec  splitk  split_k
        nvjet  xmma  ^cutlass  cublas  ^cijk_  tensile  rocblas  hipblas  wvsplit  llmm1
        marlin  awq  gptq  machete  exllama
        """,
    ),
    Rule("gemm", "^(?:dot|reduce_1block|scal|asum|nrm2|axpy)_kernel$  epilogue::impl", inside="cublas"),
    Rule(
        "gemm",
        r"""
        ^aten::_?(?:addmm|addbmm|baddbmm|bmm|mm|linear|einsum|mv|addmv|dot)$  ^dot(?:\.\d+)?$
        (?:^|[:\s])(?:add|b|baddb)?(?:mm|mv)backward  linearbackward
        """,
    ),
    Rule(
        "copy",
        r"""
        copy  memcpy  memset  fillbuffer  lamport_init
        catarray  concat  _cat_  cat_kernel  chunk_cat  split_with_sizes
        pad_kernel  constant_pad  dynamic-(?:update-)?slice  \bflip_kernel  \broll_  permute
        kv_?cache  store_cache
        ^aten::(?:cat|stack|clone|contiguous|to|_to_copy|roll|flip|repeat)$
        """,
    ),
    Rule(
        "reduction",
        r"""
        reduce  ring_reduction  softmax  logsumexp  nll  cross_?entropy  criterion  loss
        (?:max|avg|average|adaptive)_?pool  pooling
        cub::  rocprim  thrust  radix  sort  scan  cumsum  histogram  bincount  unique  select_if  segment
        ^aten::_?(?:sum|mean|max|min|amax|amin|prod|norm|linalg_vector_norm|var|std|var_mean|all|any)$
        """,
    ),
    Rule(
        "elementwise",
        r"""
        elementwise  pointwise  activation  and_mul  silu  gelu  relu  swiglu  geglu  swish  sigmoid  tanh
        dropout  cast_  _cast  convert  cvt  fill  arange  range_kernel  clamp  mask  where  residual  bias
        scale_  _scale  scalepacked  distribution  philox  random  triu  tril  upsample  interpolat
        grid_sampl  axpy  op(?:\dd)?tensor  vector_?add  add_kernel  _add  mul_kernel  index_put  scatter
        gather  to_dense  nonzero  compute_cuda_kernel  loop_\w*fusion  broadcast_\w+_fusion
        """,
    ),
    Rule(
        "elementwise",
        r"""
        ^aten::_?(?:add|sub|rsub|mul|div|pow|exp|log|sqrt|rsqrt|neg|abs|sin|cos|erf|reciprocal|square)_?$
        ^aten::_?(?:maximum|minimum|eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+|lerp|addcmul|addcdiv|index)_?$
        ^aten::_?(?:zero|(?:ones|zeros|full)(?:_like)?|rand\w*|normal|uniform|bernoulli)_?$
        accumulategrad  (?:mul|add|sub|div|pow|neg|exp)backward
        """,
    ),
)


@cache
def _compiled_rules() -> tuple[tuple[str | None, re.Pattern[str], re.Pattern[str] | None], ...]:
    """The rules, compiled on first use."""
    return tuple(
        (
            rule.category,
            alternatives_pattern(rule.pattern),
            alternatives_pattern(rule.inside) if rule.inside else None,
        )
        for rule in RULES
    )


def kernel_category(name: str) -> str | None:
    """The category of a kernel or op (`gemm`, `attention`, ..., `communication`), None if unknown."""
    for category, inside in _candidate_rules(rule_subject(name)):
        if inside is None or inside.search(name.lower()):
            return category
    return None


@lru_cache(maxsize=1 << 14)
def _candidate_rules(subject: str) -> tuple[tuple[str | None, re.Pattern[str] | None], ...]:
    """The rules whose pattern matches a subject, up to the first without a second pattern.

    Cached because a trace has many times more names than subjects: one per functor or tile size.
    """
    if subject_collective(subject):
        return (("communication", None),)
    candidates: list[tuple[str | None, re.Pattern[str] | None]] = []
    for word, pattern, inside in _compiled_rules():
        if pattern.search(subject):
            candidates.append((word, inside))
            if inside is None:
                break
    return tuple(candidates)
