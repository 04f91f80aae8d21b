# SPDX-License-Identifier: Apache-2.0
"""Short names of kernels keep what tells two instances apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cclbench.classify.kernel_labels import kernel_label, shorten_name

AT = "at::native::"
LAMBDAS = "(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::"
ADD = f"{AT}CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> "
TILES = "cute::tuple<cute::C<128>, cute::_128, cute::C<64> >"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (
            f"void {AT}vectorized_elementwise_kernel<8, {ADD}>(int, {ADD})",
            "vectorized_elementwise_kernel<8,CUDAFunctor_add<BFloat16>>",
        ),
        (
            f"void {AT}vectorized_elementwise_kernel<4, {AT}(anonymous namespace)::silu_kernel{LAMBDAS}"
            "{lambda()#6}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)",
            "vectorized_elementwise_kernel<4,silu_kernel#1#6<BFloat16>>",
        ),
        (
            f"void {AT}elementwise_kernel<128, 4, {AT}gpu_kernel_impl<{AT}BinaryFunctor<float, float, float,"
            f" {AT}binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)::{{lambda(int)#1}}>(i)",
            "elementwise_kernel<128,4,gpu_kernel_impl<BinaryFunctor<float x3,MulFunctor<float>>><int>>",
        ),
        (
            f"void {AT}(anonymous namespace)::multi_tensor_apply_kernel<{AT}TensorListMetadata<4>,"
            f" {AT}AdamFunctor<float, ({AT}ADAM_MODE)1, false>, float const*, double, bool>(int)",
            "multi_tensor_apply_kernel<AdamFunctor<float,1,false>>",
        ),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>,"
            f" cutlass::gemm::CollectiveMma<cutlass::Sm90<4>, {TILES}, cutlass::bfloat16_t> > >(int)",
            "cutlass::gemm::kernel::GemmUniversal<tuple<int,int>,"
            "CollectiveMma<Sm90<4>,128x128x64,bfloat16_t>>",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_64x3_tn_align8>(int)",
            "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_64x3_tn_align8",
        ),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"),
        ("_ZN1a1fIiEEvi", "_ZN1a1fIiEEvi"),
        ("void flash::fwd<flash::Traits<128, 64>, true>(int)", "flash::fwd<Traits<128,64>,true>"),
    ],
)
def test_labels(name: str, label: str) -> None:
    assert kernel_label(name) == label


def test_kernels_that_libraries_name_differently_have_different_labels() -> None:
    """Of all names with template arguments in the collection; parameters alone tell none of them apart."""
    collected = yaml.safe_load((Path(__file__).parent / "kernel_names.yaml").read_text())
    names = {
        name for files in collected.values() for kinds in files.values() for k in kinds.values() for name in k
    }
    labels: dict[str, set[str]] = {}
    for name in names:
        labels.setdefault(kernel_label(name), set()).add(name.partition("(")[0].removeprefix("void "))
    shared = {label: heads for label, heads in labels.items() if len(heads) > 1 and "<" in label}
    assert not shared


@given(st.text(alphabet="ab<>(){},:# 1*_", max_size=60))
def test_any_text_has_a_label(name: str) -> None:
    assert isinstance(kernel_label(name), str)


@pytest.mark.parametrize(
    ("name", "most", "short"),
    [
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_f16_64x128x64",
            50,
            "cudnn_.._sdpa_sm90_flash_fprop_f16_64x128x64",
        ),
        # one word less is enough
        (
            "sm90_xmma_gemm_nt_n_tilesize128x128x32_execute",
            45,
            "sm90_.._gemm_nt_n_tilesize128x128x32_execute",
        ),
        ("elementwise_kernel<128,4,impl<Mul<float>>>", 38, "elementwise_..<128,4,impl<Mul<float>>>"),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x192x64_MI16x16x1",
            60,
            "Cijk_Alik_Bljk_BBS_BH_.._SAV_UserArgs_MT128x192x64_MI16x16x1",
        ),
        ("short_kernel", 12, "short_kernel"),
        # without words to leave out the middle goes
        ("a1_b2_c3_d4_e5_f6", 11, "a1_b...5_f6"),
    ],
)
def test_a_short_name_keeps_sizes_types_and_layout(name: str, most: int, short: str) -> None:
    assert shorten_name(name, most) == short


@given(st.text(alphabet="ab1<>(){},:# *_", max_size=80), st.integers(8, 60))
def test_a_short_name_fits(name: str, most: int) -> None:
    assert len(shorten_name(name, most)) <= max(most, 0)
