# SPDX-License-Identifier: Apache-2.0
"""A file is whole or as it was, whatever happens while it is written; units of figures."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground import units
from cclbench.ground.destination import atomic_replacement, new_folder, write_whole
from cclbench.ground.errors import CheckFailed, UsageError


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def write() -> None:
        with atomic_replacement(path) as unfinished:
            unfinished.write_text("half")
            raise error

    with pytest.raises(type(error)) as caught:
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(path)


def test_what_a_killed_process_left_goes_with_the_next_file(tmp_path: Path) -> None:
    path, other = tmp_path / "out.txt", tmp_path / "other.txt"
    killed = (
        "import os, sys; from pathlib import Path\n"
        "from cclbench.ground.destination import atomic_replacement\n"
        "with atomic_replacement(Path(sys.argv[1])) as file: file.write_text('half'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", killed, path], check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    assert not path.exists()
    with atomic_replacement(path) as unfinished:
        write_whole("another process's file", other)
        unfinished.write_text("whole")
    assert sorted(tmp_path.iterdir()) == [other, path]


def test_a_file_is_replaced_whole_a_link_is_kept_and_a_pipe_is_written_itself(tmp_path: Path) -> None:
    path, link, pipe = (tmp_path / name for name in ("out.txt", "link.txt", "pipe"))
    path.write_text("old")
    write_whole("new", path)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
    link.symlink_to("out.txt")
    write_whole("newer", link)
    assert (link.is_symlink(), path.read_text()) == (True, "newer")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole("through", pipe)
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert sorted(tmp_path.iterdir()) == [link, path, pipe]


def test_a_new_folder_is_whole_or_absent(tmp_path: Path) -> None:
    place = tmp_path / "new"
    place.mkdir()

    def fail() -> None:
        with new_folder(place) as unfinished:
            (unfinished / "half").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]
    with new_folder(place) as unfinished:
        (unfinished / "file").write_text("whole")
    assert (place / "file").read_text() == "whole"
    with pytest.raises(UsageError, match="exists already"), new_folder(place):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        *(("200 Gb/s", "bandwidth", 25e9), ("200 GB/s", "bandwidth", 200e9), ("8 b/s", "bandwidth", 1)),
        *(("1.6 Tb/s", "bandwidth", 200e9), ("450 GB/s", "bandwidth", 450e9), ("3 kB/s", "bandwidth", 3000)),
        *(("12.5 GB", "size", 12_500_000_000), ("0.3 GB", "size", 300_000_000), ("2 KiB", "size", 2048)),
        *(("1 GiB", "size", 1_073_741_824), ("1.5 us", "time", 1.5e-6), ("1.5 µs", "time", 1.5e-6)),
        *(("75 us", "time", 75e-6), ("600 ns", "time", 6e-7), ("2 ms", "time", 0.002), ("3 s", "time", 3)),
        *(("0 us", "time", 0), ("989 TFLOP/s", "work rate", 989e12), ("9 PFLOP/s", "work rate", 9e15)),
        ("1836 TOP/s", "work rate", 1836e12),
    ],
)
def test_a_quantity_is_its_base_si_number(text: str, dimension: units.Dimension, value: float) -> None:
    assert units.parse_quantity(text, dimension) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "200", "200Gb/s", "200  Gb/s", " 200 Gb/s", "200 Gb/s\n", "Gb/s 200"),
        *(
            f"{number} Gb/s"
            for number in ["-1", "+1", "1e3", ".5", "1,000", "nan", "inf", "٢٠٠", "0", "1_0", "9" * 400]
        ),
    ],
)
def test_any_other_spelling_is_refused(text: str) -> None:
    with pytest.raises(CheckFailed):
        units.parse_quantity(text, "bandwidth")


@pytest.mark.parametrize("unit", ["Gbps", "GBps", "gb/s", "GB", "Kb/s", "mB/s", "GiB/s", "Gbit/s"])
def test_an_unknown_unit_is_answered_with_the_known_ones(unit: str) -> None:
    with pytest.raises(CheckFailed, match=r"known: b/s, kb/s, Mb/s, Gb/s, Tb/s, B/s, kB/s, MB/s, GB/s, TB/s"):
        units.parse_quantity(f"200 {unit}", "bandwidth")
    with pytest.raises(CheckFailed, match="no known unit of size"):  # in bits is no memory
        units.parse_quantity("80 Gb", "size")


@given(number=st.integers(1, 10**12), prefix=st.sampled_from(["", "k", "M", "G", "T"]))
def test_eight_bits_are_one_byte_under_every_prefix(number: int, prefix: str) -> None:
    bits = units.parse_quantity(f"{8 * number} {prefix}b/s", "bandwidth")
    assert bits == units.parse_quantity(f"{number} {prefix}B/s", "bandwidth")


@given(number=st.integers(1, 10**9))
def test_a_thousand_of_one_prefix_is_one_of_the_next(number: int) -> None:
    assert units.parse_quantity(f"{1000 * number} MB", "size") == units.parse_quantity(f"{number} GB", "size")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        *((1.2e-3, "s", "1.20 ms"), (0.0, "s", "0 s"), (1, "s", "1.00 s"), (0.99996, "s", "1.00 s")),
        *((9.996e-4, "s", "1.00 ms"), (4.5e-7, "s", "450 ns"), (3e-5, "s", "30.0 µs")),
        *((2e-10, "s", "0.2 ns"), (75.25, "s", "75.2 s"), (-0.0031, "s", "-3.10 ms"), (512, "B", "512 B")),
        *((1, "B", "1 B"), (1000, "B", "1.00 kB"), (1.5e9, "B", "1.50 GB"), (2.5e10, "B/s", "25.0 GB/s")),
        *((9.89e14, "FLOP/s", "989 TFLOP/s"), (1.979e15, "FLOP/s", "1.98 PFLOP/s"), (0.462, "1", "46.2 %")),
        *((1, "1", "100.0 %"), (0, "1", "0 %"), (0.0004, "1", "0.04 %"), (1234, "count", "1,234")),
        *((12.5, "count", "12.5"), (12345.6, "tokens/s", "12,346 tokens/s")),
        *((1.234, "samples/s", "1.23 samples/s"), (464.4, "1/s", "464 /s"), (2.1e-11, "s/B", "2.10e-11 s/B")),
    ],
)
def test_a_figure_as_people_read_it(value: float, unit: str, text: str) -> None:
    assert units.humanise(value, unit) == text


@given(
    value=st.floats(allow_nan=True, allow_infinity=True),
    unit=st.sampled_from(["s", "B", "B/s", "1", "count", "x"]),
)
def test_every_float_can_be_shown(value: float, unit: str) -> None:
    assert units.humanise(value, unit)


@given(value=st.floats(1e-9, 1e12))
def test_a_shown_time_is_within_half_a_percent(value: float) -> None:
    number, symbol = units.humanise(value, "s").split(" ")
    factor = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[symbol]
    assert float(number.replace(",", "")) * factor == pytest.approx(value, rel=5.01e-3)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        *((8, "8 B"), (1024, "1 KiB"), (1000, "1.00 kB"), (1536, "1.54 kB"), (3 * 2**20, "3 MiB")),
        *((2**30, "1 GiB"), (2**60, "1 EiB"), (64_000_000, "64.0 MB")),
    ],
)
def test_sizes_read_as_sweeps_name_them(size: int, text: str) -> None:
    """Powers of 1024 where they are, else decimal."""
    assert units.size_text(size) == text


@pytest.mark.parametrize(
    ("size", "whole"),
    [
        *((0, (0, "B")), (1000, (1000, "B")), (1024, (1, "KiB")), (1536 << 20, (1536, "MiB"))),
        (1 << 70, (1024, "EiB")),
    ],
)
def test_a_size_is_a_whole_number_of_its_largest_binary_unit(size: int, whole: tuple[int, str]) -> None:
    assert units.whole_binary(size) == whole


def test_units_stand_on_errors_and_text_alone() -> None:
    loaded = "sorted(name for name in sys.modules if name.startswith('cclbench.'))"
    code = f"import cclbench.ground.units, sys; print({loaded})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    modules = ("errors", "file_names", "text", "units")
    assert printed.strip() == str(["cclbench.ground", *(f"cclbench.ground.{name}" for name in modules)])


@pytest.mark.parametrize(
    ("typed", "spaced"),
    [("400Gb/s", "400 Gb/s"), ("1.5us", "1.5 us"), ("64  MiB", "64 MiB"), ("3 µs", "3 µs"), ("12", "12")],
)
def test_one_space_before_the_unit(typed: str, spaced: str) -> None:
    assert units.with_spaced_unit(typed) == spaced
