# SPDX-License-Identifier: Apache-2.0
"""What readers of counters share: lines and numbers at their bounds, differences of counts, units."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cclbench.formats.counter_rows import (
    AGAIN,
    CLOCK_BACK,
    CUT,
    NO_VALUE,
    UNENDED,
    WENT_BACK,
    CounterRows,
    unit_of,
)
from cclbench.ground.errors import InputError

Row = tuple[Any, ...]


@pytest.fixture
def rows() -> CounterRows:
    """Of a file on whose third line somebody is."""
    rows = CounterRows(Path("x.txt"))
    rows.line = 3
    return rows


def told(rows: CounterRows, *columns: str) -> list[Row]:
    return [tuple(row[name] for name in columns) for row in rows.evidence().counters.to_pylist()]


def test_lines_have_bounds_and_may_be_blank(written: Any) -> None:
    assert [len(line) for line in CounterRows(written("x" * 65_534 + "\n")).text_lines()] == [65_534]
    with pytest.raises(InputError, match="line 2: more than 65536 bytes a line"):
        list(CounterRows(written("\n" + "x" * 65_535 + "\n")).text_lines())
    first, every = CounterRows(written("\n  \nhead\n\nrow\n")).first_and_all()
    assert (first, list(every)) == ("head", ["head", "row"])
    first, every = CounterRows(written(" \n")).first_and_all()
    assert (first, list(every)) == ("", [])


@pytest.mark.parametrize(
    ("last", "whole"),
    [
        *(("a\n", True), ("a\r\n", True), ("1 KiB", True), ("1 %", True), ("1 W", True)),
        *(("1", False), ("1 V", False), ("1W", False), ("1%", False)),
    ],
)
def test_a_last_line_is_whole_with_its_end_or_its_unit(written: Any, last: str, whole: bool) -> None:
    rows = CounterRows(written("first\n" + last))
    assert list(rows.text_lines()) == ["first", last.strip("\r\n")][: 1 + whole]
    assert (rows.left_out, rows.notes) == (({}, []) if whole else ({CUT: 1}, [UNENDED]))
    assert rows.line == 2
    with pytest.raises(InputError, match="line 2: not text"):
        list(CounterRows(written(b"one\n\xff\n")).text_lines())


def test_numbers_from_zero_to_63_bits_and_what_is_none(rows: CounterRows) -> None:
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
    assert rows.left_out == {NO_VALUE: 10}


def test_indices_of_devices_that_keep_their_uuids(rows: CounterRows) -> None:
    assert [rows.device_index(text) for text in ("0", "32767", "000000007")] == [0, 32_767, 7]
    for text in ("32768", "0000000007", "-1", "x", ""):
        with pytest.raises(InputError, match="no index of a GPU where one belongs"):
            rows.device_index(text)
    for device, uuid in (("0", "GPU-a"), ("1", "GPU-b"), ("0", None), ("0", "GPU-a")):
        assert rows.device_index(device, *[uuid][: uuid is not None]) == int(device)
    says = "GPU 0 is another one than before; give each host a file of its own"
    with pytest.raises(InputError, match=says):
        rows.device_index("0", "GPU-b")


def test_marks_of_time(rows: CounterRows) -> None:
    assert rows.time_mark("# time_ns 0") == 0
    assert rows.time_mark("#time_ns 9223372036854775807 ") == (1 << 63) - 1
    assert rows.time_mark("time_ns 5") is None
    assert rows.time_mark("# time_ns 5 s") is None
    with pytest.raises(InputError, match="line 3: a time beyond 2⁶³ ns"):
        rows.time_mark("# time_ns 9223372036854775808")


def test_periods_that_overlap_one_before_are_counted(rows: CounterRows) -> None:
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
    assert rows.left_out == {AGAIN: 3}


def test_rows_without_a_begin_or_an_end_are_never_the_same(rows: CounterRows) -> None:
    """That there is no zone is said once."""
    for start, end in ((None, None), (None, 5), (5, None)) * 2:
        rows.add_row("power", 1, start_ns=start, end_ns=end)
        rows.note_no_zone()
    assert len(told(rows, "value")) == 6
    assert (rows.left_out, len(rows.notes)) == ({}, 1)


def test_differences_of_a_count_that_is_timed(rows: CounterRows) -> None:
    for value, at in ((10, 100), (12, 200), (12, 300), (5, 400), (9, 400), (9, 350), (6, 500)):
        rows.add_cumulative("x_bytes", value, device=1, at_ns=at)
    assert told(rows, "device", "value", "start_ns", "end_ns") == [
        *((1, 2.0, 100, 200), (1, 0.0, 200, 300), (1, 1.0, 400, 500))
    ]
    assert rows.left_out == {WENT_BACK: 1, AGAIN: 1, CLOCK_BACK: 1}


def test_differences_of_a_count_without_times(rows: CounterRows) -> None:
    """From 0 to 4 again is the same once more; what does not grow may stand still for ever."""
    for value in (0, 4, 4, 4, 0, 4, 7):
        rows.add_cumulative("x_bytes", value)
    assert told(rows, "value", "start_ns", "end_ns") == [(n, None, None) for n in (4.0, 0.0, 0.0, 3.0)]
    assert rows.left_out == {WENT_BACK: 1, AGAIN: 1}
    # A difference has times where both samples have.
    for device, (first, second) in enumerate(((None, 7), (7, None))):
        rows.add_cumulative("x_bytes", 1, device=device, at_ns=first)
        rows.add_cumulative("x_bytes", 3, device=device, at_ns=second)
    found = told(rows, "device", "value", "start_ns", "end_ns")
    assert found[-2:] == [(0, 2.0, None, None), (1, 2.0, None, None)]


def test_what_was_sampled_once_is_a_total_or_counted(rows: CounterRows) -> None:
    rows.add_cumulative("nic_tx_bytes", 7, port="a", at_ns=5)
    rows.add_cumulative("nic_tx_bytes", 9, device=2)
    rows.add_cumulative("energy", 3)
    rows.add_cumulative("nic_rx_bytes", 1)
    rows.add_cumulative("nic_rx_bytes", 1)
    assert told(rows, "counter", "device", "port", "value", "unit", "start_ns", "end_ns") == [
        ("nic_rx_bytes", None, None, 0.0, "B", None, None),
        ("nic_tx_total", None, "a", 7.0, "B", 5, 5),
        ("nic_tx_total", 2, None, 9.0, "B", None, None),
    ]
    assert rows.left_out == {"counts sampled once: their difference needs a second sample": 1}
    assert len(rows.notes) == 1


def test_a_file_in_which_no_row_remains_says_why_or_is_refused(rows: CounterRows) -> None:
    with pytest.raises(InputError, match=r"^x.txt: there is no counter in it; capture it again$"):
        rows.evidence()
    rows.left_out[NO_VALUE] += 1
    assert told(rows, "value") == []


def test_units_by_name() -> None:
    known = {"power": "W", "gpu_utilization": "1", "own_bytes": "B", "own_total": "B", "own_count": "count"}
    assert {name: unit_of(name) for name in (*known, "own")} == known | {"own": None}
