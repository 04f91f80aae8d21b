# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of matrix kernels, by their names: ordered rules, data not code.

Names of matrix products, convolutions and attention state the library, the precision of the arithmetic,
whether it runs on tensor cores (AMD: matrix cores), the required alignment in elements, and the device
generation they were compiled for.  In each table the first rule whose pattern occurs in the lower-case name
wins; white space separates the alternatives of a pattern.  tests/classify/test_arithmetic.py has real names.

Sources: CUTLASS, media/docs/cpp/code_organization.md and tools/library (`cutlass_80_tensorop_s1688gemm_...`:
compute capability, operator class, accumulator, instruction shape, alignment); cuBLAS and cuDNN as profilers
print them (`ampere_bf16_s16816gemm_bf16_...`, `sm80_xmma_gemm_f32f32_tf32f32_f32_...`, `nvjet_tst_...`: types
of A, of B where they have eight bits or fewer, of the accumulator, of D; t bf16, h fp16, s fp32, q e4m3,
r e5m2, o e2m1); Tensile, docs/src/conceptual (problem type `BBS_BH`: types of A and B, D, compute;
`MI16x16x16x1`: matrix instruction; `ISA942`); PyTorch's memory-efficient attention
(aten/.../mem_eff_attention/gemm_kernel_utils.h: fp32 from sm80 on by OpMultiplyAddFastF32, three products in
TF32; before without tensor cores); MIOpen's igemm (`gtcx2` gfx90a, `gtcx3` gfx942).
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final, NamedTuple

from cclbench.classify.collectives import alternatives_pattern

LIBRARIES: Final = (
    ("flash-attention", r"\bflash(?:_attn|::|_fwd|_bwd)  ns_?5flash  pytorch_flash  flash_fwd  flash_bwd"),
    ("cudnn", "cudnn  scudnn  explicit_convolve  implicit_convolve  precomputed_convolve"),
    ("cutlass", "cutlass"),
    (
        "cublas",
        r"""
        ^(?:maxwell|volta|turing|ampere|hopper)_\w*gemm  ^nvjet  xmma_gemm  cublas  gemmsn_[nt]  gemmk1_kernel
        ^(?:void\s)?sgemm_largek
        """,
    ),
    ("tensile", "^cijk_"),
    ("miopen", "igemm_(?:fwd|bwd|wrw)_gtc  miopen"),
    ("composable_kernel", r"^_zn2ck  \bck::  \bck_tile::  _zn7ck_tile"),
    ("triton", "^triton_"),
)

_NVJET: Final = r"nvjet_(?:sm\d+_)?"


class _Arithmetic(NamedTuple):
    precision: str | None
    tensor_cores: bool | None
    pattern: str


ARITHMETIC: Final = (
    # The scales of four-bit types are of eight bits (`ue4m3xf4`, `Avec16UE4M3`): four bits come first.
    _Arithmetic("fp4", True, rf"e2m1  xf4(?!\d)  mxfp4  nvf(?:p)?4  (?<![a-z])fp4_gemm  {_NVJET}oo"),
    _Arithmetic(
        "fp8",
        True,
        rf"""
        e4m3  e5m2  float_e[45]m  mxfp8  (?<![a-z])fp8_(?:\w+_)?(?:gemm|matmul|mm)  gemm_fp8
        {_NVJET}[qr]{{2}}
        """,
    ),
    _Arithmetic("fp8", True, r"^cijk_\w*?_(?:[fb]8){1,2}[bhs]*_\w*?_mi\d+x"),
    _Arithmetic("int8", True, r"_i8816  _i16832  i8i8_i  imma  ^cijk_\w*?_i8\w*?_mi\d+x"),
    _Arithmetic("fp64", True, r"d884  dmma  tensorop_d\d  f64f64\w*_tensor  ^cijk_\w*?_d_?b_\w*?_mi\d+x"),
    _Arithmetic("fp64", False, r"dgemm  f64f64  ^cijk_\w*?_d_?b_"),
    # 16-bit storage, 32-bit arithmetic outside tensor cores.
    _Arithmetic("fp32", False, r"(?:fp16|bf16|f16)_sgemm"),
    _Arithmetic(
        "bf16",
        True,
        rf"""
        bf16_s\d+  s\d+gemm_bf16  bf16bf16  tensorop_bf16  x16gemm_bf16  {_NVJET}t[a-z]{{2}}_
        _nhwc_bf16_  ^cijk_\w*?_b(?:b|s|h)s?_bh?_\w*?_mi\d+x
        (?:flash_|flash::|fmha|mfma).*(?:bfloat16|bf16)
        """,
    ),
    _Arithmetic(
        "fp16",
        True,
        rf"""
        fp16_s(?:884|1688|16816)  s(?:884|1688|16816)\w*?gemm_f?p?16  _h(?:884|1688|16816)  f16f16
        tensorop_f?h?16?_?[sh]\d+\w*?_f16  x16gemm_f16  {_NVJET}h[a-z]{{2}}_  _nhwc_fp16_
        ^cijk_\w*?_h(?:h|s)s?_bh?_\w*?_mi\d+x  (?:flash_|flash::|fmha|mfma).*(?:half_t|_f16)
        """,
    ),
    _Arithmetic("fp16", False, r"(?:maxwell|volta|turing|ampere)_hgemm  simt_hgemm"),
    _Arithmetic(
        "tf32",
        True,
        r"""
        tf32  (?:tensorop|ampere|hopper)_s1688  s64x\d+x8gemm  ^cijk_\w*?_s_?(?:mx|xf32)_
        fmha_cutlass[fb]_f32_\w*_sm(?:[89]\d|1\d\d)
        """,
    ),
    _Arithmetic(None, True, rf"{_NVJET}  wgmma  (?<!sub)tensorop  s16816  s884  s1688"),
    _Arithmetic("fp32", True, r"_nhwc_fp32_  ^cijk_\w*?_s_?b_\w*?_mi\d+x"),
    _Arithmetic(
        "fp32", False, r"(?<!bla)sgemm  simt_  scudnn  f32f32_f32f32  ^cijk_\w*?_s_?b_  fmha_cutlass[fb]_f32_"
    ),
    _Arithmetic(None, True, "xdl  mfma"),
)

GENERATIONS: Final = (
    ("sm50", "maxwell_"),
    ("sm70", "volta_"),
    ("sm75", "turing_"),
    ("sm80", "ampere_"),
    ("sm90", "hopper_  nvjet_(?!sm)"),
    ("gfx90a", "gtcx2  isa90a"),
    ("gfx942", "gtcx3  isa942"),
)
_TARGET: Final = re.compile(
    r"(?:^|_|nvjet_)sm(\d{2,3})(?!\d)|cutlass(?:3x)?_(?:sm)?(\d{2,3})_|isa(\d{3}|90a)_"
)
_ALIGNMENT: Final = re.compile(r"align[a-d]?(\d{1,2})(?!\d)")
_REACH: Final = 1 << 11
"""Characters of a name that are searched."""


class Arithmetic(NamedTuple):
    """What a kernel's name states; None where it does not.

    `alignment` is the smallest of its operands', in elements: 1 where elements are loaded one at a time.
    """

    library: str | None
    precision: str | None
    tensor_cores: bool | None
    alignment: int | None
    generation: str | None


@cache
def _compiled_rules() -> tuple[
    tuple[tuple[str, re.Pattern[str]], ...],
    tuple[tuple[_Arithmetic, re.Pattern[str]], ...],
    tuple[tuple[str, re.Pattern[str]], ...],
]:
    """The tables, compiled on first use."""
    return (
        tuple((word, alternatives_pattern(pattern)) for word, pattern in LIBRARIES),
        tuple((rule, alternatives_pattern(rule.pattern)) for rule in ARITHMETIC),
        tuple((word, alternatives_pattern(pattern)) for word, pattern in GENERATIONS),
    )


@lru_cache(maxsize=1 << 12)
def kernel_arithmetic(name: str) -> Arithmetic:
    """Library, precision, tensor cores, alignment and generation of a matrix kernel, by its name."""
    text = name[:_REACH].lower()
    libraries, rules, generations = _compiled_rules()
    rule = next((candidate for candidate, pattern in rules if pattern.search(text)), None)
    target = _TARGET.search(text)
    generation = next((word for word, pattern in generations if pattern.search(text)), None)
    if target is not None and target[3] is None:
        generation = f"sm{target[1] or target[2]}"
    elif target is not None:
        generation = f"gfx{target[3]}"
    alignments = [int(number) for number in _ALIGNMENT.findall(text)]
    return Arithmetic(
        library=next((word for word, pattern in libraries if pattern.search(text)), None),
        precision=rule.precision if rule else None,
        tensor_cores=rule.tensor_cores if rule else None,
        alignment=min(alignments, default=None),
        generation=generation,
    )
