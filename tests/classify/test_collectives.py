# SPDX-License-Identifier: Apache-2.0
"""Communication as libraries and profilers name it, and names that only sound like it."""

from __future__ import annotations

import pytest

from cclbench.classify import bus_factor, collective_name, kernel_category

AT = "at::native::"


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
