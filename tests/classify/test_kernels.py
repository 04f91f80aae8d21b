# SPDX-License-Identifier: Apache-2.0
"""Compute, copies and communication as libraries and profilers name their kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from cclbench.classify import CollectiveName, collective_name, kernel_category
from cclbench.ground.schema import CATEGORIES

AT = "at::native::"

COMPUTE = [
    # generic PyTorch kernels: what they do is in the functor
    (f"void {AT}vectorized_elementwise_kernel<4, {AT}FillFunctor<float>>(int)", "elementwise"),
    (
        f"void {AT}unrolled_elementwise_kernel<{AT}direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
        "{lambda()#3}::operator()() const::{lambda(float)#1}>(int)",
        "copy",
    ),
    (
        f"void {AT}vectorized_elementwise_kernel<8, {AT}bfloat16_copy_kernel_cuda(at::X &)::[lambda(float)]>",
        "copy",
    ),
    (f"void {AT}_scatter_gather_elementwise_kernel<128, 4, {AT}ReduceAdd>(int)", "elementwise"),
    (f"void {AT}reduce_kernel<512, 1, {AT}ReduceOp<float, {AT}MeanOps<float>>>()", "reduction"),
    (f"void {AT}(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1>()", "copy"),
    (f"void {AT}(anonymous namespace)::indexSelectLargeIndex<float, long>()", "embedding"),
    (f"void {AT}(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<float>()", "embedding"),
    (f"void {AT}embedding_backward_feature_kernel<float>()", "embedding"),
    (f"void {AT}(anonymous namespace)::cunn_SoftMaxForward<4, float>()", "reduction"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>()", "reduction"),
    (f"void {AT}(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>()", "reduction"),
    (f"void {AT}(anonymous namespace)::max_pool_forward_nchw<float, float>()", "reduction"),
    (f"void {AT}upsample_bilinear2d_out_frame<float>()", "elementwise"),
    (f"void {AT}sbtopk::gatherTopK<float, unsigned int, 2, false>()", "sampling"),
    (f"void {AT}(anonymous namespace)::sampleMultinomialOnce<float, float>()", "sampling"),
    ("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<long>()", "reduction"),
    ("void rocprim::detail::trampoline_kernel<int>()", "reduction"),
    # optimizers
    (
        f"void {AT}(anonymous namespace)::multi_tensor_apply_kernel<Metadata<4>, FusedAdamMathFunctor>()",
        "optimizer",
    ),
    ("void multi_tensor_apply_kernel<TensorListMetadata<2>, SGDFunctor<2, float, float>>()", "optimizer"),
    (f"void {AT}multi_tensor_apply_kernel<TensorListMetadata<2>, {AT}CopyFunctor<int, long>>()", "copy"),
    # normalization
    (f"void {AT}(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()", "normalization"),
    (f"void {AT}batch_norm_collect_statistics_kernel<float>()", "normalization"),
    (f"void {AT}(anonymous namespace)::RowwiseMomentsCUDAKernel<float>()", "normalization"),
    (f"void {AT}(anonymous namespace)::GammaBetaBackwardCUDAKernel<float>()", "normalization"),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float>()", "normalization"),
    ("void vllm::rms_norm_kernel<c10::BFloat16>()", "normalization"),
    ("void flashinfer::norm::FusedAddRMSNormKernel<8, __nv_bfloat16>()", "normalization"),
    ("MIOpenBatchNormFwdTrainSpatial", "normalization"),
    ("void transformer_engine::normalization::ln_fwd_tuned_kernel<float>()", "normalization"),
    ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_", "normalization"),
    # GEMM
    *(("ampere_sgemm_128x128_tn", "gemm"), ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "gemm")),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_cublas", "gemm"),
    ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "gemm"),
    ("void gemv2T_kernel_val<int, int, float, float, float, float, 128>()", "gemm"),
    ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, false>(float)", "gemm"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>()", "gemm"),
    ("void dot_kernel<float, 128, 0, cublasDotParams<float const>>(cublasDotParams<float>)", "gemm"),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>()", "gemm"),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>>>()", "gemm"),
    ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT16x16x256_MI16x16x1_SN_LDSB1", "gemm"),
    ("_ZN2ck16kernel_gemm_xdl_cshuffle_v3INS_8GridwiseE", "gemm"),
    *(("void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2>()", "gemm"), ("_gemm_a8w8_blockscale_kernel", "gemm")),
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u>()", "gemm"),
    ("void marlin::Marlin<__nv_bfloat16, 256, 1>()", "gemm"),
    ("void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>()", "gemm"),
    ("void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 8>()", "gemm"),
    *(("triton_tem_fused_addmm_5", "gemm"), ("matmul_kernel", "gemm")),
    # attention
    ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>()", "attention"),
    ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<int>()", "attention"),
    (
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
        "flash::CollectiveMainloopFwdSm90<2>>>>()",
        "attention",
    ),
    (
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
        "attention",
    ),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", "attention"),
    ("fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64VarSeqQ128Kv128StaticContext", "attention"),
    ("void vllm::paged_attention_v2_kernel<float, 128, 16>()", "attention"),
    ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<int>()", "attention"),
    *(("kernel_unified_attention_2d", "attention"), ("_fwd_grouped_kernel_stage1_attn", "attention")),
    ("flash_fwd_splitkv_mla_kernel", "attention"),
    ("void ck_tile::kentry<(int)256, (int)1, ck_tile::FmhaFwdKernel<ck_tile::Pipeline>>()", "attention"),
    *(("kn_mla_reduce_v1_ps", "attention"), ("triton_tem_fused_flex_attention_0", "attention")),
    # convolution
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_nhwckrsc_nhwc_tilesize64x128x32_cudnn_infer", "convolution"),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_execute_split_k_kernel_cudnn_train", "convolution"),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5>()", "convolution"),
    ("void implicit_convolve_sgemm<float, float, 1024, 5>()", "convolution"),
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "convolution"),
    ("void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128>()", "convolution"),
    ("miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f2x3_dilation2", "convolution"),
    *(("SubTensorOpWithScalar1d", "convolution"), ("Im2d2Col_v2", "convolution")),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", "convolution"),
    (
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3IiE",
        "convolution",
    ),
    # mixture of experts
    *(("fused_moe_kernel", "moe"), ("void vllm::moe::moe_align_block_size_kernel<int>()", "moe")),
    ("void vllm::moe::topkGating<8, 256, 4>()", "moe"),
    ("void marlin_moe_wna16::Marlin<half, 256>()", "moe"),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::MoeFCGemm<int>>()", "moe"),
    *(("mfma_moe1_silu_mul_afp8_wfp4", "moe"), ("_permute_kernel", "moe")),
    ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>()", "moe"),
    # embedding tables
    (
        "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float>()",
        "embedding",
    ),
    ("void fbgemm_gpu::permute_2D_data_kernel<false, int>()", "embedding"),
    # sampling
    ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<512>()", "sampling"),
    ("void vllm::apply_repetition_penalties_kernel<float>()", "sampling"),
    # small ones
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>()", "elementwise"),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel>()", "elementwise"),
    ("void per_token_group_quant_8bit_kernel<__nv_bfloat16>()", "elementwise"),
    ("void fbgemm_gpu::_FP8rowwise_to_float_cuda_kernel<float>()", "elementwise"),
    ("triton_poi_fused_add_mul_silu_3", "elementwise"),
    ("triton_red_fused_native_layer_norm_2", "normalization"),
    *(("triton_per_fused__softmax_1", "reduction"), ("triton_poi_fused__to_copy_transpose_7", "copy")),
    *(("triton_tem_fused_convolution_3", "convolution"), ("triton_mm_4", "gemm")),
    *(("triton_poi_fused_embedding_2", "embedding"), ("triton_for_fused_0", "optimizer")),
    ("triton_mix_fused_max_1", "reduction"),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>()", "copy"),
    *(("__amd_rocclr_copyBuffer.kd", "copy"), ("__amd_rocclr_fillBufferAligned", "copy")),
    *(("Memcpy HtoD (Pageable -> Device)", "copy"), ("Memset (Device)", "copy")),
    ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>()", "copy"),
    ("batched_transpose_32x32_half", "copy"),
    # framework ops, which are the compute rows of a CPU-only trace
    *(("aten::addmm", "gemm"), ("aten::scaled_dot_product_attention", "attention")),
    *(("aten::native_layer_norm", "normalization"), ("aten::_fused_adamw_", "optimizer")),
    *(("Optimizer.step#AdamW.step", "optimizer"), ("aten::embedding", "embedding")),
    *(("aten::mul", "elementwise"), ("aten::sum", "reduction"), ("aten::copy_", "copy")),
    ("autograd::engine::evaluate_function: AddmmBackward0", "gemm"),
]


@pytest.mark.parametrize(("name", "expected"), COMPUTE)
def test_compute_is_told_by_category(name: str, expected: str) -> None:
    assert kernel_category(name) == expected
    assert collective_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        *("", "x", "kernel", "my_secret_sauce<int>(int)", "void f()", "((((", "nn.Module: Linear_0"),
        "model.py(3): softmax",
    ],
)
def test_the_unknown_stays_unclassified(name: str) -> None:
    assert kernel_category(name) is None


TABLE = Path(__file__).with_name("kernel_names.yaml")
LISTED = [
    (name, expected, f"{repository}/{path}")
    for repository, files in yaml.safe_load(TABLE.read_text()).items()
    for path, lists in files.items()
    for expected, names in lists.items()
    for name in names
]


@pytest.mark.parametrize(("name", "expected", "source"), LISTED, ids=[row[0][:70] for row in LISTED])
def test_a_kernel_is_what_its_source_says(name: str, expected: str, source: str) -> None:
    library, _, kind = expected.partition("/")
    if kind:
        assert collective_name(name) == CollectiveName(None if kind == "-" else kind, library), source
        assert kernel_category(name) == "communication"
    else:
        assert collective_name(name) is None, source
        assert kernel_category(name) == (None if expected == "unknown" else expected), source


def test_the_table_covers_libraries_and_lists_each_name_once() -> None:
    libraries = {expected.partition("/")[0] for _, expected, _ in LISTED if "/" in expected}
    assert libraries == {
        "custom", "deepep", "flux", "mori", "mscclpp", "msccl", "nccl", "nixl", "nvshmem", "pplx", "uccl",
    }  # fmt: skip
    assert {e for _, e, _ in LISTED if "/" not in e} <= {*CATEGORIES, "unknown"}
    assert [name for name, times in Counter(row[0] for row in LISTED).items() if times > 1] == []
    assert len(LISTED) >= 120
