# SPDX-License-Identifier: Apache-2.0
"""Execution traces, shifted clocks and groups that are inferred."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import cclbench
from cclbench.ground.errors import InputError, UsageError
from cclbench.record.run import Run

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
def stated(kineto: Path, measure: Measure) -> Run:
    """All eight ranks as they are, whose execution traces state the process group."""
    return measure(kineto / "dlrm_8xv100")


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda i: f"{i.seq}-{i.kind}")
def test_the_table(stated: Run, instance: Instance) -> None:
    """The first exchange takes ten microseconds, not seven thousand."""
    rows = stated.collectives().to_pandas().query("seq == @instance.seq").sort_values("rank")
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


def test_the_manifest_says_what_was_read_and_what_was_inferred(stated: Run) -> None:
    manifest = stated.manifest
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
    assert (notes[2], notes[4]) == ([unused + "it has 7 calls, the trace 8"], [])
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


def test_eight_v100_use_a_fifth_of_their_links_to_reduce(stated: Run) -> None:
    calls = stated.collectives().to_pandas()
    reduces = calls[(calls["kind"] == "all_reduce") & calls["transfer_ns"].notna()]
    assert len(reduces)
    share = (
        (reduces["in_bytes"].sum() * BUS_FACTOR) / (reduces["transfer_ns"].sum() / 1e9) / USABLE_BYTES_PER_S
    )
    row = stated.figures.row("comm.bandwidth_utilization", collective="all_reduce")
    assert row.value == pytest.approx(share)
    assert row.value == pytest.approx(0.21, abs=0.01)
    assert "no card names the system" in row.reason


SHIFT_US, DRIFT = 250, 20e-6
SHIFTED, DRIFTING = 3, 5
MATCHED = ("comm.wait", "comm.transfer", "comm.skew", "time.exposed_wait", "time.exposed_transfer")
OF_ONE_RANK = ("time.step", "time.compute_only", "time.idle", "comm.time", "comm.volume")


@pytest.fixture(scope="module")
def distorted(kineto: Path, tmp_path_factory: pytest.TempPathFactory) -> cclbench.Run:
    """The traces with two clocks put wrong."""
    folder = tmp_path_factory.mktemp("distorted") / "dlrm"
    shutil.copytree(kineto / "dlrm_8xv100", folder, copy_function=shutil.copyfile)
    for rank in (SHIFTED, DRIFTING):
        (path,) = folder.glob(f"worker{rank}_*")
        trace = json.loads(gzip.decompress(path.read_bytes()))
        begin = min(row["ts"] for row in trace["traceEvents"] if "ts" in row)
        for row in trace["traceEvents"]:
            if "ts" in row:
                late = SHIFT_US if rank == SHIFTED else DRIFT * (row["ts"] - begin)
                row["ts"] = row["ts"] + round(late)
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return cclbench.run(folder, store=tmp_path_factory.mktemp("store"), metrics=[*MATCHED, *OF_ONE_RANK])


def clocks(run: cclbench.Run) -> dict[int, dict[str, float]]:
    """The manifest's account of each rank's clock."""
    return {entry["rank"]: entry for entry in run.manifest["clocks"]["ranks"]}


def figures(run: cclbench.Run, metric: str) -> dict[int | None, float]:
    """A metric's main values, by rank."""
    return {None: run.figures.value(metric), **run.figures.ranks(metric)}


def test_no_correction_of_the_raw_traces(stated: Run) -> None:
    assert [entry["applied"] for entry in clocks(stated).values()] == [False] * 8
    assert all(entry["offset_ns"] == 0 == entry["drift_ppm"] for entry in clocks(stated).values())
    assert stated.manifest["matching"]["complete"] == 8


def test_the_shift_is_recovered_within_the_residual(stated: Run, distorted: Run) -> None:
    """And the same collectives are matched."""
    found = clocks(distorted)
    shifted = found[SHIFTED]
    assert abs(shifted["offset_ns"] - 1000 * SHIFT_US) <= shifted["residual_ns"] + shifted["uncertainty_ns"]
    assert shifted["residual_ns"] < 5_000
    # 20 µs/s over the 14 ms that its collectives span are 0.3 µs: less than the traces' microsecond.
    assert [rank for rank, entry in found.items() if entry["applied"]] == [SHIFTED]
    one, other = (run.manifest["matching"] | {"wait_beyond_duration_ns": 0} for run in (stated, distorted))
    assert one == other


@pytest.mark.parametrize("metric", [*MATCHED, *OF_ONE_RANK])
def test_metrics_are_equal_within_residuals(stated: Run, distorted: Run, metric: str) -> None:
    """Each of the eight collectives of a step may be off by its ranks' residuals.

    Metrics of a rank alone know no other clock: the drift, rounded to the trace's microseconds, moves a
    boundary here and there.
    """
    bound = 8 * 2 * max(entry["residual_ns"] for entry in clocks(distorted).values()) / 1e9
    before, after = figures(stated, metric), figures(distorted, metric)
    assert {None, *(range(8) if metric != "comm.skew" else ())} == before.keys() == after.keys()
    for rank, value in before.items():
        assert after[rank] == pytest.approx(value, abs=bound if metric in MATCHED else 5e-6), rank


CAVEAT = "process groups are inferred (R1): all 8 ranks run one sequence of 8 collectives in step"


@pytest.fixture(scope="module")
def inferred(kineto: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same without the execution traces."""
    folder = tmp_path_factory.mktemp("inferred") / "dlrm"
    folder.mkdir()
    for file in (kineto / "dlrm_8xv100").glob("*.json.gz"):
        shutil.copyfile(file, folder / file.name)
    return cclbench.run(folder, store=folder.parent / "store")


def test_groups_and_figures_are_those_with_execution_traces(stated: Run, inferred: Run) -> None:
    matching = inferred.manifest["matching"]
    assert (matching["matched"], matching["rows"], matching["complete"]) == (64, 64, 8)
    assert matching["unmatched"] == {}
    columns = ["rank", "kind", "group", "group_size", "start_ns", "arrival_ns", "wait_ns", "transfer_ns"]
    by = ["rank", "start_ns"]
    own, true = (run.collectives().to_pandas().sort_values(by)[columns] for run in (inferred, stated))
    assert own.to_dict("records") == true.to_dict("records")
    assert inferred.manifest["clocks"] == stated.manifest["clocks"]
    (group,) = inferred.groups().to_pylist()
    known = {"group": "0-7", "ranks": [*range(8)], "size": 8, "descriptions": [], "source": "inferred"}
    assert group == known
    assert [one["source"] for one in stated.groups().to_pylist()] == ["stated"]
    assert stated.manifest["inference"] is None
    found = numbers(inferred)
    assert found == numbers(stated)
    assert found["comm.wait", None, None, None, None, None, None] is not None


def numbers(run: Run) -> dict[tuple[Any, ...], float | None]:
    keys = ("metric", "rank", "step", "group", "collective", "category", "stat")
    topics = ("time.", "comm.wait", "comm.transfer", "comm.skew", "balance.")
    return {
        tuple(row[key] for key in keys): row["value"] for row in run.rows if row["metric"].startswith(topics)
    }


def test_every_number_that_rests_on_the_group_says_so(stated: Run, inferred: Run) -> None:
    assert not any("inferred" in (row["reason"] or "") for row in stated.rows)
    said = {row["metric"] for row in inferred.rows if (row["reason"] or "").endswith(CAVEAT)}
    silent = {row["metric"] for row in inferred.rows if row["value"] is not None} - said
    assert {"comm.wait", "comm.busbw", "time.exposed_wait", "balance.straggler_rank"} <= said
    assert {"time.step", "time.idle", "compute.time", "comm.time", "overlap.ratio", "data.stall"} <= silent
    for row in inferred.rows:
        of_group = row["group"] is not None or row["metric"] in ("comm.wait", "comm.transfer", "comm.skew")
        if of_group and row["value"] is not None:
            assert row["reason"].endswith(CAVEAT), row


def test_whatif_says_so_too(inferred: Run) -> None:
    found = cclbench.whatif(inferred, "scale_up.bandwidth=x2")
    for row in found.rows:
        modelled = row["provenance"] == "modelled"
        assert (row["reason"] or "").endswith(CAVEAT) == modelled, row


def test_a_run_without_inference_is_another_one(stated: Run, inferred: Run) -> None:
    folder, store = Path(inferred.manifest["source"]), inferred.path.parent
    run = cclbench.run(folder, store=store, inference=False, metrics=["comm.wait"])
    assert run.id != inferred.id
    assert run.manifest["inference"] is None
    assert run.manifest["ingest"]["inference"] is False
    assert run.manifest["matching"]["unmatched"] == {"its process group is unknown": 64}
    assert set(run.collectives().to_pandas()["payload_source"]) == {"annotation"}
    assert run.manifest["fingerprint"] != stated.manifest["fingerprint"]
    assert run.rows[0]["status"] == "not_applicable"
    with pytest.raises(UsageError, match="has inferred process groups"):
        cclbench.metrics(inferred.id, store=store, inference=False)


def test_two_processes_of_torchrun_are_a_world_of_two(test_data: Path, measure: Measure) -> None:
    run = measure(test_data / "nsys" / "nsysai_mfu_2gpu_before_c8f71e.sqlite", "trace")
    assert [entry["facts"]["world_size"] for entry in run.manifest["ranks"]] == [2, 2]
    reason = "a world of 2 ranks has no other group"
    assert run.manifest["inference"] == {"rule": "R0", "group": "0-1", "reason": reason}
    matching = run.manifest["matching"]
    assert (matching["matched"], matching["instances"], matching["complete"]) == (66, 33, 33)
    assert (matching["unmatched"], matching["wait_beyond_duration_ns"]) == ({}, 0)


@pytest.mark.parametrize(
    ("capture", "reason"),
    [("sampled_2of128", "2 of 128 ranks have a trace"), ("ddp_a100", "1 of 8 ranks has a trace")],
)
def test_refused_with_the_condition(kineto: Path, measure: Measure, capture: str, reason: str) -> None:
    run = measure(kineto / capture)
    assert run.manifest["inference"] == {"rule": None, "group": None, "reason": reason}
    assert (run.groups().num_rows, run.manifest["matching"]["matched"]) == (0, 0)
