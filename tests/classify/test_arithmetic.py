# SPDX-License-Identifier: Apache-2.0
"""What names of kernels of products tell of their arithmetic."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from cclbench.classify import kernel_category
from cclbench.classify.arithmetic import kernel_arithmetic

NAMES = [
    # PyTorch's memory-efficient attention
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", ("cutlass", "tf32", True, None, "sm80")),
    ("fmha_cutlassB_f32_aligned_64x64_k64_dropout_sm80", ("cutlass", "tf32", True, None, "sm80")),
    ("fmha_cutlassF_f32_notaligned_64x64_rf_sm75", ("cutlass", "fp32", False, None, "sm75")),
    # cuBLAS: generation, storage, accumulator and instruction shape
    ("ampere_sgemm_128x128_tn", ("cublas", "fp32", False, None, "sm80")),
    ("volta_sgemm_32x32_sliced1x4_tn", ("cublas", "fp32", False, None, "sm70")),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", ("cublas", "fp16", True, None, "sm70")),
    ("volta_h884gemm_64x64_ldg8_nt", ("cublas", "fp16", True, None, "sm70")),
    ("volta_fp16_sgemm_fp16_128x64_nn", ("cublas", "fp32", False, None, "sm70")),
    ("turing_fp16_s1688gemm_fp16_256x64_ldg8_f2f_nt", ("cublas", "fp16", True, None, "sm75")),
    ("ampere_fp16_s1688gemm_fp16_256x64_ldg8_f2f_nt", ("cublas", "fp16", True, None, "sm80")),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", ("cublas", "fp16", True, None, "sm80")),
    ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", ("cublas", "bf16", True, None, "sm80")),
    ("ampere_dgemm_64x64_tn", ("cublas", "fp64", False, None, "sm80")),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_cublas",
        ("cublas", "fp32", False, None, "sm80"),
    ),
    (
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_cublas",
        ("cublas", "tf32", True, None, "sm80"),
    ),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off"
        "_kernel__5x_cublas",
        ("cublas", "bf16", True, None, "sm90"),
    ),
    ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", ("cublas", "bf16", True, None, "sm90")),
    ("nvjet_hsh_128x64_64x8_4x1_v_bz_TNT", ("cublas", "fp16", True, None, "sm90")),
    ("nvjet_qqtst_128x128_128x6_2x1_v_bz_TNT", ("cublas", "fp8", True, None, "sm90")),
    ("nvjet_sm90_qrtst_96x128_128x7_1x2_h_bz_coopA_algo2_TNN", ("cublas", "fp8", True, None, "sm90")),
    (
        "nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT",
        ("cublas", "fp8", True, None, "sm90"),
    ),
    (
        "nvjet_sm100_oohsh_128x256_256x5_2x2_2cta_h_bz_Avec16UE4M3_Bvec16UE4M3_TNT",
        ("cublas", "fp4", True, None, "sm100"),
    ),
    (
        "cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_f16_f16_256x192x256_0"
        "_tnn_align32_o_vs16_2sm_bias_f16_relu",
        ("cutlass", "fp4", True, 32, "sm100"),
    ),
    ("_w8a8_block_fp8_matmul", (None, "fp8", True, None, None)),
    ("nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT", ("cublas", "bf16", True, None, "sm100")),
    # CUTLASS
    (
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align1>(cutlass_80_tensorop"
        "_s1688gemm_128x128_16x4_nt_align1::Params)",
        ("cutlass", "tf32", True, 1, "sm80"),
    ),
    (
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>()",
        ("cutlass", "fp32", False, 1, "sm80"),
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>()",
        ("cutlass", "bf16", True, 8, "sm80"),
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>()",
        ("cutlass", "fp64", True, 1, "sm80"),
    ),
    (
        "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1>()",
        ("cutlass", "bf16", True, 1, "sm75"),
    ),
    # cuDNN
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", ("cudnn", "fp32", False, None, "sm70")),
    ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3>()", ("cudnn", "fp32", False, None, None)),
    (
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4"
        "_warpsize2x2x1_g1_tensor16x8x8_alignc4_execute_kernel_cudnn_infer",
        ("cudnn", "tf32", True, 4, "sm80"),
    ),
    # AMD
    (
        "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT16x16x256_MI16x16x1_ISA942_IU1",
        ("tensile", "bf16", True, None, "gfx942"),
    ),
    (
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_ISA90a_IU1",
        ("tensile", "fp16", True, None, "gfx90a"),
    ),
    ("Cijk_Ailk_Bljk_SB_MT64x64x16_SE_TT4_4_ISA906_IU1", ("tensile", "fp32", False, None, "gfx906")),
    ("Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x2x1_SE_ISA90a_IU1", ("tensile", "fp32", True, None, "gfx90a")),
    (
        "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt256x128x16_wt32x32x8_ws2x1",
        ("miopen", "bf16", True, None, "gfx942"),
    ),
    # attention
    (
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, cutlass::bfloat16_t>>()",
        ("flash-attention", "bf16", True, None, None),
    ),
    # names that tell no arithmetic, though they hold words that others' do
    (
        "void gemmSN_NN_kernel<float, 256, 4, cublasGemmSmallNParams<cublasGemvTensor>>()",
        ("cublas", None, None, None, None),
    ),
    ("SubTensorOpWithScalar1d", (None, None, None, None, None)),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>()", (None,) * 5),
]


@pytest.mark.parametrize(("name", "told"), NAMES)
def test_what_a_name_tells(name: str, told: tuple[object, ...]) -> None:
    assert tuple(kernel_arithmetic(name)) == told


@pytest.mark.parametrize(
    ("folder", "least"),
    [("kineto/ddp_a100", 0.8), ("kineto/resnet50_2021", 0.6), ("kineto/resnet_mi300x", 0.5)],
)
def test_most_names_of_real_products_tell_arithmetic(test_data: Path, folder: str, least: float) -> None:
    path = sorted((test_data / folder).glob("*.gz"))[0]
    text = gzip.decompress(path.read_bytes()).decode()
    pattern = r'"cat": *"[kK]ernel",\s*"name": *"((?:[^"\\]|\\.)*)"'
    names = set(re.findall(pattern, text))
    products = [name for name in names if kernel_category(name) in ("gemm", "convolution")]
    known = [name for name in products if kernel_arithmetic(name).tensor_cores is not None]
    assert len(products) > 10
    assert len(known) >= least * len(products)
