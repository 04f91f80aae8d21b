# SPDX-License-Identifier: Apache-2.0
"""Kernels that compute and communicate in one launch, and where communication ends.

A kernel that moves data between devices, or waits for another device's data or signal, is

- `communication`, if what it computes is one pass over the data it exchanges: the reduction, and in the
  same registers bias, residual, normalization, quantization, a weighted sum over experts.  Its time is
  that of the exchange.  So all-reduce + residual + RMSNorm of FlashInfer, TensorRT-LLM, vLLM and AITER is
  an all-reduce: `allreduce_fusion_kernel_oneshot_lamport` normalizes each element as it arrives.
- `fused`, if it holds a matrix product, attention or whole experts.  Their arithmetic does not follow from
  the bytes exchanged, so the launch's time is neither that of computing nor that of communicating.

A matrix product that only sets flags on its own device, for a concurrent communication kernel, is a matrix
product.
"""

from __future__ import annotations

from typing import Final

# Libraries' own names first; the last three lines are common names for such kernels.
FUSED: Final = r"""
    ^flashd?moe::moe::forward$  ^deep_gemm::\w*mega_moe_impl
    ^kernel_consumer_(?:gemm|flash_attn|m_parallel_scatter_group_gemm)  ^consumer_gemm_persistent_kernel
    ^mega_kernel_\w*(?:dispatch|combine)_token  ^kernel_all_to_all_gemm_consumer  _a2a_consumer_gemm_
    gemm_rs\w*_fuse_scatter  ^gemm_rs_nvlink_kernel$  ^moe_ag_scatter_grouped_gemm_kernel
    wait_signal_matmul  ^_matmul_kernel_tma_persistent_w_progress  distributedgemmkernelwrapper
    \bgemm::kernel::(?:sm\d\d(?:ag|rs|consumer)gemm|(?:sm\d\d)?agscattergemm|gatherrsgemm|gemmrswithabsmax)
    \bgemm::kernel::(?:gemmaruniversal|groupgemmuniversalrsts)
    (?:^|[_:])ag_(?:group_)?gemm
    (?:gemm(?!a)|matmul)\w*(?:all_?(?:reduce|gather|scatter|to_?all)|reduce_?scatter)
    (?:all_?(?:reduce|gather|to_?all)|reduce_?scatter)\w*(?:gemm(?!a|k(?!ernel))|matmul)
"""
"""Matched in a kernel's own name, not in one that Inductor generated from a graph."""

FUSED_BY_ARGUMENT: Final = (
    r"\bgemm::kernel::",
    "persistentasyncinputscheduler  sm90auxstorereducescatter  visitorauxstorescatter  visitorauxgatherrs",
)
"""A CUTLASS kernel's name, and template arguments that make it communicate: PyTorch's scheduler that waits
for gathered chunks (AsyncMM.cu), Flux's epilogues that store to other ranks (gemm_rs, moe_gather_rs)."""
