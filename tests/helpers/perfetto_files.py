# SPDX-License-Identifier: Apache-2.0
"""Perfetto traces written by hand, field by field, as the C++ SDK and AMD's profilers write them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BOOTTIME, INCREMENTAL = 6, 64


class Fixed(int):
    """An integer of eight bytes."""


def varint(value: int) -> bytes:
    groups = [value % (1 << 64) >> shift & 0x7F for shift in range(0, 64, 7)]
    while len(groups) > 1 and not groups[-1]:
        groups.pop()
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def field(number: int, *values: Any) -> bytes:
    """The field once for each value: an integer, a float, a text or a message."""
    data = b""
    for value in values:
        if isinstance(value, Fixed):
            data += varint(number << 3 | 1) + struct.pack("<Q", value)
        elif isinstance(value, float):
            data += varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            data += varint(number << 3) + varint(value)
        else:
            text = value.encode() if isinstance(value, str) else value
            data += varint(number << 3 | 2) + varint(len(text)) + text
    return data


def message(**fields: Any) -> bytes:
    """A message whose fields are named `f8=...`; a list repeats one."""
    return b"".join(
        field(int(name[1:]), *(value if isinstance(value, list) else [value]))
        for name, value in fields.items()
    )


def clocks(**times: Any) -> bytes:
    """A ClockSnapshot: `c6=time`, or `c64=(time, incremental, unit)`."""
    found = []
    for name, time in times.items():
        values = time if isinstance(time, tuple) else (time,)
        found.append(b"".join(field(number, int(value)) for number, value in enumerate(values, 2)))
        found[-1] = field(1, int(name[1:])) + found[-1]
    return message(f1=found)


class Sequence:
    """Packets of one writer: texts interned, times as differences of clock 64 where they do not fall."""

    def __init__(self, number: int, *, pid: int = 4711, absolute: bool = True) -> None:
        self.number, self.pid, self.absolute = number, pid, absolute
        """`absolute`: all events state the time since boot, as those with times given do."""
        self.data, self.last = bytearray(), 0
        self.texts: dict[tuple[int, str], int] = {}

    def packet(self, content: bytes, *, flags: int = 2, **more: Any) -> None:
        own = content + field(10, self.number) + field(13, flags) + field(79, self.pid) + message(**more)
        self.data += field(1, own)

    def clear(self, now: int, track: int = 1, **more: Any) -> None:
        """Begin anew: no text was stated; the default track; both clocks show `now`."""
        self.last, self.texts = now, {}
        defaults = message(f58=INCREMENTAL, f11=message(f11=track))
        snapshot = clocks(c6=now, c64=(now, True, 1))
        self.packet(message(f8=0, f59=defaults, f6=snapshot), flags=1, **more)

    def track(self, uuid: int, name: str = "", parent: int = 0, **more: Any) -> None:
        """A TrackDescriptor: `f3` is a process, `f4` a thread."""
        named = {"f2": name} if name else {}
        self.packet(message(f8=0, f60=message(f1=uuid, f5=parent, **named, **more)))

    def interned(self, kind: int, text: str, news: list[bytes]) -> int:
        if (kind, text) not in self.texts:
            self.texts[kind, text] = len(self.texts) + 1
            news.append(field(kind, message(f1=self.texts[kind, text], f2=text)))
        return self.texts[kind, text]

    def event(
        self, time: int, kind: int, track: int, category: str = "", name: str = "", **more: Any
    ) -> None:
        """A TrackEvent; `details` are annotations, `flow` the flow's id."""
        news: list[bytes] = []
        content = field(9, kind) + field(11, track)
        if category:
            content += field(3, self.interned(1, category, news)) + field(10, self.interned(2, name, news))
        for key, value in more.get("details", {}).items():
            number = {int: 3, float: 5}.get(type(value), 6)
            content += field(4, field(1, self.interned(3, key, news)) + field(number, value))
        if "flow" in more:
            content += field(47, Fixed(more["flow"]))
        timed = field(8, time) + field(58, BOOTTIME)
        if not self.absolute and time >= self.last:
            timed, self.last = field(8, time - self.last), time
        self.packet(timed + field(11, content) + (field(12, b"".join(news)) if news else b""))

    def slice(self, begin: int, end: int, track: int, category: str, name: str, **more: Any) -> None:
        """A slice written whole, as rocprofv3 does after the run."""
        self.event(begin, 1, track, category, name, **more)
        self.event(end, 2, track)


PROCESS, THREADS, STREAMS = 1000, 2000, 3000
"""uuids of a process's track, and from which those of its threads and streams are counted."""


def rocprof_sequence(pid: int, now: int, threads: Iterable[int], streams: Iterable[int]) -> Sequence:
    """The beginning of a trace of rocprofv3: descriptors of the process, its threads and HIP's streams."""
    written = Sequence(1, pid=pid)
    written.clear(now, THREADS + pid)
    process = message(f1=pid, f2=["/home/alice/train.py", "--token=hf_abcdefgh"], f6="train.py")
    written.track(PROCESS, f3=process)
    for number, thread in enumerate(threads):
        more = {"f4": message(f1=pid, f2=thread)} if thread == pid else {}
        written.track(THREADS + thread, f"THREAD {number} ({thread})", PROCESS, **more)
    for stream in streams:
        written.track(STREAMS + stream, f'STREAM [" {stream} "] ', PROCESS)
    return written


def write_job(folder: Path, job: list[Any], pid: int, first: int, grid: tuple[int, ...]) -> Path:
    """Rows of a job (`test_rocprof.Row`) as rocpd's converter writes them."""
    device, host = ("kernel", "copy"), ("call", "annotation")
    threads = sorted({row.track for row in job if row.kind in host})
    written = rocprof_sequence(pid, first, threads, sorted({r.track for r in job if r.kind in device}))
    categories = {"kernel": "kernel_dispatch", "copy": "memory_copy", "call": "hip_api"}
    for row in sorted(job, key=lambda row: row.kind in device):
        begin, end = first + row.begin, first + row.begin + row.length
        details: dict[str, Any] = {"begin_ns": begin, "end_ns": end, "corr_id": row.call, "tid": row.track}
        name = row.name
        if row.kind == "kernel":
            x, y, z = grid
            details |= {"agent": "GPU-0", "queue": 1, "stream_id": row.track, "tid": threads[0]}
            details["grid_size"] = f"{64 * x * y * z} (x={64 * x}, y={y}, z={z})"
            details["workgroup_size"] = "64 (x=64, y=1, z=1)"
        elif row.kind == "copy":
            name = "MEMORY_COPY_HOST_TO_DEVICE"
            details |= {"src_agent": "CPU-0", "dst_agent": "GPU-0", "copy_bytes": row.bytes}
        base = STREAMS if row.kind in device else THREADS
        category = categories.get(row.kind, "marker_api")
        written.slice(begin, end, base + row.track, category, name, details=details, flow=row.call ^ PROCESS)
    written.slice(first, first + 1, THREADS + threads[0], "rocdecode_api", "rocDecCreateDecoder")
    path = folder / "1_results.pftrace"
    path.write_bytes(written.data)
    return path


def convert_dispatches(tool: dict[str, Any], *, cut: bool) -> bytes:
    """The dispatches of rocprofv3's JSON as its generatePerfetto.cpp writes them (ROCm 7.0).

    `cut` divides the time that two successive kernels of a queue share between them, as it does.
    """
    records = tool["buffer_records"]["kernel_dispatch"]
    names = {symbol["kernel_id"]: symbol["demangled_kernel_name"] for symbol in tool["kernel_symbols"]}
    gpus = {agent["id"]["handle"]: agent["logical_node_type_id"] for agent in tool["agents"]}
    streams = sorted({record["stream_id"]["handle"] for record in records})
    pid = tool["metadata"]["pid"]
    written = rocprof_sequence(pid, records[0]["start_timestamp"], [pid], streams)
    queues: dict[int, list[Any]] = {}
    for record in records:
        queues.setdefault(record["dispatch_info"]["queue_id"]["handle"], []).append(dict(record))
    for queue, found in queues.items():
        found.sort(key=lambda record: record["start_timestamp"])
        for number, record in enumerate(found):
            following = found[number + 1 : number + 2]
            if cut and following and following[0]["start_timestamp"] < record["end_timestamp"]:
                begin = following[0]["start_timestamp"]
                end = min(record["end_timestamp"], following[0]["end_timestamp"])
                record["end_timestamp"] = following[0]["start_timestamp"] = begin + (end - begin) // 2
            info, stream = record["dispatch_info"], record["stream_id"]["handle"]
            call = record["correlation_id"]["internal"]
            details = {
                "agent": f"GPU-{gpus[info['agent_id']['handle']]}",
                "corr_id": call,
                "queue": queue - 1,
            }
            for size in ("workgroup_size", "grid_size"):
                x, y, z = (info[size][axis] for axis in "xyz")
                details[size] = x * y * z
            times = record["start_timestamp"], record["end_timestamp"]
            more = {"details": details | {"stream_ID": stream}, "flow": call ^ PROCESS}
            written.slice(*times, STREAMS + stream, "kernel_dispatch", names[info["kernel_id"]], **more)
    return bytes(written.data)
