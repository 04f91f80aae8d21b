# SPDX-License-Identifier: Apache-2.0
"""Rows of a simulated process in Kineto's layout, with clocks and ids.

Host time advances with every row; a device row starts once it is launched, its stream is free and the work
that the stream waits for has ended. Times are integer nanoseconds, written as µs with three decimals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from random import Random

# The profiler writes all rows of a section before those of the next.
SECTIONS = ("operators", "memory", "python", "device", "annotations")
SM_COUNT = 108
RUNTIME_CBID = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamIsCapturing": 317,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 251,
}
COPY_BYTES_PER_NS = 20


def microseconds(ns: int) -> str:
    """A time in ns as the profiler writes it."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def complete(category: str, name: str, pid: int, tid: int, start: int, duration: int, args: str) -> str:
    """A row with a duration (`ph` X); `args` is the text within its braces."""
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {microseconds(start)}, "dur": {microseconds(duration)},\n'
        f'    "args": {{\n      {args}\n    }}\n  }},\n'
    )


def flow(way: str, category: str, number: int, pid: int, tid: int, at: int) -> str:
    """One end of an arrow between two rows: `way` is s at its start, f at its finish."""
    binding = ', "bp": "e"' if way == "f" else ""
    return (
        f'  {{\n    "ph": "{way}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {microseconds(at)},\n'
        f'    "cat": "{category}", "name": "{category}"{binding}\n  }},\n'
    )


@cache
def tensor_args(shapes: tuple[tuple[int, ...], ...]) -> str:
    """Shapes, strides and types of an operator's inputs; each is contiguous bf16 of one or two dimensions."""
    concrete = ", ".join(['""'] * len(shapes))
    types = ", ".join(['"c10::BFloat16"'] * len(shapes))
    strides = [[*shape[1:], 1] if shape else [] for shape in shapes]
    return (
        f'"Concrete Inputs": [{concrete}], "Input type": [{types}], '
        f'"Input Strides": {strides}, "Input Dims": {[list(shape) for shape in shapes]}'
    )


class Recorder:
    """Collects the rows of one process: a main thread, an autograd thread and one device.

    now: host time; free: time at which each stream is idle; rows: text of the rows not yet drained.
    """

    def __init__(self, random: Random, pid: int, device: int, start: int) -> None:
        self.random = random
        self.pid = pid
        self.tid = pid
        self.device = device
        self.now = start
        self.free: dict[int, int] = {}
        self.rows: dict[str, list[str]] = {section: [] for section in SECTIONS}
        self.allocated = 0
        self._correlation = 0
        self._external = 0
        self._event = 0
        self._python = 0
        self._frames: list[int] = []
        self._operators = [0]

    def drain(self, section: str) -> str:
        """Remove and return the text of a section's new rows."""
        text = "".join(self.rows[section])
        self.rows[section].clear()
        return text

    def spend(self, ns: int) -> None:
        """Advance host time by `ns` to twice that, at random."""
        self.now += ns + int(self.random.random() * ns)

    def _next_event(self) -> int:
        self._event += 1
        return self._event

    @contextmanager
    def operator(
        self,
        name: str,
        args: str = "",
        category: str = "cpu_op",
        sequence: int | None = None,
        backward: bool = False,
    ) -> Iterator[int]:
        """Context of an operator or annotation; yields its external id."""
        self._external += 1
        external, event, rows, tid = self._external, self._next_event(), self.rows["operators"], self.tid
        self._operators.append(external)
        self.spend(900)
        start, place = self.now, len(rows)
        rows.append("")
        known = [f'"External id": {external},"Record function id": 0']
        if sequence is not None:
            rows.append(flow("f" if backward else "s", "fwdbwd", sequence, self.pid, tid, start))
            known.append(f'"Sequence number": {sequence}, "Fwd thread id": {int(backward)}')
        known += [args] * bool(args) + [f'"Ev Idx": {event}']
        yield external
        self.spend(400)
        self._operators.pop()
        rows[place] = complete(category, name, self.pid, tid, start, self.now - start, ", ".join(known))

    @contextmanager
    def frames(self, *names: str) -> Iterator[None]:
        """Context of nested Python frames, the outermost first."""
        rows, opened = self.rows["python"], []
        for name in names:
            self._python += 1
            self.spend(250)
            parent = self._frames[-1] if self._frames else "null"
            known = f'"Python parent id": {parent}, "Python id": {self._python}'
            if name.startswith("nn.Module"):
                known += ', "Python module id": 0'
            args = f'{known}, "Ev Idx": {self._next_event()}'
            opened.append((name, len(rows), self.now, args))
            rows.append("")
            self._frames.append(self._python)
        yield
        for name, place, start, args in reversed(opened):
            self.spend(150)
            self._frames.pop()
            duration = self.now - start
            rows[place] = complete("python_function", name, self.pid, self.pid, start, duration, args)

    def allocate(self, nbytes: int) -> None:
        """An allocator event: device memory allocated, or freed if `nbytes` is negative."""
        self.allocated += nbytes
        self.rows["memory"].append(
            f'  {{\n    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",\n'
            f'    "pid": {self.pid}, "tid": {self.tid},\n    "ts": {microseconds(self.now)},\n'
            f'    "args": {{\n'
            f'      "Total Reserved": 68719476736, "Total Allocated": {self.allocated}, "Bytes": {nbytes}, '
            f'"Addr": {139_000_000_000_000 + self.allocated}, "Device Id": {self.device}, "Device Type": 1, '
            f'"Ev Idx": {self._next_event()}\n    }}\n  }},\n'
        )

    def call(self, name: str, until: int = 0) -> tuple[int, int]:
        """A CUDA runtime call that returns at `until` at the earliest; its correlation id and its start."""
        self._correlation += 1
        self.spend(500)
        start = self.now
        self.spend(2800)
        self.now = max(self.now, until)
        args = (
            f'"External id": {self._operators[-1]},      "cbid": {RUNTIME_CBID[name]}, '
            f'"correlation": {self._correlation}'
        )
        self.rows["device"].append(
            complete("cuda_runtime", name, self.pid, self.tid, start, self.now - start, args)
        )
        return self._correlation, start

    def _device_row(
        self, call: str, category: str, name: str, stream: int, duration: int, args: str
    ) -> tuple[int, int]:
        """A launch, its device row and the flow between them; returns the row's start and end."""
        correlation, launched = self.call(call)
        start = max(launched + 2500, self.free.get(stream, 0) + 700 + int(self.random.random() * 500))
        self.free[stream] = start + duration
        known = (
            f'"External id": {self._operators[-1]},      "device": {self.device}, "context": 1,      '
            f'"stream": {stream}, "correlation": {correlation},      {args}'
        )
        runtime = self.rows["device"].pop()
        self.rows["device"] += (
            complete(category, name, self.device, stream, start, duration, known),
            flow("f", "ac2g", correlation, self.device, stream, start),
            runtime,
            flow("s", "ac2g", correlation, self.pid, self.tid, launched),
        )
        return start, start + duration

    def kernel(
        self, name: str, stream: int, duration: int, blocks: int, metadata: str = ""
    ) -> tuple[int, int]:
        """A kernel of `blocks` blocks of 256 threads; its start and end."""
        call = "cudaLaunchKernelExC" if metadata else "cudaLaunchKernel"
        per_sm, occupancy = blocks / SM_COUNT, min(100, 25 * blocks // SM_COUNT)
        args = (
            f'"queued": 0,      "registers per thread": 96,      "shared memory": 49152,      '
            f'"blocks per SM": {per_sm:.6f},      "warps per SM": {8 * per_sm:.6f},      '
            f'"grid": [{blocks}, 1, 1],      "block": [256, 1, 1],      '
            f'"est. achieved occupancy %": {occupancy}{metadata}'
        )
        return self._device_row(call, "kernel", name, stream, duration, args)

    def copy(self, name: str, stream: int, nbytes: int) -> tuple[int, int]:
        """A copy or, by `name`, a memset; returns its start and end."""
        duration = 1200 + nbytes // COPY_BYTES_PER_NS
        args = f'"bytes": {nbytes}, "memory bandwidth (GB/s)": {nbytes / duration}'
        if name.startswith("Memset"):
            return self._device_row("cudaMemsetAsync", "gpu_memset", name, stream, duration, args)
        return self._device_row("cudaMemcpyAsync", "gpu_memcpy", name, stream, duration, args)

    def wait(self, stream: int, other: int) -> None:
        """Let a stream wait for all work queued on another one so far."""
        event, _ = self.call("cudaEventRecord")
        correlation, start = self.call("cudaStreamWaitEvent")
        self.free[stream] = max(self.free.get(stream, 0), self.free.get(other, 0))
        waited = (
            f'"wait_on_stream": {other},      "wait_on_cuda_event_record_corr_id": {event},      '
            '"wait_on_cuda_event_id": 9,      '
        )
        self._synchronisation("Stream Wait Event", stream, start + 400, 1_200, correlation, waited)

    def synchronise(self) -> None:
        """Block the host until the device is idle."""
        correlation, start = self.call("cudaDeviceSynchronize", until=max(self.free.values()) + 1500)
        self._synchronisation("Context Sync", -1, start + 400, self.now - start - 600, correlation, "")

    def _synchronisation(
        self, kind: str, stream: int, start: int, duration: int, correlation: int, waited: str
    ) -> None:
        args = (
            f'"External id": {self._operators[-1]},      "cuda_sync_kind": "{kind}",      {waited}'
            f'"stream": {stream}, "correlation": {correlation},      "device": {self.device}, "context": 1'
        )
        runtime = self.rows["device"].pop()
        self.rows["device"] += (
            complete("cuda_sync", kind, self.device, stream, start, duration, args),
            runtime,
        )

    def mark(self, name: str, stream: int, start: int, end: int, external: int) -> None:
        """The device row of an annotation: first start to last end of the work launched within it."""
        row = complete(
            "gpu_user_annotation", name, self.device, stream, start, end - start, f'"External id": {external}'
        )
        self.rows["annotations"].append(row)


def process_names(
    processes: Sequence[tuple[int, str, str, int]], threads: Sequence[tuple[int, int, str]], at: int
) -> str:
    """The metadata rows that name processes (pid, name, label, place) and threads (pid, tid, name)."""
    rows = []
    for pid, name, label, place in processes:
        rows.append((pid, 0, "process_name", f'"name": "{name}"'))
        rows.append((pid, 0, "process_labels", f'"labels": "{label}"'))
        rows.append((pid, 0, "process_sort_index", f'"sort_index": {place}'))
    for pid, tid, name in threads:
        rows.append((pid, tid, "thread_name", f'"name": "{name}"'))
        rows.append((pid, tid, "thread_sort_index", f'"sort_index": {tid}'))
    return "".join(
        f'  {{\n    "name": "{key}", "ph": "M", "ts": {microseconds(at)}, "pid": {pid}, "tid": {tid},\n'
        f'    "args": {{\n      {value}\n    }}\n  }},\n'
        for pid, tid, key, value in rows
    )
