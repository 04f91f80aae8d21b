# SPDX-License-Identifier: Apache-2.0
"""Shared by readers of collective timings: exact times, rows of `TIMINGS`, checked bandwidths.

A producer's bandwidths are kept as it states them, in 1 GB = 1e9 bytes, and compared with its times:
algbw = S / t and busbw = f · algbw with nccl-tests' factor f (doc/PERFORMANCE.md), within the precision
of the figures printed.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cclbench.classify import bus_factor
from cclbench.formats.texts import damaged_error
from cclbench.ground.evidence_schema import TIMINGS

MOST_BYTES: Final = 1 << 60
"""The largest plausible payload: an exabyte."""
_MOST_NS: Final = 10**17
"""The longest plausible time: three years."""
_BLOCK: Final = 1 << 15
_MOST_WORDS: Final = 100
_COMPARED: Final = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"),
    *("broadcast", "reduce", "send", "recv", "send_recv"),
)
"""Kinds whose bus bandwidth factor the benchmarks' documentation states."""
_EXACT: Final = Decimal("1e-6")
"""Relative rounding of the producers' own floating point, and of ours."""


class Timings:
    """Rows of `TIMINGS`, added one by one; columns that a row does not name are null."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[dict[str, Any]] = []
        self._blocks: list[pa.RecordBatch] = []
        self._words: dict[str, set[str | None]] = {
            name: set() for name in ("kind", "library", "dtype", "state")
        }

    def __len__(self) -> int:
        return sum(map(len, self._blocks)) + len(self._rows)

    def add_row(self, **row: Any) -> None:
        """Append a row by column names; ingestion adds `source` and `file`."""
        self._rows.append(row)
        if len(self._rows) == _BLOCK:
            self._flush_rows()

    def timing_table(self) -> pa.Table:
        """All rows so far, in order."""
        self._flush_rows()
        return pa.Table.from_batches(self._blocks, TIMINGS).unify_dictionaries()

    def _flush_rows(self) -> None:
        rows, arrays = self._rows, []
        present = set[str]().union(*rows)
        for column in TIMINGS:
            if column.name not in present:
                arrays.append(pa.nulls(len(rows), column.type))
                continue
            values = [row.get(column.name) for row in rows]
            if (words := self._words.get(column.name)) is not None:
                words.update(values)
                if len(words) > _MOST_WORDS:
                    raise damaged_error(self._path, f"has more than {_MOST_WORDS} kinds of {column.name}")
            arrays.append(pa.array(values, column.type))
        self._blocks.append(pa.record_batch(arrays, schema=TIMINGS))
        rows.clear()


def exact_nanoseconds(value: Decimal, *, per_unit: int) -> int | None:
    """A time in whole ns, half to even; None if it is negative, not finite or implausibly long.

    `per_unit` is the number of ns in its unit: 1,000 for µs.
    """
    if not value.is_finite() or not 0 <= value <= _MOST_NS or value.adjusted() < -12:
        return None
    scaled = value * per_unit
    return int(scaled.to_integral_value()) if scaled <= _MOST_NS else None


def is_believable(gigabytes: Decimal) -> bool:
    """Whether a bandwidth in GB/s is plausible: not negative, and less than a zettabyte per second."""
    return gigabytes.is_finite() and gigabytes >= 0 and gigabytes.adjusted() < 12


def bytes_per_s(gigabytes: Decimal | None) -> float | None:
    """GB/s, with 1 GB = 1e9 bytes as the producers have it, as bytes/s."""
    return None if gigabytes is None else float(gigabytes * 10**9)


def bandwidth_contradiction(
    kind: str | None,
    ranks: int | None,
    size: int,
    time: Decimal,
    algbw: Decimal | None,
    busbw: Decimal | None,
    *,
    per_unit: int,
) -> str | None:
    """The name of the bandwidth that does not follow from a row's size and time; None if both do.

    Bandwidths in GB/s.  A printed figure is accurate to half of its last digit.
    """
    seconds = time * per_unit / 10**9
    if not seconds:
        return None
    rate, uncertain = size / seconds / 10**9, _half_last_digit(time) / time + _EXACT
    if algbw is not None and abs(algbw - rate) > _half_last_digit(algbw) + rate * uncertain:
        return "algbw"
    if busbw is None or kind not in _COMPARED or ranks is None:
        return None
    bus = Decimal(bus_factor(kind, ranks)) * rate
    return "busbw" if abs(busbw - bus) > _half_last_digit(busbw) + bus * uncertain else None


def _half_last_digit(value: Decimal) -> Decimal:
    """Half a unit of a finite number's last digit; digits after the thirtieth are ignored."""
    return Decimal(5).scaleb(max(int(value.as_tuple().exponent), -30) - 1)
