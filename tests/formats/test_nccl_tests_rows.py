# SPDX-License-Identifier: Apache-2.0
"""Pieces of sweeps by themselves: columns, rows in pieces, labels, counts, versions, and what is believed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from cclbench.formats.nccl_tests import labels, printed
from cclbench.formats.nccl_tests.labels import Labels, LibraryLines
from cclbench.formats.nccl_tests.printed import Printed
from cclbench.formats.nccl_tests.rows import (
    Figures,
    Heading,
    SweepRows,
    even_groups,
    library_version,
    row_contradiction,
    wrong_count,
)
from cclbench.formats.nccl_tests.tables import BEHEADED, CUT, MISFIT, PrintedColumns, PrintedRows
from cclbench.ground.errors import InputError

Written = Callable[..., Path]
HEADER = ["#", "size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
ROW = ["8", "2", "float", "sum", "-1", "5.0", "1.6", "1.6", "0", "4.0", "2.0", "2.0", "N/A"]


@pytest.mark.parametrize(
    ("code", "version"),
    [
        *((22907, "2.29.7"), (2708, "2.7.8"), (10_000, "1.0.0"), (9999, "9.9.99"), (29_999, "2.99.99")),
        *((20_000, "2.0.0"), (2000, "2.0.0"), (2999, "2.9.99"), (20_100, "2.1.0"), (2100, "2.1.0")),
    ],
)
def test_codes_of_versions(code: int, version: str) -> None:
    assert library_version(code) == version


def test_counts_and_groups() -> None:
    stated = (None, *map(Decimal, (0, -1, "2.5", (1 << 60) - 1, 1 << 60)))
    assert [wrong_count(count) for count in stated] == [None, 0, None, 2, (1 << 60) - 1, None]
    sizes = {"0a 0a 0b 0c": (4, 3), "0a 1a 0b 1b": (2, 2)}
    for devices in (*sizes, "0a 1a 0b 1a", "0a 1a 1a", ""):
        groups = even_groups([(int(one[0]), one[1]) for one in devices.split()])
        assert groups == sizes.get(devices, (None, None))


class TestSweepRows:
    """Rows, and what is said of them."""

    GB = Figures(Decimal("1.00"), Decimal("1.00"), Decimal("1.00"))

    def rows(self, *told: tuple[int, Figures], kind: str | None = "broadcast") -> SweepRows:
        rows = SweepRows(Path("sweep.txt"))
        for line, (size, figures) in enumerate(told, 5):
            rows.add_row(Heading(kind=kind), size, "float", figures, in_place=False, line=line)
        return rows

    def test_rows_that_contradict_themselves_or_are_wrong_are_named_by_their_lines(self) -> None:
        good, off = self.GB, Figures(Decimal(1), Decimal(7), None)
        wrong = Figures(Decimal("1.00"), None, None, 2)
        assert self.rows((1000, good), (1000, off), (1000, off), (1000, wrong)).evidence().notes == [
            "algbw does not follow from size and time in 2 of 4 rows: lines 6, 7",
            "wrong results in 1 of 4 rows: line 8",
        ]

    def test_times_that_are_possible(self) -> None:
        zero, none = Figures(Decimal(0), Decimal(0), None), Figures(None, None, None)
        rows = self.rows((8, none), (8, zero), (8, self.GB))
        assert (len(rows), rows.left_out) == (1, {"without a time": 2})
        # such a row contradicts nothing
        assert row_contradiction(Heading(), 8, Figures(None, Decimal(7), None)) is None
        table = self.rows((1 << 60, Figures(Decimal(10) ** 14, None, None)), (0, self.GB)).evidence().timings
        assert table["bytes"].to_pylist() == [1 << 60, 0]
        assert table["dur_ns"].to_pylist() == [10**17, 1000]

    @pytest.mark.parametrize(
        ("size", "figures"),
        [
            *(((1 << 60) + 1, Figures(Decimal(1), None, None)), (-1, Figures(Decimal(1), None, None))),
            *((8, Figures(Decimal("1.1E+14"), None, None)), (8, Figures(Decimal(1), Decimal(10**12), None))),
            (8, Figures(Decimal(1), None, Decimal(10**12))),
        ],
    )
    def test_what_is_impossible(self, size: int, figures: Figures) -> None:
        with pytest.raises(InputError) as raised:
            self.rows((size, figures))
        said = "has an impossible size, time or bandwidth; write it again, or remove it to do without"
        assert str(raised.value) == f"sweep.txt: line 5: {said}"

    def test_sixty_four_models_of_devices_are_kept(self) -> None:
        rows = self.rows((1000, self.GB))
        for model in [*range(70), *range(70)]:
            rows.add_gpu(f"model {model}")
        assert rows.evidence().facts["device_name"] == [f"model {model}" for model in range(64)]


@pytest.mark.parametrize("at", [5, 6, 7, 9, 10, 11])
def test_a_figure_that_is_no_number(at: int) -> None:
    words = [*ROW[:at], "x", *ROW[at + 1 :]]
    assert PrintedColumns.from_header(HEADER).parse_placements(words[5:]) is None


class TestRows:
    """Rows of a table as its lines come."""

    def rows(self, *lines: str, torn: bool = True) -> PrintedRows:
        rows = PrintedRows(PrintedColumns.from_header(HEADER))
        for line, text in enumerate(lines, 1):
            rows.add_words(text.split(), line, torn=torn)
        rows.end_row()
        return rows

    @pytest.mark.parametrize(
        ("lines", "torn", "found", "left_out"),
        [
            ([[*ROW, "5", "6"]], False, [], {CUT: 1}),  # words too many
            ([ROW[:7], ROW], False, [2], {CUT: 1}),  # a row that ends early
            ([ROW[:7]], True, [], {MISFIT: 1}),
            ([ROW[:5], [*ROW[5:], "7"], ROW[:3]], True, [], {MISFIT: 2}),  # pieces too many
        ],
    )
    def test_rows_that_do_not_fit(self, lines, torn, found, left_out):
        rows = self.rows(*(" ".join(words) for words in lines), torn=torn)
        assert ([row.line for row in rows.rows], rows.left_out) == (found, left_out)

    @pytest.mark.parametrize(
        ("piece", "counted"), [("1.0", 0), ("1.0 2.0", 0), ("1.0 2.0 N/A", 1), ("1 2* 3", 1)]
    )
    def test_a_piece_without_a_beginning(self, piece: str, counted: int) -> None:
        assert self.rows(piece).left_out == ({BEHEADED: 1} if counted else {})

    @pytest.mark.parametrize(
        ("line", "taken"), [("8 2", True), ("8 x", False), ("8", True), ("hello", False), ("N/A", True)]
    )
    def test_which_lines_are_a_rows(self, line: str, taken: bool) -> None:
        assert PrintedRows(PrintedColumns.from_header(HEADER)).add_words(line.split(), 1, torn=False) is taken


class TestLabels:
    """What stands before a benchmark's own lines."""

    OWN = "# Using devices"

    @pytest.mark.parametrize(("length", "known"), [(119, True), (120, True), (121, False)])
    def test_a_label_has_120_characters_at_most(self, length: int, known: bool) -> None:
        label = "l" * length
        split = Labels().split_label(label + self.OWN)
        assert split == ((label, self.OWN) if known else ("", label + self.OWN))

    def test_a_label_holds_for_the_lines_after_it_and_the_longest_first(self) -> None:
        known = Labels()
        for label in ("1: x: ", "1: "):
            known.split_label(label + self.OWN)
        lines = ("1: 8 2", "1: x: 8 2", "2: 8 2", self.OWN)
        assert [known.split_label(line) for line in lines] == [
            *(("1: ", "8 2"), ("1: x: ", "8 2"), ("", "2: 8 2"), ("", self.OWN))
        ]

    def test_labels_beyond_a_bound_are_not_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(labels, "_MOST", 2)
        known = Labels()
        for task in range(3):
            assert known.split_label(f"{task}: {self.OWN}") == (f"{task}: ", self.OWN)
        assert [known.split_label(f"{task}: 8")[0] for task in range(3)] == ["0: ", "1: ", ""]

    @pytest.mark.parametrize(
        ("hosts", "text", "begin"),
        [
            *(([], "-1alpha:1:2 [0] NCCL INFO x", 0), (["alpha"], "-1 alpha:1:2 [0] NCCL INFO x", 3)),
            (["alpha"], "-1alpha:1:2 [0] NCCL INFO x", 2),
            (["alpha", "1alpha"], "-1alpha:1:2 [0] NCCL INFO x", 1),
            *((["alpha"], "xalpha:1:2 [0] NCCL INFO x", 0), (["8"], "5.08:1:2 [0] NCCL INFO x", 3)),
            (["alpha"], "alpha said nothing", None),
        ],
    )
    def test_where_the_librarys_line_begins(self, hosts: list[str], text: str, begin: int | None) -> None:
        lines = LibraryLines()
        for host in hosts:
            lines.add_host(host)
        assert lines.library_line_start(text) == begin

    def test_hosts_of_devices_go_before_those_of_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(labels, "_MOST", 2)
        lines = LibraryLines()
        for host in ("beta:1:2 [0] NCCL INFO x", "1alpha:1:2 [0] NCCL INFO x", "gamma:1:2 [0] NCCL INFO x"):
            assert lines.library_line_start(host) == 0
        assert lines.library_line_start("-1alpha:1:2 [0] NCCL INFO x") == 1
        assert lines.library_line_start("5gamma:1:2 [0] NCCL INFO x") == 0  # a third host is not remembered
        lines.add_host("alpha")
        assert lines.library_line_start("-1alpha:1:2 [0] NCCL INFO x") == 2
        lines.add_host("b")
        lines.add_host("delta")
        assert lines.library_line_start("5delta:1:2 [0] NCCL INFO x") == 0


DEVICE = "# Rank {} Group 0 Pid 1 on alpha device 0 [0x07] {}\n"
TABLE = (
    "# size count type redop root time algbw busbw #wrong\n# (B) (elements) (us) (GB/s) (GB/s)\n"
    "1000 250 float none 0 1.00 1.00 {} 0\n# Out of bounds values : 0 OK\n"
)


class TestPrinted:
    """Logs of a table or several."""

    def test_tables_are_said_and_models_cut(self, written: Written) -> None:
        text = DEVICE.format(0, "NVIDIA " + "x" * 90) + TABLE.format("1.00")
        assert Printed(written(text)).read_log().evidence().facts == {"device_name": "NVIDIA " + "x" * 73}
        text = TABLE.format("1.00").replace("# Out", "1000 250 float none 0\n# note\n1.00 1.00 1.00 0\n# Out")
        rows = Printed(written(text)).read_log()
        assert (rows.left_out, len(rows)) == ({CUT: 1, BEHEADED: 1}, 1)
        text = TABLE.format("1.00").replace("0 OK", "3 FAILED")
        assert Printed(written(text * 2)).read_log().notes == ["the benchmark found 3 wrong results"] * 2

    @pytest.mark.parametrize(
        ("line", "library"),
        [
            *((DEVICE.format(0, model), "rccl") for model in ("AMD Instinct MI300X", "gfx942")),
            *((DEVICE.format(0, model), of) for model, of in (("NVIDIA H100", "nccl"), ("Other", None))),
            *(("# nccl-tests version 2.18.3\n", "nccl"), ("# rccl-tests: Version develop:abc\n", "rccl")),
            *(("NCCL version 2.29.7+cuda12.8\n", "nccl"), ("RCCL version : 2.22.3\n", "rccl")),
            ("# a comment\n", None),
        ],
    )
    def test_library_by_devices_or_versions(self, written: Written, line: str, library: str | None) -> None:
        table = Printed(written(line + TABLE.format("1.00"))).read_log().evidence().timings
        assert table["library"].to_pylist() == [library]

    @pytest.mark.parametrize(("devices", "ranks"), [(2, 2), (3, None), (4, None)])
    def test_a_list_of_more_devices_than_any_job_has_tells_no_ranks(
        self, written: Written, monkeypatch: pytest.MonkeyPatch, devices: int, ranks: int | None
    ) -> None:
        monkeypatch.setattr(printed, "_MOST_RANKS", 2)
        text = "".join(DEVICE.format(rank, "NVIDIA H100") for rank in range(devices)) + TABLE.format("1.00")
        assert Printed(written(text)).read_log().evidence().timings["group_size"].to_pylist() == [ranks]

    @pytest.mark.parametrize(
        ("line", "kind"),
        [
            ("# Collective test starting: broadcast_perf", "broadcast"),
            ("# Collective test starting: broadcast_perf_mpi", "broadcast"),
            *(("# nThread 1 nGpus 1 ./broadcast_perf", None), ("./my-broadcast_perf", None)),
            *(("./broadcast_perf.cu", None), ("./broadcast_perf ./broadcast_perf", "broadcast")),
            # a line names eight benchmarks at most
            ("./broadcast_perf " * 7 + "./reduce_perf", None),
            ("./broadcast_perf " * 8 + "./reduce_perf", "broadcast"),
        ],
    )
    def test_what_names_the_benchmark(self, written: Written, line: str, kind: str | None) -> None:
        table = Printed(written(f"{line}\n{TABLE.format('1.00')}")).read_log().evidence().timings
        assert table["kind"].to_pylist() == [kind]
