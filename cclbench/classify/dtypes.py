# SPDX-License-Identifier: Apache-2.0
"""Element types, by all the names that frameworks, libraries and compilers give them."""

from __future__ import annotations

import re
from typing import Final

_SIZES: Final = (
    (
        1,
        r"float8.*|float4_e2m1fn_x2|u?int8|byte|char|bool|unsigned char|signed char|quint8|qint8"
        r"|f8.*|[su]8|pred",
    ),
    (2, r"half|bfloat16|float16|u?int16|short|unsigned short|b?f16|[su]16"),
    (4, r"float|float32|u?int32|int|unsigned int|complexhalf|complex32|complex<half>|f32|[su]32"),
    (
        8,
        r"double|float64|u?int64|long|long int|unsigned long|complexfloat|complex64|complex<float>"
        r"|f64|[su]64|c64",
    ),
    (16, r"complexdouble|complex128|complex<double>|c128"),
)


def element_bytes(dtype: str | None) -> int | None:
    """Bytes of an element of that type, by any of its names (`BFloat16`, `c10::Half`, `f32`), or None."""
    if dtype is None:
        return None
    name = dtype.lower().removeprefix("c10::").removeprefix("torch.")
    return next((size for size, pattern in _SIZES if re.fullmatch(pattern, name)), None)
