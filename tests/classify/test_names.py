# SPDX-License-Identifier: Apache-2.0
"""Base names of kernels, real and made up; names of all traces of the evidence."""

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

from cclbench.classify import base_name, collective_name, kernel_category
from cclbench.classify.names import rule_subject

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
        *(("__amd_rocclr_copyBuffer.kd", "__amd_rocclr_copyBuffer"), ("foo(int) [clone .kd]", "foo")),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("_ZN5aiter11rmsnorm_fwdILi256EEEvPf", "_ZN5aiter11rmsnorm_fwdILi256EEEvPf"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        (
            "autograd::engine::evaluate_function: MmBackward0",
            "autograd::engine::evaluate_function: MmBackward0",
        ),
        ("Memcpy DtoD (Device -> Device) of a graph", "Memcpy DtoD (Device -> Device) of a graph"),
        ("std::enable_if<true>::type std::enable_if<true>::type f<1>(int)", "f"),
        *(("unsigned long long f(int)", "f"), ("all-reduce.12", "all-reduce.12"), ("((((", "(((("), ("", "")),
        # brackets are matched with their own kind
        *(("f<(a > b)>(int)", "f"), ("f<a[3 > 2]>(int)", "f"), ("f<{a}>(int)", "f")),
        *(("void f<int>(int) const", "f"), ("f(int)::g(int)", "f::g"), ("f<(x->y)>(int)", "f")),
        *(("a::operator<(int)", "a::operator<"), ("a::operator->", "a::operator->"), ("f)(int)", "f)")),
        *(("f>(int)", "f>"), ("f<a)>(int)", "f"), ("void f[abi:cxx11](int)", "f[abi:cxx11]")),
        *(("void f[with T = int](int)", "f[with T = int]"), ("decltype(f()) g()", "g")),
        *(("a->b(int)", "a->b"), ("int f(int)::g", "f::g"), ("int f<a, b", "f"), ("int h", "int h")),
        ("int h(int)", "h"),
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
        *(("_ZN7cutlass6KernelI", "gemm"), ("_ZN7cutlass6KernelILi", "gemm")),
        *(("_ZN7cutlass6KernelINS", "gemm"), ("_ZN7cutlass6KernelIL", "gemm"), ("_Z11enable_sm90", None)),
        *(("_Z11enable_sm90I99999x", None), ("void cutlass::Kernel<", "gemm")),
    ],
)
def test_what_a_launcher_launches_decides_mangled_or_cut(name: str, expected: str | None) -> None:
    assert kernel_category(name) == expected
    assert collective_name(name) is None


@pytest.mark.parametrize(("before", "expected"), [(1020, "gemm"), (1021, None)])
def test_a_name_is_read_as_far_as_real_ones_reach(before: int, expected: str | None) -> None:
    """1,024 characters of a name tell what it is, and 8,192 stand for it."""
    assert kernel_category("x" * before + "gemm") == expected
    assert len(base_name("x" * 8192)) == len(base_name("x" * 8193)) == 8192


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Before the launched type: integers, a nested constant, the launcher's own namespace, another prefix.
        ("_ZN7cutlass6KernelILi128ELn4EN4cute5sgemmIiEEEEvv", "cute::sgemm"),
        ("_ZN7cutlass6KernelINK4cute9flash_fwdIiEEEEvv", "cute::flash_fwd"),
        ("_ZN7cutlass6KernelINS_4gemm5sgemmIiEEEEvv", "cutlass::gemm::sgemm"),
        ("_ZN7ck_tile6kentryILi1ENS1_13FmhaFwdKernelIiEEEEvv", "fmhafwdkernel"),
        ("_ZN7cutlass6KernelIN5flash20enable_sm90_or_laterINS1_3FwdINS1_4", "fwd"),
        # Cut, or without a type: the launcher.
        *(("_ZN7cutlass6KernelIiE", "cutlass::kernel"), ("_ZN7cutlass6KernelI9", "cutlass::kernel")),
        # Components end where no number stands.
        *(("_ZN5aiter11rmsnorm_fwdE", "aiter::rmsnorm_fwd"), ("_Z11rmsnorm_fwdgemm", "rmsnorm_fwd")),
        ("_ZN5aiterL11rmsnorm_fwdE", "aiter::rmsnorm_fwd"),
        *(("_ZN12_GLOBAL__N_111rmsnorm_fwdE", "rmsnorm_fwd"), ("_Z", "_z")),
        # Demangled: the first type among the arguments.
        ("void cutlass::Kernel<(anonymous namespace)::F<int>>(int)", "f"),
        ("cutlass::Kernel<true, 5, a::b>", "a::b"),
        ("cutlass::Kernel<cutlass::device_kernel<a::b>>", "a::b"),
        ("cutlass::Kernel<true, 5>", "cutlass::kernel"),
        # Result types, anonymous namespaces, what a compiler appends.
        *(("void a::(anonymous namespace)::f<int>(int)", "a::f"), ("void a::<unnamed>::f(int)", "a::f")),
        ("std::enable_if<!(false), void>::type internal::f<int>(int)", "internal::f"),
        *(("std::f<int>(int)", "std::f"), ("a [clone .x] [clone .kd]", "a"), ("a.kd", "a"), ("f(a<b>)", "f")),
        *(("f<a(b)>", "f"), ("(x)", "(x)"), ("<x>", "<x>")),
    ],
)
def test_what_the_rules_look_at(name: str, expected: str) -> None:
    assert rule_subject(name) == expected


@given(st.text(alphabet=st.sampled_from("ab_:<>(){}[] .Z0123456789~,&*-=!") | st.characters(), max_size=200))
def test_any_text_has_a_base_name_and_no_text_breaks_the_rules(name: str) -> None:
    assert bool(base_name(name)) == bool(name)
    found = collective_name(name)
    assert (found is not None) == (kernel_category(name) == "communication")


@pytest.mark.parametrize(
    "pattern", ["<", "(", "<)", "a::", "_", "all", "9", "_Z9", "n", "triton_poi_fused_t_"]
)
def test_names_of_a_megabyte_take_no_time(pattern: str) -> None:
    name = pattern * (1_000_000 // len(pattern))
    begin = time.perf_counter()
    base_name(name), collective_name(name), kernel_category(name)
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
        rows = [row for row in _rows(paths[name]) if kernel_category(row["name"]) == "communication"]
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
        unknown = sum(row["dur"] for row in rows if kernel_category(row["name"]) is None)
        if total:
            unclassified[path.name] = unknown / total
    assert len(unclassified) >= 19
    assert {name: share for name, share in unclassified.items() if share > 0.02} == {}
