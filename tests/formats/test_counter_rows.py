# SPDX-License-Identifier: Apache-2.0
"""What readers of counters and of benchmarks share: lines, numbers, times, differences, units."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cclbench.formats import counter_rows, timing_rows
from cclbench.formats.timing_rows import (
    Timings,
    bandwidth_contradiction,
    bytes_per_s,
    exact_nanoseconds,
    is_believable,
)
from cclbench.ground.errors import InputError

Row = tuple[Any, ...]


@pytest.fixture
def rows() -> counter_rows.CounterRows:
    """Of a file on whose third line somebody is."""
    rows = counter_rows.CounterRows(Path("x.txt"))
    rows.line = 3
    return rows


def told(rows: counter_rows.CounterRows, *columns: str) -> list[Row]:
    return [tuple(row[name] for name in columns) for row in rows.evidence().counters.to_pylist()]


def test_lines_have_bounds_and_may_be_blank(written: Any) -> None:
    assert [len(line) for line in counter_rows.CounterRows(written("x" * 65_534 + "\n")).text_lines()] == [
        65_534
    ]
    with pytest.raises(InputError, match="line 2: more than 65536 bytes a line"):
        list(counter_rows.CounterRows(written("\n" + "x" * 65_535 + "\n")).text_lines())
    first, every = counter_rows.CounterRows(written("\n  \nhead\n\nrow\n")).first_and_all()
    assert (first, list(every)) == ("head", ["head", "row"])
    first, every = counter_rows.CounterRows(written(" \n")).first_and_all()
    assert (first, list(every)) == ("", [])


@pytest.mark.parametrize(
    ("last", "whole"),
    [
        *(("a\n", True), ("a\r\n", True), ("1 KiB", True), ("1 %", True), ("1 W", True)),
        *(("1", False), ("1 V", False), ("1W", False), ("1%", False)),
    ],
)
def test_a_last_line_is_whole_with_its_end_or_its_unit(written: Any, last: str, whole: bool) -> None:
    rows = counter_rows.CounterRows(written("first\n" + last))
    assert list(rows.text_lines()) == ["first", last.strip("\r\n")][: 1 + whole]
    assert (rows.left_out, rows.notes) == (
        ({}, []) if whole else ({counter_rows.CUT: 1}, [counter_rows.UNENDED])
    )
    assert rows.line == 2
    with pytest.raises(InputError, match="line 2: not text"):
        list(counter_rows.CounterRows(written(b"one\n\xff\n")).text_lines())


def test_numbers_from_zero_to_63_bits_and_what_is_none(rows: counter_rows.CounterRows) -> None:
    assert rows.parse_number("0") == 0
    assert rows.parse_number("0.25") == Decimal("0.25")
    assert rows.parse_number("9223372036854775807") == (1 << 63) - 1
    for text in ("9223372036854775808", "-0", "-1"):
        with pytest.raises(InputError, match=r"^x.txt: line 3: a counter below 0 or beyond 2⁶³; the file is"):
            rows.parse_number(text)
    for text in ("many", "--1", "N"):
        with pytest.raises(InputError, match="text where a number belongs; leave out lines that the tool"):
            rows.parse_number(text)
    assert rows.left_out == {}
    printed = ["", "-", "N/A", "N/A (no PMA)", "[N/A]", "[Not Supported]", "[Unknown Error]", "NaN"]
    assert [rows.parse_number(text) for text in (*printed, "+Inf", "-Inf")] == [None] * 10
    assert rows.left_out == {counter_rows.NO_VALUE: 10}


def test_indices_of_devices_that_keep_their_uuids(rows: counter_rows.CounterRows) -> None:
    assert [rows.device_index(text) for text in ("0", "32767", "000000007")] == [0, 32_767, 7]
    for text in ("32768", "0000000007", "-1", "x", ""):
        with pytest.raises(InputError, match="no index of a GPU where one belongs"):
            rows.device_index(text)
    for device, uuid in (("0", "GPU-a"), ("1", "GPU-b"), ("0", None), ("0", "GPU-a")):
        assert rows.device_index(device, *[uuid][: uuid is not None]) == int(device)
    says = "GPU 0 is another one than before; give each host a file of its own"
    with pytest.raises(InputError, match=says):
        rows.device_index("0", "GPU-b")


def test_marks_of_time(rows: counter_rows.CounterRows) -> None:
    assert rows.time_mark("# time_ns 0") == 0
    assert rows.time_mark("#time_ns 9223372036854775807 ") == (1 << 63) - 1
    assert rows.time_mark("time_ns 5") is None
    assert rows.time_mark("# time_ns 5 s") is None
    with pytest.raises(InputError, match="line 3: a time beyond 2⁶³ ns"):
        rows.time_mark("# time_ns 9223372036854775808")


def test_periods_that_overlap_one_before_are_counted(rows: counter_rows.CounterRows) -> None:
    """Those that touch it follow it; an instant may begin a period."""
    for start, end in ((0, 10), (10, 20), (15, 30), (20, 20), (20, 20), (20, 30), (19, 40)):
        rows.add_row("power", Decimal(start), device=0, start_ns=start, end_ns=end)
    rows.add_row("power", 1, device=1, start_ns=0, end_ns=10)
    rows.add_row("power", 2, device=0, port="a", start_ns=0, end_ns=10)
    rows.add_row("energy", 3, device=0, start_ns=0, end_ns=10)
    assert told(rows, "device", "port", "counter", "start_ns", "end_ns", "value") == [
        *((0, None, "power", *row) for row in ((0, 10, 0), (10, 20, 10), (20, 20, 20), (20, 30, 20))),
        *((1, None, "power", 0, 10, 1), (0, "a", "power", 0, 10, 2), (0, None, "energy", 0, 10, 3)),
    ]
    assert rows.left_out == {counter_rows.AGAIN: 3}


def test_rows_without_a_begin_or_an_end_are_never_the_same(rows: counter_rows.CounterRows) -> None:
    """That there is no zone is said once."""
    for start, end in ((None, None), (None, 5), (5, None)) * 2:
        rows.add_row("power", 1, start_ns=start, end_ns=end)
        rows.note_no_zone()
    assert len(told(rows, "value")) == 6
    assert (rows.left_out, len(rows.notes)) == ({}, 1)


def test_differences_of_a_count_that_is_timed(rows: counter_rows.CounterRows) -> None:
    for value, at in ((10, 100), (12, 200), (12, 300), (5, 400), (9, 400), (9, 350), (6, 500)):
        rows.add_cumulative("x_bytes", value, device=1, at_ns=at)
    assert told(rows, "device", "value", "start_ns", "end_ns") == [
        *((1, 2.0, 100, 200), (1, 0.0, 200, 300), (1, 1.0, 400, 500))
    ]
    assert rows.left_out == {counter_rows.WENT_BACK: 1, counter_rows.AGAIN: 1, counter_rows.CLOCK_BACK: 1}


def test_differences_of_a_count_without_times(rows: counter_rows.CounterRows) -> None:
    """From 0 to 4 again is the same once more; what does not grow may stand still for ever."""
    for value in (0, 4, 4, 4, 0, 4, 7):
        rows.add_cumulative("x_bytes", value)
    assert told(rows, "value", "start_ns", "end_ns") == [(n, None, None) for n in (4.0, 0.0, 0.0, 3.0)]
    assert rows.left_out == {counter_rows.WENT_BACK: 1, counter_rows.AGAIN: 1}
    # A difference has times where both samples have.
    for device, (first, second) in enumerate(((None, 7), (7, None))):
        rows.add_cumulative("x_bytes", 1, device=device, at_ns=first)
        rows.add_cumulative("x_bytes", 3, device=device, at_ns=second)
    found = told(rows, "device", "value", "start_ns", "end_ns")
    assert found[-2:] == [(0, 2.0, None, None), (1, 2.0, None, None)]


def test_what_was_sampled_once_is_a_total_or_counted(rows: counter_rows.CounterRows) -> None:
    rows.add_cumulative("nic_tx_bytes", 7, port="a", at_ns=5)
    rows.add_cumulative("nic_tx_bytes", 9, device=2)
    rows.add_cumulative("energy", 3)
    rows.add_cumulative("nic_rx_bytes", 1)
    rows.add_cumulative("nic_rx_bytes", 1)
    assert told(rows, "counter", "device", "port", "value", "unit", "start_ns", "end_ns") == [
        *(("nic_rx_bytes", None, None, 0.0, "B", None, None), ("nic_tx_total", None, "a", 7.0, "B", 5, 5)),
        ("nic_tx_total", 2, None, 9.0, "B", None, None),
    ]
    assert rows.left_out == {"counts sampled once: their difference needs a second sample": 1}
    assert len(rows.notes) == 1


def test_a_file_in_which_no_row_remains_says_why_or_is_refused(rows: counter_rows.CounterRows) -> None:
    with pytest.raises(InputError, match=r"^x.txt: there is no counter in it; capture it again$"):
        rows.evidence()
    rows.left_out[counter_rows.NO_VALUE] += 1
    assert told(rows, "value") == []


def test_units_by_name() -> None:
    known = {"power": "W", "gpu_utilization": "1", "own_bytes": "B", "own_total": "B", "own_count": "count"}
    assert {name: counter_rows.unit_of(name) for name in (*known, "own")} == known | {"own": None}


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
    assert bandwidth_contradiction("all_reduce", 2, 8, Decimal(), *[Decimal(7)] * 2, per_unit=1000) is None


@pytest.mark.parametrize(
    ("algbw", "busbw", "figure"),
    [
        *(("0.502501", None, None), ("0.502502", None, "algbw"), ("0.497499", None, None)),
        *(("0.497498", None, "algbw"), (None, "0.753752", "busbw"), (None, "0.7537", None)),
        *(("0.9", "0.1", "algbw"), ("0.5", "0.1", "busbw"), (None, None, None)),
    ],
)
def test_bandwidths_follow_to_last_digits(algbw: str | None, busbw: str | None, figure: str | None) -> None:
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
