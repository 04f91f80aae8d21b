# SPDX-License-Identifier: Apache-2.0
"""XLA profiles written on the spot: planes of two TPUs, of two GPUs with their process, and damaged files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cclbench.errors import InputError
from cclbench.readers import Part, Rows, Trace, hlo
from cclbench.readers.xplane import Xplane, collectives, proto
from cclbench.readers.xplane.ops import op

BEGIN_NS = 1_700_000_000_000_000_000
PAIRED = "(f32[4]{0}, f32[4]{0:S(5)}, u32[]{:S(2)})"
OPS = {
    "while": "%while.1 = (s32[]) while((s32[]) %t), condition=%c, body=%b",
    "loop": "%fusion.1 = f32[4]{0} fusion(f32[4]{0} %a), kind=kLoop, calls=%f",
    "dot": "%convolution.2 = bf16[8,8]{1,0} convolution(bf16[8,8]{1,0} %a, bf16[8,8]{1,0} %b),"
    " dim_labels=bf_io->bf",
    "psum": "%psum.3 = f32[4]{0} all-reduce(f32[4]{0} %a), channel_id=1, replica_groups=[2,2]<=[2,2]T(1,0),"
    " use_global_device_ids=true, to_apply=%add",
    "start": f"%copy-start = {PAIRED} copy-start(f32[4]{{0:S(5)}} %a)",
    "done": f"%copy-done = f32[4]{{0}} copy-done({PAIRED} %copy-start)",
    "gather-start": "%all-gather-start = (f32[2]{0}, f32[4]{0}) all-gather-start(f32[2]{0} %a), channel_id=2,"
    " replica_groups={{0,1},{2,3}}, use_global_device_ids=true, dimensions={0}",
    "gather-done": "%all-gather-done = f32[4]{0} all-gather-done((f32[2]{0}, f32[4]{0}) %all-gather-start)",
    "custom": "%attention.4 = f32[4]{0} custom-call(f32[4]{0} %a), custom_call_target=tpu_custom_call",
    "fused": "%all-reduce_add.5 = f32[4]{0} fusion(f32[4]{0} %a), kind=kLoop, calls=%g",
}
CATEGORY = {
    "while": "while",
    "loop": "loop fusion",
    "dot": "convolution",
    "psum": "all-reduce",
    "start": "copy-start",
    "done": "copy-done",
    "gather-start": "all-gather-start",
    "gather-done": "all-gather-done",
    "custom": "custom-call",
    "fused": "loop fusion",
}
HBM_READ_16 = b"\x0a\x06\x08\x01\x10\x01\x18\x10"
HBM_WRITE_16 = b"\x0a\x06\x08\x02\x10\x01\x18\x10"
VMEM_READ_64 = b"\x0a\x06\x08\x01\x10\x03\x18\x40"
ACCESSES = {"start": b"", "done": HBM_WRITE_16, "loop": HBM_READ_16 + VMEM_READ_64 + HBM_WRITE_16}

Event = tuple[str, int, int, dict[str, Any]]


class Plane:
    """Writes an XPlane: metadata and stats get ids as they come."""

    def __init__(self, name: str, **stats: Any) -> None:
        self.message = proto.message_class()(name=name)
        self.stats: dict[str, int] = {}
        self.events: dict[str, int] = {}
        self._say(self.message.stats, stats)

    def _id(self, name: str) -> int:
        if name not in self.stats:
            self.stats[name] = len(self.stats) + 1
            entry = self.message.stat_metadata.add(key=self.stats[name])
            entry.value.name = name
        return self.stats[name]

    def _say(self, into: Any, stats: dict[str, Any]) -> None:
        for name, value in stats.items():
            stat = into.add(metadata_id=self._id(name))
            field = {int: "int64_value", float: "double_value", str: "ref_value", bytes: "bytes_value"}
            setattr(stat, field[type(value)], self._id(value) if isinstance(value, str) else value)

    def described(self, name: str, **stats: Any) -> None:
        """Metadata of events of that name."""
        self.events[name] = len(self.events) + 1
        entry = self.message.event_metadata.add(key=self.events[name])
        entry.value.name = name
        self._say(entry.value.stats, stats)

    def line(self, name: str, events: Sequence[Event], *, track: int = 1, timestamp_ns: int = 0) -> Plane:
        """A line of (name, offset in ns, duration in ns, stats)."""
        line = self.message.lines.add(id=track, name=name, timestamp_ns=timestamp_ns)
        for title, offset, duration, stats in events:
            if title not in self.events:
                self.described(title)
            event = line.events.add(metadata_id=self.events[title], duration_ps=duration * 1000)
            event.offset_ps = offset * 1000
            self._say(event.stats, stats)
        return self


def varint(value: int) -> bytes:
    """Protobuf's encoding of an unsigned integer."""
    return (bytes([value & 0x7F | 0x80]) + varint(value >> 7)) if value > 0x7F else bytes([value])


def space(*planes: Plane) -> bytes:
    """The bytes of an XSpace."""
    bodies = [plane.message.SerializeToString() for plane in planes]
    return b"".join(b"\x0a" + varint(len(body)) + body for body in bodies)


def environment() -> Plane:
    """The plane that says when the profile began."""
    return Plane("Task Environment", profile_start_time=BEGIN_NS)


def tpu(device: int, events: Sequence[Event], **lines: Sequence[Event]) -> Plane:
    """A TPU's plane with these events on `XLA Ops`, as op, begin, duration; global id 4 + device."""
    plane = Plane(
        f"/device:TPU:{device}",
        core_details=b"\x28" + bytes([4 + device]) + b"\x30" + bytes([4 + device]),
        device_type_string="TPU v6 Lite",
        peak_teraflops_per_second=918.0,
        peak_hbm_bw_gigabytes_per_second=1638.0,
    )
    for key, text in OPS.items():
        told: dict[str, Any] = {
            "hlo_category": CATEGORY[key],
            "program_id": 7,
            "model_flops": 10,
            "flops": 20,
        }
        if key == "custom":
            told |= {"model_flops": 0, "bytes_accessed": 48}
        if key in ACCESSES:
            told["memory_access_breakdown"] = ACCESSES[key]
        if key == "dot":
            told["tf_op"] = "jit(f)/dot_general:"
        plane.described(text, **told)
    plane.line("XLA Ops", [(OPS[key], *rest) for key, *rest in events], track=3)
    for number, (name, marks) in enumerate(lines.items()):
        plane.line(
            name.replace("_", " "), [(OPS.get(key, key), *rest) for key, *rest in marks], track=4 + number
        )
    return plane


def programs(ids: list[list[int]]) -> Plane:
    """`/host:metadata` with program 7 and its device assignment by computation."""
    columns = b"".join(b"\x1a" + varint(len(c) + 2) + b"\x0a" + varint(len(c)) + bytes(c) for c in ids)
    assignment = b"\x08" + varint(len(ids[0])) + b"\x10" + varint(len(ids)) + columns
    module = b"\x0a\x01f\x7a" + varint(len(assignment)) + assignment
    plane = Plane("/host:metadata")
    entry = plane.message.event_metadata.add(key=7)
    entry.value.name = "jit_f(7)"
    plane._say(entry.value.stats, {"Hlo Proto": b"\x0a" + varint(len(module)) + module})
    return plane


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    """Writes a file."""

    def write(data: bytes) -> Path:
        path = tmp_path / "host.xplane.pb"
        path.write_bytes(data)
        return path

    return write


def read(path: Path, member: str, **options: Any) -> tuple[Trace, dict[str, Rows]]:
    """A member's trace and its rows by kind; host annotations and others apart from the device's."""
    trace = Xplane().read(path, part=Part(member), **options)
    return trace, {f"{batch.side} {batch.kind}": batch for batch in trace.batches if isinstance(batch, Rows)}


def read_all(path: Path) -> None:
    """Reads each member to its end."""
    for part in Xplane().parts(path):
        read(path, part.member)


def listed(rows: Rows) -> list[tuple[str, int, int]]:
    """Name, begin since the profile's and duration of each row."""
    names = list(rows.names)
    return [
        (names[code], start - BEGIN_NS, dur)
        for code, start, dur in zip(
            rows.codes.tolist(), rows.start_ns.tolist(), rows.dur_ns.tolist(), strict=True
        )
    ]


def test_work_waiting_and_containers_of_a_tpu(written):
    plane = tpu(
        0,
        [("while", 0, 100, {}), ("loop", 10, 30, {}), ("dot", 40, 50, {}), ("custom", 200, 5, {})],
        XLA_TraceMe=[("barrier-cores", 0, 9, {}), ("dependency-wait", 9, 1, {}), ("my region", 0, 300, {})],
        XLA_Modules=[("jit_f(7)", 0, 110, {"run_id": 1}), ("jit_f(7)", 190, 20, {"run_id": 2})],
        Framework_Ops=[("again", 0, 5, {}), ("and again", 5, 5, {})],
    )
    trace, rows = read(written(space(plane, environment())), "/device:TPU:0")
    kernels = rows["device kernel"]
    assert listed(kernels) == [("fusion.1", 10, 30), ("convolution.2", 40, 50), ("attention.4", 200, 5)]
    assert kernels.flops is not None
    assert kernels.hbm_bytes is not None
    # What the compiler was not told of a custom call stays unknown; fast memory's traffic is not HBM's.
    assert list(kernels.flops.to_pylist()) == [10.0, 10.0, None]
    assert kernels.hbm_bytes.to_pylist() == [32, None, 48]
    assert kernels.name_categories == {0: "elementwise", 1: "gemm"}
    assert listed(rows["device annotation"]) == [("while.1", 0, 100), ("my region", 0, 300)]
    assert listed(rows["device sync"]) == [("barrier-cores", 0, 9), ("dependency-wait", 9, 1)]
    assert [(step.name, step.start_ns - BEGIN_NS, step.number) for step in trace.device_steps] == [
        ("jit_f(7)", 0, None),
        ("jit_f(7)", 190, None),
    ]
    assert trace.dropped == {"mark of a step or of a module's run": 2, "row derived from others": 2}


def test_a_container_without_rows_of_its_own_is_work(written):
    _, rows = read(written(space(tpu(0, [("while", 0, 100, {}), ("loop", 100, 30, {})]))), "/device:TPU:0")
    assert [len(rows[kind]) for kind in ("device kernel",)] == [2]
    assert "device annotation" not in rows


def test_numbered_steps(written):
    plane = tpu(0, [("loop", 0, 9, {})], Steps=[("12", 0, 10, {}), ("13", 10, 10, {}), ("?", 20, 1, {})])
    trace, _ = read(written(space(plane)), "/device:TPU:0")
    assert [step.number for step in trace.device_steps] == [12, 13]


@pytest.mark.parametrize("shown", [False, True])
def test_a_transfer_lasts_from_its_issue_to_the_end_of_its_wait_and_counts_once(written, shown):
    events = [("start", 0, 1, {}), ("loop", 1, 20, {}), ("done", 21, 9, {}), ("start", 50, 1, {})]
    lines = {"Async_XLA_Ops": [("start", 0, 30, {})]} if shown else {}
    _, rows = read(written(space(tpu(0, events, **lines), environment())), "/device:TPU:0")
    copies = rows["device copy"]
    assert listed(copies) == [("copy-start", 0, 30)]
    assert copies.copy_direction.to_pylist() == ["h2d"]
    assert copies.bytes.to_pylist() == [16]
    assert copies.hbm_bytes.to_pylist() == [16]
    assert listed(rows["device sync"]) == [("copy-start", 0, 1), ("copy-done", 21, 9), ("copy-start", 50, 1)]


@pytest.mark.parametrize(
    ("to", "source", "direction"),
    [("", "S(5)", "h2d"), ("S(5)", "", "d2h"), ("", "", "d2d"), ("S(1)", "", "d2d"), ("S(5)", "S(5)", None)],
)
def test_direction_of_a_transfer_is_that_of_its_memory_spaces(to, source, direction):
    source = f"f32[4]{{0:T(128){source}}}"
    text = f"%c = (f32[4]{{0:T(128){to}}}, {source}, u32[]{{:S(2)}}) copy-start({source} %a)"
    found = op(text, "", {"hlo_category": "copy-start"}, collectives.Member(0), "here")
    assert (found.bytes, found.copy_direction) == (16, direction)


def test_collectives_of_a_tpu_tell_payload_group_and_kind(written):
    events = [
        ("psum", 0, 9, {}),
        ("gather-start", 10, 1, {}),
        ("loop", 11, 5, {}),
        ("gather-done", 16, 4, {}),
    ]
    path = written(space(tpu(0, events), tpu(1, events), programs([[4], [5], [6], [7]]), environment()))
    trace, rows = read(path, "/device:TPU:1")
    assert (trace.facts.rank, trace.facts.world_size, trace.facts.device_count) == (5, 4, 2)
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


def test_without_a_device_assignment_a_group_has_a_size_and_no_ranks(written):
    trace, _ = read(written(space(tpu(0, [("psum", 0, 9, {})]))), "/device:TPU:0")
    (payload,) = trace.told.payloads
    assert (payload.group_size, payload.ranks) == (2, None)
    assert trace.notes == ["the profile does not tell when it began: times count from its own begin"]


def test_a_fusion_named_after_a_collective_it_does_not_do(written):
    _, rows = read(written(space(tpu(0, [("fused", 0, 9, {})]))), "/device:TPU:0")
    assert list(rows["device kernel"].names) == ["fusion.all-reduce_add.5"]


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


def gpu_file() -> bytes:
    """Two GPUs, the process that drives them: three launches, a step, a Python function, a thread's mark."""
    grid = {"kernel_details": "regs:38 shm:0 grid:160,2,1 block:1024,1,1"}
    first = Plane("/device:GPU:0", device_vendor="Nvidia", core_count=132, memory_bandwidth=3350_000_000_000)
    first.line("Stream #7(Kernel)", [("gemm", 100, 20, {"correlation_id": 1, **grid})], track=7)
    first.line(
        "Stream #8(MemcpyH2D)",
        [
            (
                "MemcpyH2D",
                90,
                10,
                {"correlation_id": 2, "memcpy_details": "kind:HtoD size:4096 dest:0 async:1"},
            ),
            (
                "MemcpyD2D",
                130,
                10,
                {"correlation_id": 9, "memcpy_details": "kind:Unknown size:0 dest:512 async:1"},
            ),
        ],
        track=8,
    )
    first.line("TensorFlow Ops", [("gemm", 100, 20, {})])
    second = Plane("/device:GPU:1", device_vendor="AMD", core_count=304, memory_bandwidth=2662_400_000_000)
    second.line("Stream #7(Kernel)", [("gemm", 105, 21, {"correlation_id": 3})], track=7)
    host = Plane("/host:CPU").line(
        "python",
        [
            ("train", 0, 200, {"step_num": 5}),
            ("$model.py:1 forward", 0, 150, {}),
            ("cuLaunchKernel", 10, 2, {"correlation_id": 1}),
            ("cuMemcpyAsync", 13, 2, {"correlation_id": 2}),
            ("cuLaunchKernel", 20, 2, {"correlation_id": 3}),
            ("cuLaunchKernel", 30, 2, {"correlation_id": 99}),
            ("ThreadpoolListener::StartRegion", 40, 0, {}),
        ],
        track=583,
    )
    return space(first, second, host, environment())


def test_kernels_and_copies_of_a_gpu(written):
    path = written(gpu_file())
    assert Xplane().parts(path) == [Part("/device:GPU:0"), Part("/device:GPU:1")]
    trace, rows = read(path, "/device:GPU:0")
    assert listed(rows["device kernel"]) == [("gemm", 100, 20)]
    assert rows["device kernel"].blocks.to_pylist() == [320]
    copies = rows["device copy"]
    assert listed(copies) == [("MemcpyH2D", 90, 10), ("MemcpyD2D", 130, 10)]
    # A size of 0 is the profiler's word for unknown.
    assert copies.bytes.to_pylist() == [4096, None]
    assert copies.copy_direction.to_pylist() == ["h2d", "d2d"]
    assert trace.dropped == {"row derived from others": 1, "mark of the thread pool": 1}
    assert (trace.facts.vendor, trace.facts.sm_count, trace.facts.hbm_bytes_per_s) == ("nvidia", 132, 3.35e12)
    assert (trace.facts.rank, trace.facts.local_rank) == (None, 0)


def test_a_launch_belongs_to_the_device_it_launched_on_and_a_step_to_all(written):
    path = written(gpu_file())
    _, first = read(path, "/device:GPU:0")
    _, second = read(path, "/device:GPU:1")
    links = [rows["host launch"].correlation.to_pylist() for rows in (first, second)]
    assert links == [[1, 2, 99], [3]]
    for rows in (first, second):
        assert listed(rows["host annotation"]) == [("train step 5", 0, 200)]
    assert listed(first["host python"]) == [("$model.py:1 forward", 0, 150)]
    assert "host python" not in second


def test_an_amd_gpu_s_stated_bandwidth_is_not_taken(written):
    trace, _ = read(written(gpu_file()), "/device:GPU:1")
    assert (trace.facts.vendor, trace.facts.hbm_bytes_per_s) == ("amd", None)


def test_collectives_of_a_gpu_have_the_payload_of_their_program(written):
    """f32[2] gathered into f32[4]: a start's result holds the operand as well."""
    shapes = [hlo_field(2, varint(11)) + hlo_field(3, b"\x02", packed=True)]
    shapes.append(hlo_field(2, varint(11)) + hlo_field(3, b"\x04", packed=True))
    pair = hlo_field(2, varint(13)) + b"".join(hlo_field(4, shape, packed=True) for shape in shapes)
    operand = instruction_of("a", "parameter", shapes[0], 1)
    gather = instruction_of("all-gather-start.2", "all-gather-start", pair, 2, operands=b"\x01")
    body = b"".join(hlo_field(2, i, packed=True) for i in (operand, gather))
    module = hlo_field(1, hlo_field(3, body, packed=True), packed=True)
    told = {"hlo_op": "all-gather-start.2", "program_id": 9}
    kernels = [("gemm", 0, 5, {}), ("ncclDevKernel_AllGather_RING_LL", 10, 5, told)]
    kernels.append(("ncclDevKernel_AllGather_RING_LL", 20, 5, told | {"program_id": 8}))
    plane = Plane("/device:GPU:0", device_vendor="Nvidia").line("Stream #7(Kernel)", kernels)
    metadata = Plane("/host:metadata")
    metadata.described("jit_g(9)", **{"Hlo Proto": module})
    metadata.message.event_metadata[0].key = 9
    trace, _ = read(written(space(plane, metadata, environment())), "/device:GPU:0")
    (payload, nothing), rows = trace.told.payloads, list(trace.told.row)
    assert (rows, payload.collective, payload.dtype) == ([1, 2], "all_gather", "f32")
    assert (payload.in_bytes, payload.out_bytes, payload.ranks) == (8, 16, None)
    assert (nothing.collective, nothing.in_bytes, nothing.library) == (None, None, None)
    assert trace.notes == [
        "payload of 1 collectives unknown: the profile has no HLO of their program",
        "process group of 1 collectives unknown: the profile does not tell which of the program's devices"
        " this GPU is",
    ]


def hlo_field(number: int, value: bytes, *, packed: bool = False) -> bytes:
    """A field of an HloProto: an integer as it is, anything else with its length."""
    return varint(number << 3 | 2) + varint(len(value)) + value if packed else varint(number << 3) + value


def instruction_of(name: str, opcode: str, shape: bytes, number: int, operands: bytes = b"") -> bytes:
    """An HloInstructionProto."""
    texts = hlo_field(1, name.encode(), packed=True) + hlo_field(2, opcode.encode(), packed=True)
    ids = hlo_field(35, varint(number)) + hlo_field(36, operands, packed=True)
    return texts + hlo_field(3, shape, packed=True) + ids


def test_ends_are_rounded_alike_so_that_neighbours_stay_neighbours(written):
    plane = tpu(0, [])
    line = plane.message.lines[0]
    for offset, duration in ((1_999, 1_002), (3_001, 2_500)):
        event = line.events.add(metadata_id=plane.events[OPS["loop"]], duration_ps=duration)
        event.offset_ps = offset
    _, rows = read(written(space(plane, environment())), "/device:TPU:0")
    # [1.999, 3.001) and [3.001, 5.501) ns.
    assert listed(rows["device kernel"]) == [("fusion.1", 1, 2), ("fusion.1", 3, 2)]


def test_a_device_s_own_clock_goes_before_the_times_a_profile_shows(written):
    """Of 200 ops of 1 ms, one each 2 ms, those from 50 to 59 are shown 0.7 ms late; clocks are 5 µs apart."""
    events = []
    for i in range(200):
        own = 2_000_000 * i
        late = 700_000 if 50 <= i < 60 else 0
        told = {"device_offset_ps": own * 1000, "device_duration_ps": 1_000_000_000}
        events.append(("loop", own + 5_000 + late, 1_000_000 + (700_000 if i == 49 else 0), told))
    marks = [("dependency-wait", 2_000_000 * 55 + 705_000 - 10, 10, {})]
    runs = [("jit_f(7)", 2_000_000 * 50 + 705_000, 2_000_000 * 9 + 1_000_000, {})]
    path = written(space(tpu(0, events, XLA_TraceMe=marks, XLA_Modules=runs), environment()))
    trace, rows = read(path, "/device:TPU:0")
    assert listed(rows["device kernel"]) == [
        ("fusion.1", 2_000_000 * i + 5_000, 1_000_000) for i in range(200)
    ]
    assert listed(rows["device sync"]) == [("dependency-wait", 2_000_000 * 55 + 5_000 - 10, 10)]
    (run,) = trace.device_steps
    assert (run.start_ns - BEGIN_NS, run.end_ns - BEGIN_NS) == (100_005_000, 119_005_000)
    assert trace.notes == []


def test_a_profile_that_shows_ops_much_too_late_is_said_so(written):
    told = {"device_offset_ps": 1, "device_duration_ps": 5000}
    late = {"device_offset_ps": 100_000_000, "device_duration_ps": 5000}
    events = [("loop", 0, 5, told), ("loop", 3_000_000, 5, late)]
    trace, _ = read(written(space(tpu(0, events), environment())), "/device:TPU:0")
    assert len(trace.notes) == 1
    assert "the device's own clock" in trace.notes[0]


def test_lines_in_epoch_time_are_left_as_they_are(written):
    plane = Plane("/device:GPU:0").line("Stream #1", [("k", 5, 1, {})], timestamp_ns=BEGIN_NS + 100)
    _, rows = read(written(space(plane, environment())), "/device:GPU:0")
    assert listed(rows["device kernel"]) == [("k", 105, 1)]


def test_rows_of_other_planes_and_aggregates_are_counted(written):
    plane = tpu(0, [("loop", 0, 1, {})])
    plane.message.lines[0].events.add(metadata_id=1, num_occurrences=3)
    sparse = Plane("/device:TPU:0 SparseCore 0").line("Sparse Core Ops", [("x", 0, 1, {}), ("y", 1, 1, {})])
    custom = Plane("/device:CUSTOM:Megascale").line("a", [("x", 0, 1, {})])
    trace, rows = read(written(space(plane, sparse, custom, environment())), "/device:TPU:0")
    assert len(rows["device kernel"]) == 1
    assert trace.dropped == {
        "aggregate without a time": 1,
        "row of a SparseCore": 2,
        "row of another plane": 1,
    }


def test_a_cut_file_is_refused_and_its_whole_planes_are_used_on_request(written):
    whole = space(tpu(0, [("loop", 0, 9, {})]), environment())
    path = written(whole + b"\x0a\x7f\x12\x09/host:CPU")
    with pytest.raises(
        InputError, match=rf"byte {len(whole):,}: the file ends 116 bytes before.*--allow-truncated"
    ):
        Xplane().read(path, part=Part("/device:TPU:0"))
    trace, rows = read(path, "/device:TPU:0", allow_truncated=True)
    assert trace.cut is not None
    assert trace.cut.byte == len(whole)
    assert len(rows["device kernel"]) == 1


def absurd(offset_ps: int, duration_ps: int, timestamp_ns: int = 0) -> bytes:
    """A plane with one impossible time."""
    plane = Plane("/device:GPU:0").line("Stream #1", [("k", 0, 0, {})], timestamp_ns=timestamp_ns)
    event = plane.message.lines[0].events[0]
    event.offset_ps, event.duration_ps = offset_ps, duration_ps
    return space(plane)


def detailed(**stats: Any) -> bytes:
    """A plane with one event that says so."""
    return space(Plane("/device:GPU:0").line("Stream #1", [("k", 0, 1, stats)]))


BAD = {
    "empty": (b"", "empty file"),
    "garbage": (b"\xff" * 64, "byte 0: no protobuf field"),
    "text": (b"{}", "byte 0: no protobuf field"),
    "group": (b"\x0b\x0c", "byte 0: no protobuf field"),
    "overlong": (b"\x0a" + b"\x80" * 11, "byte 1: no protobuf field"),
    "cut": (b"\x0a\x20\x12\x0d/device:GPU:0", "the file ends 17 bytes before its plane does"),
    "longer name": (b"\x0a\x10\x12\x7f/device:GPU:0" + b" ", "byte 2: no protobuf field"),
    "mangled": (b"\x0a" + b"\xef\xbf\xbd" * 20, "text conversion"),
    "lengths within lengths": (
        b"\x0a\x1d\x12\x0d/device:GPU:0" + b"\x1a\x0c" + b"\x22\x78" * 6,
        "plane '/device:GPU:0' is damaged",
    ),
    "metadata of a wrong type": (
        b"\x0a\x13\x12\x0d/device:GPU:0" + b"\x22\x02\xff\xff",
        "plane '/device:GPU:0' is damaged",
    ),
    "late": (absurd(1 << 62, 1), "impossible time in line 'Stream #1'"),
    "long": (absurd(0, (1 << 63) - 1), "impossible time"),
    "negative": (absurd(0, -1), "impossible time"),
    "epoch": (absurd(0, 1, (1 << 63) - 1), "impossible time"),
    "grid": (detailed(kernel_details="grid:9999999999,9999999999,1 block:1,1,1"), "impossible grid"),
    "copy": (detailed(memcpy_details="kind:HtoD size:99999999999999999999 dest:0"), "impossible copy"),
    "start": (space(Plane("/device:GPU:0"), Plane("Task Environment", profile_start_time=-5)), "not a time"),
    "assignment": (
        space(tpu(0, []), programs([[0]])).replace(b"\x7a\x09", b"\x7a\x7f"),
        "an HLO module is damaged",
    ),
    "accesses": (
        space(tpu(0, [("loop", 0, 1, {})])).replace(VMEM_READ_64, b"\x0a\x06\x08\x01\x10\x03\x1f\x40"),
        "no protobuf field",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_one_clear_line(case, written):
    data, message = BAD[case]
    path = written(data)
    with pytest.raises(InputError) as caught:
        read_all(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deep_nesting_ends_in_an_error_not_in_the_stack(written):
    body = b""
    for _ in range(5000):
        body = b"\x1a" + varint(len(body)) + body
    plane = b"\x12\x0d/device:GPU:0" + body
    path = written(b"\x0a" + varint(len(plane)) + plane)
    trace, rows = read(path, "/device:GPU:0")
    assert rows == {}
    assert trace.dropped == {}


@pytest.mark.parametrize(
    ("head", "sure"),
    [
        (gpu_file()[:1000], True),
        (space(Plane("/host:CPU"), environment()), True),
        (b"\x0a\xef\xbf\xbd\xef\xbf\xbd\x06\x08\x02\x12\x0a/device:TPU:0", True),
        (b'{"traceEvents": []}', False),
        (b"", False),
        (b"SQLite format 3\x00", False),
    ],
)
def test_recognised_by_its_first_plane(head, sure):
    assert (Xplane().sniff(head) > 0.5) is sure
