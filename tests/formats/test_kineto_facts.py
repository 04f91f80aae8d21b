# SPDX-License-Identifier: Apache-2.0
"""What a Kineto file says of itself, which parts it is read in, and what a run has of it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from helpers.refused import refused

import cclbench
from cclbench.formats import Part, json_events
from cclbench.formats import kineto as kineto_reader
from cclbench.formats.kineto import Kineto
from cclbench.ground.errors import InputError
from cclbench.record.facts import ProcessGroup


def test_distributed_info(read, write):
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 16, "ranks": list(range(16))},
        {"pg_name": 7, "pg_desc": "mesh_tp", "pg_size": 2, "ranks": [4, 5]},
    ]
    info = {"backend": "nccl", "rank": 5, "world_size": 16, "pg_config": groups, "nccl_version": "2.21.5"}
    facts = read(write([], schemaVersion=1, distributedInfo=info)).trace.facts
    assert (facts.rank, facts.rank_source, facts.world_size) == (5, "distributedInfo", 16)
    assert (facts.backend, facts.library_version) == ("nccl", "2.21.5")
    assert facts.groups[1] == ProcessGroup(name="7", description="mesh_tp", ranks=(4, 5))
    assert len(facts.groups[0].ranks) == 16


def test_device_properties_and_keys_on_both_sides(read, write, event):
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_029_158_912, "numSms": 132}
    devices = [{**device, "warpSize": 32}, {**device, "id": 1, "warpSize": 32}]
    facts = read(write([], deviceProperties=devices, after={"pytorch_version": "2.6.0"})).trace.facts
    assert (facts.device_name, facts.device_count, facts.sm_count) == ("NVIDIA H100 80GB HBM3", 2, 132)
    assert (facts.device_memory_bytes, facts.vendor) == (85_029_158_912, "nvidia")
    assert facts.producer_version == "2.6.0"
    path = write([event("kernel", "k")], rank=2, after={"cupti_version": 24, "traceName": "a]b}c"})
    facts = read(path).trace.facts
    assert (facts.rank, facts.vendor) == (2, "nvidia")
    assert read(write([], deviceProperties=[])).trace.facts.device_count == 0
    assert read(write([])).trace.facts.device_count is None


@pytest.mark.parametrize(
    ("outer", "vendor"),
    [
        *(({"hip_runtime_version": 60140092}, "amd"), ({"roctracer_version": 4}, "amd")),
        *(({"cupti_version": 24}, "nvidia"), ({}, None)),
        # the first device's warps
        *(
            ({"deviceProperties": [{"warpSize": size}, {"warpSize": 64}]}, vendor)
            for size, vendor in ((32, "nvidia"), (64, "amd"), (63, None), (33, None))
        ),
    ],
)
def test_vendor(read, write, outer, vendor):
    assert read(write([], **outer)).trace.facts.vendor == vendor


@pytest.mark.parametrize(
    ("outer", "rank", "source"),
    [
        *(({"rank": 3}, 3, "metadata"), ({"metadata": {"rank": 4}}, 4, "metadata")),
        ({"distributedInfo": {"rank": 1}, "rank": 3}, 1, "distributedInfo"),
        *(
            ({"distributedInfo": one}, None, None)
            for one in ({"world_size": 8}, {"rank": True}, {"rank": "3"})
        ),
        ({"distributedInfo": "none", "deviceProperties": {"a": 1}, "metadata": []}, None, None),
    ],
)
def test_rank(read, write, outer, rank, source):
    facts = read(write([], **outer)).trace.facts
    assert (facts.rank, facts.rank_source) == (rank, source)


def test_rank_of_host_ops_counts_only_in_the_default_group(read, write, event):
    def call(rank, description):
        told = {"Collective name": "allreduce", "Rank": rank, "Process Group Description": description}
        return event("cpu_op", "record_param_comms", **told)

    facts = read(write([call(0, "mesh_tp"), call(6, "default_pg"), call(6, "default_pg")])).trace.facts
    assert (facts.rank, facts.rank_source) == (6, "record_param_comms")
    assert read(write([call(0, "mesh_tp")])).trace.facts.rank is None
    assert read(write([call(6, "default_pg"), call(7, "default_pg")])).trace.facts.rank is None


@pytest.mark.parametrize("rank", [0, (1 << 31) - 1, -1, 2**31, 10**30])
def test_ranks_to_their_bounds(read, write, rank):
    info = {"rank": rank, "world_size": 4, "pg_config": [{"pg_name": "0", "ranks": [rank]}]}
    path = write([], distributedInfo=info)
    if rank in (0, (1 << 31) - 1):
        facts = read(path).trace.facts
        assert (facts.rank, facts.groups) == (rank, (ProcessGroup(name="0", ranks=(rank,)),))
    else:
        refused(read, path, f"distributedInfo says rank {rank}")


@pytest.mark.parametrize("ranks", [[0, -1], [0, 2**31], [0, "..."], "[0, ..., 9]", [], None, [0, True]])
def test_group_with_a_damaged_list_of_ranks_has_none(read, write, ranks):
    info = {"pg_config": [{"pg_name": "1", "ranks": ranks}, "no group"]}
    assert read(write([], distributedInfo=info)).trace.facts.groups == (ProcessGroup(name="1"),)


def test_groups_of_a_capture_that_was_requested_from_outside(read, write, event):
    """Its header has ranks as text, cut after 30 characters; the group's own calls say the rest."""
    config = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 64, "ranks": "[0, 1, 2, ..., 62, 63]"},
        {"pg_name": "1", "pg_desc": "mesh_tp", "pg_size": 2, "ranks": "[4, 5]"},
        {"pg_name": "2", "pg_desc": "mesh_dp", "pg_size": 8, "ranks": "[4, 12, ..., 60]"},
    ]
    told = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 64}
    call = event("cpu_op", "record_param_comms", **told, **{"Global rank start": 0, "Global rank stride": 1})
    info = {"rank": 4, "world_size": 64, "pg_config": config}
    found = read(write([call], after={"distributedInfo": info}))
    assert [group.ranks for group in found.trace.facts.groups] == [tuple(range(64)), (4, 5), None]
    assert (found.trace.facts.world_size, found.trace.notes) == (64, [])


USED = "4 is used, the size of the default group, which all ranks are in"
UNKNOWN = "the world's size is taken as unknown"


@pytest.mark.parametrize(
    ("groups", "world", "note"),
    [
        *(([("default_pg", 4, ranks)], 4, USED) for ranks in ([0, 1, 2, 3], [])),
        *(([("default_pg", 4, []), ("tp", 2, ranks)], 4, USED) for ranks in ([2, 3], [2, 1])),
        *(([("default_pg", 4, []), ("tp", 2, ranks)], None, UNKNOWN) for ranks in ([3, 4], [2, 4])),
        *(([("tp", 2, [2, 3])], None, UNKNOWN), ([("undefined", 4, [])], 2, None)),
        ([("default_pg", 4, []), ("default_pg", 8, [])], None, UNKNOWN),
        ([("default_pg", 2, [0, 1]), ("tp", 1, [1])], 2, None),
        ([("default_pg", 2, []), ("dp", 2, [0, "..."])], 2, None),
        ([("default_pg", 2, [0, 1]), ("tp", 2, [1, 2])], None, UNKNOWN),
        ([("default_pg", 3, []), ("tp", 2, [2, 3])], None, UNKNOWN),
        ([("default_pg", 0, []), ("tp", 2, [0, 1])], 2, None),
    ],
)
def test_a_world_that_contradicts_its_process_groups_is_told(read, write, groups, world, note):
    names = ("pg_name", "pg_desc", "pg_size", "ranks")
    config = [dict(zip(names, (str(i), *group), strict=True)) for i, group in enumerate(groups)]
    found = read(write([], distributedInfo={"rank": 1, "world_size": 2, "pg_config": config}))
    assert found.trace.facts.world_size == world
    said = "the header states a world of 2 ranks, its process groups contradict that: "
    assert found.trace.notes == ([] if note is None else [said + note])


@pytest.mark.parametrize("base", ["soon", 10**30, 1.5, None, [1]])
def test_base_time_that_is_none(read, write, event, base):
    with pytest.raises(InputError, match="baseTimeNanoseconds"):
        read(write([event("kernel", "k")], baseTimeNanoseconds=base))


def test_processes_and_worlds_as_stated(read, write, event):
    found = read(write([], distributedInfo={"world_size": 8}))
    assert (found.trace.facts.world_size, found.trace.notes) == (8, [])
    config = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4}]
    assert read(write([], distributedInfo={"pg_config": config})).trace.facts.world_size is None
    assert read(write([event("cpu_op", "o", pid=12)])).trace.facts.process_id == 12
    assert read(write([event("cpu_op", "o", pid="main")])).trace.facts.process_id is None


def test_what_is_no_text_or_number_says_nothing(read, write):
    device = {"name": True, "totalGlobalMem": True, "numSms": "132", "warpSize": 31}
    info = {"backend": 3, "nccl_version": [2], "world_size": True}
    outer = {"distributedInfo": info, "deviceProperties": ["x", device], "pytorch_version": 2.5}
    facts = read(write([], **outer)).trace.facts
    assert (facts.backend, facts.library_version, facts.world_size) == ("3", None, None)
    assert (facts.producer, facts.producer_version, facts.vendor) == ("PyTorch Profiler", "2.5", None)
    assert (facts.device_name, facts.device_memory_bytes, facts.sm_count) == (None, None, None)
    assert facts.device_count == 1


LATEST = 1 << 61


@pytest.mark.parametrize("base", [LATEST, -LATEST])
def test_base_times_to_their_bounds(read, write, event, base):
    (row,) = read(write([event("kernel", "k", 0)], baseTimeNanoseconds=base)).rows
    assert row["start_ns"] == base
    path = write([event("kernel", "k", 0)], baseTimeNanoseconds=base + base // LATEST)
    assert refused(read, path) == f"{path}: baseTimeNanoseconds is {base + base // LATEST}, not a time"


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_base_time_behind_the_events_stands_within_64_kib_of_the_end(read, write, event, monkeypatch, name):
    """Of a compressed file all is read before its times are needed."""
    monkeypatch.setattr(json_events, "CHUNK", 128)
    rows = [event("kernel", "k", 1), event("kernel", "k", 2)]
    base = {"baseTimeNanoseconds": 1_700_000_000_000_000_000}
    near = {**base, "z": "x" * (64 * 1024 - 52)}
    assert read(write(rows, name=name, after=near)).rows[0]["start_ns"] == 1_700_000_000_000_001_000
    path = write(rows, name=name, after={**base, "z": near["z"] + "x"})
    if name == "t.json.gz":
        assert read(path).rows[0]["start_ns"] == 1_700_000_000_000_001_000
    else:
        assert refused(read, path) == f"{path}: baseTimeNanoseconds stands too far from its end"


def test_the_last_base_time_at_the_end_is_the_file_s_own(read, write, event, monkeypatch):
    monkeypatch.setattr(json_events, "CHUNK", 128)
    rows = [event("kernel", "k", 1, baseTimeNanoseconds=5), event("kernel", "k", 2)]
    assert read(write(rows, after={"baseTimeNanoseconds": 7000})).rows[0]["start_ns"] == 8000


class TestParts:
    """Of files of a size, with parts as small as that shows."""

    @staticmethod
    def file(folder: Path, events: int) -> tuple[Path, list[int]]:
        """A file of so many events of eleven bytes with a comma, and where each begins."""
        path = folder / "t.json"
        text = b'{"traceEvents":[' + b",".join([b'{"ph":"X"}'] * events) + b"]}"
        path.write_bytes(text)
        return path, [16 + 11 * i for i in range(events)]

    @pytest.mark.parametrize(("size", "count"), [(100, 11), (500, 2), (558, 2), (559, 1), (2000, 1)])
    def test_they_begin_at_the_first_event_behind_their_share(self, tmp_path, monkeypatch, size, count):
        path, begins = self.file(tmp_path, 100)
        whole = path.stat().st_size
        assert whole == 1117
        monkeypatch.setattr(kineto_reader, "PART_BYTES", size)
        # An event is known by the end of the one before it, two bytes ahead.
        cuts = [next(b for b in begins if b - 2 >= whole * i // count) for i in range(1, count)]
        expected = [Part(begin=b, end=e) for b, e in zip([0, *cuts], [*cuts, whole], strict=True)]
        assert Kineto().parts(path) == (expected if count > 1 else [Part()])

    def test_they_are_no_more_than_999(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert kineto_reader.PART_BYTES == 32 << 20
        path, _ = self.file(tmp_path, 3000)
        monkeypatch.setattr(kineto_reader, "PART_BYTES", 1)
        assert len(Kineto().parts(path)) == 999

    def test_large_files_are_streams(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Such files are at least fifteen times as large when inflated."""
        path, _ = self.file(tmp_path, 100)
        path.write_bytes(gzip.compress(path.read_bytes()))
        monkeypatch.setattr(kineto_reader, "PART_BYTES", path.stat().st_size * 15 / 2)
        assert Kineto().parts(path) == [Part(stream=True)]
        monkeypatch.setattr(kineto_reader, "PART_BYTES", path.stat().st_size * 15 / 2 + 0.25)
        assert Kineto().parts(path) == [Part()]

    @pytest.mark.parametrize(("asked", "size"), [(1, 120), (300, 300)])
    def test_a_stream_is_cut_into_parts_of_that_size_or_what_makes_999_of_the_largest(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, size: int
    ) -> None:
        path, _ = self.file(tmp_path, 100)
        packed = gzip.compress(path.read_bytes(), mtime=0)
        path.write_bytes(packed + bytes(300 - len(packed)))
        assert path.stat().st_size * 400 // 999 == 120
        monkeypatch.setattr(kineto_reader, "PART_BYTES", asked)
        for name in ("CHUNK", "PIECE"):
            monkeypatch.setattr(json_events, name, 24)
        lengths = []
        for part in Kineto().inflate_parts(path, tmp_path):
            assert part.begin is not None
            lengths.append(part.end and part.end - part.begin)
        assert len(lengths) > 2
        # The first ends where a block does that holds an event's begin.
        assert all(size <= length < size + 48 for length in lengths[:-1] if length is not None)


@pytest.fixture
def collectives(tmp_path):
    """Ingests a file and gives its collectives as dictionaries."""
    return lambda path: cclbench.ingest(path, store=tmp_path / "runs", jobs=1).collectives().to_pylist()


CALL = {"Collective name": "_reduce_scatter_base", "In msg nelems": 64, "Out msg nelems": 16}
CALL |= {"dtype": "Float8_e4m3fn", "Group size": 4, "Process Group Name": "3"}
CALL |= {"Process Group Description": "mesh_tp", "Process Group Ranks": "[0, 2, ..., 6]"}
CALL |= {"Global rank start": 0, "Global rank stride": 2}
KERNEL = "ncclDevKernel_ReduceScatter_Sum_u8_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SAID = {"kind": "reduce_scatter", "library": "nccl", "group": "0-6:2", "dimension": "tp"}
BYTES = {"in_bytes": 64, "out_bytes": 16, "dtype": "Float8_e4m3fn"}


def test_metadata_on_the_host_op_reaches_what_it_launched(collectives, write, event):
    events = [
        event("cpu_op", "record_param_comms", 1, 5, tid=4, **CALL, Seq=8),
        event("cuda_runtime", "cudaLaunchKernelExC", 2, 1, tid=4, correlation=40),
        event("cuda_runtime", "cudaLaunchKernelExC", 7, 1, tid=4, correlation=41),
        event("kernel", KERNEL, 10, 3, stream=20, correlation=40),
        event("kernel", KERNEL, 20, 3, stream=20, correlation=41),
    ]
    known, unknown = collectives(write(events, schemaVersion=1))
    expected = {**SAID, **BYTES, "seq": 8, "payload_source": "host_op"}
    assert {key: known[key] for key in expected} == expected
    assert (unknown["kind"], unknown["group"], unknown["in_bytes"]) == ("reduce_scatter", None, None)


def test_gloo_with_annotations(collectives, write, event):
    mark = "cclbench::collective kind=reduce_scatter seq=3 in_bytes=4096 out_bytes=2048 dtype=float32"
    mark += " rows=1 threads=90 pg=3 ranks=0,1 desc=mesh_tp"
    shape = {"Input Dims": [[1024]], "Input type": ["float"]}
    events = [
        event("cpu_op", "c10d::reduce_scatter_tensor_coalesced_", 1, 4, tid=7),
        event("user_annotation", mark, 2, 2, tid=7),
        event("user_annotation", "gloo:all_reduce", 6, 5, tid=90, **shape),
        event("user_annotation", "gloo:all_reduce", 20, 5, tid=91, **shape),
    ]
    known, own = collectives(write(events, schemaVersion=1, deviceProperties=[]))
    expected = {"kind": "reduce_scatter", "library": "gloo", "group": "0-1", "seq": 3}
    expected |= {"in_bytes": 4096, "out_bytes": 2048}
    assert {key: known[key] for key in expected} == expected
    assert (own["kind"], own["group"], own["in_bytes"], own["out_bytes"]) == ("all_reduce", None, 4096, 4096)
    assert (known["start_ns"], known["end_ns"]) == (6_000, 11_000)


def test_real_gloo_rows_without_annotations(collectives, test_data):
    """`cpu_only`: five all-reduces of 321,271 floats, five of 2,082,411; all its groups are all 300 ranks."""
    (path,) = (test_data / "kineto" / "cpu_only").iterdir()
    rows = collectives(path)
    assert sorted(r["in_bytes"] for r in rows) == [1_285_084] * 5 + [8_329_644] * 5
    assert all(r["out_bytes"] == r["in_bytes"] for r in rows)
    assert {(r["group"], r["group_size"]) for r in rows} == {("0-299", 300)}


def test_ranks_of_2026_are_matched_by_sequence_number(tmp_path, write, event):
    """Rank 1 lacks the first call: by order its second would be the first; hashes of 64 bits stand beside."""
    folder = tmp_path / "job"
    folder.mkdir()
    told = {**CALL, "Collective name": "allreduce", "Group size": 2, "Process Group Ranks": "[0, 1]"}
    for rank, calls in enumerate(((4, 5, 6), (5, 6))):
        name = "ncclDevKernel_AllReduce"
        numbers = [{"Seq": n, "Comms Id": 2**63 + n} for n in calls]
        kernels = [event("kernel", name, 100 * one["Seq"], 50, stream=20, **told, **one) for one in numbers]
        write(kernels, schemaVersion=1, distributedInfo={"rank": rank}).rename(folder / f"rank{rank}.json")
    run = cclbench.ingest(folder, store=tmp_path / "runs", jobs=1)
    rows = [(row["rank"], row["seq"], row["instance"]) for row in run.collectives().to_pylist()]
    (_, first, alone), *others = sorted(rows)
    assert (first, alone) == (4, None)
    assert [(rank, seq) for rank, seq, _ in others] == [(0, 5), (0, 6), (1, 5), (1, 6)]
    assert others[0][2] == others[2][2] != others[1][2] == others[3][2]
