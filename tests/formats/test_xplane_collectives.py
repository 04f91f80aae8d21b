# SPDX-License-Identifier: Apache-2.0
"""Collectives of XLA's devices: payload, participants, instances across devices, files, processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.xplane_files import (
    BEGIN_NS,
    Plane,
    array,
    environment,
    groups,
    hlo_field,
    instruction,
    listed,
    programs,
    read,
    space,
    tpu,
    write,
)

import cclbench
from cclbench.formats import Payload
from cclbench.formats.xplane import collectives, hlo
from cclbench.formats.xplane.hlo_proto import Instruction
from cclbench.record.facts import Communicator, ProcessGroup, TraceFacts
from cclbench.record.run import Run


def test_collectives_of_a_tpu_tell_payload_group_and_kind(tmp_path):
    lone = [(key, at, length, {}) for key, at, length in (("psum", 0, 9), ("gather-start", 10, 1))]
    events = [*lone, ("loop", 11, 5, {}), ("gather-done", 16, 4, {})]
    planes = tpu(0, events), tpu(1, events), programs([[4], [5], [6], [7]]), environment()
    trace, rows = read(write(tmp_path, space(*planes)), "/device:TPU:1")
    # The program runs on devices 4 to 7: of how many is not told.
    assert (trace.facts.rank, trace.facts.world_size, trace.facts.device_count) == (5, None, 2)
    assert (trace.facts.peak_flops_per_s, trace.facts.hbm_bytes_per_s) == (918e12, 1638e9)
    # The name `psum.3` would not be taken for communication.
    assert listed(rows["device kernel"]) == [
        *(("all-reduce.psum.3", 0, 9), ("all-gather-start", 10, 10), ("fusion.1", 11, 5))
    ]
    stated, payloads = trace.stated_payloads, [*trace.stated_payloads.payloads]
    told = {row: payloads[code] for row, code in zip(stated.row, stated.code, strict=True)}
    # Device 5 is partition 1; [2,2]<=[2,2]T(1,0) is {{0,2},{1,3}}: partitions 1 and 3, devices 5 and 7.
    assert (told[0].collective, told[0].in_bytes, told[0].out_bytes) == ("all_reduce", 16, 16)
    assert (told[0].ranks, told[0].dtype) == ((5, 7), "f32")
    # {{0,1},{2,3}}: partitions 0 and 1.
    assert (told[1].collective, told[1].in_bytes, told[1].out_bytes) == ("all_gather", 8, 16)
    assert told[1].ranks == (4, 5)


def test_groups_without_an_assignment_or_a_sign(tmp_path):
    trace, _ = read(write(tmp_path, space(tpu(0, [("psum", 0, 9, {})]))), "/device:TPU:0")
    (payload,) = trace.stated_payloads.payloads
    assert (payload.group_size, payload.ranks) == (2, None)
    assert trace.notes == ["the profile does not state when it began: times are relative to its beginning"]
    ids = np.array([[0], [1]])
    member = collectives.DeviceMember(0, {(1 << 64) - 5: ids})
    found = collectives.collective_members("all-reduce", hlo.Participants(groups=()), -5, member)
    assert found == {"group_size": 2, "ranks": (0, 1)}


# Two replicas of two partitions: device 10·replica + partition.
IDS = np.array([[0, 1], [10, 11]])


def payload_of(text, device=None, ids=None):
    """Of an instruction on a device, in the program 7 of these devices."""
    member = collectives.DeviceMember(device, {} if ids is None else {7: ids})
    return collectives.collective_payload(hlo.parse_instruction(text), 7 if device else None, member)


@pytest.mark.parametrize(
    ("opcode", "attributes", "ranks"),
    [
        *(("all-reduce", "replica_groups={{0,1}}", (1, 11)), ("all-reduce", "replica_groups={}", (1, 11))),
        ("all-reduce", "channel_id=1, replica_groups={{0},{1}}", (10, 11)),
        ("all-reduce", "channel_id=1, replica_groups={{0,1}}", (0, 1, 10, 11)),
        ("all-reduce", "channel_id=1, replica_groups={{0,3},{1,2}}, use_global_device_ids=true", (0, 11)),
        ("all-reduce", "channel_id=1, replica_groups=[1,4]<=[4], use_global_device_ids=true", (0, 1, 10, 11)),
        ("all-to-all", "channel_id=1, replica_groups={{0,1}}", (10, 11)),
        ("collective-permute", "channel_id=1, source_target_pairs={{0,1}}", (10, 11)),
        ("collective-permute", "source_target_pairs={{0,1},{1,0}}", (1, 11)),
        *(("all-reduce", "replica_groups={{0,9}}", None), ("all-reduce", "to_apply=%add", None)),
    ],
)
def test_what_the_numbers_of_replica_groups_mean(opcode, attributes, ranks):
    payload = payload_of(f"%x = f32[4]{{0}} {opcode}(f32[4]{{0}} %a), {attributes}", 11, IDS)
    assert (sorted(payload.ranks) if payload.ranks else None) == (list(ranks) if ranks else None)


PERMUTE = "%x = f32[4]{0} collective-permute(f32[4]{0} %a), "


def test_partners_of_a_permute():
    text = PERMUTE + "channel_id=1, source_target_pairs={{0,1},{1,2},{3,4}}"
    ids = np.array([[10, 11, 12, 13, 14]])
    seen = {device: payload_of(text, device, ids) for device in range(10, 15)}
    partners = ((10, 11), (10, 12), (11, 12), (13, 14), (13, 14))
    assert {d: (p.src_rank, p.dst_rank) for d, p in seen.items() if p} == dict(enumerate(partners, 10))
    assert {p.ranks for p in seen.values() if p} == {(10, 11, 12), (13, 14)}
    # of several partners the first is told
    text = PERMUTE + "source_target_pairs={{0,1},{2,1},{1,0},{1,2}}"
    payload = payload_of(text, 11, np.array([[10], [11], [12]]))
    assert (payload.src_rank, payload.dst_rank, payload.group_size) == (10, 10, 3)


def test_collectives_of_a_gpu_have_the_payload_of_their_program(tmp_path):
    """f32[2] gathered into f32[4]: a start's result holds the operand as well."""
    pair = hlo_field(2, 13) + hlo_field(4, array(2)) + hlo_field(4, array(4))
    fields = hlo_field(36, b"\x01"), groups((0, 2), (1, 3))
    gather = instruction("all-gather-start.2", "all-gather-start", pair, 2, *fields)
    metadata = programs([[0], [1], [2], [3]], instruction("a", "parameter", array(2), 1), gather)
    told = {"hlo_op": "all-gather-start.2", "program_id": 7}
    kernels = [("gemm", 0, 5, {}), ("ncclDevKernel_AllGather_RING_LL", 10, 5, told)]
    kernels.append(("ncclDevKernel_AllGather_RING_LL", 20, 5, told | {"program_id": 8}))
    plane = Plane("/device:GPU:0", device_vendor="Nvidia").line("Stream #7(Kernel)", kernels)
    trace, _ = read(write(tmp_path, space(plane, metadata, environment())), "/device:GPU:0")
    (payload, nothing), rows = trace.stated_payloads.payloads, list(trace.stated_payloads.row)
    assert (rows, payload.collective, payload.dtype) == ([1, 2], "all_gather", "f32")
    # One of the program's four devices is here: the group has a size, and which it is nobody tells.
    assert (payload.in_bytes, payload.out_bytes, payload.group_size, payload.ranks) == (8, 16, 2, None)
    assert (nothing.collective, nothing.in_bytes, nothing.library) == (None, None, None)
    assert (trace.facts.world_size, trace.facts.communicators) == (4, ())
    which = "the profile does not state which of the program's devices this GPU is"
    assert trace.notes == [
        "payload of 1 collectives unknown: the profile has no HLO of their program",
        f"process group of 1 collectives unknown: {which}",
    ]


def who(opcode: str, device: int | None, ids: np.ndarray, program: int | None = 7, **told):
    member = collectives.DeviceMember(device, {7: ids})
    return collectives.collective_members(opcode, hlo.Participants(**told), program, member)


def test_who_takes_part_where_the_device_is_not_known_to_run_it():
    ids = IDS
    same, other = ((0, 1), (2, 3)), ((0, 1), (2,))
    for device, program in ((None, 7), (99, 7), (0, None), (0, 8)):
        assert who("all-reduce", device, ids, program, groups=same) == {"group_size": 2}
        assert who("all-reduce", device, ids, program, groups=other) == {"group_size": None}
        assert who("all-reduce", device, ids, program, groups=()) == {"group_size": None}
        assert who("all-reduce", device, ids, program) == {}
        # Across replicas and partitions the sizes of what is listed are not those of the groups.
        for told, size in (({"has_channel": True}, None), ({"has_channel": True, "has_global_ids": True}, 2)):
            assert who("all-reduce", device, ids, program, groups=same, **told) == {"group_size": size}
        assert who("all-to-all", device, ids, program, groups=same, has_channel=True) == {"group_size": 2}
    assert who("all-reduce", 0, np.array([[0, 0]]), groups=same) == {"group_size": 2}
    assert who("send", None, ids) == who("recv", 0, ids, groups=same) == {"group_size": 2}


@pytest.mark.parametrize(
    ("groups", "ranks"),
    [
        *((((0,), (1,)), (11,)), (((1, 0),), (11, 1)), (((0, 2), (0, 1)), (1, 11))),
        *((((0, -1), (0, 1)), (1, 11)), (((0, 2),), None), ((), (1, 11))),
    ],
)
def test_the_group_is_the_first_that_can_be_and_has_the_device(groups, ranks):
    found = who("all-reduce", 11, IDS, groups=groups)
    assert found == ({} if ranks is None else {"group_size": len(ranks), "ranks": ranks})


@pytest.mark.parametrize(
    ("text", "in_bytes", "out_bytes", "dtype"),
    [
        ("f32[4] all-reduce(f32[4] %a)", 16, 16, "f32"),
        ("(f32[4], bf16[4]) all-reduce-start(f32[4] %a, bf16[4] %b)", 24, 24, "f32"),
        ("(f32[2], f32[4]) all-gather-start(f32[2] %a)", 8, 16, "f32"),
        ("(bf16[8], bf16[2]) reduce-scatter(bf16[8] %a, bf16[8] %b)", 32, 20, "bf16"),
        ("f32[4] all-gather-start(f32[2] %a)", 8, 16, "f32"),
        ("bf16[8] all-gather(token[] %t, bf16[4] %a)", 8, 16, "bf16"),
        ("(u8[4], u32[], token[]) send(u8[4] %a, token[] %t)", 4, 8, "u8"),
    ],
)
def test_bytes_and_type_of_a_collective_by_its_text(text, in_bytes, out_bytes, dtype):
    payload = payload_of(f"%x = {text}")
    assert (payload.in_bytes, payload.out_bytes, payload.dtype) == (in_bytes, out_bytes, dtype)
    assert (payload.source, payload.library) == ("kernel", "xla")


@pytest.mark.parametrize(
    ("opcode", "in_bytes", "out_bytes", "out"),
    [
        *(("all-gather", 8, 24, 24), ("all-gather-start", 8, 24, 16), ("all-gather-start", None, 24, None)),
        *(("all-gather-start", 8, None, None), ("all-reduce-start", 8, 8, 8)),
    ],
)
def test_bytes_of_a_start_by_its_program(opcode, in_bytes, out_bytes, out):
    taking = hlo.Participants(groups=((0, 1),))
    known = Instruction(opcode, "communication", "f32", in_bytes, out_bytes, taking)
    payload = collectives.program_payload(known, 7, collectives.DeviceMember(0))
    assert (payload.source, payload.collective) == ("hlo", opcode.removesuffix("-start").replace("-", "_"))
    assert (payload.in_bytes, payload.out_bytes, payload.group_size) == (in_bytes, out, 2)


def test_what_is_no_collective_has_no_payload():
    member = collectives.DeviceMember(0)
    others = ("all-reduce", None), ("all-reduce-done", hlo.Participants()), ("add", None)
    for opcode, participants in others:
        one = Instruction(opcode, None, "f32", 1, 1, participants)
        assert collectives.program_payload(one, 7, member) is None
    assert payload_of("%x = f32[4] add(f32[4] %a)", 1) is None
    for category in ("all-reduce-scatter fusion", "ragged-all-to-all", "loop fusion"):
        assert collectives.names_collective(category) is ("loop" not in category)


def test_groups_are_named_by_their_devices_and_the_place_within():
    named = collectives.NamedGroups(4)
    told = Payload(source="hlo", ranks=(6, 4), src_rank=6, dst_rank=4, group_size=2)
    assert named.name_group(told) == Payload(source="hlo", group_size=2, group_name="devices 4,6")
    assert named.name_group(Payload(source="hlo", ranks=(1, 2))).group_name == "unknown"
    facts = named.facts_with_groups(TraceFacts())
    assert facts.groups == (ProcessGroup("devices 4,6"), ProcessGroup("unknown"))
    assert facts.communicators == (Communicator("devices 4,6", 0, 2),)
    named = collectives.NamedGroups(None)
    assert named.facts_with_groups(TraceFacts()).groups == ()
    assert named.name_group(Payload(source="hlo")).group_name == "unknown"
    assert named.facts_with_groups(TraceFacts()).groups == (ProcessGroup("unknown"),)


US = 1000
ARRIVALS = (100, 200, 400, 250)
"""When each of four devices enters the first all-reduce, µs; all leave it at 1000 µs."""


def measured(folder: Path, **files: bytes) -> Run:
    """The whole trace of these files."""
    (traces := folder / "traces").mkdir(parents=True)
    for name, content in files.items():
        (traces / f"{name}.xplane.pb").write_bytes(content)
    return cclbench.run(traces, store=folder / "runs", window="trace")


def calls(run: Run) -> list[dict[str, Any]]:
    """Collectives in order of rank and begin, times in µs since the profile's."""
    rows = sorted(run.collectives().to_pylist(), key=lambda row: (row["rank"], row["start_ns"]))
    for row in rows:
        row["begin"] = (row["start_ns"] - BEGIN_NS) / US
        row["wait"] = None if row["wait_ns"] is None else row["wait_ns"] / US
    return rows


def a_tpu(device: int, first: int = 0) -> Plane:
    """A TPU that waits at a barrier, reduces with one other and gathers with another, asynchronously."""
    at = ARRIVALS[first + device]
    events = [
        *(("psum", at * US, (1000 - at) * US, {}), ("gather-start", (1000 + at) * US, 1 * US, {})),
        ("loop", (1001 + at) * US, 50 * US, {}),
        ("gather-done", (1051 + at) * US, ((1500, 1500, 1600, 1600)[first + device] - 1051 - at) * US, {}),
    ]
    return tpu(device, events, first=first, XLA_TraceMe=[("barrier-cores", 50 * US, 40 * US, {})])


ONE_FILE = {"host": space(*map(a_tpu, range(4)), programs([[0], [1], [2], [3]]), environment())}
TWO_HOSTS = {"host0": space(a_tpu(0), a_tpu(1), programs([[0], [1], [2], [3]]), environment())}
TWO_HOSTS |= {"host1": space(a_tpu(0, 2), a_tpu(1, 2), programs([[0], [1], [2], [3]]), environment())}


@pytest.mark.parametrize("files", [ONE_FILE, TWO_HOSTS], ids=["one host", "two hosts"])
def test_tpus_wait_for_the_last_of_their_group(files: dict[str, bytes], tmp_path: Path) -> None:
    run = measured(tmp_path, **files)
    found = calls(run)
    assert [row["instance"] is not None for row in found] == [True] * 8
    assert len({row["instance"] for row in found}) == 4
    # [2,2]<=[2,2]T(1,0) is {{0,2},{1,3}}, then {{0,1},{2,3}}; both wait for who arrives last.
    assert [(row["rank"], row["kind"], row["group"], row["wait"]) for row in found] == [
        *((0, "all_reduce", "0,2", 300), (0, "all_gather", "0-1", 100), (1, "all_reduce", "1,3", 50)),
        *((1, "all_gather", "0-1", 0), (2, "all_reduce", "0,2", 0), (2, "all_gather", "2-3", 0)),
        *((3, "all_reduce", "1,3", 0), (3, "all_gather", "2-3", 150)),
    ]
    assert {(row["library"], row["kind"], row["in_bytes"], row["out_bytes"]) for row in found} == {
        *(("xla", "all_reduce", 16, 16), ("xla", "all_gather", 8, 16))
    }
    assert {row["transfer_ns"] / US for row in found if row["kind"] == "all_reduce"} == {600, 750}
    for entry in run.manifest["ranks"]:
        assert entry["rows"]["sync"] == 3  # the barrier, the issue and the wait
        assert entry["facts"]["rank_source"] == "metadata"


def reduces(ids: list[int], *of: tuple[int, ...]) -> Plane:
    """Program 7 on these devices: an all-reduce of f32[4] in those groups of their ordinals."""
    operand = instruction("a", "parameter", array(4), 1)
    fields = hlo_field(36, b"\x01") + groups(*of)
    reduce = instruction("psum.1", "all-reduce", array(4), 2, fields)
    return programs([[i] for i in ids], operand, reduce)


def gpu(number: int, at: int) -> Plane:
    """A GPU that reduces from `at` to 1000 µs."""
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at * US, (1000 - at) * US
    told = {"hlo_op": "psum.1", "program_id": 7, "correlation_id": number + 1}
    plane = Plane(f"/device:GPU:{number}", device_vendor="Nvidia")
    return plane.line("Stream #7(Kernel)", [(*kernel, told)], track=7)


def test_gpus_of_one_process_are_the_programs_devices(tmp_path: Path) -> None:
    program = reduces([0, 1, 2, 3], (0, 2), (1, 3))
    run = measured(tmp_path, host=space(*map(gpu, range(4), ARRIVALS), program, environment()))
    assert [(row["group"], row["wait"], row["library"], row["in_bytes"]) for row in calls(run)] == [
        *(("0,2", 300, "nccl", 16), ("1,3", 50, "nccl", 16), ("0,2", 0, "nccl", 16), ("1,3", 0, "nccl", 16))
    ]
    assert run.manifest["matching"]["matched"] == 4


def test_gpus_of_several_processes_are_in_no_group(tmp_path: Path) -> None:
    """Each process counts its GPUs from 0: {0,2} would be another pair in each of these files."""
    program = reduces([0, 1, 2, 3], (0, 2), (1, 3))
    files = {f"host{i}": space(gpu(0, 100 + i), gpu(1, 200), program, environment()) for i in (0, 1)}
    run = measured(tmp_path, **files)
    assert [(row["rank"], row["group"], row["group_size"], row["instance"]) for row in calls(run)] == [
        (rank, None, 2, None) for rank in range(4)
    ]
    for entry in run.manifest["ranks"]:
        assert any("which of the program's devices this GPU is" in note for note in entry["notes"])


def cpus(ids: list[int], arrivals: tuple[int, ...], program: Plane) -> bytes:
    """A process's CPU devices, which tell their global ids."""
    host = Plane("/host:CPU")
    for track, (device, at) in enumerate(zip(ids, arrivals, strict=True)):
        told = {"hlo_op": "psum.1", "hlo_module": "jit_f", "program_id": 7, "run_id": 5}
        one = "psum.1", at * US, (1000 - at) * US, told | {"device_ordinal": device}
        host.line("pool", [one], track=track)
    return space(host, program, environment())


def test_cpu_devices_of_two_processes_meet_by_their_global_ids(tmp_path: Path) -> None:
    """As of JAX 0.10: a second process's devices count from 2048, and no rendezvous tells who meets."""
    program = reduces([0, 1, 2048, 2049], (0, 2), (1, 3))
    first, second = cpus([0, 1], ARRIVALS[:2], program), cpus([2048, 2049], ARRIVALS[2:], program)
    run = measured(tmp_path / "both", a=first, b=second)
    assert [(row["rank"], row["group"], row["wait"], row["library"]) for row in calls(run)] == [
        *((0, "0,2", 300, "xla"), (1, "1,3", 50, "xla"), (2, "0,2", 0, "xla"), (3, "1,3", 0, "xla"))
    ]
    alone = calls(measured(tmp_path / "alone", b=second))
    assert [(row["group"], row["group_size"], row["instance"]) for row in alone] == [(None, 2, None)] * 2


def test_no_group_that_is_whole_is_taken_for_one_that_is_not(tmp_path: Path) -> None:
    """{0,1} is here, {0,2048} is not: of one size, and the only group whose ranks are known."""
    extra = instruction("psum.2", "all-reduce", array(4), 3, hlo_field(36, b"\x01"), groups((0, 1), (2, 3)))
    operand = instruction("a", "parameter", array(4), 1)
    reduce = instruction("psum.1", "all-reduce", array(4), 2, hlo_field(36, b"\x01"), groups((0, 2), (1, 3)))
    program = programs([[0], [1], [2048], [2049]], operand, reduce, extra)
    host = Plane("/host:CPU")
    told = {"hlo_module": "jit_f", "program_id": 7, "run_id": 5}
    for device in (0, 1):
        own = {**told, "device_ordinal": device}
        ops = [(f"psum.{n}", 100 * n, 50, own | {"hlo_op": f"psum.{n}"}) for n in (1, 2)]
        host.line("pool", ops, track=device)
    run = measured(tmp_path, a=space(host, program, environment()))
    assert [row["group"] for row in calls(run)] == [None, "0-1", None, "0-1"]


def test_programs_of_one_device_each_are_no_world_of_one(tmp_path: Path) -> None:
    """Several programs, each on its own device; then two devices and a program of the first alone."""
    apart = [programs([[i]], number=number) for i, number in ((0, 7), (1, 8))]
    devices = [tpu(i, [("loop", 0, 5, {})], first=0) for i in (0, 1)]
    run = measured(tmp_path / "all", host=space(*devices, *apart, environment()))
    assert [entry["facts"].get("world_size") for entry in run.manifest["ranks"]] == [2, 2]
    run = measured(tmp_path / "one", host=space(*devices, apart[0], environment()))
    assert [entry["facts"].get("world_size") for entry in run.manifest["ranks"]] == [None, None]
    alone = programs([[0]], instruction("psum.1", "sort", array(4), 1))
    run = measured(tmp_path / "cpu", host=cpus([0, 1], (10, 20), alone))
    assert [entry["facts"].get("world_size") for entry in run.manifest["ranks"]] == [None, None]
