# SPDX-License-Identifier: Apache-2.0
"""Communication as libraries and profilers name it, and names that only sound like it."""

from __future__ import annotations

import pytest

from cclbench.classify import CollectiveName, bus_factor, collective_name, kernel_category

AT = "at::native::"
ARGS = "ncclDevKernelArgsStorage<4096ul>"
TWO_SHOT = "(anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8"

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
    ("void tensorrt_llm::kernels::reduce_fusion::rms_norm_kernel_lamport<half, 4>()", "all_reduce", "custom"),
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
    # instances of an all-reduce that reduce and scatter, and one that does not
    (f"void {TWO_SHOT}, true, false>(float**)", "reduce_scatter", "custom"),
    (f"void {TWO_SHOT}, (bool)1, (bool)0>(float**)", "reduce_scatter", "custom"),
    (f"void {TWO_SHOT}, false, true>(float**)", "all_reduce", "custom"),
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
    ("void (anonymous namespace)::dispatchKernel<8u, true, false>(int*)", "all_to_all", "pplx"),
    ("void a2a_combine_recv_kernel<8>()", "all_to_all", "pplx"),
    ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "barrier", "nvshmem"),
    ("void nvshmemi_proxy_rma_entrypoint_blocking(void*)", None, "nvshmem"),
    ("void alltoall_on_stream_kernel<int>(int)", "all_to_all", "nvshmem"),
    ("void c10d::nvshmem_extension::allToAllV(void*, void*)", "all_to_all", "nvshmem"),
    # other fabrics and CPU backends
    *(("oneccl_allreduce_pcie", "all_reduce", "oneccl"), ("hcom_allReduce__123_0", "all_reduce", "hccl")),
    *(("hcom_receive__101_0_1", "recv", "hccl"), ("gloo:all_reduce", "all_reduce", "gloo")),
    *(("gloo:all_gather", "all_gather", "gloo"), ("gloo:send", "send", "gloo")),
    *(("gloo:barrier", "barrier", "gloo"), ("nccl:all_reduce", "all_reduce", "nccl")),
    *(("nccl:_reduce_scatter_base", "reduce_scatter", "nccl"), ("nccl:send 0->1", "send", "nccl")),
    *(("nccl:recv 1<-0", "recv", "nccl"), ("nccl:coalesced", None, "nccl")),
    *(("ncclAllReduce", "all_reduce", "nccl"), ("MPI_Allreduce", "all_reduce", "mpi")),
    *(("MPI_Iallgatherv", "all_gather", "mpi"), ("MPI_Reduce_scatter_block", "reduce_scatter", "mpi")),
    *(("MPI_Alltoallv", "all_to_all", "mpi"), ("MPI_Bcast", "broadcast", "mpi")),
    *(("MPI_Sendrecv", "send_recv", "mpi"), ("MPI_Isend", "send", "mpi"), ("MPI_Irecv", "recv", "mpi")),
    *(("MPI_Gather", "gather", "mpi"), ("MPI_Scatter", "scatter", "mpi"), ("MPI_Barrier", "barrier", "mpi")),
    ("MPI_Waitall", None, "mpi"),
    # framework ops
    *(("c10d::allreduce_", "all_reduce", "c10d"), ("c10d::_allgather_base_", "all_gather", "c10d")),
    *(("c10d::alltoall_base_", "all_to_all", "c10d"), ("c10d::broadcast_", "broadcast", "c10d")),
    ("_c10d_functional::all_gather_into_tensor", "all_gather", "c10d"),
    ("_c10d_functional::reduce_scatter_tensor", "reduce_scatter", "c10d"),
    *(("_c10d_functional::wait_tensor", None, "c10d"), ("record_param_comms", None, "c10d")),
    # XLA
    *(("all-reduce.12", "all_reduce", "xla"), ("all-gather-start", "all_gather", "xla")),
    *(("reduce-scatter-fusion", "reduce_scatter", "xla"), ("all-reduce-scatter.1", "reduce_scatter", "xla")),
    *(("ragged-all-to-all.3", "all_to_all", "xla"), ("collective-permute-done.4", "send_recv", "xla")),
    *(("collective-broadcast", "broadcast", "xla"), ("async-collective-start", None, "xla")),
    ("send-done.1", "send", "xla"),
]

# Names that sound like a collective and are none.
LOOKALIKES = [
    f"void {AT}_scatter_gather_elementwise_kernel<128, 4, {AT}ReduceAdd>(int)",
    *(f"void {AT}reduce_kernel<512, 1, {AT}ReduceOp<float>>()", f"void {AT}broadcast_kernel<float>()"),
    *("aten::scatter_reduce", "aten::gather", "triton_red_fused_all_reduce_wait_tensor_4"),
    *("triton_poi_fused_all_gather_into_tensor_0", "fsdp::all_gather_copy_in", "FSDP::all_gather (layers.0)"),
    *("autograd::engine::evaluate_function: AllReduceBackward0", "void cub::DeviceReduceKernel<int>()"),
    *("void blockAllReduceSum<float>(float*)", "void deep_ep::layout::get_dispatch_layout<256, 32, 8>()"),
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<AllReduceEpilogue>>()",
    *("torch/distributed/distributed_c10d.py(2501): all_reduce", "MPI_Comm_rank", "MPI_Reduce_local"),
    *("MPI_Alloc_mem", "ncclMemAlloc", "ncclGroupEnd", "reduce.7", "reduce-window.2", "broadcast.2"),
    *("all_done_kernel", "send_to_host"),
]


@pytest.mark.parametrize(("name", "kind", "library"), COMMUNICATION)
def test_communication_is_told_with_kind_and_library(name: str, kind: str | None, library: str) -> None:
    assert collective_name(name) == CollectiveName(kind, library)
    assert kernel_category(name) == "communication"


@pytest.mark.parametrize("name", LOOKALIKES)
def test_lookalikes_are_not_communication(name: str) -> None:
    assert collective_name(name) is None
    assert kernel_category(name) != "communication"


@pytest.mark.parametrize(
    ("name", "vendor", "library"),
    [
        *(("ncclDevKernel_Generic(x)", "amd", "rccl"), ("ncclDevKernel_Generic(x)", "nvidia", "nccl")),
        *(("ncclDevKernel_Generic(x)", None, "nccl"), ("rcclGenericKernel", None, "rccl")),
        ("gloo:broadcast", "amd", "gloo"),
    ],
)
def test_rccl_has_nccls_names_and_the_vendor_decides(name: str, vendor: str | None, library: str) -> None:
    found = collective_name(name, vendor)
    assert found.library == library


@pytest.mark.parametrize(
    ("kind", "factor"),
    [("all_reduce", 1.75)]
    + [(kind, 0.875) for kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")]
    + [(kind, 1.0) for kind in ("broadcast", "reduce", "send", "recv", "send_recv", "barrier")],
)
def test_bus_factor_of_eight_ranks(kind: str, factor: float) -> None:
    assert bus_factor(kind, 8) == factor
    assert bus_factor("all_reduce", 1) == 0
    assert bus_factor("all_gather", 4) == 0.75
