# SPDX-License-Identifier: Apache-2.0
"""Names as they stand in traces, and the model that each has."""

from __future__ import annotations

import re

import pytest

from cclbench.operators.cost import MODELS, _library, model_of

MODELLED = {
    "quantised_rows_times_weight": [
        "aiter::gemm_a8w8_blockscale_bpreshuffle",
        "aiter::gemm_a4w4_asm",
        "vllm::rocm_aiter_gemm_w8a8_blockscale",
    ],
    "grouped_product": ["aten::_scaled_grouped_mm"],
    "convolution": ["aten::_convolution"],
    "backend_convolution": ["aten::miopen_convolution", "aten::_slow_conv2d_forward"],
    "scaled_dot_product_attention": ["aten::_scaled_dot_product_flash_attention_for_cpu"],
    "scaled_dot_product_attention_backward": ["aten::_scaled_dot_product_cudnn_attention_backward"],
    "flash_attn_forward": ["FlashAttnFunc", "aiter::fmha_v3_fwd"],
    "flash_attn_3_forward": ["flash_attn_3::fwd"],
    "attention_with_cached_keys": [
        "vllm::unified_attention_with_output",
        "vllm::unified_mla_attention_with_output",
        "sglang_profiler::attention_paged_attention_ragged_100",
        "aiter::paged_attention_ragged",
        "_vllm_fa3_C::fwd",
    ],
    "served_rms_norm": [
        *("sgl_kernel::rmsnorm", "sgl_kernel::fused_add_rmsnorm", "sgl_kernel::gemma_fused_add_rmsnorm"),
        *("aiter::add_rmsnorm", "vllm::rocm_aiter_rms_norm", "vllm::rocm_aiter_rmsnorm2d_fwd_with_add"),
    ],
    "function_of_several": ["aten::__and__"],
    "function_of_one": ["aten::exp_"],
    "predicate": ["aten::logical_and_"],
    "scatter": ["aten::scatter_"],
    "store_cache": ["_C_cache_ops::reshape_and_cache_flash"],
    "rotary_embedding": ["sgl_kernel::rotary_embedding"],
    "foreach": ["aten::_foreach_addcdiv_"],
    "fused_experts": ["sglang::inplace_fused_experts", "vllm::outplace_fused_experts", "aiter::fused_moe_"],
    "experts_of_a_layer": ["vllm::moe_forward"],
    "fused_kernel": [
        "triton_poi_fused_constant_pad_nd_moe_forward_0",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3",
        "triton_per_fused_flex_attention_backward_0",
    ],
    "template_product": [
        "triton_tem_fused_mm_12",
        "triton_tem_fused_addmm_relu_5",
        "triton_tem_fused__to_copy_mm_3",
    ],
    "template_kernel": ["triton_tem_fused_bmm_1", "triton_tem_fused_convolution_2"],
    "table_batched_lookup": ["fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"],
    "table_batched_update": ["torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"],
    "pooled_permutation": [
        "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::a> >"
    ],
    "collective": [
        *("record_param_comms", "c10d::allreduce_", "nccl:all_reduce"),
        *("_c10d_functional::all_gather_into_tensor", "vllm::all_reduce"),
    ],
}
"""Names by model, besides those whose cost `test_families` works out."""

WRAPPERS = (
    *[
        "aten::conv2d",
        "aten::to",
        "aten::_to_copy",
        "aten::clone",
        "aten::contiguous",
        "aten::reshape",
        "aten::relu_x",
        "aten::layer_norm",
        "aten::softmax",
        "aten::cross_entropy_loss",
        "aten::scaled_dot_product_attention",
        "aten::stack",
        "aten::zeros",
        "aten::dropout",
        "aten::max_pool2d",
        "AddmmBackward0",
        "ProfilerStep#3",
        "Optimizer.step#AdamW.step",
    ],
    "autograd::engine::evaluate_function: AddmmBackward0",
)
"""What these do is done by operators within them, which have models."""


@pytest.mark.parametrize(("name", "model"), [(name, model) for model in MODELLED for name in MODELLED[model]])
def test_a_name_has_its_model(name: str, model: str) -> None:
    found = model_of(name)
    assert found.name == model


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_has_none(name: str) -> None:
    assert model_of(name) is None


def test_what_a_name_starts_with_changes_no_model() -> None:
    patterns = [(pattern, model) for model in map(MODELS.get, MODELS) for pattern in model.patterns]
    for name in (*MODELLED, *WRAPPERS, "aten::add", "aten::add_", "aten::add__", "aten::t__", "mine::x"):
        whole = (model.name for pattern, model in patterns if re.fullmatch(pattern, name))
        found = model_of(name)
        assert (found and found.name) == next(whole, None), name


@pytest.mark.parametrize(
    ("pattern", "library"),
    [
        ("mine::one", "mine"),
        ("mine::(?:one|two)_?", "mine"),
        ("mine::one|theirs::two", None),
        ("mine::(?:one)|theirs::(?:two)", None),
        (r"mine::\(one|theirs::two\)", None),
        ("(?:mine|theirs)::one", None),
        ("one", None),
        (r"\w+::one", None),
    ],
)
def test_a_pattern_is_of_a_library_where_it_can_match_no_other(pattern: str, library: str | None) -> None:
    assert _library(pattern) == library
