# SPDX-License-Identifier: Apache-2.0
"""What a Kineto file says of itself beside its events."""

from __future__ import annotations

import pytest
from helpers.refused import refused

from cclbench.formats import json_events
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
            ({"distributedInfo": info}, None, None)
            for info in ({"world_size": 8}, {"rank": True}, {"rank": "3"})
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
