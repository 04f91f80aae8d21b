# SPDX-License-Identifier: Apache-2.0
"""Rows of benchmarks, gathered one by one."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from cclbench.formats import timing_rows
from cclbench.formats.timing_rows import (
    Timings,
    bandwidth_contradiction,
    bytes_per_s,
    exact_nanoseconds,
    is_believable,
)
from cclbench.ground.errors import InputError


@pytest.mark.parametrize("column", ["kind", "library", "dtype", "state"])
def test_a_hundred_kinds_and_no_more(column: str) -> None:
    """Whichever block of rows the words stand in."""
    rows = Timings(Path("sweep.csv"))
    for word in range(100):
        rows.add_row(**{column: f"word-{word}"})
    assert rows.timing_table()[column].to_pylist() == [f"word-{word}" for word in range(100)]
    rows.add_row(**{column: "one more"})
    with pytest.raises(InputError, match=f"^sweep.csv: has more than 100 kinds of {column};"):
        rows.timing_table()


def test_rows_of_all_blocks_stand_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_rows, "_BLOCK", 2)
    rows = Timings(Path("sweep.csv"))
    for number in range(5):
        rows.add_row(seq=number, kind="all_reduce")
    assert len(rows) == 5
    table = rows.timing_table()
    assert table["seq"].to_pylist() == [0, 1, 2, 3, 4]
    assert [len(chunk) for chunk in table["seq"].chunks] == [2, 2, 1]
    rows.add_row(seq=5)
    assert len(rows) == 6
    assert rows.timing_table()["kind"].to_pylist() == [*["all_reduce"] * 5, None]


@pytest.mark.parametrize(
    ("value", "per_unit", "ns"),
    [
        *(("0", 1, 0), ("0.5", 1, 0), ("1.5", 1, 2), ("2.5", 1, 2), ("2.5005", 1000, 2500)),
        *(("1E-12", 10**12, 1), ("9.9E-13", 10**13, None), ("1E+17", 1, 10**17), ("1E+14", 1000, 10**17)),
        *(("100000000000000001", 1, None), ("100000000000000.001", 1000, None)),
        *((value, 1000, None) for value in ("1E+999999", "-0.5", "-2", "NaN", "Infinity", "-Infinity")),
    ],
)
def test_times_in_whole_nanoseconds(value: str, per_unit: int, ns: int | None) -> None:
    """Half to even; none that is negative, longer than three years or of fractions of a femtosecond."""
    assert exact_nanoseconds(Decimal(value), per_unit=per_unit) == ns


@pytest.mark.parametrize(
    ("value", "believed"),
    [
        *(("0", True), ("999999999999.9", True), ("1000000000000", False), ("-0.5", False)),
        *(("NaN", False), ("Infinity", False)),
    ],
)
def test_a_bandwidth_is_less_than_a_zettabyte_a_second(value: str, believed: bool) -> None:
    assert is_believable(Decimal(value)) is believed


def test_bandwidths_and_their_uncertainty() -> None:
    assert bytes_per_s(Decimal("1.25")) == 1_250_000_000.0
    assert bytes_per_s(None) is None
    # 500 of 1000 B of an all_gather of two ranks cross in 1.00 µs: 0.5 GB/s, give or take 0.002501
    for busbw, figure in (("0.502501", None), ("0.502502", "busbw"), ("0.497499", None)):
        time, stated = Decimal("1.00"), Decimal(busbw)
        assert bandwidth_contradiction("all_gather", 2, 1000, time, None, stated, per_unit=1000) == figure
    assert (
        bandwidth_contradiction("all_reduce", 2, 8, Decimal(0), Decimal(7), Decimal(7), per_unit=1000) is None
    )


@pytest.mark.parametrize(
    ("algbw", "busbw", "figure"),
    [
        *(("0.502501", None, None), ("0.502502", None, "algbw"), ("0.497499", None, None)),
        *(("0.497498", None, "algbw"), (None, "0.753752", "busbw"), (None, "0.7537", None)),
        *(("0.9", "0.1", "algbw"), ("0.5", "0.1", "busbw"), (None, None, None)),
    ],
)
def test_bandwidths_follow_to_their_last_digits(
    algbw: str | None, busbw: str | None, figure: str | None
) -> None:
    """500 B in 1.00 µs are 0.5 GB/s, uncertain by 0.5 % of the time's digits, 1e-6 and half of its own.

    On the bus of four ranks an all_reduce moves 2 · 3/4 of it.
    """
    stated = [None if text is None else Decimal(text) for text in (algbw, busbw)]
    assert bandwidth_contradiction("all_reduce", 4, 500, Decimal("1.00"), *stated, per_unit=1000) == figure


@pytest.mark.parametrize(("kind", "ranks"), [("barrier", 2), (None, 2), ("all_reduce", None)])
def test_a_bus_bandwidth_without_a_known_factor_is_not_compared(kind: str | None, ranks: int | None) -> None:
    assert bandwidth_contradiction(kind, ranks, 1000, Decimal(1), None, Decimal(7), per_unit=1000) is None


@pytest.mark.parametrize(("algbw", "figure"), [("4E-30", "algbw"), ("4E-31", None), ("0E-3000000", None)])
def test_figures_are_compared_to_thirty_digits(algbw: str, figure: str | None) -> None:
    assert bandwidth_contradiction(None, None, 0, Decimal(1), Decimal(algbw), None, per_unit=1000) == figure
