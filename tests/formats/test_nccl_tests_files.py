# SPDX-License-Identifier: Apache-2.0
"""Sweeps in files made for programs: JSON of nccl-tests and rccl-tests, published CSV, and damaged ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats import Evidence, recognise_format
from cclbench.formats.nccl_tests import NcclTests
from cclbench.formats.nccl_tests.stated import read_csv, read_json, read_rocm_json

HEADER = "# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 1 iters: 20\n"
CSV_HEAD = (
    "# coll: all_gather\n# ranks: 8\n# nodes: 1\n# gpus_per_node: 8\n# gpu: B200\n# nccl: 2.27.3\n"
    "# source: run on host zeta\n"
)
PLACES = ",".join(
    f"{place}_{figure}" for place in ("oop", "ip") for figure in ("time_us", "algbw_GBps", "busbw_GBps")
)
CSV_COLUMNS = f"size_bytes,count,dtype,redop,{PLACES}\n"
CSV_ROW = "1048576,262144,float,,19.69,53.25,46.60,,,\n"

Read, Written = Callable[..., Evidence], Callable[..., Path]


@pytest.fixture
def read(written: Written) -> Read:
    """Reads a sweep of that text."""
    return lambda text, name="sweep.txt": NcclTests().read(written(text, name))


def rows(found: Evidence, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in found.timings.to_pylist()]


def result(size: int, out: dict[str, Any] | None, own: dict[str, Any] | None) -> dict[str, Any]:
    told = {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1"}
    return told | {"out_of_place": out, "in_place": own, "actual_iterations": 20}


def as_json(**changes: Any) -> str:
    device = {"rank": 0, "group": 0, "pid": 7, "device": 0, "device_hex": "0000:30:00"}
    device["device_info"] = "NVIDIA H100 80GB HBM3"
    figures = {"time": 5000.0004, "alg_bw": 214.748348, "bus_bw": 161.061261, "nwrong": 0.0}
    config = {"nthreads": 1, "ngpus": 2, "devices": [device | {"hostname": h} for h in ("alpha", "beta")]}
    file = {"version": 2, "start_time": "2026-03-12 14:17:56"}
    file |= {"args": ["/home/user/build/reduce_scatter_perf_mpi", "-b", "8"]}
    file |= {"env": ["SECRET=1", "HOSTNAME=alpha"], "nccl_version": 22907, "config": config}
    file |= {"results": [result(1 << 30, figures, None)], "out_of_bounds": {"count": 0, "okay": "true"}}
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
    assert read(as_json(results=[no_time], config=None), "sweep.json").left_out == {"without a time": 1}


def test_json_of_rccl_tests_and_of_other_orders(read: Read) -> None:
    record = {"numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": 2, "ranksPerNode": 2, "gpusPerRank": 1}
    record |= {"size": 1024, "type": "float", "redop": "sum", "inPlace": 1, "time": 10.24}
    record |= {"algBw": 0.1, "busBw": 0.1}
    found = read(json.dumps([record | {"wrong": "0"}, record | {"wrong": "N/A", "inPlace": 0}]), "sweep.json")
    assert rows(found, "kind", "library", "group_size", "nodes", "in_place", "dur_ns", "algbw", "errors") == [
        ("all_reduce", "rccl", 2, 1, True, 10_240, 0.1e9, 0),
        ("all_reduce", "rccl", 2, 1, False, 10_240, 0.1e9, None),
    ]
    assert found.notes == []
    again = json.dumps(json.loads(as_json()), sort_keys=True, indent=2)
    assert NcclTests().sniff(again.encode()) > 0.5
    columns = ("kind", "group_size", "bytes", "dur_ns", "busbw", "in_place")
    assert rows(read(again, "again.json"), *columns) == rows(read(as_json(), "first.json"), *columns)


def test_csv_and_what_its_header_states(read: Read) -> None:
    """`source` says on which host it ran: it stays in the file."""
    found = read(CSV_HEAD + CSV_COLUMNS + CSV_ROW, "sweep.csv")
    told = {"kind": "all_gather", "library": "nccl", "group_size": 8, "nodes": 1, "in_place": False}
    told |= {"bytes": 1 << 20, "dur_ns": 19_690, "algbw": 53.25e9, "busbw": 46.60e9}
    assert rows(found, *told) == [tuple(told.values())]
    assert found.facts == {"device_name": "B200", "library_version": "2.27.3", "gpus_per_node": 8}
    for length in (300, 301):
        found = read(CSV_HEAD.replace("B200", "H" * length) + CSV_COLUMNS + CSV_ROW, "sweep.csv")
        assert found.facts["device_name"] == "H" * 300


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
        assert recognise_format(path, path.read_bytes()).name == "nccl_tests"


def test_sniff() -> None:
    heads = HEADER, f"[1,0]<stdout>:{HEADER}", as_json(), '[\n{"numCycle":0, "name":"AllReduce"', CSV_COLUMNS
    for head in (*heads, CSV_HEAD + CSV_COLUMNS):
        assert NcclTests().sniff(head.encode()) > 0


BAD = {
    "line ends": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("float", "flo\rat,"),
    "size": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("1048576", "-8"),
    "huge size": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("1048576", "9" * 40),
    "huge time": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("19.69", "1e40"),
    "huge rate": CSV_HEAD + CSV_COLUMNS + CSV_ROW.replace("53.25", "1e40"),
    "cut json": as_json()[:-30],
    "json text": as_json(results=[result(8, {"time": "fast"}, None)]),
    "json time": as_json(results=[result(8, {"time": 7}, None)]).replace('"time":7', '"time":1e400'),
    "json tiny": as_json(results=[result(8, {"time": 7}, None)]).replace('"time":7', '"time":1e-400'),
    "json rate": as_json(results=[result(8, {"time": 7, "alg_bw": 8}, None)]).replace(":8}", ":1e999999}"),
    "json deep": as_json(config="x").replace('"x"', "[" * 100_000),
    "json list": '[{"numCycle":0,"name":[]}]',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_damage_is_one_line_that_names_the_file(written: Written, text: str) -> None:
    assert len(refused(NcclTests().read, written(text))) < 600


def device(host: str, group: int = 0, model: str = "NVIDIA H100") -> dict[str, Any]:
    return {"hostname": host, "group": group, "device_info": model}


def sized(**changes: Any) -> list[dict[str, Any]]:
    placement = {"time": 10**14, "alg_bw": 0, "bus_bw": 0}
    return [{"size": 8, "type": "float", "in_place": placement} | changes]


ONE_EACH: dict[str, Any] = {"nthreads": 1, "ngpus": 1}


class TestStated:
    """Files made for programs."""

    @pytest.mark.parametrize(
        ("config", "ranks", "nodes"),
        [
            *((None, None, None), (ONE_EACH, None, None)),
            (ONE_EACH | {"devices": [device("a"), device("b", 1)]}, 1, 1),
            (ONE_EACH | {"devices": [device("a"), device("a"), device("b", 1)]}, None, None),
        ],
    )
    def test_groups_of_devices(self, written, config, ranks, nodes):
        table = read_json(written(as_json(config=config))).evidence().timings
        assert (table["group_size"].to_pylist(), table["nodes"].to_pylist()) == ([ranks], [nodes])

    @pytest.mark.parametrize("args", [[], ["broadcast"], ["./other"]])
    def test_a_program_of_another_name_is_of_no_collective(self, written: Written, args: list[str]) -> None:
        assert read_json(written(as_json(args=args))).evidence().timings["kind"].to_pylist() == [None]

    @pytest.mark.parametrize(
        ("believed", "beyond"),
        [
            ({"results": sized(size=(1 << 60) - 1)}, {"results": sized(size=1 << 60)}),
            ({"results": sized(size=0)}, {"results": sized(size=-1)}),
            ({"nccl_version": (1 << 60) - 1}, {"nccl_version": 1 << 60}),
            ({"nccl_version": 0}, {"nccl_version": -1}),
            ({"config": ONE_EACH | {"ngpus": 1 << 20}}, {"config": ONE_EACH | {"ngpus": (1 << 20) + 1}}),
            ({"config": ONE_EACH | {"nthreads": 1 << 20}}, {"config": ONE_EACH | {"nthreads": 0}}),
        ],
    )
    def test_believed(self, written: Written, believed: dict[str, Any], beyond: dict[str, Any]) -> None:
        read_json(written(as_json(**believed)))
        path = written(as_json(**beyond))
        assert re.search(r"Expected .int. .*; write it again, or remove it", refused(read_json, path))

    def test_wrong_results_versions_and_models_are_told(self, written: Written) -> None:
        config = ONE_EACH | {"devices": [device("a", 0, "m" * 90), device("b")]}
        text = as_json(config=config, out_of_bounds={"count": 1234}, nccl_version=22907)
        found = read_json(written(text)).evidence()
        assert found.notes[0] == "the benchmark found 1,234 wrong results"
        assert found.facts == {"library_version": "2.29.7", "device_name": ["m" * 80, "NVIDIA H100"]}
        assert read_json(written(as_json(out_of_bounds={"count": 0}))).notes == []

    def test_records_of_rccl_tests(self, written: Written) -> None:
        record = {"numCycle": 0, "name": "Broadcast", "size": 1000, "type": "float", "inPlace": 2}
        record |= {"time": 1.0, "algBw": 1.0, "busBw": 9.0, "wrong": 3}
        text = json.dumps([record | {"inPlace": 0, "busBw": 1.0}, record])
        found = read_rocm_json(written(text)).evidence()
        assert found.timings["in_place"].to_pylist() == [False, True]
        assert found.timings["errors"].to_pylist() == [3, 3]
        assert found.notes[-1] == "wrong results in 2 of 2 rows: lines 1, 2"

    GOOD = "16,2,float,,1,,,,,\n"

    @pytest.mark.parametrize("ranks", ["1", "0000008", "1048576", "1048577", "00000008", "0", "many"])
    def test_ranks_of_a_published_sweep(self, written: Written, ranks: str) -> None:
        path = written(f"# ranks: {ranks}\n# ranks: 7\n{CSV_COLUMNS}8,2,float,,1.0,,,,,\n")
        if ranks in ("1", "0000008", "1048576"):
            assert read_csv(path).evidence().timings["group_size"].to_pylist() == [int(ranks)]
        else:
            refused(read_csv, path, "the header's ranks is not a number of ranks, nodes")

    def test_both_placements_of_a_published_row_and_the_half_of_one(self, written: Written) -> None:
        told = "8,2,float,,1.5,,,2.5,,\n16,4,odd,,,,,3.5,,\n32,8,float,,,,,,,\n"
        rows = read_csv(written(f"# rccl: 2.22\n# derived: yes\n{CSV_COLUMNS}{told}"))
        table = rows.evidence().timings
        names = ("bytes", "in_place", "dur_ns", "dtype")
        assert [tuple(row[name] for name in names) for row in table.to_pylist()] == [
            *((8, False, 1500, "float"), (8, True, 2500, "float"), (16, True, 3500, None))
        ]
        assert table["library"].to_pylist() == ["rccl"] * 3
        assert rows.notes == ["its header states that bandwidths are recomputed from size and time"]
        assert rows.facts == {"library_version": "2.22"}

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (CSV_COLUMNS + GOOD + "8,2,float\n", "line 3: has 3 cells instead of 10; write it again"),
            (
                CSV_COLUMNS + GOOD + "8,2,float,,fast,,,,,\n",
                "line 3: has text in place of a number; write it again",
            ),
            (CSV_COLUMNS + GOOD + "x,2,float,,1,,,,,\n", "line 3: has text in place of a number"),
            (
                f"# coll: broadcast\ncount,{CSV_COLUMNS}",
                "line 2: its columns are not size_bytes,count,dtype,redop,",
            ),
        ],
    )
    def test_rows_that_are_damaged(self, written: Written, text: str, says: str) -> None:
        refused(read_csv, written(text), says)
