# SPDX-License-Identifier: Apache-2.0
"""The taxonomy: names as libraries and profilers print them, and totals of real traces."""

from __future__ import annotations

import csv
import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.classify import CollectiveName, base_name, category, collective

AT = "at::native::"
ARGS = "ncclDevKernelArgsStorage<4096ul>"

COMMUNICATION = [
    # NCCL: name by age and by printer, kind
    ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce", "nccl"),
    ("ncclAllGatherRingLLKernel_copy_i8(ncclColl)", "all_gather", "nccl"),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce", "nccl"),
    (
        "ncclKernel_AllReduce_TREE_LL128_Sum_half(ncclDevComm*, unsigned long, ncclWork*)",
        "all_reduce",
        "nccl",
    ),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "send_recv", "nccl"),
    ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)", "broadcast", "nccl"),
    ("ncclKernel_ReduceScatter_RING_LL128_Sum_bf16(ncclWorkElem)", "reduce_scatter", "nccl"),
    (f"ncclDevKernel_AllGather_RING_LL({ARGS})", "all_gather", "nccl"),
    (f"void ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL({ARGS})", "reduce_scatter", "nccl"),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", "send_recv", "nccl"),
    (f"ncclDevKernel_Reduce_Sum_f32_RING_LL({ARGS})", "reduce", "nccl"),
    (f"ncclDevKernel_Broadcast_RING_LL({ARGS})", "broadcast", "nccl"),
    (f"ncclDevKernel_AllReduce_Sum_bf16_NVLS({ARGS})", "all_reduce", "nccl"),
    (f"ncclDevKernel_AllReduce_Sum_bf16_NVLS_TREE_SIMPLE({ARGS})", "all_reduce", "nccl"),
    (f"ncclDevKernel_AllReduce_Sum_f16_COLLNET_DIRECT({ARGS})", "all_reduce", "nccl"),
    (f"ncclDevKernel_AllGather_PAT_SIMPLE({ARGS})", "all_gather", "nccl"),
    ("ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", None, "nccl"),
    ("ncclDevKernel_Generic_4", None, "nccl"),
    ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)", "all_reduce", "nccl"),
    ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)", "all_reduce", "nccl"),
    ("ncclSymkDevKernel_ReduceScatter_LDMC_sum_bf16(ncclSymkDevWorkArgs4K)", "reduce_scatter", "nccl"),
    ("ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)", "all_gather", "nccl"),
    # relatives of NCCL
    (f"void rcclGenericKernel<1, false>({ARGS})", None, "rccl"),
    ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", None, "msccl"),
    ("void mscclpp::collective::allreducePacket<(mscclpp::ReduceOp)0>(void*)", "all_reduce", "mscclpp"),
    ("void mscclpp::collective::allgatherFullmesh2<false>(void*)", "all_gather", "mscclpp"),
    ("void mscclpp::executionKernel<int, mscclpp::LL16Packet, true>(int)", None, "mscclpp"),
    # all-reduces of serving engines
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*)", "all_reduce", "custom"),
    ("void vllm::cross_device_reduce_2stage<half, 8>(vllm::RankData*)", "all_reduce", "custom"),
    ("_ZN4vllm26cross_device_reduce_1stageI13__nv_bfloat16Li2EEEvPNS_8RankDataE", "all_reduce", "custom"),
    ("void sglang::cross_device_reduce_2stage<__nv_bfloat16, 8>(sglang::RankData*)", "all_reduce", "custom"),
    ("void aiter::cross_device_reduce_1stage_naive<opus::bf16_t, 8, false>()", "all_reduce", "custom"),
    (
        "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataENS_11RankSignalsE",
        "reduce_scatter",
        "custom",
    ),
    ("void aiter::allgather_lastdim<__hip_bfloat16, 8>(aiter::RankData*)", "all_gather", "custom"),
    (
        "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half>>>()",
        "all_reduce",
        "custom",
    ),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, true>()", "all_reduce", "custom"),
    ("void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>()", "all_reduce", "custom"),
    (
        "void tensorrt_llm::kernels::reduce_fusion::rms_norm_kernel_lamport<half, 4>()",
        "all_reduce",
        "custom",
    ),
    (
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport"
        "<(AllReduceFusionPattern)1, __nv_bfloat16, 8, true>()",
        "all_reduce",
        "custom",
    ),
    (
        "void tensorrt_llm::kernels::ar_fusion::moereduction_allreduce_fusion_kernel_oneshot_lamport<1>()",
        "all_reduce",
        "custom",
    ),
    ("void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<8, half>()", "all_reduce", "custom"),
    ("void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<half, 3, true>()", None, "custom"),
    ("void fbgemm_gpu::two_shot_all_reduce<4, false>(int)", "all_reduce", "custom"),
    ("void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>()", "all_reduce", "custom"),
    ("void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>()", "all_reduce", "custom"),
    ("void c10d::symmetric_memory::two_shot_all_reduce_kernel_inplace<float>()", "all_reduce", "custom"),
    ("void (anonymous namespace)::multimem_all_gather_kernel<16>()", "all_gather", "custom"),
    ("void (anonymous namespace)::barrier_kernel(unsigned int**, int)", "barrier", "custom"),
    ("void userbuffers_fp16_sum_inplace_gpu_rw_ag<8>(int)", "all_gather", "custom"),
    ("void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int)", "reduce_scatter", "custom"),
    ("void userbuffers_fp16_sum_inplace_gpu_rr<8>(int)", "all_reduce", "custom"),
    ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "send", "custom"),
    ("kuserbuffers_pushrecv(int, int, int*, int*, int)", "recv", "custom"),
    ("dlslime::intranode_alltoall_kernel(void*)", "all_to_all", "custom"),
    ("void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8, false>()", "all_to_all", "custom"),
    ("void moeA2ACombineKernel<__nv_bfloat16, 8>()", "all_to_all", "custom"),
    # expert parallelism and one-sided libraries
    ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "all_to_all", "deepep"),
    ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>()", "all_to_all", "deepep"),
    ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)", "all_to_all", "deepep"),
    ("void deep_ep::internode::notify_dispatch<true, 4>(int const*)", None, "deepep"),
    ("void deep_ep::intranode::cached_notify_combine<8>(void**)", None, "deepep"),
    ("void deep_ep::intranode::barrier<8>(int**, int)", "barrier", "deepep"),
    ("void uccl::intranode::combine<nv_bfloat16, 8, 768>()", "all_to_all", "uccl"),
    ("void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>()", "all_to_all", "mori"),
    ("void pplx::dispatchKernel<8, false>()", "all_to_all", "pplx"),
    ("void a2a_combine_recv_kernel<8>()", "all_to_all", "pplx"),
    ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "barrier", "nvshmem"),
    ("void nvshmemi_proxy_rma_entrypoint_blocking(void*)", None, "nvshmem"),
    ("void alltoall_on_stream_kernel<int>(int)", "all_to_all", "nvshmem"),
    ("void c10d::nvshmem_extension::allToAllV(void*, void*)", "all_to_all", "nvshmem"),
    # other fabrics and CPU backends
    ("oneccl_allreduce_pcie", "all_reduce", "oneccl"),
    ("hcom_allReduce__123_0", "all_reduce", "hccl"),
    ("gloo:all_reduce", "all_reduce", "gloo"),
    ("gloo:all_gather", "all_gather", "gloo"),
    ("gloo:send", "send", "gloo"),
    ("gloo:barrier", "barrier", "gloo"),
    ("nccl:all_reduce", "all_reduce", "nccl"),
    ("nccl:_reduce_scatter_base", "reduce_scatter", "nccl"),
    ("nccl:send 0->1", "send", "nccl"),
    ("nccl:recv 1<-0", "recv", "nccl"),
    ("nccl:coalesced", None, "nccl"),
    ("ncclAllReduce", "all_reduce", "nccl"),
    ("MPI_Allreduce", "all_reduce", "mpi"),
    ("MPI_Iallgatherv", "all_gather", "mpi"),
    ("MPI_Reduce_scatter_block", "reduce_scatter", "mpi"),
    ("MPI_Alltoallv", "all_to_all", "mpi"),
    ("MPI_Bcast", "broadcast", "mpi"),
    ("MPI_Sendrecv", "send_recv", "mpi"),
    ("MPI_Isend", "send", "mpi"),
    ("MPI_Irecv", "recv", "mpi"),
    ("MPI_Gather", "gather", "mpi"),
    ("MPI_Scatter", "scatter", "mpi"),
    ("MPI_Barrier", "barrier", "mpi"),
    ("MPI_Waitall", None, "mpi"),
    # framework ops
    ("c10d::allreduce_", "all_reduce", "c10d"),
    ("c10d::_allgather_base_", "all_gather", "c10d"),
    ("c10d::alltoall_base_", "all_to_all", "c10d"),
    ("c10d::broadcast_", "broadcast", "c10d"),
    ("_c10d_functional::all_gather_into_tensor", "all_gather", "c10d"),
    ("_c10d_functional::reduce_scatter_tensor", "reduce_scatter", "c10d"),
    ("_c10d_functional::wait_tensor", None, "c10d"),
    ("record_param_comms", None, "c10d"),
    # XLA
    ("all-reduce.12", "all_reduce", "xla"),
    ("all-gather-start", "all_gather", "xla"),
    ("reduce-scatter-fusion", "reduce_scatter", "xla"),
    ("all-reduce-scatter.1", "reduce_scatter", "xla"),
    ("ragged-all-to-all.3", "all_to_all", "xla"),
    ("collective-permute-done.4", "send_recv", "xla"),
    ("collective-broadcast", "broadcast", "xla"),
    ("async-collective-start", None, "xla"),
    ("send-done.1", "send", "xla"),
]

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
    ("ampere_sgemm_128x128_tn", "gemm"),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "gemm"),
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
    ("void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2>()", "gemm"),
    ("_gemm_a8w8_blockscale_kernel", "gemm"),
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u>()", "gemm"),
    ("void marlin::Marlin<__nv_bfloat16, 256, 1>()", "gemm"),
    ("void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>()", "gemm"),
    ("void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 8>()", "gemm"),
    ("triton_tem_fused_addmm_5", "gemm"),
    ("matmul_kernel", "gemm"),
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
    ("kernel_unified_attention_2d", "attention"),
    ("_fwd_grouped_kernel_stage1_attn", "attention"),
    ("flash_fwd_splitkv_mla_kernel", "attention"),
    ("void ck_tile::kentry<(int)256, (int)1, ck_tile::FmhaFwdKernel<ck_tile::Pipeline>>()", "attention"),
    ("kn_mla_reduce_v1_ps", "attention"),
    ("triton_tem_fused_flex_attention_0", "attention"),
    # convolution
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_nhwckrsc_nhwc_tilesize64x128x32_cudnn_infer", "convolution"),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_execute_split_k_kernel_cudnn_train", "convolution"),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5>()", "convolution"),
    ("void implicit_convolve_sgemm<float, float, 1024, 5>()", "convolution"),
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "convolution"),
    ("void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128>()", "convolution"),
    ("miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f2x3_dilation2", "convolution"),
    ("SubTensorOpWithScalar1d", "convolution"),
    ("Im2d2Col_v2", "convolution"),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", "convolution"),
    (
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3IiE",
        "convolution",
    ),
    # mixture of experts
    ("fused_moe_kernel", "moe"),
    ("void vllm::moe::moe_align_block_size_kernel<int>()", "moe"),
    ("void vllm::moe::topkGating<8, 256, 4>()", "moe"),
    ("void marlin_moe_wna16::Marlin<half, 256>()", "moe"),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::MoeFCGemm<int>>()", "moe"),
    ("mfma_moe1_silu_mul_afp8_wfp4", "moe"),
    ("_permute_kernel", "moe"),
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
    ("triton_per_fused__softmax_1", "reduction"),
    ("triton_poi_fused__to_copy_transpose_7", "copy"),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>()", "copy"),
    ("__amd_rocclr_copyBuffer.kd", "copy"),
    ("__amd_rocclr_fillBufferAligned", "copy"),
    ("Memcpy HtoD (Pageable -> Device)", "copy"),
    ("Memset (Device)", "copy"),
    ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>()", "copy"),
    ("batched_transpose_32x32_half", "copy"),
    # framework ops, which are the compute rows of a CPU-only trace
    ("aten::addmm", "gemm"),
    ("aten::scaled_dot_product_attention", "attention"),
    ("aten::native_layer_norm", "normalization"),
    ("aten::_fused_adamw_", "optimizer"),
    ("Optimizer.step#AdamW.step", "optimizer"),
    ("aten::embedding", "embedding"),
    ("aten::mul", "elementwise"),
    ("aten::sum", "reduction"),
    ("aten::copy_", "copy"),
    ("autograd::engine::evaluate_function: AddmmBackward0", "gemm"),
]

# Names that sound like a collective and are none.
LOOKALIKES = [
    f"void {AT}_scatter_gather_elementwise_kernel<128, 4, {AT}ReduceAdd>(int)",
    f"void {AT}reduce_kernel<512, 1, {AT}ReduceOp<float>>()",
    f"void {AT}broadcast_kernel<float>()",
    "aten::scatter_reduce",
    "aten::gather",
    "triton_red_fused_all_reduce_wait_tensor_4",
    "triton_poi_fused_all_gather_into_tensor_0",
    "fsdp::all_gather_copy_in",
    "FSDP::all_gather (layers.0)",
    "autograd::engine::evaluate_function: AllReduceBackward0",
    "void cub::DeviceReduceKernel<int>()",
    "void blockAllReduceSum<float>(float*)",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>()",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<AllReduceEpilogue>>()",
    "torch/distributed/distributed_c10d.py(2501): all_reduce",
    "MPI_Comm_rank",
    "MPI_Reduce_local",
    "MPI_Alloc_mem",
    "ncclMemAlloc",
    "ncclGroupEnd",
    "reduce.7",
    "reduce-window.2",
    "broadcast.2",
    "all_done_kernel",
    "send_to_host",
]


@pytest.mark.parametrize(("name", "kind", "library"), COMMUNICATION)
def test_communication_is_told_with_kind_and_library(name: str, kind: str | None, library: str) -> None:
    assert collective(name) == CollectiveName(kind, library)
    assert category(name) == "communication"


@pytest.mark.parametrize(("name", "expected"), COMPUTE)
def test_compute_is_told_by_category(name: str, expected: str) -> None:
    assert category(name) == expected


@pytest.mark.parametrize("name", [name for name, _ in COMPUTE] + LOOKALIKES)
def test_compute_is_not_communication(name: str) -> None:
    assert collective(name) is None
    assert category(name) != "communication"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "kernel",
        "my_secret_sauce<int>(int)",
        "void f()",
        "((((",
        "nn.Module: Linear_0",
        "model.py(3): softmax",
    ],
)
def test_the_unknown_stays_unclassified(name: str) -> None:
    assert category(name) is None


@pytest.mark.parametrize(
    ("name", "vendor", "library"),
    [
        ("ncclDevKernel_Generic(x)", "amd", "rccl"),
        ("ncclDevKernel_Generic(x)", "nvidia", "nccl"),
        ("ncclDevKernel_Generic(x)", None, "nccl"),
        ("rcclGenericKernel", None, "rccl"),
        ("gloo:broadcast", "amd", "gloo"),
    ],
)
def test_rccl_has_nccls_names_and_the_vendor_decides(name: str, vendor: str | None, library: str) -> None:
    found = collective(name, vendor)
    assert found is not None
    assert found.library == library


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            f"void {AT}vectorized_elementwise_kernel<4, {AT}FillFunctor<float>, std::array<char*, 1ul>>(int)",
            "at::native::vectorized_elementwise_kernel",
        ),
        (
            "void at::native::(anonymous namespace)::softmax_warp_forward<float, (1>2)>(float*)",
            "at::native::(anonymous namespace)::softmax_warp_forward",
        ),
        (
            "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, (bool)0>(int, const T1 *)",
            "at::native::(anonymous namespace)::vectorized_layer_norm_kernel",
        ),
        (
            "void at::native::elementwise_kernel<(int)128, void at::native::gpu_kernel_impl<at::F>(at::I &)::"
            "[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 1)]>(int, T3)",
            "at::native::elementwise_kernel",
        ),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, 7>(cublasParams<int>)",
            "internal::gemvx::kernel",
        ),
        (
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(cutlass_80::Params)",
            "cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(int)",
            "flash::FlashAttnFwdSm90",
        ),
        ("void ck_tile::kentry<(int)256, (int)1, ck_tile::FmhaFwdKernel<A>, B>(C)", "ck_tile::FmhaFwdKernel"),
        ("decltype(f(1)) g<int>(int)", "g"),
        (
            "void outer(at::Tensor const&)::{lambda(int const&)#1}::operator()(int) const",
            "outer::{lambda(int const&)#1}::operator()",
        ),
        ("void Functor::operator()<int>(int)", "Functor::operator()"),
        ("saxpy(double *, double *, int)", "saxpy"),
        ("void truncated_by_the_profiler<float, at::nat", "truncated_by_the_profiler"),
        ("__amd_rocclr_copyBuffer.kd", "__amd_rocclr_copyBuffer"),
        ("foo(int) [clone .kd]", "foo"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("_ZN5aiter11rmsnorm_fwdILi256EEEvPf", "_ZN5aiter11rmsnorm_fwdILi256EEEvPf"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        (
            "autograd::engine::evaluate_function: MmBackward0",
            "autograd::engine::evaluate_function: MmBackward0",
        ),
        ("all-reduce.12", "all-reduce.12"),
        ("((((", "(((("),
        ("", ""),
    ],
)
def test_base_name(name: str, expected: str) -> None:
    assert base_name(name) == expected


@given(st.text(alphabet=st.sampled_from("ab_:<>(){}[] .Z0123456789~,&*-=!") | st.characters(), max_size=200))
def test_any_text_has_a_base_name_and_no_text_breaks_the_rules(name: str) -> None:
    assert bool(base_name(name)) == bool(name)
    found = collective(name)
    assert (found is not None) == (category(name) == "communication")


@pytest.mark.parametrize(
    "pattern", ["<", "(", "<)", "a::", "_", "all", "9", "_Z9", "n", "triton_poi_fused_t_"]
)
def test_names_of_a_megabyte_take_no_time(pattern: str) -> None:
    name = pattern * (1_000_000 // len(pattern))
    begin = time.perf_counter()
    base_name(name), collective(name), category(name)
    assert time.perf_counter() - begin < 2


def _rows(path: Path) -> list[dict[str, Any]]:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    rows = trace if isinstance(trace, list) else trace["traceEvents"]
    return [row for row in rows if row.get("ph") == "X" and row.get("cat") in ("kernel", "Kernel")]


def _union_ns(spans: list[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def test_communication_time_of_real_traces(test_data: Path) -> None:
    """The union of communication kernels is that of an independent calculation, to the nanosecond."""
    paths = {path.name: path for path in (test_data / "kineto").glob("*/*.json.gz")}
    with (test_data / "expected" / "kineto_whole_trace.csv").open() as table:
        expected = {row["file"]: int(row["comm_ns"]) for row in csv.DictReader(table)}
    assert len(expected) >= 19
    measured = {}
    for name in expected:
        rows = [row for row in _rows(paths[name]) if category(row["name"]) == "communication"]
        begin = min((row["ts"] for row in rows), default=0)
        spans = [(round((row["ts"] - begin) * 1000), round(row["dur"] * 1000)) for row in rows]
        measured[name] = _union_ns([(start, start + length) for start, length in spans])
    assert measured == expected


def test_kernel_time_of_real_traces_is_classified(test_data: Path) -> None:
    """At most 2 % of a real trace's kernel time is left without a category."""
    unclassified = {}
    for path in sorted((test_data / "kineto").glob("*/*.json.gz")):
        rows = _rows(path)
        total = sum(row["dur"] for row in rows)
        unknown = sum(row["dur"] for row in rows if category(row["name"]) is None)
        if total:
            unclassified[path.name] = unknown / total
    assert len(unclassified) >= 19
    assert {name: share for name, share in unclassified.items() if share > 0.02} == {}
