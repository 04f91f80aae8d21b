# SPDX-License-Identifier: Apache-2.0
"""Eight ranks of DLRM with their execution traces: every collective's payload, group, wait and transfer.

The figures are read off the JSON files by hand: starts and durations of the kernels named ncclKernel_*
(whole µs there), tensors of the execution traces' record_param_comms.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest

import cclbench
from cclbench.ground.errors import InputError

from .conftest import Measure


@dataclass(frozen=True)
class Instance:
    """One collective on ranks 0 to 7: bytes in and out, start after the first rank's, duration, µs."""

    seq: int
    kind: str
    dtype: str
    in_bytes: int
    out_bytes: tuple[int, ...]
    starts: tuple[int, ...]
    durations: tuple[int, ...]
    latest: int
    """The rank that came last."""
    waits: tuple[int, ...]


# fmt: off
INSTANCES = (
    # 6,144 floats, 768 for each rank
    Instance(147, "all_to_all", "float", 24_576, (24_576,) * 8,
             (5489, 0, 7116, 1502, 2752, 2955, 7119, 7624), (2146, 7635, 518, 6132, 4882, 4679, 514, 10),
             7, (2135, 7624, 508, 6122, 4872, 4669, 505, 0)),
    # 24 long ints, 3 for each rank
    Instance(148, "all_to_all", "long int", 192, (192,) * 8,
             (77, 84, 592, 86, 0, 48, 589, 1101), (1032, 1025, 517, 1021, 1108, 1060, 520, 8),
             7, (1024, 1017, 509, 1015, 1101, 1053, 512, 0)),
    # 384 ints, 48 for each rank
    Instance(149, "all_to_all", "int", 1_536, (1_536,) * 8,
             (0, 6, 3, 1, 5, 0, 0, 168), (176, 169, 173, 174, 170, 175, 175, 7),
             7, (168, 162, 165, 167, 163, 168, 168, 0)),
    # 96, 224, 288, 1664, 592, 96, 192, 240 ints to ranks 0 to 7, each of which gets 8 times its own
    Instance(150, "all_to_all", "int", 13_568, (3_072, 7_168, 9_216, 53_248, 18_944, 3_072, 6_144, 7_680),
             (1, 1, 1, 0, 1, 0, 0, 125), (131, 132, 131, 133, 132, 132, 131, 7),
             7, (124, 124, 124, 125, 124, 125, 125, 0)),
    # gradients: 394,241 floats
    Instance(151, "all_reduce", "float", 1_576_964, (1_576_964,) * 8,
             (64, 0, 107, 15, 214, 211, 96, 223), (246, 307, 198, 291, 95, 96, 213, 86),
             7, (159, 223, 116, 208, 9, 12, 127, 0)),
    Instance(152, "all_to_all", "float", 24_576, (24_576,) * 8,
             (31, 0, 76, 1, 482, 534, 59, 186), (514, 545, 468, 542, 61, 10, 483, 357),
             5, (503, 534, 458, 533, 52, 0, 475, 348)),
    # 112 floats
    Instance(153, "all_reduce", "float", 448, (448,) * 8,
             (2, 1, 30, 0, 535, 584, 5, 136), (601, 601, 572, 602, 70, 20, 602, 468),
             5, (582, 583, 554, 584, 49, 0, 579, 448)),
    # 226,960 floats
    Instance(154, "all_reduce", "float", 907_840, (907_840,) * 8,
             (0, 27, 39, 68, 885, 871, 34, 147), (952, 922, 915, 879, 69, 79, 920, 803),
             4, (885, 858, 846, 817, 0, 14, 851, 738)),
)
# fmt: on


@pytest.fixture(scope="module")
def dlrm(kineto: Path, measure: Measure) -> pd.DataFrame:
    """The collectives of all eight ranks."""
    return measure(kineto / "dlrm_8xv100").collectives().to_pandas()


def test_eight_instances_of_eight_ranks(kineto: Path, measure: Measure, dlrm: pd.DataFrame) -> None:
    matching = measure(kineto / "dlrm_8xv100").manifest["matching"]
    assert (matching["rows"], matching["matched"], matching["unmatched"]) == (64, 64, {})
    assert (matching["instances"], matching["complete"], matching["partial"]) == (8, 8, 0)
    for _, rows in dlrm.groupby("instance"):
        assert sorted(rows["rank"]) == list(range(8))
        assert rows["seq"].nunique() == 1


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda i: f"{i.seq}-{i.kind}")
def test_the_table(dlrm: pd.DataFrame, instance: Instance) -> None:
    """The first exchange takes ten microseconds, not seven thousand."""
    rows = dlrm[dlrm["seq"] == instance.seq].sort_values("rank")
    assert list(rows["rank"]) == list(range(8))
    stated = ("kind", "dtype", "in_bytes", "group", "group_size", "payload_source")
    wanted = (instance.kind, instance.dtype, instance.in_bytes, "0-7", 8, "execution_trace")
    assert [set(rows[column]) for column in stated] == [{value} for value in wanted]
    assert tuple(rows["out_bytes"]) == instance.out_bytes
    starts, durations = rows["start_ns"], rows["end_ns"] - rows["start_ns"]
    assert tuple((starts - starts.min()) // 1000) == instance.starts
    assert tuple(durations // 1000) == instance.durations
    # the clocks need no correction: one host
    assert list(rows["arrival_ns"]) == list(starts)
    assert rows["rank"].iloc[rows["arrival_ns"].argmax()] == instance.latest
    assert tuple(rows["wait_ns"] // 1000) == instance.waits
    assert list(rows["wait_ns"] + rows["transfer_ns"]) == list(durations)
    if instance.seq == 147:
        assert list(rows["transfer_ns"]) == [11_000, 11_000, *[10_000] * 4, 9_000, 10_000]


def test_the_manifest_says_what_was_read_and_what_was_inferred(kineto: Path, measure: Measure) -> None:
    manifest = measure(kineto / "dlrm_8xv100").manifest
    schema = json.loads((Path(cclbench.__file__).parent / "schemas" / "manifest.json").read_text())
    assert list(jsonschema.Draft7Validator(schema).iter_errors(manifest)) == []
    (before,) = manifest["notes"]
    assert before.startswith("the annotation of the only step begins up to 2.27 ms (rank ")
    for entry in manifest["ranks"]:
        (beside,) = entry["beside"]
        assert beside["name"] == f"pytorch_et/dlrm_eg_{entry['rank']}.json.gz"
        assert entry["collectives"]["payload_sources"] == {"execution_trace": 8}
        (note,) = entry["notes"]
        assert "one process group is of 8 ranks: taken as all of the job" in note


@pytest.fixture
def copy(kineto: Path, tmp_path: Path) -> Path:
    """A copy of the eight ranks, free to be damaged."""
    shutil.copytree(kineto / "dlrm_8xv100", tmp_path / "dlrm", copy_function=shutil.copyfile)
    return tmp_path / "dlrm"


def altered(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write an execution trace again with a change in it."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    change(trace)
    path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))


def test_without_execution_traces_no_group_is_stated(copy: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    before = cclbench.ingest(copy, store=store, inference=False)
    shutil.rmtree(copy / "pytorch_et")
    run = cclbench.ingest(copy, store=store, inference=False)
    assert run.manifest["fingerprint"] != before.manifest["fingerprint"]
    assert run.manifest["matching"]["unmatched"] == {"its process group is unknown": 64}
    assert set(run.collectives().to_pandas()["payload_source"]) == {"annotation"}


def test_an_execution_trace_of_other_calls_is_not_used(copy: Path, tmp_path: Path) -> None:
    """Rank 2's lacks a call, rank 4's is of another process, rank 5's speaks of another size."""
    folder = copy / "pytorch_et"

    def without_one(trace: dict[str, Any]) -> None:
        at = next(i for i, node in enumerate(trace["nodes"]) if node["name"] == "nccl:all_reduce")
        del trace["nodes"][at]

    def larger(trace: dict[str, Any]) -> None:
        node = next(node for node in trace["nodes"] if node["name"] == "nccl:all_to_all")
        node["inputs"][0][3] += 1

    altered(folder / "dlrm_eg_2.json.gz", without_one)
    altered(folder / "dlrm_eg_4.json.gz", lambda trace: trace.update(pid=1))
    altered(folder / "dlrm_eg_5.json.gz", larger)
    run = cclbench.ingest(copy, store=tmp_path / "store")
    notes = {entry["rank"]: entry["notes"] for entry in run.manifest["ranks"]}
    unused = "the execution trace beside it is not used: "
    assert notes[2] == [unused + "it has 7 calls, the trace 8"]
    assert notes[4] == []
    assert notes[5] == [unused + "call 1 (all_to_all) is of 24580 bytes, the trace's of 24576"]
    note, _ = run.manifest["notes"]
    assert "1 execution traces are of no rank's process" in note
    assert "pytorch_et/dlrm_eg_4.json.gz" in note
    calls = run.collectives().to_pandas()
    silent = calls["payload_source"] == "annotation"
    assert set(calls["rank"][silent]) == {2, 4, 5}
    # five of eight ranks: their instances are partial, and no wait is told
    assert run.manifest["matching"]["partial"] == 8
    assert calls["wait_ns"].isna().all()


def test_several_groups_are_not_taken_for_the_whole_job(copy: Path, tmp_path: Path) -> None:
    def two_groups(trace: dict[str, Any]) -> None:
        for node in trace["nodes"]:
            if node["name"] == "record_param_comms" and node["inputs"][4:5] == ["allreduce"]:
                node["inputs"][2] += 1

    for path in (copy / "pytorch_et").iterdir():
        altered(path, two_groups)
    run = cclbench.ingest(copy, store=tmp_path / "store")
    calls = run.collectives().to_pandas()
    assert calls["group"].isna().all()
    # split sizes have an entry for each rank: they tell the size of one group, nothing that of the other
    assert set(calls["group_size"][calls["kind"] == "all_to_all"]) == {8}
    assert calls["group_size"][calls["kind"] == "all_reduce"].isna().all()
    assert run.manifest["ranks"][0]["notes"] == []


def test_an_execution_trace_alone_is_no_source_and_a_damaged_one_an_error(copy: Path, tmp_path: Path) -> None:
    for source in (copy / "pytorch_et", copy / "pytorch_et" / "dlrm_eg_0.json.gz"):
        with pytest.raises(InputError, match="is an execution trace only"):
            cclbench.ingest(source, store=tmp_path / "store")
    path = copy / "pytorch_et" / "dlrm_eg_3.json.gz"
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(InputError, match="remove it to do without") as raised:
        cclbench.ingest(copy, store=tmp_path / "store")
    assert raised.value.where == str(path)


# Tesla V100-SXM2: 6 NVLink 2 of which NCCL's constants count on 20 GB/s each; 8 ranks in the node.
USABLE_BYTES_PER_S = 6 * 20e9
BUS_FACTOR = 2 * 7 / 8


def test_eight_v100_use_a_fifth_of_their_links_to_reduce(test_data: Path, measure: Measure) -> None:
    run = measure(test_data / "kineto" / "dlrm_8xv100")
    calls = run.collectives().to_pandas()
    reduces = calls[(calls["kind"] == "all_reduce") & calls["transfer_ns"].notna()]
    assert len(reduces)
    share = (
        (reduces["in_bytes"].sum() * BUS_FACTOR) / (reduces["transfer_ns"].sum() / 1e9) / USABLE_BYTES_PER_S
    )
    (row,) = (
        row
        for row in run.rows
        if row["metric"] == "comm.bandwidth_utilization"
        and (row["collective"], row["group"], row["rank"]) == ("all_reduce", None, None)
    )
    assert row["value"] == pytest.approx(share)
    assert row["value"] == pytest.approx(0.21, abs=0.01)
    assert "no card names the system" in row["reason"]
