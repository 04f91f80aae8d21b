# SPDX-License-Identifier: Apache-2.0
"""XLA on CPU devices: each device's ops, how they end, whom its collectives meet, and damaged files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused
from helpers.xplane_files import Plane as WholePlane
from helpers.xplane_host_files import (
    EPOCH,
    Event,
    Member,
    Op,
    Plane,
    array,
    hlo,
    instruction,
    meeting,
    message,
    write,
)

from cclbench.formats import Cut, DeviceStep, Part, Rows
from cclbench.formats.xplane import host
from cclbench.formats.xplane.host_events import profile_of
from cclbench.formats.xplane.space import XSpace
from cclbench.record.facts import Communicator, ProcessGroup

UNSTATED = "the profile's HLO of jit_f does not state them"


def ran(*events: Event) -> Plane:
    return Plane("/host:CPU").line("pool", 1, *events)


def cpu(folder: Path, *planes: Plane) -> Member:
    """The first device of these planes."""
    return Member(write(folder, *planes), "cpu:0")


def kinds(member: Member) -> dict[str, str | None]:
    """Category of each kernel's name."""
    rows = member.batches["kernel", "device"]
    return {name: (rows.name_categories or {}).get(code) for name, code in rows.names.items()}


def test_devices_are_members_and_have_their_own_ops(tmp_path: Path) -> None:
    (a, a_end), (b, b_end) = Op.ended("dot.1", 10, 5, 14), Op.ended("add", 12, 3, 15, device=2)
    plane = Plane("/host:CPU").line("tf_XLAEigen/1", 1, a, a_end).line("tf_XLAEigen/2", 2, b, b_end)
    path = write(tmp_path, plane)
    assert host.device_parts(XSpace(path).host_profile, path) == [Part("cpu:0"), Part("cpu:2")]
    zero, two = Member(path, "cpu:0"), Member(path, "cpu:2")
    assert (zero.rows("kernel"), two.rows("kernel")) == ([("dot.1", 10, 5)], [("add", 12, 3)])
    rows = two.batches["kernel", "device"]
    assert (rows.device, rows.correlation, rows.track.tolist()) == ([1], [-7], [2])
    assert (zero.trace.facts.local_rank, two.trace.facts.local_rank) == (0, 1)
    assert (two.trace.facts.device_name, two.trace.facts.device_count) == ("CPU", 2)


def test_an_op_lasts_until_its_end_is_marked_on_whichever_thread(tmp_path: Path) -> None:
    here, here_end = Op.ended("dot.1", 0, 10, 9)
    later, later_end = Op.ended("dot.2", 20, 2, 50)
    elsewhere, elsewhere_end = Op.ended("dot.3", 30, 2, 45)
    plane = Plane("/host:CPU").line("pool", 1, here, here_end, later, elsewhere, later_end)
    member = Member(write(tmp_path, plane.line("pool", 2, elsewhere_end)), "cpu:0")
    assert member.rows("kernel") == [("dot.1", 0, 10), ("dot.2", 20, 30), ("dot.3", 30, 15)]
    assert member.trace.dropped == {}


def test_an_op_without_its_end_is_counted_and_one_that_never_has_one_is_kept(tmp_path: Path) -> None:
    lost, _ = Op.ended("dot.1", 0, 10, 9)
    _, early = Op.ended("dot.0", 0, 1, 2)
    member = cpu(tmp_path, ran(early, lost, Op.ran("add", 20, 5), Op.ran("sub", 30, 5, run="?")))
    assert member.rows("kernel") == [("add", 20, 5)]
    known: dict[str, Any] = {"op whose end is not in the capture": 1}
    known |= {"end of an op that began before the capture": 1, "op without a device or run": 1}
    assert member.trace.dropped == known


def test_order_of_ops(tmp_path: Path) -> None:
    plane = Plane("/host:CPU").line("a", 1, Op.ran("long", 10, 9), Op.ran("late", 30, 1))
    plane.line("b", 2, Op.ran("early", 0, 1), Op.ran("short", 10, 2))
    member = Member(write(tmp_path, plane), "cpu:0")
    assert [name for name, _, _ in member.rows("kernel")] == ["early", "short", "long", "late"]


def test_loops_and_calls_are_no_work_of_their_own(tmp_path: Path) -> None:
    plane = Plane("/host:CPU").line("pool", 1, Op.ran("while.3", 0, 100), Op.ran("dot", 10, 20))
    program = hlo([instruction("while.3", "while", array(1)), instruction("call.9", "fusion", array(1))])
    plane.line("pool", 2, Op.ran("call.9", 40, 10))
    member = Member(write(tmp_path, Plane("/host:metadata").module("jit_f(3)", 3, program), plane), "cpu:0")
    assert member.rows("annotation") == [("while.3", 0, 100)]
    assert member.rows("kernel") == [("dot", 10, 20), ("call.9", 40, 10)]


def collective_planes() -> tuple[Plane, Plane]:
    """Two devices reduce twice in one run, and gather in another of the same program."""
    shapes = ("p", "parameter", array(2, 3)), ("psum.1", "all-reduce", array(2, 3))
    shapes += (("all_gather.2", "all-gather", array(4, 3)),)
    program = hlo([instruction(*one, at, *[1][: at > 1]) for at, one in enumerate(shapes, 1)])
    metadata = Plane("/host:metadata", jax_version="0.10.2", process_id=77)
    threads = Plane("/host:CPU")
    for device, late in ((0, 0), (1, 5)):
        reduced = Op.ran("psum.1", 100 + late, 20, device), Op.ran("psum.1", 200 - late, 20, device)
        met = [(101 + late, 10), (112 + late, 7), (201 - late, 10)]
        meetings = [meeting("all reduce", *one, [0, 1]) for one in met]
        gathered = Op.ran("all_gather.2", 300, 20, device, run=-6), meeting("all gather", 301, 10, [0, 1])
        threads.line("pool", device, reduced[0], *meetings[:2], reduced[1], meetings[2], *gathered)
    return metadata.module("jit_f(3)", 3, program), threads


def test_a_collective_is_told_its_group_its_number_and_its_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, *collective_planes())
    for device in (0, 1):
        member = Member(path, f"cpu:{device}")
        told = [(p.collective, p.in_bytes, p.out_bytes, row, s) for p, row, s in member.stated_payloads]
        assert told == [
            *(("all_reduce", 24, 24, 0, 0), ("all_reduce", 24, 24, 1, 1), ("all_gather", 24, 48, 2, 2))
        ]
        stated = {(p.group_name, p.ranks, p.library, p.dtype) for p, _, _ in member.stated_payloads}
        assert stated == {("devices 0-1", None, "xla", "f32")}
        assert member.trace.facts.communicators == (Communicator("devices 0-1", device, 2),)
        assert kinds(member) == {"psum.1": "communication", "all_gather.2": "communication"}
        late = 5 * device
        begins = [begin for _, begin, _ in member.rows("sync")]
        assert begins == [101 + late, 112 + late, 201 - late, 301]
        assert (member.trace.facts.producer_version, member.trace.facts.process_id) == ("0.10.2", 77)


def test_without_the_program_bytes_are_unknown_and_it_is_said(tmp_path: Path) -> None:
    _, threads = collective_planes()
    member = Member(write(tmp_path, threads), "cpu:1")
    told = [(p.source, p.collective, p.in_bytes, p.out_bytes, s) for p, _, s in member.stated_payloads]
    kinds = "reduce", "reduce", "gather"
    assert told == [("kernel", f"all {kind}", None, None, n) for n, kind in enumerate(kinds)]
    assert member.trace.notes == [f"payload bytes of 3 collectives unknown: {UNSTATED}"]


def test_groups_are_of_global_ids_and_not_made_up(tmp_path: Path) -> None:
    reduce = Op.ran("all-reduce", 0, 20), meeting("all reduce", 1, 10, [0, 131072])
    member = cpu(tmp_path, ran(*reduce))
    (payload, _, seq), *_ = member.stated_payloads
    assert (payload.group_size, payload.ranks, seq) == (2, None, -1)
    # The group is listed without ranks, so that none is taken for it; a run that has all members knows them.
    assert member.trace.facts.groups == (ProcessGroup("devices 0,131072"),)
    assert member.trace.facts.communicators == (Communicator("devices 0,131072", 0, 2),)
    plane = Plane("/host:CPU")
    for device in (4, 6):
        plane.line("pool", device, Op.ran("psum", 0, 9, device), meeting("all reduce", 1, 5, [4, 6]))
    member = Member(write(tmp_path, plane), "cpu:6")
    assert member.stated_payloads[0][0].group_name == "devices 4,6"
    assert member.trace.facts.communicators == (Communicator("devices 4,6", 1, 2),)


def test_the_program_s_calls_and_steps_are_everyones_its_other_rows_the_firsts(tmp_path: Path) -> None:
    called = {"run_id": -7, "num_replicas": 1, "num_partitions": 2}
    events = ("train", 0, 50, {"step_num": 4, "_r": 1}), ("PjitFunction(f)", 1, 40, {})
    events += ("Loaded::Execute (jit_f)", 2, 30, called), ("Helper", 3, 20, {"run_id": -7})
    events += (("Loaded::Execute (jit_f)", 60, 30, {"run_id": 99}),)
    events += (("ThreadpoolListener::Record", 5, 0, {"_p": 1}),)
    plane = Plane("/host:CPU").line("python", 9, *events)
    plane.line("pool", 1, Op.ran("dot", 10, 5), ("ThunkExecutor::Execute", 9, 8, {}), Op.ran("dot", 20, 5, 1))
    path = write(tmp_path, plane)
    zero, one = Member(path, "cpu:0"), Member(path, "cpu:1")
    for member in (zero, one):
        assert member.rows("launch", "host") == [("Loaded::Execute (jit_f)", 2, 30)]
        assert member.batches["launch", "host"].correlation == [-7]
        assert member.trace.facts.world_size == 2
    assert one.rows("annotation", "host") == [("train step 4", 0, 50)]
    assert zero.rows("annotation", "host") == [("train step 4", 0, 50), ("PjitFunction(f)", 1, 40)]
    assert (zero.rows("other", "host"), one.rows("other", "host")) == ([("ThunkExecutor::Execute", 9, 8)], [])
    assert (zero.trace.dropped, one.trace.dropped) == ({"mark of the thread pool": 1}, {})


def test_a_name_that_two_programs_use_differently_has_no_category(tmp_path: Path) -> None:
    metadata = Plane("/host:metadata")
    metadata.module("a", 3, hlo([instruction("x", "dot", array(1)), instruction("y", "sort", array(1))]))
    metadata.module("b", 4, hlo([instruction("x", "copy", array(1))]))
    name, start, length, told = Op.ran("x", 40, 5)
    ops = Op.ran("x", 0, 5), Op.ran("y", 10, 5), (name, start, length, {**told, "program_id": 4})
    assert kinds(cpu(tmp_path, metadata, ran(*ops))) == {"x": None, "y": "reduction"}


def nested(depth: int) -> bytes:
    shape = array(1)
    for _ in range(depth):
        shape = message((2, 13), (4, shape))
    return shape


def read_all(path: Path) -> None:
    for part in host.device_parts(XSpace(path).host_profile, path):
        Member(path, part.member)


def with_program(program: bytes, *events: Event) -> tuple[Plane, ...]:
    return Plane("/host:metadata").module("a", 3, program), ran(*events)


DEEP = hlo([instruction("x", "tuple", nested(300))])
DAMAGED = {
    "no ops": ((ran(("add", 0, 1, {})),), "no op of a CPU device"),
    "no planes": ((Plane("/host:metadata"),), "no op of a CPU device"),
    "negative duration": ((ran(Op.ran("add", 0, -5)),), "impossible time"),
    "garbage for a program": (with_program(b"\xff" * 40, Op.ran("add", 0, 5)), "HLO module is damaged"),
    "types nested in types": (with_program(DEEP, Op.ran("x", 0, 5)), "HLO module is damaged"),
    "large ordinal": ((ran(Op.ran("add", 0, 5, 1 << 31)),), f"'add' ran on device {1 << 31}"),
    "negative ordinal": ((ran(Op.ran("add", 0, 5, -2)),), "'add' ran on device -2"),
}


@pytest.mark.parametrize(("planes", "says"), DAMAGED.values(), ids=DAMAGED)
def test_damage_gives_one_line_with_the_file(tmp_path: Path, planes: tuple[Plane, ...], says: str) -> None:
    refused(read_all, write(tmp_path, *planes), says)


def test_the_data_point_holds_no_names_of_machines_or_folders(repository: Path) -> None:
    content = (repository / "traces" / "tiny-jax-dp2-tp4-cpu" / "tiny_jax.xplane.pb").read_bytes()
    assert not re.search(b"/home|/root|/tmp|/usr|/work|site-packages", content)
    assert b"tiny_jax.py" in content


@pytest.mark.parametrize("device", [0, (1 << 31) - 1])
def test_ordinals_to_their_bound(tmp_path: Path, device: int) -> None:
    path = write(tmp_path, ran(Op.ran("add", 0, 5, device)))
    assert host.device_parts(XSpace(path).host_profile, path) == [Part(f"cpu:{device}")]


def test_an_op_without_a_set_device_is_of_the_first_and_one_without_a_set_run_of_none(tmp_path: Path) -> None:
    """XLA's options are −1 where nobody sets them."""
    path = write(tmp_path, ran(Op.ran("add", 0, 5, -1, -1), Op.ran("mul", 5, 5, 0)))
    profile = XSpace(path).host_profile
    assert [(op.name, op.device, op.run) for op in profile.ops] == [("add", 0, None), ("mul", 0, -7)]
    (part,) = host.device_parts(profile, path)
    trace = host.read_device(profile, part)
    assert [step.name for step in trace.device_steps] == ["jit_f"]
    (kernels,) = (rows for rows in trace.batches if isinstance(rows, Rows) and rows.kind == "kernel")
    assert kernels.correlation == [None, -7]


def test_a_rendezvous_is_of_the_innermost_op_that_does_not_end_before_it(tmp_path: Path) -> None:
    plane = ran(
        *(Op.ran("call", 0, 50, 0), Op.ran("psum", 0, 20, 1)),
        *(meeting("all reduce", 5, 15, [0, 1]), meeting("all gather", 6, 2, [0, 2])),
        *(meeting("all reduce", 30, 10, [0, 3]), meeting("all reduce", 45, 10, [0, 4])),
    )
    path = write(tmp_path, plane)
    profile = XSpace(path).host_profile
    assert [(op.name, op.meeting and op.meeting.devices) for op in profile.ops] == [
        *(("call", (0, 3)), ("psum", (0, 1)))
    ]
    assert [(row.start_ns - EPOCH, device) for row, device in profile.meetings] == [(5, 1), (6, 1), (30, 0)]
    assert Member(path, "cpu:0").rows("other", "host") == [("Rendezvous", 45, 10)]


def test_rendezvous_and_permutes_by_their_names(tmp_path: Path) -> None:
    nameless = ("Rendezvous", 1, 5, {"name": "all reduce RendezvousKey{global_devices=[]}"})
    plane = ran(Op.ran("psum", 0, 20), nameless, ("Rendezvous", 7, 5, {}), meeting("all reduce", 13, 5, [0]))
    (op,) = XSpace(write(tmp_path, plane)).host_profile.ops
    assert (op.meeting.collective, op.meeting.devices) == ("all reduce", (0,))
    for what in ("collective-permute", "collective permute"):
        plane = ran(Op.ran("x", 0, 9), meeting(what, 1, 5, [0]))
        ((payload, _, _),) = Member(write(tmp_path, plane), "cpu:0").stated_payloads
        assert (payload.collective, payload.library) == ("send_recv", "xla")


@pytest.mark.parametrize(
    ("sizes", "world"),
    [
        *(([(2, 3)], 6), ([(2, 3), (1, 4)], 6), ([(1, 4), (2, 3)], 6), ([(1, 1)], 1)),
        *(([(1, (1 << 20) - 1)], (1 << 20) - 1), ([(1, 1 << 20)], None)),
        *(([(0, 4)], None), ([(-1, -2)], 2), ([("?", 4)], None)),
    ],
)
def test_the_world_is_that_of_the_largest_call(tmp_path: Path, sizes: list[Any], world: int | None) -> None:
    told = [{"run_id": i, "num_replicas": r, "num_partitions": p} for i, (r, p) in enumerate(sizes)]
    calls = [("Execute", one["run_id"], 1, one) for one in told]
    assert cpu(tmp_path, ran(Op.ran("dot", 10, 5)).line("python", 9, *calls)).trace.facts.world_size == world


def test_worlds_and_launches(tmp_path: Path) -> None:
    call = ("Execute", 0, 1, {"run_id": 1, "num_replicas": 1, "num_partitions": 1})
    plane = ran(Op.ran("dot", 10, 5), Op.ran("dot", 20, 5, 1)).line("python", 9, call)
    facts = Member(write(tmp_path, plane), "cpu:1").trace.facts
    assert (facts.world_size, facts.device_count, facts.local_rank) == (None, 2, 1)
    assert (facts.producer, facts.producer_version, facts.process_id) == ("XLA profiler", None, None)
    calls = [("inner", 5, 10), ("outer", 5, 30), ("later", 6, 90)]
    events = [*((*one, {"run_id": -7}) for one in calls), ("other", 1, 90, {"run_id": 3})]
    rows = cpu(tmp_path, ran(Op.ran("dot", 10, 5), Op.ran("x", 20, 5, run=3)).line("python", 9, *events))
    assert rows.rows("launch", "host") == [("other", 1, 90), ("outer", 5, 30)]
    assert rows.batches["launch", "host"].correlation == [3, -7]


def test_a_run_spans_its_ops_whatever_their_order(tmp_path: Path) -> None:
    plane = ran(Op.ran("a", 10, 30), Op.ran("b", 12, 5), Op.ran("x", 60, 5, run=8))
    assert Member(write(tmp_path, plane.line("pool", 2, Op.ran("c", 38, 9))), "cpu:0").trace.device_steps == [
        *(DeviceStep("jit_f", EPOCH + 10, EPOCH + 47), DeviceStep("jit_f", EPOCH + 60, EPOCH + 65))
    ]


def test_payload_bytes_of_which_one_side_is_unknown_are_said(tmp_path: Path) -> None:
    gather = instruction("g", "all-gather", array(1 << 40, 1 << 40), 2, 1)
    program = hlo([instruction("p", "parameter", array(2), 1), gather])
    plane = ran(Op.ran("g", 0, 5), Op.ran("g", 10, 5), Op.ran("p", 20, 5))
    member = cpu(tmp_path, Plane("/host:metadata").module("f", 3, program), plane)
    stated = [(p.in_bytes, p.out_bytes, row) for p, row, _ in member.stated_payloads]
    assert stated == [(8, None, 0), (8, None, 1)]
    assert member.trace.notes == [f"payload bytes of 2 collectives unknown: {UNSTATED}"]


def test_collectives_are_numbered_by_group_in_order_of_their_first_arrival(tmp_path: Path) -> None:
    plane = Plane("/host:CPU")
    for device, late in ((0, 0), (1, 3)):
        other = 2 + device
        met = ("a", late, [0, 1]), ("b", 20 + late, [1, 0]), ("a", 40 - late, [0, 1])
        ops = [(Op.ran(name, at, 9, device), meeting("all reduce", at + 1, 5, ids)) for name, at, ids in met]
        plane.line("pool", device, *(event for op in ops for event in op))
        plane.line("pool", other, Op.ran("a", 10, 9, other), meeting("all reduce", 11, 5, [2, 3]))
    path = write(tmp_path, plane)
    told = {n: [(row, seq) for _, row, seq in Member(path, f"cpu:{n}").stated_payloads] for n in range(4)}
    assert told == {0: [(0, 0), (1, 1), (2, 2)], 1: [(0, 0), (1, 1), (2, 2)], 2: [(0, 0)], 3: [(0, 0)]}


def test_a_profile_that_is_cut_before_any_device_says_where(tmp_path: Path) -> None:
    path = write(tmp_path, Plane("/host:CPU"))
    cut = Cut(str(path), 1234, "gone")
    message = refused(lambda p: host.device_parts(XSpace(p).host_profile, p, cut, hint="look"), path)
    assert message == f"{path}: byte 1,234: gone, before any event of a device; look"
    message = refused(lambda p: host.device_parts(XSpace(p).host_profile, p), path)
    assert message.endswith("; trace steps that run under jax.jit")


@pytest.mark.parametrize(
    ("field", "run", "known"),
    [
        *(("int64_value", -(1 << 63), True), ("int64_value", (1 << 63) - 1, True)),
        *(("uint64_value", (1 << 63) - 1, True), ("uint64_value", 1 << 63, False)),
    ],
)
def test_ids_of_runs_are_numbers_of_64_bits_with_a_sign(field: str, run: int, known: bool) -> None:
    told = {"hlo_op": "add", "device_ordinal": 0, "run_id": 1, "program_id": -3}
    plane = WholePlane("/host:CPU").line("pool", [("add", 0, 5, told)])
    setattr(plane.message.lines[0].events[0].stats[2], field, run)
    profile = profile_of({"/host:CPU": plane.message}, Path("f"), 0)
    assert [(op.run, op.program) for op in profile.ops] == ([(run, (1 << 64) - 3)] if known else [])
    assert profile.dropped == ({} if known else {"op without a device or run": 1})
