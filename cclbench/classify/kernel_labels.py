# SPDX-License-Identifier: Apache-2.0
"""Kernel names as tables show them: short, with what tells two instances apart."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from cclbench.classify.names import ANONYMOUS, base_name, launched_name, qualified_name
from cclbench.ground.text import shorten_middle

# Characters read: arguments of real kernels are shorter, names from a broken file may not be.
_REACH: Final = 1 << 13
_NESTED: Final = 8
"""Most parameter lists within one another."""
_NAMESPACES: Final = re.compile(r"(?:\b[A-Za-z_]\w*::)+(?=[A-Za-z_])")
_CASTED: Final = re.compile(r"\([A-Za-z_][\w:]*\)(?=-?\d)")
_LAMBDA: Final = re.compile(r"::\{lambda\(([^(){}]*)\)(#\d+)?\}")
_BODY: Final = re.compile(r"::operator\(\)\([^()]*\)(?: const)?")
_CALLED: Final = re.compile(r"\([^()]*\)(?: const)?(?:::)?")
_CONSTANT: Final = re.compile(r"\b(?:C<(-?\d+)>|_(\d+)\b|(\d+)u?l{0,2}\b)")
_SIZES: Final = re.compile(r"\btuple<(\d+(?:,\d+)*)>")
# Arguments that every instance of PyTorch's elementwise kernels has.
_COMMON: Final = re.compile(
    r",(?:array<char\*,\d+>|TrivialOffsetCalculator<\d+,unsigned int>"
    r"|(?:Load|Store)With(?:out)?Cast(?:<\d+>)?)"
)
_REPEATED: Final = re.compile(r"(?<![\w:* ])([A-Za-z_][\w* ]*)(?:,\1(?![\w:* <])){2,}")
# Metadata and call arguments that the functor of a multi-tensor kernel determines.
_APPLIED: Final = re.compile(r"^\w*Metadata<\d+>,|(?:,(?:float|double|bool|int|long)(?: const)?\*?)+$")
_TOKEN: Final = re.compile(r"[^_<>,]+|[_<>,]")
# Parts of names that tell instances apart: sizes, types, layouts (of cuBLAS, of Tensile), functors, what is
# computed, kinds of TorchInductor's kernels.
_TELLING: Final = re.compile(
    r"\d|^[nt]{1,3}$|^A[il]{2}k$|^B[lj]{2}k$|^[BHSDFI]{2,4}$|float|half|double|Functor|^(?:gemm|conv|flash|sdpa"
    r"|[fb]prop|[dw]grad|fwd|bwd|forward|backward|attention|norm|softmax|copy|reduce|cat|poi|red|per|tem)$",
    re.IGNORECASE,
)
# Parameters of a kernel generator beside its tile, as Tensile's `LDSB1`, and cuBLAS' cluster sizes.
_SETTING: Final = re.compile(r"^(?:[A-Z]{2,}\d+|warpgroupsize[\dx]+|\d+)$")
_LEFT_OUT: Final = ".."


@lru_cache(maxsize=1 << 13)
def kernel_label(name: str) -> str:
    """The kernel with its template arguments; without parameters, lambdas' frames, namespaces of arguments.

    `void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>,
    std::array<char*, 3ul> >(int, ...)` gives
    `vectorized_elementwise_kernel<8,CUDAFunctor_add<BFloat16>>`.  A launcher gives the kernel that it
    launches; tuples of sizes are `128x128x64`.
    """
    base = base_name(name)
    inner = _template_arguments(name[:_REACH], launched_name(name) or qualified_name(name))
    arguments = _digest(inner) if inner and base != name else ""
    if base.endswith("multi_tensor_apply_kernel"):
        arguments = _APPLIED.sub("", arguments)
    arguments = _REPEATED.sub(_counted, arguments)
    short = base.replace(ANONYMOUS + "::", "").removeprefix("at::native::") or base
    return f"{short}<{arguments}>" if arguments else short


def _template_arguments(name: str, head: str) -> str:
    """The template arguments after the kernel's name: text between `<` and its `>`; empty without any."""
    plain = name.replace(ANONYMOUS + "::", "").replace("<unnamed>::", "")
    begin = plain.find(head) + len(head)
    if begin < len(head) or not plain.startswith("<", begin):
        return ""
    depth = 0
    for bracket in re.finditer(r"->|[<>(){}]", plain[begin:]):
        depth += {"<": 1, "(": 1, "{": 1, "->": 0}.get(bracket[0], -1)
        if not depth:
            return plain[begin + 1 : begin + bracket.start()]
    return plain[begin + 1 :]


def _digest(arguments: str) -> str:
    """Template arguments without what says nothing: frames, namespaces, parameters, integer suffixes."""
    text = _BODY.sub("", _CASTED.sub("", arguments))
    text = _LAMBDA.sub(r"\2<\1>", text).replace("<>", "").replace("#1<", "<")
    for _ in range(_NESTED):
        text = _CALLED.sub("", text)
    text = _NAMESPACES.sub("", text.replace("::<", "<"))
    text = re.sub(r"::+", "", re.sub(r"\s*([<>,])\s*", r"\1", text))
    text = _CONSTANT.sub(lambda match: match[1] or match[2] or match[3], text)
    text = _SIZES.sub(lambda match: match[1].replace(",", "x"), text)
    return _COMMON.sub("", text).strip()


def _counted(match: re.Match[str]) -> str:
    return f"{match[1]} x{match[0].count(',') + 1}"


def shorten_name(name: str, most: int) -> str:
    """A kernel's name in at most `most` characters: first without words of little meaning, then settings.

    `cudnn_generated_fort_native_sdpa_sm90_flash_fprop_f16_64x128x64` in 50 characters is
    `cudnn_.._sdpa_sm90_flash_fprop_f16_64x128x64`.
    """
    tokens: list[str] = _TOKEN.findall(name[:_REACH])
    words = [place for place, part in enumerate(tokens) if part not in "_<>,"][1:]
    excess = len(name) - most
    little = [place for place in words if not _TELLING.search(tokens[place])]
    settings = [place for place in words if _SETTING.search(tokens[place])]
    for place in (*little, *settings):
        if excess <= 0:
            break
        joins = place > 1 and tokens[place - 1] == "_" and tokens[place - 2] == _LEFT_OUT
        excess -= len(tokens[place]) - len(_LEFT_OUT) * (not joins) + joins
        tokens[place] = _LEFT_OUT
        if joins:
            tokens[place - 2 : place] = ["", ""]
    return shorten_middle("".join(tokens), most)
