# SPDX-License-Identifier: Apache-2.0
"""Quantities with units: parsing and formatting.

Quantities are read as text with their unit (`200 Gb/s`) and held as numbers in base SI units; `humanise`
formats them.  Prefixes are decimal: 1 GB = 1e9 bytes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Literal

from cclbench.ground.errors import CheckFailed, UsageError
from cclbench.ground.text import quoted_value

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40
PIB: Final = 1 << 50
EIB: Final = 1 << 60
BINARY_UNITS: Final = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "PiB": PIB, "EiB": EIB}
"""Bytes by the unit of a size, the smallest first."""

Dimension = Literal["bandwidth", "size", "time", "work rate"]

_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12}
_BIT = Decimal(1) / 8

_FACTORS: dict[Dimension, dict[str, Decimal]] = {
    "bandwidth": {f"{p}b/s": _BIT * 10**e for p, e in _DECIMAL.items()}
    | {f"{p}B/s": Decimal(10**e) for p, e in _DECIMAL.items()},
    "size": {f"{p}B": Decimal(10**e) for p, e in _DECIMAL.items()}
    | {unit: Decimal(BINARY_UNITS[unit]) for unit in ("KiB", "MiB", "GiB", "TiB")},
    "time": {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "µs": Decimal("1e-6")}
    | {"ns": Decimal("1e-9")},
    "work rate": {
        f"{p}{work}/s": Decimal(10**e) for work in ("FLOP", "OP") for p, e in (_DECIMAL | {"P": 15}).items()
    },
}
_EXAMPLE: dict[Dimension, str] = {
    "bandwidth": "200 Gb/s",
    "size": "12.5 GB",
    "time": "1.5 us",
    "work rate": "989 TFLOP/s",
}
_BITS_AND_BYTES = dict.fromkeys(("bandwidth", "size"), " (b is bits, B is bytes)")
_UNIT_BEHIND_NUMBER = re.compile(r"(?<=\d)\s*(?=[^\d.\s])")
_NOT_OF_NUMBER = re.compile(r"[^\d.]|^$")
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) (\S+)")


def parse_quantity(text: str, dimension: Dimension) -> float:
    """Parse "NUMBER UNIT" into base SI units: bytes/s, bytes, s, or FLOP/s or OP/s ("work rate").

    `b` is bits and `B` is bytes, always: "200 Gb/s" = 2.5e10 and "200 GB/s" = 2e11 bytes/s.
    Raises `CheckFailed` for any other spelling, for an unknown unit (listing the known ones) and for zero,
    except for times.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        fault = "is not a number, one space and a unit" if _NOT_OF_NUMBER.search(text) else "has no unit"
        raise CheckFailed(f"{text!a} {fault}, like {_EXAMPLE[dimension]}")
    number, unit = match.groups()
    factors = _FACTORS[dimension]
    if unit not in factors:
        raise CheckFailed(
            f"{text!a} has no known unit of {dimension}",
            hint=f"known: {', '.join(factors)}{_BITS_AND_BYTES.get(dimension, '')}",
        )
    value = float(Decimal(number) * factors[unit])
    if value == 0 and dimension != "time":
        raise CheckFailed(f"{text!a} is zero", hint="leave out what is not known")
    return value


def with_spaced_unit(text: str) -> str:
    """`400Gb/s` or `64  MiB` with one space before the unit, as `parse_quantity` requires."""
    return _UNIT_BEHIND_NUMBER.sub(" ", text, count=1)


_LARGE = tuple((10.0**e, prefix) for prefix, e in reversed((_DECIMAL | {"P": 15, "E": 18}).items()))
_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    **{
        unit: tuple((factor, prefix + unit) for factor, prefix in _LARGE)
        for unit in ("B", "B/s", "FLOP", "FLOP/s", "W", "J", "Hz")
    },
    "USD/token": ((1e-6, "USD per million tokens"),),
}
BASE_UNITS: Final = {
    **{symbol: unit for unit, scales in _SCALES.items() for factor, symbol in scales if factor != 1},
    "us": "s",
    "%": "1",
    "percent": "1",
    "×": "ratio",
}
"""The unit in which numbers are kept, by units that only people are shown."""


def humanise(value: float, unit: str) -> str:
    """A value in base SI units for people: three significant digits and a suitable prefix.

    0.0012 "s" → "1.20 ms"; 3e11 "B/s" → "300 GB/s"; 0.462 "1" → "46.2 %"; 1.06 "ratio" → "1.06×";
    1234 "count" → "1,234"; 2.4e-6 "USD/token" → "2.40 USD per million tokens".
    Other units are appended to the unscaled number.
    """
    if unit == "1":
        return f"{_three_digits(100 * value, decimals=1)} %"
    if unit == "ratio":
        return f"{_three_digits(value)}×"
    if unit == "count":
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    if unit == "1/s":
        return f"{_three_digits(value)} /s"
    if unit not in _SCALES:
        return f"{_three_digits(value)} {unit}"
    rounded = abs(float(f"{value:.2e}"))  # 0.99996 s is "1.00 s", not "1000 ms"
    if rounded == 0 or (unit == "B" and rounded < 1000):
        return f"{value:.3g} {unit}"
    factor, symbol = scale_of(value, unit)
    return f"{_three_digits(value / factor)} {symbol}"


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """Factor and symbol of the prefix that suits a value: (0.001, "ms") for 0.0012 "s"."""
    if unit == "1":
        return 0.01, "%"
    rounded = abs(float(f"{value:.2e}"))
    scales = _SCALES.get(unit, ((1.0, unit),))
    return next((scale for scale in scales if rounded >= scale[0]), scales[0 if not rounded else -1])


def display_scale(value: float, unit: str) -> tuple[float, str]:
    """`scale_of` a column of such values, also of units without prefixes: ("count" → (1.0, ""))."""
    if unit == "1" or (unit in _SCALES and value):
        return scale_of(value, unit)
    return {"ratio": (1.0, "×"), "count": (1.0, ""), "1/s": (1.0, "/s")}.get(unit, (1.0, unit))


def whole_binary(size: float) -> tuple[float, str]:
    """A size as a whole number of the largest binary unit: 67,108,864 is (64, "MiB"), 1000 is (1000, "B")."""
    units = [unit for unit, factor in BINARY_UNITS.items() if size and size % factor == 0]
    unit = units[-1] if units else "B"
    return size // BINARY_UNITS[unit], unit


def binary_text(size: int) -> str:
    """A size in the largest binary unit that gives a whole number: `64MiB`, `1000B`."""
    number, unit = whole_binary(size)
    return f"{number}{unit}"


def size_text(size: float) -> str:
    """A size as in sweeps: a whole number below 1024 of KiB, MiB, ... if possible, else decimal."""
    number, unit = whole_binary(size)
    return f"{number:.0f} {unit}" if number < KIB and unit != "B" else humanise(size, "B")


def _three_digits(value: float, decimals: int | None = None) -> str:
    """`value` with three significant digits, or with `decimals` if it is at least one."""
    magnitude = abs(float(f"{value:.2e}"))
    if magnitude == 0:
        return "0"
    if magnitude < 1e-3:
        return f"{value:.2e}"
    if magnitude < 1:
        return f"{value:.3g}"
    if decimals is None:
        decimals = 2 if magnitude < 10 else 1 if magnitude < 100 else 0
    return f"{value:,.{decimals}f}"


def parse_date(text: str) -> datetime:
    """The time of an ISO 8601 date or time, UTC unless it states a zone; `UsageError` otherwise."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{quoted_value(text)} is not an ISO 8601 date, such as 2026-01-31") from None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
