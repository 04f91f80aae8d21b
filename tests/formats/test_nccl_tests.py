# SPDX-License-Identifier: Apache-2.0
"""Tables that nccl-tests and rccl-tests print, of both generations, and logs that are damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats import Evidence
from cclbench.formats.nccl_tests import NcclTests

HEADER = """\
# nccl-tests version 2.18.3 nccl-headers=22809 nccl-library=22907
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 1 iters: 20 validation: 1
#
# Using devices
"""
DEVICES = """\
#  Rank  0 Group  0 Pid  50292 on      alpha device  0 [0000:30:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  50293 on      alpha device  1 [0000:31:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  49542 on       beta device  0 [0000:30:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  49543 on       beta device  1 [0000:31:00] NVIDIA H100 80GB HBM3
"""
COLUMNS = """\
#
#                                                out-of-place                in-place
#       size      count   type  redop  root   time  algbw  busbw #wrong    time  algbw  busbw #wrong
#        (B) (elements)                       (us) (GB/s) (GB/s)           (us) (GB/s) (GB/s)
"""
HEAD = HEADER + DEVICES + COLUMNS
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100\n#\n"
# 1 GiB in 5,000 µs is 214.748 GB/s; with four ranks 2 · 3/4 = 1.5 of it on the bus.
ROW = "  1073741824  268435456  float  sum  -1  5000.0  214.75  322.12   0  4000.0  268.44  402.65    N/A\n"
TABLE = HEAD + ROW + FOOTER
UNNAMED = TABLE.replace("# Collective test starting: all_reduce_perf\n", "")
NO_RESULTS = "contains no results: the benchmark did not get that far, or its lines have unknown prefixes"
Read = Callable[..., Evidence]


@pytest.fixture
def read(written: Callable[..., Path]) -> Read:
    """Reads a sweep of that text."""
    return lambda text, name="sweep.txt": NcclTests().read(written(text, name))


def rows(found: Evidence, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in found.timings.to_pylist()]


def test_a_printed_table(read: Read) -> None:
    found = read(TABLE)
    first, second = found.timings.to_pylist()
    told = {"kind": "all_reduce", "library": "nccl", "group_size": 4, "nodes": 2, "dtype": "float"}
    told |= {"in_place": False, "bytes": 1 << 30, "dur_ns": 5_000_000, "algbw": 214.75e9, "busbw": 322.12e9}
    assert first == dict.fromkeys(found.timings.column_names) | told | {"errors": 0}
    own = {"in_place": True, "dur_ns": 4_000_000, "algbw": 268.44e9, "busbw": 402.65e9}
    assert second == first | own | {"errors": None}
    versions = {"benchmark_version": "2.18.3", "library_version": "2.29.7"}
    assert found.facts == versions | {"device_name": "NVIDIA H100 80GB HBM3"}
    assert (found.notes, found.left_out) == ([], {})


def test_older_tables_are_read_by_their_header(read: Read) -> None:
    """No root, a blank redop, `error` that is a deviation and no count; the script echoed the command."""
    text = (
        "+ mpirun -np 2 ./build/alltoall_perf -b 8 -e 8\n"
        "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 1048576(bytes) warmup iters: 5 iters: 20\n"
        "# Using devices\n"
        "#   Rank  0 Pid   1234 on      alpha device  0 [0x07] Tesla V100-SXM2-32GB\n"
        "#   Rank  1 Pid   1234 on      alpha device  1 [0x0a] Tesla V100-SXM2-32GB\n"
        "#                                             out-of-place                in-place\n"
        "#      size      count    type   redop    time  algbw  busbw error    time  algbw  busbw error\n"
        "#       (B) (elements)                    (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)\n"
        "    8000000    1000000   float           100.0  80.00  40.00 2e-07   100.0  80.00  40.00   N/A\n"
        + FOOTER
    )
    found = read(text)
    columns = ("kind", "library", "group_size", "nodes", "errors", "bytes", "busbw")
    assert rows(found, *columns) == [("all_to_all", "nccl", 2, 1, None, 8_000_000, 40e9)] * 2
    assert found.notes == []


def test_times_are_exact_and_tables_several(read: Read) -> None:
    row = "  8  2  float  sum  -1  {}  0.00  0.00  0  1.2e+06  0.00  0.00  0\n"
    found = read(HEAD + row.format("20.26") + row.format("0.001") + FOOTER)
    assert rows(found, "dur_ns") == [(20_260,), (1_200_000_000,), (1,), (1_200_000_000,)]
    second = HEAD.replace("all_reduce", "broadcast")
    row = "  4000000000  1000000000  float  none  0  1e+06  4.00  4.00  0  1e+06  4.00  4.00  0\n"
    found = read(TABLE + second + row + FOOTER)
    assert rows(found, "kind", "group_size") == [("all_reduce", 4)] * 2 + [("broadcast", 4)] * 2
    assert found.notes == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((("Rank  2", "Rank  7"),), (None, None)),  # rank 2 is elided
        ((("# Using devices\n", "# Using devices\n# ...\n"),), (None, None)),
        (((DEVICES, ""),), (None, None)),
        ((("Rank  2 Group  0", "Rank  2 Group  1"),), (None, None)),  # 3 ranks and 1
        (tuple((f"Rank  {n} Group  0", f"Rank  {n} Group  1") for n in (2, 3)), (2, 1)),
    ],
)
def test_group_size_is_what_the_devices_say(read, change, expected):
    text = TABLE.replace("322.12", "214.75").replace("402.65", "268.44")
    for old, new in change:
        text = text.replace(old, new)
    assert rows(read(text), "group_size", "nodes")[0] == expected


def test_the_collective_is_stated_or_the_file_s(read: Read) -> None:
    table = DEVICES + COLUMNS + ROW + FOOTER
    bare = "# nThread 1 nGpus 1 minBytes 8 maxBytes 16\n# Using devices\n"
    found = read(bare + table)
    assert rows(found, "kind") == [(None,), (None,)]
    said = '"# Collective test starting: all_reduce_perf", or what it was, before their table'
    assert found.notes == [f"the collective of 2 rows is not stated: write {said}"]
    two_commands = "./all_reduce_perf -b 8\n./all_gather_perf -b 8\n"
    assert rows(read(two_commands + bare + table), "kind") == [(None,), (None,)]
    assert rows(read(HEADER.replace("all_reduce", "hypercube") + table), "kind") == [(None,), (None,)]
    table = "# nThread 1 nGpus 1 minBytes 8 maxBytes 16\n" + DEVICES + COLUMNS + ROW + FOOTER
    found = read(table, "alltoall_perf_2n.txt")
    assert rows(found, "kind") == [("all_to_all",)] * 2
    assert found.notes[0] == "only the file's name states which collective was measured"
    found = read(TABLE, "all_gather_perf.txt")
    assert (rows(found, "kind"), found.notes) == ([("all_reduce",)] * 2, [])


def test_a_command_is_of_the_next_table_alone(read: Read) -> None:
    """A later table that nothing names is of no known collective, whether the first named itself or not."""
    for first in (UNNAMED, TABLE):
        found = read("./all_reduce_perf -b 1G\n" + first + UNNAMED)
        assert rows(found, "kind") == [("all_reduce",)] * 2 + [(None,)] * 2
        found = read("./all_reduce_perf -b 1G\n" + first + "./broadcast_perf -b 1G\n" + UNNAMED)
        assert rows(found, "kind") == [("all_reduce",)] * 2 + [("broadcast",)] * 2


@pytest.mark.parametrize(
    "label",
    [
        *("[1,0]<stdout>:", "[1,12]<stdout>: ", "Thu Oct  2 10:11:12 2025[1,0]<stdout>:"),
        *("Thu Oct  2 10:11:12 2025<stdout>: ", "[prterun-alpha-1234@1,0]<stdout>: "),
        *("2025-10-02T10:11:12.123456789Z ", "2025-10-02T10:11:12.123456789+00:00 [1,0]<stdout>:", "00: "),
        *("0: ", " 0: ", "   0: ", "1023: ", "2025-10-02 10:11:12,123 ", "    "),
        *("(head, rank=0, pid=3808) [1,0]<stdout>:", "worker-0 | ", "[pod/nccl-test-0/main] "),
    ],
)
def test_labels_of_launchers(read: Read, label: str) -> None:
    labelled = read("".join(f"{label}{line}\n" for line in TABLE.splitlines()))
    columns = ("kind", "group_size", "nodes", "bytes", "dur_ns", "busbw", "in_place", "errors")
    assert rows(labelled, *columns) == rows(read(TABLE), *columns)
    assert len(rows(labelled, "bytes")) == 2
    assert (labelled.notes, labelled.left_out) == ([], {})


def test_labels_that_change_from_line_to_line_are_not_passed_over_in_silence(read: Read) -> None:
    found = read("".join(f"line {at} | {line}\n" for at, line in enumerate(TABLE.splitlines())))
    assert NO_RESULTS in found.notes


class TestProcesses:
    """Several processes of the benchmark in one log."""

    @staticmethod
    def labelled(*texts: str) -> str:
        """The lines of several processes, by turns."""
        told = [[f"{task}: {line}\n" for line in text.splitlines()] for task, text in enumerate(texts)]
        return "".join(line for turn in zip(*told, strict=True) for line in turn)

    def test_a_table_that_another_process_prints_word_for_word_is_not_counted_twice(self, read: Read) -> None:
        """Neither is the same log with labels and without; a sweep that is run again is a measurement."""
        found = read(self.labelled(TABLE, TABLE, TABLE))
        assert rows(found, "dur_ns") == [(5_000_000,), (4_000_000,)]
        assert (found.left_out, found.notes) == ({"printed by another process as well": 2}, [])
        assert rows(read(TABLE + self.labelled(TABLE)), "dur_ns") == [(5_000_000,), (4_000_000,)]
        assert len(rows(read(TABLE + TABLE), "bytes")) == 4

    def test_processes_that_measure_on_their_own_are_kept_and_said(self, read: Read) -> None:
        """As a benchmark that was built without MPI runs under srun."""
        command = "srun -l ./all_gather_perf -g 4\n"
        slower = UNNAMED.replace("5000.0", "5001.0")
        found = read(command + self.labelled(UNNAMED, slower))
        assert rows(found, "kind", "group_size") == [("all_gather", 4)] * 4
        assert rows(found, "dur_ns", "in_place") == [
            *((5_000_000, False), (4_000_000, True), (5_001_000, False), (4_000_000, True))
        ]
        note = "2 processes print separate tables, and all are kept: without MPI, every process runs the"
        assert f"{note} benchmark alone" in found.notes


class TestTornRows:
    """Rows in pieces, between lines of NCCL's debug output."""

    INFO = "alpha:50292:50292 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE\n"
    NAME = "  1073741824  268435456  float  sum  -1"
    OUT, IN = "  5000.0  214.75  322.12  0", "  4000.0  268.44  402.65  N/A"
    WHOLE = ((5_000_000, 0), (4_000_000, None))

    @pytest.mark.parametrize(
        ("host", "line"),
        [
            ("38dcf168f605", "38dcf168f605:1391:1391 [0] NCCL INFO AllReduce\n"),
            ("38dcf168f6", "[2025-10-02 10:11:12] 38dcf168f6:1:1 [0] transport/net.cc:40 NCCL WARN slow\n"),
            ("0-node.a_b", "0-node.a_b:1:2 [-1] NCCL TRACE x\n"),
        ],
    )
    def test_a_host_whose_name_could_be_part_of_a_number(self, read: Read, host: str, line: str) -> None:
        """Named by devices, or by other lines alone."""
        for named in (DEVICES.replace("alpha", host).replace("beta", host), line):
            torn = self.NAME + line + self.OUT + line + self.IN + "\n"
            found = read(HEADER + named + COLUMNS + torn + FOOTER)
            assert rows(found, "dur_ns", "errors") == list(self.WHOLE)

    @pytest.mark.parametrize(
        "pieces",
        [
            *((NAME, OUT), (NAME, IN, OUT, IN), (NAME + "  50", "00.0  214.75  322.12  0", IN)),
            *((NAME, OUT.replace("5000.0", "500.00"), IN), (NAME, OUT, IN.replace("4000.0", "400.0"))),
            *((NAME, OUT.replace(" 0", ""), IN), ("  1073741824  268435456  float", "  sum  -1" + OUT, IN)),
        ],
    )
    def test_pieces_that_are_not_are_left_out(self, read: Read, pieces: tuple[str, ...]) -> None:
        found = read(HEAD + "".join(piece + self.INFO for piece in pieces) + ROW + FOOTER)
        assert rows(found, "dur_ns", "errors") == list(self.WHOLE)
        assert found.left_out == {"interrupted by other output, with pieces that do not fit together": 1}

    def test_pieces_without_a_beginning_or_of_others(self, read: Read) -> None:
        found = read(HEAD + self.OUT + self.INFO + ROW + FOOTER)
        assert rows(found, "dur_ns", "errors") == list(self.WHOLE)
        assert found.left_out == {"without a beginning": 1}
        text = "".join(f"0: {line}\n" for line in (HEAD + self.NAME + self.INFO).splitlines())
        found = read(f"{text}1: {self.OUT}\n0: {self.OUT}\n0: {self.IN}\n0: # Out of bounds values : 0 OK\n")
        assert rows(found, "dur_ns", "errors") == list(self.WHOLE)


class TestRealLogs:
    """Both logs of fixtures/nccl_logs, against what stands in them."""

    def test_a_plain_sweep(self, test_data: Path) -> None:
        """31 rows of two placements; its footer states a mean bus bandwidth of 124.806 GB/s."""
        found = NcclTests().read(test_data / "nccl_logs" / "h100_8gpu_all_reduce.txt")
        told = rows(found, "bytes", "dur_ns", "busbw", "in_place", "errors", "group_size")
        assert len(told) == 62
        assert told[:2] == [(8, 22_720, 0.0, False, 0, 4), (8, 22_970, 0.0, True, 0, 4)]
        assert told[-2:] == [
            (8_589_934_592, 35_168_900, 366.37e9, False, 0, 4),
            (8_589_934_592, 35_182_800, 366.23e9, True, 0, 4),
        ]
        assert sum(row[2] for row in told) / 62 == pytest.approx(124.806e9, abs=0.005e9)
        assert (found.left_out, found.notes) == ({}, [])

    def test_every_row_torn_into_three(self, test_data: Path) -> None:
        """6 rows, each torn behind its root and behind its first placement; the footer's mean is 354.589."""
        found = NcclTests().read(test_data / "nccl_logs" / "h100_4gpu_torn_rows.log")
        told = rows(found, "bytes", "dur_ns", "busbw", "in_place", "errors", "group_size")
        assert told[:2] == [
            *((1 << 28, 1_185_500, 339.65e9, False, 0, 4), (1 << 28, 1_190_170, 338.32e9, True, 0, 4)),
        ]
        assert [row[0] for row in told[::2]] == [2**k for k in range(28, 34)]
        times = (1_190_170, 2_318_500, 4_550_500, 8_941_600, 17_771_700, 35_322_800)
        assert tuple(row[1] for row in told[1::2]) == times
        assert sum(row[2] for row in told) / 12 == pytest.approx(354.589e9, abs=0.0005e9)
        assert found.left_out == {}
        assert found.notes == ["rows interrupted by library output that were reassembled: 6"]


def test_other_lines_in_between(read: Read) -> None:
    """Labels of srun, the library's own log, and rows that others' output cut in two."""
    log = "alpha:50292:50292 [0] NCCL INFO NCCL version 2.29.7+cuda12.8\n"
    channel = "alpha:50292:50292 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Libfabric/0\n"
    cut = "  1073741824  268435456  float  sum  -1 " + channel
    text = "".join(f"0: {line}\n" for line in (HEADER + DEVICES + log + COLUMNS + cut + ROW).splitlines())
    found = read(text + "0: " + ROW.replace("5000.0", "5o00.0"))
    assert rows(found, "kind", "group_size", "dur_ns") == [
        *(("all_reduce", 4, 5 * 10**6), ("all_reduce", 4, 4 * 10**6)),
    ]
    pieces = "interrupted by other output, with pieces that do not fit together"
    assert found.left_out == {pieces: 1, "with text in place of a number": 1}
    assert found.notes == ["the last table is incomplete: the benchmark did not finish"]
    assert found.facts["library_version"] == "2.29.7+cuda12.8"


@pytest.mark.parametrize(
    ("columns", "row", "why"),
    [
        (COLUMNS.replace(" time", " cputime"), ROW, "with CPU times, which are not the collective's"),
        (COLUMNS.replace("(us)", "(ms)"), ROW, "in a table that does not state its units"),
        (COLUMNS.rpartition("#")[0], ROW, "in a table that does not state its units"),
    ],
)
def test_rows_whose_time_is_not_the_collectives(read: Read, columns: str, row: str, why: str) -> None:
    found = read(HEADER + DEVICES + columns + row + FOOTER)
    assert (rows(found, "bytes"), found.left_out) == ([], {why: 1})


def test_more_columns(read: Read) -> None:
    """Time stamps at the end, and the statistics of single iterations."""
    stamped = COLUMNS.replace("#wrong\n", "#wrong   timestamp\n")
    found = read(HEADER + DEVICES + stamped + ROW.rstrip("\n") + "  2026-03-12 14:17:56\n" + FOOTER)
    assert rows(found, "dur_ns", "errors") == [(5_000_000, 0), (4_000_000, None)]
    names = "#  size  count  type  redop  root"
    names += "  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%" * 2
    units = "#  (B)  (elements)" + "  (us)  (GB/s)  (GB/s)  (us)  (us)  (us)  (%)" * 2
    row = "1073741824 268435456 float sum -1" + " 5000.0 214.75 322.12 0 4990 5010 5009 0.1" * 2
    found = read(f"{HEADER}{DEVICES}{names}\n{units}\n{row}\n{FOOTER}")
    assert rows(found, "dur_ns", "in_place") == [(5_000_000, False), (5_000_000, True)]


def test_a_row_that_contradicts_itself_is_named_and_kept(read: Read) -> None:
    line = len(HEAD.splitlines()) + 1
    found = read(HEAD + ROW.replace("322.12", "322.20") + FOOTER)
    assert found.notes == [f"busbw does not follow from size and time in 1 of 2 rows: line {line}"]
    assert rows(found, "busbw")[0] == (322.20e9,)
    assert read(HEAD + ROW.replace("268.44", "268.55") + FOOTER).notes == [
        f"algbw does not follow from size and time in 1 of 2 rows: line {line}"
    ]
    # a time of two digits allows for what it leaves out: 1 GiB in 1.2 s ± 0.05 s is 0.86 to 0.93 GB/s
    coarse = "  1073741824  268435456  float  sum  -1  1.2e+06  {}  1.39  0  1.2e+06  0.93  1.39  0\n"
    assert read(HEAD + coarse.format("0.93") + FOOTER).notes == []
    assert len(read(HEAD + coarse.format("0.95") + FOOTER).notes) == 1


def test_wrong_results(read: Read) -> None:
    """rccl-tests marks their numbers with asterisks; what is no count is unknown."""
    found = read(HEAD + ROW.replace("   0 ", "   7 ", 1) + FOOTER.replace("0 OK", "7 FAILED"))
    assert rows(found, "errors")[0] == (7,)
    line = len(HEAD.splitlines()) + 1
    said = [f"wrong results in 1 of 2 rows: line {line}"]
    assert found.notes == ["the benchmark found 7 wrong results", *said]
    row = ROW.replace("   0 ", "   7* ", 1).replace("N/A", "3*")
    note = "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n"
    assert rows(read(HEAD + row + note + FOOTER.replace("0 OK", "10 FAILED")), "errors") == [(7,), (3,)]
    for text in ("1e30", "9" * 20, "nan"):
        found = read(HEAD + ROW.replace("   0 ", f"  {text} ", 1) + FOOTER)
        assert rows(found, "bytes", "errors")[0] == (1 << 30, None)


def test_rccl_and_what_stays_in_the_file(read: Read) -> None:
    devices = DEVICES.replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X").replace("Group  0 ", "")
    version = "RCCL version : 2.22.3-HEAD:7d8d67c\nHIP version  : 6.4.43484-123eb5128\nHostname     : alpha\n"
    header = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n"
    found = read(header + devices + version + COLUMNS + ROW + FOOTER)
    assert rows(found, "library", "group_size") == [("rccl", 4)] * 2
    versions = {"library_version": "2.22.3-HEAD:7d8d67c", "hip_version": "6.4.43484-123eb5128"}
    assert found.facts == versions | {"library": "rccl", "device_name": "AMD Instinct MI300X"}
    found = read("alpha$ mpirun -np 4 /home/user/all_reduce_perf\n" + TABLE)
    told = str((found.timings.to_pylist(), found.facts, found.notes))
    assert not any(secret in told for secret in ("alpha", "beta", "50292", "mpirun", "user"))


@pytest.mark.parametrize("digits", [20, 21, 5000])
def test_an_absurd_size_is_an_error(read: Read, tmp_path: Path, digits: int) -> None:
    path = tmp_path / "sweep.txt"
    says = f"{path}: line {len(HEAD.splitlines()) + 1}: has an impossible size"
    refused(lambda _: read(HEAD + ROW.replace("1073741824", "9" * digits) + FOOTER), path, says)


BAD_ROW = ROW.replace("5000.0", "nan").replace("4000.0", "1_0")


@pytest.mark.parametrize(
    "text",
    [
        *("", HEADER, HEADER + "\x00\xff\xfe" * 100),
        *(HEADER + COLUMNS + "1 2 float\n" + "8 " * 100_000, HEADER + COLUMNS + BAD_ROW),
        HEAD + "alpha: Test NCCL failure all_reduce.cu:44 'unhandled cuda error'\n",
        "# size count type time algbw busbw\n# size count type busbw\n1 2 3 4 5 6\n",
        *("# size busbw\n8 8 8 8\n# (elements)\n8 8\n", COLUMNS.replace("time", "tame") + ROW),
    ],
)
def test_a_log_without_a_readable_row_says_so(read: Read, text: str) -> None:
    found = read(text)
    assert rows(found, "bytes") == []
    assert NO_RESULTS in found.notes
