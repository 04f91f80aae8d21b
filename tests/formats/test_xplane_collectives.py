# SPDX-License-Identifier: Apache-2.0
"""Collectives of TPUs and GPUs: payload, participants, and their instances across devices and files."""

from __future__ import annotations

import numpy as np
import pytest
from formats.xplane_files import (
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

from cclbench.formats.xplane import collectives, hlo


def test_collectives_of_a_tpu_tell_payload_group_and_kind(tmp_path):
    events = [
        ("psum", 0, 9, {}),
        ("gather-start", 10, 1, {}),
        ("loop", 11, 5, {}),
        ("gather-done", 16, 4, {}),
    ]
    path = write(
        tmp_path, space(tpu(0, events), tpu(1, events), programs([[4], [5], [6], [7]]), environment())
    )
    trace, rows = read(path, "/device:TPU:1")
    # The program runs on devices 4 to 7: of how many is not told.
    assert (trace.facts.rank, trace.facts.world_size, trace.facts.device_count) == (5, None, 2)
    assert (trace.facts.peak_flops_per_s, trace.facts.hbm_bytes_per_s) == (918e12, 1638e9)
    # The name `psum.3` would not be taken for communication.
    assert listed(rows["device kernel"]) == [
        ("all-reduce.psum.3", 0, 9),
        ("all-gather-start", 10, 10),
        ("fusion.1", 11, 5),
    ]
    told = dict(
        zip(trace.told.row, (list(trace.told.payloads)[code] for code in trace.told.code), strict=True)
    )
    # Device 5 is partition 1; [2,2]<=[2,2]T(1,0) is {{0,2},{1,3}}: partitions 1 and 3, devices 5 and 7.
    assert (told[0].collective, told[0].in_bytes, told[0].out_bytes) == ("all_reduce", 16, 16)
    assert (told[0].ranks, told[0].dtype) == ((5, 7), "f32")
    # {{0,1},{2,3}}: partitions 0 and 1.
    assert (told[1].collective, told[1].in_bytes, told[1].out_bytes) == ("all_gather", 8, 16)
    assert told[1].ranks == (4, 5)


def test_without_a_device_assignment_a_group_has_a_size_and_no_ranks(tmp_path):
    trace, _ = read(write(tmp_path, space(tpu(0, [("psum", 0, 9, {})]))), "/device:TPU:0")
    (payload,) = trace.told.payloads
    assert (payload.group_size, payload.ranks) == (2, None)
    assert trace.notes == ["the profile does not tell when it began: times count from its own begin"]


# Two replicas of two partitions: device 10·replica + partition.
IDS = np.array([[0, 1], [10, 11]])


@pytest.mark.parametrize(
    ("opcode", "attributes", "ranks"),
    [
        ("all-reduce", "replica_groups={{0,1}}", (1, 11)),
        ("all-reduce", "replica_groups={}", (1, 11)),
        ("all-reduce", "channel_id=1, replica_groups={{0},{1}}", (10, 11)),
        ("all-reduce", "channel_id=1, replica_groups={{0,1}}", (0, 1, 10, 11)),
        ("all-reduce", "channel_id=1, replica_groups={{0,3},{1,2}}, use_global_device_ids=true", (0, 11)),
        ("all-reduce", "channel_id=1, replica_groups=[1,4]<=[4], use_global_device_ids=true", (0, 1, 10, 11)),
        ("all-to-all", "channel_id=1, replica_groups={{0,1}}", (10, 11)),
        ("collective-permute", "channel_id=1, source_target_pairs={{0,1}}", (10, 11)),
        ("collective-permute", "source_target_pairs={{0,1},{1,0}}", (1, 11)),
        ("all-reduce", "replica_groups={{0,9}}", None),
        ("all-reduce", "to_apply=%add", None),
    ],
)
def test_what_the_numbers_of_replica_groups_mean(opcode, attributes, ranks):
    text = f"%x = f32[4]{{0}} {opcode}(f32[4]{{0}} %a), {attributes}"
    instruction = hlo.instruction(text)
    assert instruction is not None
    payload = collectives.payload(instruction, 7, collectives.Member(11, {7: IDS}))
    assert payload is not None
    assert (sorted(payload.ranks) if payload.ranks else None) == (list(ranks) if ranks else None)


def test_partners_of_a_permute():
    text = (
        "%x = f32[4]{0} collective-permute(f32[4]{0} %a), channel_id=1,"
        " source_target_pairs={{0,1},{1,2},{3,4}}"
    )
    instruction = hlo.instruction(text)
    assert instruction is not None
    ids = np.array([[10, 11, 12, 13, 14]])
    seen = {
        device: collectives.payload(instruction, 7, collectives.Member(device, {7: ids}))
        for device in range(10, 15)
    }
    assert {d: (p.src_rank, p.dst_rank) for d, p in seen.items() if p} == {
        10: (10, 11),
        11: (10, 12),
        12: (11, 12),
        13: (13, 14),
        14: (13, 14),
    }
    assert {p.ranks for p in seen.values() if p} == {(10, 11, 12), (13, 14)}


def test_collectives_of_a_gpu_have_the_payload_of_their_program(tmp_path):
    """f32[2] gathered into f32[4]: a start's result holds the operand as well."""
    pair = hlo_field(2, 13) + hlo_field(4, array(2)) + hlo_field(4, array(4))
    metadata = programs(
        [[0], [1], [2], [3]],
        instruction("a", "parameter", array(2), 1),
        instruction(
            "all-gather-start.2", "all-gather-start", pair, 2, hlo_field(36, b"\x01"), groups((0, 2), (1, 3))
        ),
    )
    told = {"hlo_op": "all-gather-start.2", "program_id": 7}
    kernels = [("gemm", 0, 5, {}), ("ncclDevKernel_AllGather_RING_LL", 10, 5, told)]
    kernels.append(("ncclDevKernel_AllGather_RING_LL", 20, 5, told | {"program_id": 8}))
    plane = Plane("/device:GPU:0", device_vendor="Nvidia").line("Stream #7(Kernel)", kernels)
    trace, _ = read(write(tmp_path, space(plane, metadata, environment())), "/device:GPU:0")
    (payload, nothing), rows = trace.told.payloads, list(trace.told.row)
    assert (rows, payload.collective, payload.dtype) == ([1, 2], "all_gather", "f32")
    # One of the program's four devices is here: the group has a size, and which it is nobody tells.
    assert (payload.in_bytes, payload.out_bytes, payload.group_size, payload.ranks) == (8, 16, 2, None)
    assert (nothing.collective, nothing.in_bytes, nothing.library) == (None, None, None)
    assert (trace.facts.world_size, trace.facts.communicators) == (4, ())
    assert trace.notes == [
        "payload of 1 collectives unknown: the profile has no HLO of their program",
        "process group of 1 collectives unknown: the profile does not tell which of the program's devices"
        " this GPU is",
    ]
