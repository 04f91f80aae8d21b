# SPDX-License-Identifier: Apache-2.0
"""Base names of kernels, and names that no profiler should print."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.classify import base_name, category, collective

AT = "at::native::"


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
        (
            "void cutlass::Kernel2<bytedance::flux::(anonymous namespace)::ReduceScatterRing1dPullGemmk<T>>",
            "bytedance::flux::(anonymous namespace)::ReduceScatterRing1dPullGemmk",
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIiEEEEvNT_6ParamsE", "gemm"),
        (
            "_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90INS1_4",
            "attention",
        ),
        ("_ZN7ck_tile6kentryILi256ELin1ENS_13FmhaFwdKernelINS_8PipelineEEEEEvDpT1_.kd", "attention"),
        ("_ZN7cutlass6KernelINS_4conv6kernel23ImplicitGemmConvolutionIiEEEEvNT_6ParamsE", "convolution"),
        # cut, or no name in it: what the launcher itself is called
        ("_ZN7cutlass6KernelI", "gemm"),
        ("_ZN7cutlass6KernelILi", "gemm"),
        ("_ZN7cutlass6KernelINS", "gemm"),
        ("_ZN7cutlass6KernelIL", "gemm"),
        ("_Z11enable_sm90", None),
        ("_Z11enable_sm90I99999x", None),
        ("void cutlass::Kernel<", "gemm"),
    ],
)
def test_what_a_launcher_launches_decides_mangled_or_cut(name: str, expected: str | None) -> None:
    assert category(name) == expected
    assert collective(name) is None


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
