# SPDX-License-Identifier: Apache-2.0
"""Element types, by all the names that frameworks, libraries and compilers give them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_SIZES: Final = (
    (
        1,
        r"float8.*|float4_e2m1fn_x2|u?int8|byte|char|bool|unsigned char|signed char|quint8|qint8"
        r"|f8.*|[su]8|pred",
    ),
    (2, r"half|bfloat16|float16|u?int16|short(?: int)?|unsigned short|short unsigned int|b?f16|[su]16"),
    (4, r"float|float32|u?int32|int|unsigned int|complexhalf|complex32|complex<half>|f32|[su]32"),
    (
        8,
        r"double|float64|u?int64|long(?: int)?|unsigned long|long unsigned int"
        r"|complexfloat|complex64|complex<float>|f64|[su]64|c64",
    ),
    (16, r"complexdouble|complex128|complex<double>|c128"),
)


_PRECISIONS: Final = (
    ("fp64", r"double|float64|f64"),
    ("fp32", r"float|float32|f32"),
    ("bf16", r"bfloat16|bf16"),
    ("fp16", r"half|float16|f16"),
    ("fp8", r"float8.*|f8.*"),
    ("fp4", r"float4.*|f4.*"),
    ("int8", r"int8|char|signed char|qint8|s8"),
)


@lru_cache(maxsize=1 << 10)
def catalog_precision(dtype: str | None) -> str | None:
    """The type as catalogs of accelerators name it (`bf16`, `fp8`), by any of its names; None for others."""
    name = _plain_dtype(dtype or "")
    return next((word for word, pattern in _PRECISIONS if re.fullmatch(pattern, name)), None)


@lru_cache(maxsize=1 << 10)
def element_bytes(dtype: str | None) -> int | None:
    """Bytes of an element of that type, by any of its names (`BFloat16`, `c10::Half`, `f32`), or None."""
    if dtype is None:
        return None
    name = _plain_dtype(dtype)
    return next((size for size, pattern in _SIZES if re.fullmatch(pattern, name)), None)


def _plain_dtype(dtype: str) -> str:
    return dtype.lower().removeprefix("c10::").removeprefix("torch.")
