# SPDX-License-Identifier: Apache-2.0
"""What readers hand on: grids, payloads column-wise, parts of files, and values that cannot be."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest

from cclbench.formats.trace import (
    LATEST_NS,
    NO_GRID,
    Cut,
    DeviceStep,
    Names,
    Part,
    Payload,
    StatedPayloads,
    Trace,
    grid_columns,
    impossible_value,
    plausible_amount,
    several_processes,
)
from cclbench.ground.errors import InputError


def test_the_latest_time_and_the_order_of_names() -> None:
    assert datetime.datetime.fromtimestamp(LATEST_NS / 1e9, datetime.UTC).year == 2043
    names = Names()
    assert [names[name] for name in ("b", "a", "b", "c")] == [0, 1, 0, 2]


class TestGrids:
    """Thread blocks along x, y and z, and how many they are."""

    @staticmethod
    def columns(*grids: tuple[int, int, int]) -> dict[str, list[int | None]]:
        return {name: column.to_pylist() for name, column in grid_columns(grids, "here").items()}

    def test_each_dimension_and_the_product(self) -> None:
        known = {"grid_x": [2, 7], "grid_y": [3, 1], "grid_z": [5, 2], "blocks": [30, 14]}
        assert self.columns((2, 3, 5), (7, 1, 2)) == known
        assert list(self.columns().values()) == [[]] * 4

    @pytest.mark.parametrize("none", [NO_GRID, (0, 3, 1), (3, 0, 1), (3, 1, 0)])
    def test_a_grid_without_blocks_is_null_and_its_neighbour_is_not(self, none: tuple[int, int, int]) -> None:
        assert list(self.columns(none, (1, 1, 1)).values()) == [[None, 1]] * 4

    @pytest.mark.parametrize("grid", [(1 << 31, 1 << 31, 1), (1 << 62, 1, 1), (1, 1, 1 << 62)])
    def test_as_many_blocks_as_are_believed(self, grid: tuple[int, int, int]) -> None:
        assert self.columns(grid)["blocks"] == [1 << 62]

    @pytest.mark.parametrize(
        ("grid", "said"),
        [
            ((1 << 31, (1 << 31) + 4, 1), "2.14748e+09 × 2.14748e+09 × 1"),
            ((1 << 21, 1 << 21, 1 << 21), "2.09715e+06 × 2.09715e+06 × 2.09715e+06"),
            *((((1 << 62) + 1024, 0, 1), "4.61169e+18 × 0 × 1"), ((2, -1, 1), "2 × -1 × 1")),
            ((-2, -3, 1), "-2 × -3 × 1"),
        ],
    )
    def test_the_grid_that_cannot_be_is_named(self, grid: tuple[int, int, int], said: str) -> None:
        with pytest.raises(InputError) as caught:
            grid_columns([(4, 4, 4), grid, (5, 5, 5)], "the file", hint="copy it again")
        assert str(caught.value) == f"the file: impossible grid of {said} blocks; copy it again"


ONE, OTHER = (Payload(source="kernel", collective=name) for name in ("all_reduce", "all_gather"))


def entries(told: StatedPayloads) -> list[tuple[str | None, int, int, int, int, int]]:
    """(collective, row, track, start, end, seq) of each entry."""
    payloads = list(told.payloads)
    assert list(told.payloads.values()) == list(range(len(payloads)))
    columns = (told.row, told.track, told.start_ns, told.end_ns, told.seq)
    return [(payloads[c].collective, *rest) for c, *rest in zip(told.code, *columns, strict=True)]


class TestStatedPayloads:
    """Entries are of a kernel by its ordinal, or of a thread's stretch of time."""

    def test_entries_of_kernels_and_of_threads(self) -> None:
        told = StatedPayloads()
        told.add_payload(ONE, row=4)
        told.add_payload(OTHER, track=7, start_ns=10, end_ns=30, seq=0)
        told.add_payload(ONE, row=5, seq=9)
        assert entries(told) == [
            *(("all_reduce", 4, -1, 0, 0, -1), ("all_gather", -1, 7, 10, 30, 0)),
            ("all_reduce", 5, -1, 0, 0, 9),
        ]
        assert (len(told), list(told.payloads)) == (3, [ONE, OTHER])

    def test_many_entries_of_kernels_at_once(self) -> None:
        told = StatedPayloads()
        told.add_payload(OTHER, row=0)
        code, row, seq = np.array([0, 1, 0]), np.array([1, 2, 3], np.int32), np.array([-1, 5, 6])
        told.add_rows([ONE, OTHER], code, row, seq)
        kinds, numbers = ("gather", "reduce", "gather", "reduce"), (-1, -1, 5, 6)
        assert entries(told) == [
            (f"all_{kind}", row, -1, 0, 0, number)
            for row, (kind, number) in enumerate(zip(kinds, numbers, strict=True))
        ]


def test_what_a_trace_and_its_parts_are_before_anything_is_told(tmp_path: Path) -> None:
    trace = Trace(batches=iter(()))
    assert (trace.base_ns, trace.cut, trace.device_rows_in_order) == (0, None, True)
    assert (trace.dropped, trace.device_steps, trace.notes, len(trace.stated_payloads)) == ({}, [], [], 0)
    assert DeviceStep("f", 0, 1).closed is Cut("f", 0, "x").rows_whole is False
    assert (ONE.rows, ONE.threads) == (1, ())
    parts = Part(), Part("cpu:0"), Part(begin=0, end=10), Part(stream=True)
    assert [part.is_whole for part in parts] == [True, True, False, False]
    inflated = tmp_path / "part.json"
    inflated.write_text("{}")
    for part, is_left in ((Part(), True), (Part(inflated=str(inflated)), False)):
        part.remove_inflated()
        assert inflated.exists() is is_left


def test_amounts_and_values_that_cannot_be() -> None:
    for number in (1, 132, (1 << 48) - 1):
        assert plausible_amount(number) == number
    for value in (0, -1, 1 << 48, True, 1.0, "3", None):
        assert plausible_amount(value) is None
    said = "a.json: impossible time: 3; "
    assert str(impossible_value("time: 3", Path("a.json"))) == said + "is the file damaged?"
    assert str(impossible_value("time: 3", "a.json", "try again")) == said + "try again"


def test_two_of_several_processes_are_named_in_order_and_shortened() -> None:
    error = several_processes(Path("a.json"), ["b" * 41, 9, 12, "c"])
    assert str(error) == (
        "a.json: contains rows of several processes, 12 and 9: it was merged from traces of several ranks;"
        " pass the original file of each rank"
    )
    assert f"processes, {'b' * 40} and c: " in str(several_processes(Path("a.json"), ["c", "b" * 41]))
