# SPDX-License-Identifier: Apache-2.0
"""Sweeps of nccl-tests: published CSV, printed tables of both generations, JSON, and damaged ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.errors import InputError
from cclbench.readers import Evidence, recognise
from cclbench.readers.nccl_tests import NcclTests
from cclbench.readers.nccl_tests.rows import library_version

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
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100\n#\n"
# 1 GiB in 5,000 µs is 214.748 GB/s; with four ranks 2 · 3/4 = 1.5 of it on the bus.
ROW = (
    "  1073741824  268435456  float  sum  -1  5000.0  214.75  322.12      0   4000.0  268.44  402.65    N/A\n"
)
CSV_HEAD = (
    "# coll: all_gather\n# ranks: 8\n# nodes: 1\n# gpus_per_node: 8\n# gpu: B200\n# nccl: 2.27.3\n"
    "# source: run on host zeta\n"
)
CSV_COLUMNS = (
    "size_bytes,count,dtype,redop,"
    "oop_time_us,oop_algbw_GBps,oop_busbw_GBps,ip_time_us,ip_algbw_GBps,ip_busbw_GBps\n"
)
CSV_ROW = "1048576,262144,float,,19.69,53.25,46.60,,,\n"

Read = Callable[..., Evidence]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a sweep of that text."""

    def read(text: str | bytes, name: str = "sweep.txt") -> Evidence:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return NcclTests().read(path)

    return read


def rows(found: Evidence, *columns: str) -> list[tuple[Any, ...]]:
    assert found.timings is not None
    return [tuple(row[column] for column in columns) for row in found.timings.to_pylist()]


def test_a_printed_table(read: Read) -> None:
    found = read(HEADER + DEVICES + COLUMNS + ROW + FOOTER)
    assert found.timings is not None
    first, second = found.timings.to_pylist()
    assert first == {
        **dict.fromkeys(found.timings.column_names),
        "kind": "all_reduce",
        "library": "nccl",
        "group_size": 4,
        "nodes": 2,
        "dtype": "float",
        "in_place": False,
        "bytes": 1 << 30,
        "dur_ns": 5_000_000,
        "algbw": 214.75e9,
        "busbw": 322.12e9,
        "errors": 0,
    }
    assert second == {
        **first,
        "in_place": True,
        "dur_ns": 4_000_000,
        "algbw": 268.44e9,
        "busbw": 402.65e9,
    } | {"errors": None}
    assert found.facts == {
        "benchmark_version": "2.18.3",
        "library_version": "2.29.7",
        "device_name": "NVIDIA H100 80GB HBM3",
    }
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
    assert (
        rows(found, "kind", "library", "group_size", "nodes", "errors", "bytes", "busbw")
        == [("all_to_all", "nccl", 2, 1, None, 8_000_000, 40e9)] * 2
    )
    assert found.notes == []


def test_times_are_exact_and_large_ones_have_few_digits(read: Read) -> None:
    row = "  8  2  float  sum  -1  {}  0.00  0.00  0  1.2e+06  0.00  0.00  0\n"
    found = read(HEADER + DEVICES + COLUMNS + row.format("20.26") + row.format("0.001") + FOOTER)
    assert rows(found, "dur_ns") == [(20_260,), (1_200_000_000,), (1,), (1_200_000_000,)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.replace("Rank  2", "Rank  7"), (None, None)),  # ranks 2 is elided
        (lambda t: t.replace("# Using devices\n", "# Using devices\n# ...\n"), (None, None)),
        (lambda t: t.replace(DEVICES, ""), (None, None)),
        (lambda t: t.replace("Rank  2 Group  0", "Rank  2 Group  1"), (None, None)),  # 3 ranks and 1
        (
            lambda t: t.replace("Rank  2 Group  0", "Rank  2 Group  1").replace(
                "Rank  3 Group  0", "Rank  3 Group  1"
            ),
            (2, 1),
        ),
    ],
)
def test_group_size_is_what_the_devices_say(
    read: Read, change: Callable[[str], str], expected: tuple[int | None, int | None]
) -> None:
    text = HEADER + DEVICES + COLUMNS + ROW.replace("322.12", "214.75").replace("402.65", "268.44") + FOOTER
    assert rows(read(change(text)), "group_size", "nodes")[0] == expected


def test_the_collective_is_stated_or_unknown(read: Read) -> None:
    table = DEVICES + COLUMNS + ROW + FOOTER
    bare = "# nThread 1 nGpus 1 minBytes 8 maxBytes 16\n# Using devices\n"
    found = read(bare + table)
    assert rows(found, "kind") == [(None,), (None,)]
    assert found.notes == [
        "which collective 2 rows are of is not stated: write"
        ' "# Collective test starting: all_reduce_perf", or what it was, before their table'
    ]
    two_commands = "./all_reduce_perf -b 8\n./all_gather_perf -b 8\n"
    assert rows(read(two_commands + bare + table), "kind") == [(None,), (None,)]
    assert rows(read(HEADER.replace("all_reduce", "hypercube") + table), "kind") == [(None,), (None,)]


def test_several_tables_in_a_log(read: Read) -> None:
    second = (HEADER + DEVICES + COLUMNS).replace("all_reduce", "broadcast")
    row = "  4000000000  1000000000  float  none  0  1e+06  4.00  4.00  0  1e+06  4.00  4.00  0\n"
    found = read(HEADER + DEVICES + COLUMNS + ROW + FOOTER + second + row + FOOTER)
    assert rows(found, "kind", "group_size") == [("all_reduce", 4)] * 2 + [("broadcast", 4)] * 2
    assert found.notes == []


def test_other_lines_in_between(read: Read) -> None:
    """Labels of mpirun, the library's own log, and rows that others' output cut in two."""
    log = "alpha:50292:50292 [0] NCCL INFO NCCL version 2.29.7+cuda12.8\n"
    channel = "alpha:50292:50292 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Libfabric/0\n"
    cut = "  1073741824  268435456  float  sum  -1 " + channel
    text = "".join(
        f"[1,0]<stdout>:{line}\n" for line in (HEADER + DEVICES + log + COLUMNS + cut + ROW).splitlines()
    )
    found = read(text + ROW.replace("5000.0", "5o00.0"))
    assert rows(found, "kind", "group_size", "dur_ns") == [
        ("all_reduce", 4, 5_000_000),
        ("all_reduce", 4, 4_000_000),
    ]
    assert found.left_out == {"cut, or interrupted by other output": 1, "with text in place of a number": 1}
    assert found.notes == ["the last table has no end: the benchmark did not finish"]
    assert found.facts["library_version"] == "2.29.7+cuda12.8"


@pytest.mark.parametrize(
    ("columns", "row", "why"),
    [
        (COLUMNS.replace(" time", " cputime"), ROW, "of CPU times, which are not the collective's"),
        (COLUMNS.replace("(us)", "(ms)"), ROW, "of a table whose units are not stated"),
        (COLUMNS.rpartition("#")[0], ROW, "of a table whose units are not stated"),
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
    names = (
        "#  size  count  type  redop  root" + "  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%" * 2
    )
    units = "#  (B)  (elements)" + "  (us)  (GB/s)  (GB/s)  (us)  (us)  (us)  (%)" * 2
    row = "1073741824 268435456 float sum -1" + " 5000.0 214.75 322.12 0 4990 5010 5009 0.1" * 2
    found = read(f"{HEADER}{DEVICES}{names}\n{units}\n{row}\n{FOOTER}")
    assert rows(found, "dur_ns", "in_place") == [(5_000_000, False), (5_000_000, True)]


def test_a_row_that_contradicts_itself_is_named_and_kept(read: Read) -> None:
    text = HEADER + DEVICES + COLUMNS
    line = len(text.splitlines()) + 1
    assert read(text + ROW + FOOTER).notes == []
    found = read(text + ROW.replace("322.12", "322.20") + FOOTER)
    assert found.notes == [f"busbw does not follow from size and time in 1 of 2 rows: line {line}"]
    assert rows(found, "busbw")[0] == (322.20e9,)
    assert read(text + ROW.replace("268.44", "268.55") + FOOTER).notes == [
        f"algbw does not follow from size and time in 1 of 2 rows: line {line}"
    ]
    # a time of two digits allows for what it leaves out: 1 GiB in 1.2 s ± 0.05 s is 0.86 to 0.93 GB/s
    coarse = "  1073741824  268435456  float  sum  -1  1.2e+06  {}  1.39  0  1.2e+06  0.93  1.39  0\n"
    assert read(text + coarse.format("0.93") + FOOTER).notes == []
    assert len(read(text + coarse.format("0.95") + FOOTER).notes) == 1


def test_wrong_results_and_no_results(read: Read) -> None:
    found = read(
        HEADER + DEVICES + COLUMNS + ROW.replace("     0 ", "     7 ", 1) + FOOTER.replace("0 OK", "7 FAILED")
    )
    assert rows(found, "errors")[0] == (7,)
    assert found.notes == ["the benchmark found 7 wrong results"]
    found = read(
        HEADER + DEVICES + COLUMNS + "alpha: Test NCCL failure all_reduce.cu:44 'unhandled cuda error'\n"
    )
    assert found.timings is not None
    assert found.timings.num_rows == 0
    assert "holds no results: the benchmark did not get that far" in found.notes


def test_no_host_process_or_command_leaves_the_file(read: Read) -> None:
    found = read(
        "alpha$ mpirun -np 4 /home/user/all_reduce_perf\n" + HEADER + DEVICES + COLUMNS + ROW + FOOTER
    )
    assert found.timings is not None
    told = str((found.timings.to_pylist(), found.facts, found.notes))
    assert not any(secret in told for secret in ("alpha", "beta", "50292", "mpirun", "user"))


def test_rccl(read: Read) -> None:
    devices = DEVICES.replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X").replace("Group  0 ", "")
    version = "RCCL version : 2.22.3-HEAD:7d8d67c\nHIP version  : 6.4.43484-123eb5128\nHostname     : alpha\n"
    header = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n"
    found = read(header + devices + version + COLUMNS + ROW + FOOTER)
    assert rows(found, "library", "group_size") == [("rccl", 4)] * 2
    assert found.facts == {
        "library": "rccl",
        "library_version": "2.22.3-HEAD:7d8d67c",
        "hip_version": "6.4.43484-123eb5128",
        "device_name": "AMD Instinct MI300X",
    }


def result(size: int, out: dict[str, Any] | None, own: dict[str, Any] | None) -> dict[str, Any]:
    return {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1"} | {
        "out_of_place": out,
        "in_place": own,
        "actual_iterations": 20,
    }


def as_json(**changes: Any) -> str:
    device = {"rank": 0, "group": 0, "pid": 7, "device": 0, "device_hex": "0000:30:00"}
    figures = {"time": 5000.0004, "alg_bw": 214.748348, "bus_bw": 322.122522, "nwrong": 0.0}
    file = {
        "version": 2,
        "start_time": "2026-03-12 14:17:56",
        "args": ["/home/user/build/reduce_scatter_perf_mpi", "-b", "8"],
        "env": ["SECRET=1", "HOSTNAME=alpha"],
        "nccl_version": 22907,
        "config": {
            "nthreads": 1,
            "ngpus": 2,
            "devices": [
                {**device, "hostname": host, "device_info": "NVIDIA H100 80GB HBM3"}
                for host in ("alpha", "beta")
            ],
        },
        "results": [result(1 << 30, figures | {"bus_bw": 161.061261}, None)],
        "out_of_bounds": {"count": 0, "okay": "true"},
    }
    return json.dumps(file | changes, separators=(",", ":"))


def test_json_of_nccl_tests(read: Read) -> None:
    """Two processes of two GPUs; only fields that are named are read."""
    found = read(as_json(), "sweep.json")
    assert rows(found, "kind", "group_size", "nodes", "in_place", "bytes", "dur_ns", "busbw", "errors") == [
        ("reduce_scatter", 4, 2, False, 1 << 30, 5_000_000, 161.061261e9, 0)
    ]
    assert found.facts == {"device_name": "NVIDIA H100 80GB HBM3", "library_version": "2.29.7"}
    assert found.notes == []
    tiny = as_json(results=[result(8, {"time": 7, "alg_bw": 8}, None)]).replace(":8}", ":0E-999999999}")
    assert rows(read(tiny, "sweep.json"), "bytes", "algbw") == [(8, 0.0)]
    no_time = result(8, {"time": "nan", "alg_bw": 0, "bus_bw": 0, "nwrong": None}, None)
    found = read(as_json(results=[no_time], config=None), "sweep.json")
    assert found.left_out == {"without a time": 1}


def test_json_of_rccl_tests(read: Read) -> None:
    record = {"numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": 2, "ranksPerNode": 2, "gpusPerRank": 1}
    record |= {
        "size": 1024,
        "type": "float",
        "redop": "sum",
        "inPlace": 1,
        "time": 10.24,
        "algBw": 0.1,
        "busBw": 0.1,
    }
    found = read(json.dumps([record | {"wrong": "0"}, record | {"wrong": "N/A", "inPlace": 0}]), "sweep.json")
    assert rows(found, "kind", "library", "group_size", "nodes", "in_place", "dur_ns", "algbw", "errors") == [
        ("all_reduce", "rccl", 2, 1, True, 10_240, 0.1e9, 0),
        ("all_reduce", "rccl", 2, 1, False, 10_240, 0.1e9, None),
    ]
    assert found.notes == []


def test_csv(read: Read) -> None:
    """`source` says on which host it ran: it stays in the file."""
    found = read(CSV_HEAD + CSV_COLUMNS + CSV_ROW, "sweep.csv")
    assert rows(
        found, "kind", "library", "group_size", "nodes", "in_place", "bytes", "dur_ns", "algbw", "busbw"
    ) == [("all_gather", "nccl", 8, 1, False, 1 << 20, 19_690, 53.25e9, 46.60e9)]
    assert found.facts == {"device_name": "B200", "library_version": "2.27.3", "gpus_per_node": 8}


PUBLISHED = {
    "a100_nvswitch_1n8_allreduce": ("all_reduce", 8, 1, 30, 232.81),
    "alps_gh200_ss11_64n256_allreduce_ofi1_9_2": ("all_reduce", 256, 64, 60, None),
    "aws_p5_2n16_allreduce": ("all_reduce", 16, 2, 64, None),
    "gcp_a3mega_2n16_allreduce": ("all_reduce", 16, 2, 62, None),
    "h100_1n4_allreduce_lambda": ("all_reduce", 4, 1, 28, 355.89),
    "vultr_b200_1n8_allgather": ("all_gather", 8, 1, 28, 672.38),
    "vultr_b200_1n8_reducescatter": ("reduce_scatter", 8, 1, 28, 694.98),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sweeps(test_data: Path, name: str) -> None:
    """Their sources state the bus bandwidth of the largest size; bandwidths follow from sizes and times."""
    kind, ranks, nodes, count, busbw = PUBLISHED[name]
    found = NcclTests().read(test_data / "nccl_tests" / f"{name}.csv")
    assert set(rows(found, "kind", "group_size", "nodes")) == {(kind, ranks, nodes)}
    assert len(rows(found, "bytes")) == count
    assert not any("follow" in note for note in found.notes)
    if busbw is not None:
        assert max(rows(found, "bytes", "busbw"))[1] == pytest.approx(busbw * 1e9, rel=1e-4)


def test_all_published_sweeps_are_recognised(test_data: Path) -> None:
    files = sorted((test_data / "nccl_tests").glob("*.csv"))
    assert len(files) == 14
    for path in files:
        reader = recognise(path, path.read_bytes())
        assert reader is not None
        assert reader.name == "nccl_tests"


@pytest.mark.parametrize(
    ("head", "confident"),
    [
        (HEADER.encode(), True),
        (b"[1,0]<stdout>:" + HEADER.encode(), True),
        (as_json().encode(), True),
        (b'[\n{"numCycle":0, "name":"AllReduce"', True),
        ((CSV_HEAD + CSV_COLUMNS).encode(), True),
        (CSV_COLUMNS.encode(), True),
        (b"", False),
        (b"size,count,type\n", False),
        (b'{"version": 2, "traceEvents": []}', False),
        (b"# a readme about all_reduce_perf\n", False),
    ],
)
def test_sniff(head: bytes, confident: bool) -> None:
    assert (NcclTests().sniff(head) > 0) is confident


BAD = {
    "cells": CSV_HEAD + CSV_COLUMNS + "8,2,float\n",
    "line ends": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("float", "flo\rat,"),
    "text": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("19.69", "fast"),
    "size": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("1048576", "-8"),
    "huge size": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("1048576", "9" * 40),
    "huge time": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("19.69", "1e40"),
    "huge rate": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("53.25", "1e40"),
    "columns": CSV_HEAD + CSV_COLUMNS.replace("oop_time_us", "oop_time_ms") + CSV_ROW,
    "ranks": CSV_HEAD.replace("ranks: 8", "ranks: many") + CSV_COLUMNS + CSV_ROW,
    "no ranks": CSV_HEAD.replace("ranks: 8", "ranks: 0") + CSV_COLUMNS + CSV_ROW,
    "cut json": as_json()[:-30],
    "json text": as_json(results=[result(8, {"time": "fast"}, None)]),
    "json size": as_json(results=[result(-8, None, None)]),
    "json time": as_json(results=[result(8, {"time": 7}, None)]).replace('"time":7', '"time":1e400'),
    "json tiny": as_json(results=[result(8, {"time": 7}, None)]).replace('"time":7', '"time":1e-400'),
    "json rate": as_json(results=[result(8, {"time": 7, "alg_bw": 8}, None)]).replace(
        '"alg_bw":8', '"alg_bw":1e999999'
    ),
    "json deep": as_json(config="x").replace('"x"', "[" * 100_000),
    "json list": '[{"numCycle":0,"name":[]}]',
    "printed size": HEADER + DEVICES + COLUMNS + ROW.replace("1073741824", "9" * 20) + FOOTER,
}


@pytest.mark.parametrize("name", [*BAD, "gzip", "missing"])
def test_damage_is_one_line_that_names_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "sweep"
    if name == "gzip":
        path.write_bytes(gzip.compress(HEADER.encode() * 100)[:-30])
    elif name != "missing":
        path.write_text(BAD[name])
    with pytest.raises(InputError) as raised:
        NcclTests().read(path)
    assert str(tmp_path) in str(raised.value.where)
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEADER,
        HEADER + "\x00\xff\xfe" * 100,
        HEADER + COLUMNS + "1 2 float\n" + "8 " * 100_000,
        HEADER + COLUMNS + ROW.replace("5000.0", "nan").replace("4000.0", "1_0"),
        "# size count type time algbw busbw\n# size count type busbw\n1 2 3 4 5 6\n",
        "# size busbw\n8 8 8 8\n# (elements)\n8 8\n",
        COLUMNS.replace("time", "tame") + ROW,
    ],
)
def test_a_log_without_a_readable_row_says_so(read: Read, text: str) -> None:
    found = read(text)
    assert rows(found, "bytes") == []
    assert "holds no results: the benchmark did not get that far" in found.notes


def test_versions_of_the_library() -> None:
    assert [library_version(code) for code in (22907, 21803, 2708)] == ["2.29.7", "2.18.3", "2.7.8"]
