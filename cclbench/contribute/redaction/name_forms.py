# SPDX-License-Identifier: Apache-2.0
"""Forms of public names: which words, sizes and codes the names of kernels, operators and machines have.

A text consists of *units* between blanks, brackets and commas, a unit of *words* of letters and digits, a
word of *parts* that begin with capitals.  A part is public if `words.txt` lists it (scripts/public_words.py
collects them), or in the form of a size, a data type, a shape or a processor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from typing import Final

PARTS: Final = frozenset(
    re.sub("#.*", "", files(__package__).joinpath("words.txt").read_text(encoding="ascii")).split()
)
"""Parts of words, in lower case."""
LOOSE: Final = 3
"""Most characters of a text that are those of no public part: letters, digits of a number that is no size,
and numbers by themselves, one each.  The shortest secrets have four: a PIN, a number plate."""
_BESIDE_PARTS: Final = 1
"""Most letters of a word that are those of no public part: `splitK`, `AFunctor`."""
_ARGUMENTS: Final = 8
"""Most numbers other than 0 and 1 of the arguments of a template."""
_NAMED: Final = 3
"""Fewest letters of public parts of a text that has loose ones, or more than so many in all."""
LETTERS: Final = "jqvwxyz"
"""No rule that classifies names has a word of these letters alone."""
LENGTH: Final = 14
TOKEN: Final = re.compile(rf"x[{LETTERS}]{{{LENGTH}}}")
WORD_OR_SIGNS: Final = re.compile(r"[^\W_]+|(?:[\W_])+")
_MOST_SIGNS: Final = 4
"""Most signs in a row."""
_LETTER_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""Parts of a word: by its capitals, and numbers."""
SIZES: Final = {
    "0",
    *(str(n) for odd in range(1, 16, 2) for power in range(14) if (n := odd << power) < 10_000),
    *(str(odd << power) for odd in (1, 3, 7) for power in range(11, 17) if 10_000 < odd << power <= 1 << 16),
}
"""Sizes of tiles, vectors, blocks and types; a number of one digit is one."""
_N: Final = f"(?:{'|'.join(sorted(SIZES, key=len, reverse=True))})"
_SHAPE: Final = "(?:884|8816|1688|16816|16832|16864)"
FORM: Final = re.compile(
    rf"(?!0){_N}(?:x{_N}){{1,4}}|{TOKEN.pattern}|[hsi]?{_SHAPE}|{_N}(?:[kmgt]i?b|ul{{0,2}}|[xd])"
    r"|(?:x?(?:b?f(?:8|16|32|64)|[siu](?:4|8|16|32|64)|tf32|e[45]m[0-3]|(?:mx)?fp(?:4|8|16|32|64)))+"
    r"|(?:b?float|u?int)(?:4|8|16|32|64)"
    rf"|sm(?:[5-9]\d|1[0-2]\d)a?|(?:[tdpec]p|hs|bs){_N}|(?:gfx|isa)(?:90[0-9a-c]|94[0-2]|950|1[0-2]\d\d)"
    r"|policy(?:[3-9]|10)00|p(?:\d\d|9{3,4})",
    re.IGNORECASE,
)
"""Sizes, shapes of matrix instructions, data types, processors, amounts of memory, parallelism."""
_TYPE: Final = "(?:b?f(?:8|16|32|64)|[siu](?:4|8|16|32)|tf32|e[45]m[0-3]|[dhis])"
_SIZE_X: Final = f"{_N}(?:x{_N})"
_DOTTED: Final = re.compile(r"\d\.\d+\.\d")
"""Between the numbers of an address or a version, which are no sizes."""
_PRODUCT: Final = re.compile(
    # nvjet_sm90_hsh_192x128_64x5_1x2_h_bz_coopB_bias_TNT
    rf"nvjet_(?:sm\d\d\d?_)?[hsdtqrop]{{2,4}}(?:_(?:mma|{_SIZE_X}{{1,2}}|[hv]|bz|[a-z]?sched|coop[AB]|split[KS]"
    rf"|b?add|bias|gelu|relu|[12]cta|[TN]{{3}}|[tn]{{3}})){{1,16}}"
    # sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x128x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_...
    rf"|sm\d\d\d?_xmma_(?:gemm|fprop|dgrad|wgrad)(?:_{_TYPE}{{1,4}}|_[tnc]{{1,2}}|_tilesize{_SIZE_X}{{2}}|_stage\d"
    rf"|_warp(?:group)?size\d(?:x\d){{2}}|_ffma|_[hw]?g?mma|_tensor{_N}(?:x{_N}){{0,2}}|_align[a-d]?\d\d?|_bias"
    rf"|_execute|_segment|_split|_k|_off|_on|_kernel|_|_\dx|_cublas|_cudnn){{3,40}}"
    # ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn
    rf"|(?:maxwell|volta|turing|ampere|hopper)(?:_{_TYPE}|_fp16)?_[shdic]{{1,2}}(?:\d{{3,5}}|{_SIZE_X}{{2}})?gemm"
    rf"(?:_{_TYPE}|_fp16|_{_SIZE_X}|_ldg\d|_relu|_f2f|_stages|_sliced\dx\d|_splitK|_[tnc]{{2}}|_align\d){{1,16}}"
    # cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_tn_align2
    rf"|cutlass_\d\d\d?_(?:wmma_)?(?:tensorop|simt)(?:_{_TYPE}|_[shdi]{{1,2}}(?:\d{{3,6}}|{_SIZE_X}{{2}})?gemm"
    rf"|_{_SIZE_X}|_[tn]{{2}}|_align\d\d?|_relu|_grouped|_splitk){{2,12}}(?:::Params)?"
)
"""Names of products of cuBLAS, cuDNN and CUTLASS: architecture, types, tiles, stages, layouts, alignment."""
_SIZES_WITHIN: Final = re.compile(rf"(?<!\d)(?:{_N}(?:x{_N})+|{_SHAPE})(?!\d)")
_CODE: Final = re.compile(
    r"[ST][0-9A-Z]{0,2}_|S[tabsiod]|Tn|DF\d{1,2}[bx_]?|D[pnvati0-5]|C[1-5]|U[lt]"
    r"|(?:a[adnS]|c[lov]|dv|e[oq]|g[et]|ix|l[est]|m[ilm]|n[egt]|oo|or|p[lp]|r[ms])(?=[EIL])"
    r"|(?<=L[a-z])n?\d{1,7}E|(?<=E)\d{1,2}(?=[_E])|(?<=A)\d{1,4}(?=_)|(?<=Dv)\d{1,3}(?=_)|(?<=_)\d{1,3}$"
    r"|(?P<length>\d{1,3})"
    r"|N(?=[KVR]{0,2}[\dSTUZ])|L(?=[a-z]n?\d|[\dNSZ_])|Z(?=[NLZ\d])|A(?=[\d_])"
    r"|[PROKVIJXFEG]|[a-jl-ostv-z]|[_.]|(?<=\.)kd$"
)
"""A code of a mangled name by the Itanium ABI, a constant, or the length of an identifier."""
_ANONYMOUS: Final = re.compile(
    r"_GLOBAL__N_(?:1|_[0-9a-f]{8}_\d{1,3}_(?P<file>\w+)_[0-9a-f]{8}(?:_\d{1,7})?)"
)
"""An anonymous namespace in a mangled name, with the name of its file."""
_OPENING: Final = frozenset(("N", "I", "L", "J", "X", "F", "Z", "Ul"))
"""Codes that an E closes."""
_QUALIFYING: Final = _OPENING.union("PKRE")
_MOST_CODES: Final = 4
"""Most different types in a run of codes in a mangled name."""
SHORTEST: Final = 3
_MANY_CODES: Final = ("_Z", "Cijk_")
"""Beginnings of names of codes: mangled ones, products of Tensile."""
_CODE_OF_PRODUCT: Final = re.compile(
    r"(?:[BHSDZCI]|A[FG]|B[HLS]|C[BD]|F[L8]|HA|HH|I8|I?U|K|M[IOT]|N[TV]n?|P[K]|S[BEKNSU]|T[T]|THn?|V[SW]n?|W[GS])"
    r"\d{0,3}(?:x\d{1,3}){0,3}|AF\dEM\d|ASGT\d{1,4}|MAC|MMFGLC|kd|LBSPP\d{1,3}|(?:WGM|LWPM|USFGRO)n\d{1,3}|U64SL\d"
    rf"|{_N}"
)
"""A parameter of a product by its initials, or its indices."""
Letters = tuple[int, int, int, int]
"""Of a unit: letters of public parts of three letters and more, and of shorter ones; loose characters;
numbers other than 0 and 1."""


def is_public_in_a_file_name(word: str) -> bool:
    """Whether a word is a form or consists of public parts, with a number beside these only as a whole."""
    is_part = word.lower() in PARTS and (len(word) >= SHORTEST or word.islower())
    if is_part or word in SIZES or FORM.fullmatch(word):
        return True
    named, short, loose, _ = letters_of(word) if word.isalpha() and is_public_unit(word) else (0, 0, 1, 0)
    return loose == 0 and (not short if named else word.islower() and short > 0)  # the latter is an ending


def says_something(unit: str) -> bool:
    """Whether a public unit within other text has a public part, and at most two other letters or digits."""
    named, _, loose, _ = letters_of(unit)
    return (named > 0 or loose == 0) and loose < LOOSE and are_few([letters_of(unit)])


def are_few(letters: Iterable[Letters]) -> bool:
    """Whether the letters and digits beside those of public parts are too few for a secret."""
    named, short, loose, numbers = map(sum, zip((0, 0, 0, 0), *letters, strict=True))
    is_named = named + short >= (_NAMED if loose else 1)
    return loose <= LOOSE and numbers <= _ARGUMENTS and (is_named or named + short + loose <= LOOSE)


@lru_cache(maxsize=1 << 16)
def is_public_unit(unit: str) -> bool:
    """Whether a unit consists of public words and forms, with few other letters and digits."""
    if _PRODUCT.fullmatch(unit):
        return True
    if unit.startswith(_MANY_CODES) and unit.isascii():
        return _is_public_mangled(unit) if unit.startswith("_Z") else _is_public_product(unit)
    parts = WORD_OR_SIGNS.findall(unit)
    return (
        unit.isascii()
        and unit.isprintable()
        and all(_is_public_word(part) if part[0].isalnum() else len(part) <= _MOST_SIGNS for part in parts)
        and letters_of(unit)[2] <= LOOSE
    )


@lru_cache(maxsize=1 << 16)
def _is_public_word(word: str) -> bool:
    """Whether its parts of three letters are public and, in a longer word, there are two or a longer one."""
    if word.lower() in PARTS or FORM.fullmatch(word) or word in SIZES:
        return True
    parts = [part.lower() for part in _letter_parts(word) if not part.isdigit()]
    letters = [part for part in parts if len(part) >= SHORTEST]
    others = sum(len(part) for part in parts if part not in PARTS)
    # By chance, letters of any case consist of short public parts and one of three letters.
    is_long = sum(map(len, letters)) > SHORTEST or len(word) == SHORTEST + 1
    is_named = bool(letters) and is_long and others <= _BESIDE_PARTS
    return PARTS.issuperset(letters) and (is_named or len(word) <= LOOSE + (others == 0))


def _letter_parts(word: str) -> list[str]:
    return _LETTER_PART.findall(_SIZES_WITHIN.sub("_", word))


@lru_cache(maxsize=1 << 16)
def letters_of(unit: str, *, inside: bool = False) -> Letters:
    """Counts of a unit's characters; `inside`: of an argument of a template, in which sizes are not loose."""
    if unit.startswith(_MANY_CODES) or _PRODUCT.fullmatch(unit):  # judged as a whole
        return len(unit), 0, 0, 0
    named = short = loose = numbers = 0
    dotted = _DOTTED.search(unit) is not None
    for word in re.findall(r"[^\W_]+", unit):
        parts = [] if FORM.fullmatch(word) else [word] if word.lower() in PARTS else _letter_parts(word)
        counted = 0
        for part in parts:
            if part.lower() in PARTS:
                named, short = (
                    (named + len(part), short) if len(part) >= SHORTEST else (named, short + len(part))
                )
            elif part in SIZES and not dotted:
                counted += 1
                loose += (len(parts) == 1 and not inside) or counted > 1
                numbers += inside and part not in "01"
            else:
                loose += len(part)
    return named, short, loose, numbers


def _is_public_product(name: str) -> bool:
    """Whether each parameter of a product of Tensile is a short code or has public initials."""

    def has_public_initials(word: str) -> bool:
        parts = [part.lower() for part in _letter_parts(word) if len(part) >= SHORTEST and part.isalpha()]
        return bool(parts) and PARTS.issuperset(parts) and letters_of(word)[2] <= LOOSE

    return re.fullmatch(r"\w+(?:\.kd)?", name) is not None and all(
        _CODE_OF_PRODUCT.fullmatch(word) or FORM.fullmatch(word) or has_public_initials(word)
        for word in re.findall(r"[^\W_]+", name)
    )


def _is_public_mangled(name: str) -> bool:
    """Whether an Itanium-mangled name has identifiers, all public, and all else are its codes."""
    at, codes, depth, identifiers = 2, "", 0, 0
    while at < len(name):
        code = _CODE.match(name, at)
        if code is None:
            return False
        at = code.end()
        if code["length"]:
            identifier = name[at : at + int(code[0])]
            if len(identifier) < int(code[0]) or re.fullmatch(r"[A-Za-z_]\w*", identifier) is None:
                return False
            anonymous = _ANONYMOUS.fullmatch(identifier)
            if not is_public_unit((anonymous["file"] or "") if anonymous else identifier):
                return False
            at += len(identifier)
            identifiers += 1
        codes += code[0] if len(code[0]) == 1 else " "
        depth += (code[0] in _OPENING) - code[0].endswith("E")
        if depth < 0:
            return False
    runs = (set(run) - _QUALIFYING for run in re.findall(r"[A-Za-z]+", codes))
    return identifiers > 0 and all(len(run) <= _MOST_CODES for run in runs)
