# SPDX-License-Identifier: Apache-2.0
"""Names as they stand in traces, and the model that each has."""

from __future__ import annotations

import re

import pytest

from cclbench.operators.cost import MODELS, _library, model_of

MODELLED = {
    "aten::mm": "matrix_product",
    "aten::addmm": "product_and_addend",
    "aten::linear": "linear_layer",
    "vllm::rocm_unquantized_gemm": "linear_layer",
    "aiter::gemm_a16w16": "aiter_product",
    "aiter::gemm_a8w8_blockscale_bpreshuffle": "quantised_rows_times_weight",
    "aiter::gemm_a4w4_asm": "quantised_rows_times_weight",
    "vllm::rocm_aiter_gemm_w8a8_blockscale": "quantised_rows_times_weight",
    "aten::_scaled_grouped_mm": "grouped_product",
    "aten::convolution": "convolution",
    "aten::_convolution": "convolution",
    "aten::miopen_convolution": "backend_convolution",
    "aten::_slow_conv2d_forward": "backend_convolution",
    "aten::convolution_backward": "convolution_backward",
    "aten::_scaled_dot_product_flash_attention": "scaled_dot_product_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "aten::_scaled_dot_product_cudnn_attention_backward": "scaled_dot_product_attention_backward",
    "aten::_flash_attention_forward": "flash_attention_forward",
    "flash_attn::_flash_attn_forward": "flash_attn_forward",
    "FlashAttnFunc": "flash_attn_forward",
    "aiter::fmha_v3_fwd": "flash_attn_forward",
    "flash_attn_3::fwd": "flash_attn_3_forward",
    "vllm::unified_attention_with_output": "attention_with_cached_keys",
    "vllm::unified_mla_attention_with_output": "attention_with_cached_keys",
    "sglang_profiler::attention_paged_attention_ragged_100": "attention_with_cached_keys",
    "aiter::paged_attention_ragged": "attention_with_cached_keys",
    "_vllm_fa3_C::fwd": "attention_with_cached_keys",
    "sgl_kernel::rmsnorm": "served_rms_norm",
    "sgl_kernel::fused_add_rmsnorm": "served_rms_norm",
    "sgl_kernel::gemma_fused_add_rmsnorm": "served_rms_norm",
    "_C::fused_add_rms_norm": "served_rms_norm",
    "aiter::add_rmsnorm": "served_rms_norm",
    "aiter::rmsnorm2d_fwd_with_add_ck": "served_rms_norm",
    "vllm::rocm_aiter_rms_norm": "served_rms_norm",
    "vllm::rocm_aiter_rmsnorm2d_fwd_with_add": "served_rms_norm",
    "aten::native_batch_norm_backward": "batch_norm_backward",
    "aten::add": "function_of_several",
    "aten::add_": "function_of_several",
    "aten::__and__": "function_of_several",
    "aten::exp_": "function_of_one",
    "aten::clamp_min_": "function_of_one_and_numbers",
    "aten::logical_and_": "predicate",
    "aten::scatter_": "scatter",
    "aten::index_put_": "index_put",
    "aten::_index_put_impl_": "index_put",
    "_C_cache_ops::reshape_and_cache_flash": "store_cache",
    "sgl_kernel::rotary_embedding": "rotary_embedding",
    "aten::_foreach_add_": "foreach",
    "aten::_foreach_addcdiv_": "foreach",
    "aten::_fused_adamw_": "fused_optimizer",
    "sglang::inplace_fused_experts": "fused_experts",
    "vllm::outplace_fused_experts": "fused_experts",
    "aiter::fused_moe_": "fused_experts",
    "vllm::moe_forward": "experts_of_a_layer",
    "triton_poi_fused_constant_pad_nd_moe_forward_0": "fused_kernel",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3": "fused_kernel",
    "triton_tem_fused_mm_12": "template_product",
    "triton_tem_fused_addmm_relu_5": "template_product",
    "triton_tem_fused__to_copy_mm_3": "template_product",
    "triton_tem_fused_bmm_1": "template_kernel",
    "triton_tem_fused_convolution_2": "template_kernel",
    "triton_tem_fused_flex_attention_0": "flex_attention",
    "triton_per_fused_flex_attention_backward_0": "fused_kernel",
    "aten::_cudnn_rnn": "recurrent_network",
    "aten::miopen_rnn_backward": "recurrent_network_backward",
    "aten::_fft_r2c": "fourier_transform",
    "_GroupedLinear": "te_grouped_linear",
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function": "table_batched_lookup",
    "fbgemm::permute_2D_sparse_data": "sparse_permutation",
    "fbgemm::permute_pooled_embs_auto_grad": "pooled_permutation",
    "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>": "table_batched_update",
    "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::a> >": "pooled_permutation",
    "record_param_comms": "collective",
    "c10d::allreduce_": "collective",
    "nccl:all_reduce": "collective",
    "_c10d_functional::all_gather_into_tensor": "collective",
    "vllm::all_reduce": "collective",
}

WRAPPERS = (
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
    "autograd::engine::evaluate_function: AddmmBackward0",
    "AddmmBackward0",
    "ProfilerStep#3",
    "Optimizer.step#AdamW.step",
)
"""What these do is done by operators within them, which have models."""


@pytest.mark.parametrize(("name", "model"), MODELLED.items())
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
