# SPDX-License-Identifier: Apache-2.0
"""XLA profiles written on the spot: planes of TPUs, of two GPUs with their process; and how they read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cclbench.formats import Part, Rows, Trace
from cclbench.formats.xplane import Xplane, proto

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
CATEGORY = {"while": "while", "loop": "loop fusion", "dot": "convolution", "psum": "all-reduce"}
CATEGORY |= {"start": "copy-start", "done": "copy-done", "gather-start": "all-gather-start"}
CATEGORY |= {"gather-done": "all-gather-done", "custom": "custom-call", "fused": "loop fusion"}
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
        self.events[name] = len(self.events) + 1
        entry = self.message.event_metadata.add(key=self.events[name])
        entry.value.name = name
        self._say(entry.value.stats, stats)

    def describe_more(self, metadata: Any, **stats: Any) -> None:
        """Further stats of metadata."""
        self._say(metadata.stats, stats)

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
    value &= (1 << 64) - 1
    return (bytes([value & 0x7F | 0x80]) + varint(value >> 7)) if value > 0x7F else bytes([value])


def space(*planes: Plane) -> bytes:
    bodies = [plane.message.SerializeToString() for plane in planes]
    return b"".join(b"\x0a" + varint(len(body)) + body for body in bodies)


def environment() -> Plane:
    """The plane that says when the profile began."""
    return Plane("Task Environment", profile_start_time=BEGIN_NS)


def tpu(device: int, events: Sequence[Event], *, first: int = 4, **lines: Sequence[Event]) -> Plane:
    """A TPU's plane with these events on `XLA Ops`, as op, begin, duration; global id `first` + device."""
    known: dict[str, Any] = {"device_type_string": "TPU v6 Lite", "peak_teraflops_per_second": 918.0}
    known |= {"core_details": bytes([0x28, first + device, 0x30, first + device])}
    plane = Plane(f"/device:TPU:{device}", **known, peak_hbm_bw_gigabytes_per_second=1638.0)
    for key, text in OPS.items():
        told: dict[str, Any] = {"hlo_category": CATEGORY[key], "program_id": 7, "model_flops": 10}
        told |= {"flops": 20}
        if key == "custom":
            told |= {"model_flops": 0, "bytes_accessed": 48}
        if key in ACCESSES:
            told["memory_access_breakdown"] = ACCESSES[key]
        if key == "dot":
            told |= {"tf_op": "jit(f)/dot_general:", "source": "train.py:31"}
        plane.described(text, **told)
    plane.line("XLA Ops", [(OPS[key], *rest) for key, *rest in events], track=3)
    for track, (name, marks) in enumerate(lines.items(), 4):
        plane.line(name.replace("_", " "), [(OPS.get(key, key), *rest) for key, *rest in marks], track=track)
    return plane


def programs(
    ids: list[list[int]], *instructions: bytes, number: int = 7, schedule: Sequence[int] = ()
) -> Plane:
    """`/host:metadata` with a program of those instructions, its device assignment by computation, and the
    order of its instructions' ids."""
    columns = [hlo_field(1, b"".join(map(varint, column))) for column in ids]
    assignment = hlo_field(1, len(ids[0])) + hlo_field(2, len(ids))
    assignment += b"".join(hlo_field(3, column) for column in columns)
    body = hlo_field(3, b"".join(hlo_field(2, i) for i in instructions)) if instructions else b""
    order = hlo_field(7, hlo_field(1, hlo_field(2, hlo_field(1, b"".join(map(varint, schedule))))))
    module = hlo_field(1, b"f") + body + (order if schedule else b"") + hlo_field(15, assignment)
    plane = Plane("/host:metadata")
    plane.described(f"jit_f({number})", **{"Hlo Proto": hlo_field(1, module)})
    plane.message.event_metadata[0].key = number
    return plane


def hlo_field(number: int, value: int | bytes) -> bytes:
    """A field of an HloProto: an integer as it is, anything else with its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def array(*dims: int, kind: int = 11) -> bytes:
    """A ShapeProto, of f32 unless told otherwise."""
    return hlo_field(2, kind) + hlo_field(3, b"".join(map(varint, dims)))


def instruction(name: str, opcode: str, shape: bytes, number: int, *more: bytes) -> bytes:
    """An HloInstructionProto with more fields behind."""
    texts = hlo_field(1, name.encode()) + hlo_field(2, opcode.encode())
    return texts + hlo_field(3, shape) + hlo_field(35, number) + b"".join(more)


def groups(*listed: Sequence[int]) -> bytes:
    """Fields of an instruction that say who takes part, by global ids."""
    each = (hlo_field(1, hlo_field(1, b"".join(map(varint, ids)))) for ids in listed)
    return hlo_field(26, 1) + hlo_field(71, 1) + hlo_field(87, b"".join(each))


def write(folder: Path, data: bytes) -> Path:
    path = folder / "host.xplane.pb"
    path.write_bytes(data)
    return path


def read(path: Path, member: str, **options: Any) -> tuple[Trace, dict[str, Rows]]:
    """A member's trace and its rows by kind; host annotations and others apart from the device's."""
    trace = Xplane().read(path, part=Part(member), **options)
    return trace, {f"{batch.side} {batch.kind}": batch for batch in trace.batches if isinstance(batch, Rows)}


def read_all(path: Path) -> None:
    for part in Xplane().parts(path):
        read(path, part.member)


def listed(rows: Rows) -> list[tuple[str, int, int]]:
    """Name, begin since the profile's and duration of each row."""
    names = list(rows.names)
    columns = (rows.codes.tolist(), rows.start_ns.tolist(), rows.dur_ns.tolist())
    return [(names[code], start - BEGIN_NS, dur) for code, start, dur in zip(*columns, strict=True)]


def gpu_file() -> bytes:
    """Two GPUs, the process that drives them: three launches, a step, a Python function, a thread's mark."""
    grid = {"kernel_details": "regs:38 shm:0 grid:160,2,1 block:1024,1,1"}
    up, within = "kind:HtoD size:4096 dest:0 async:1", "kind:Unknown size:0 dest:512 async:1"
    first = Plane("/device:GPU:0", device_vendor="Nvidia", core_count=132, memory_bandwidth=3350_000_000_000)
    first.line("Stream #7(Kernel)", [("gemm", 100, 20, {"correlation_id": 1, **grid})], track=7)
    copies = [("MemcpyH2D", 90, 10, {"correlation_id": 2, "memcpy_details": up})]
    copies += [("MemcpyD2D", 130, 10, {"correlation_id": 9, "memcpy_details": within})]
    first.line("Stream #8(MemcpyH2D)", copies, track=8)
    first.line("TensorFlow Ops", [("gemm", 100, 20, {})])
    second = Plane("/device:GPU:1", device_vendor="AMD", core_count=304, memory_bandwidth=2662_400_000_000)
    second.line("Stream #7(Kernel)", [("gemm", 105, 21, {"correlation_id": 3})], track=7)
    calls: list[Event] = [("train", 0, 200, {"step_num": 5}), ("$model.py:1 forward", 0, 150, {})]
    for begin, name, link in ((10, "Kernel", 1), (13, "Memcpy", 2), (20, "Kernel", 3), (30, "Kernel", 99)):
        call = "cuMemcpyAsync" if name == "Memcpy" else "cuLaunchKernel"
        calls.append((call, begin, 2, {"correlation_id": link}))
    calls.append(("ThreadpoolListener::StartRegion", 40, 0, {}))
    return space(first, second, Plane("/host:CPU").line("python", calls, track=583), environment())
