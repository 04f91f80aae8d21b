# SPDX-License-Identifier: Apache-2.0
"""Discrete-event simulation of a program on all ranks, in integer ns.

A launch appends work to its stream's queue.  Work starts once it has been launched, the previous work in its
stream has ended and the events that its stream waits for have occurred.  A collective starts on a rank like
other work, and ends on all ranks its duration after the last rank has started it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from cclbench.selftest.program import (
    AUTOGRAD,
    MAIN,
    Batch,
    Collective,
    Copy,
    Kernel,
    Pause,
    Program,
    ProgramCall,
    Runtime,
    StreamWait,
    Synchronize,
    Work,
)

LAUNCH_LATENCY_NS: Final = 2_000
"""From the end of a launch call to the earliest start of its work."""
STREAM_GAP_NS: Final = 1_000
"""Gap between two works of one stream."""
RETURN_NS: Final = 3_000
"""From the end of the device's work to the return of the call that waits for it."""
CALL_NS: Final = 1_500
"""Duration of a runtime call that waits for nothing."""
BATCH_NS: Final = 20_000
"""Time to get a batch that is ready."""
QUEUE_DEPTH: Final = 1_024
"""Works in a device's queues above which a launch waits."""


@dataclass(slots=True, eq=False)
class DeviceWork:
    """A work in a queue, and when it ran."""

    work: Work
    rank: int
    step: int
    correlation: int
    ready_ns: int
    after: list[DeviceWork]
    start_ns: int = -1
    end_ns: int = -1
    arrived_ns: int = -1
    """Time at which the last rank started the collective."""
    remaining_ns: float = 0.0
    updated_ns: int = 0
    generation: int = 0
    waiters: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HostRow:
    """A row of a host's thread: kind op, runtime, annotation."""

    kind: str
    name: str
    thread: int
    start_ns: int
    end_ns: int
    call: ProgramCall | None = None
    work: DeviceWork | None = None


@dataclass(slots=True)
class RankHistory:
    """Device work and host rows of a rank."""

    host: list[HostRow] = field(default_factory=list)
    device: list[DeviceWork] = field(default_factory=list)
    waits: list[tuple[int, int, DeviceWork]] = field(default_factory=list)
    """Waits of streams: time, stream, work waited for."""


class _SimulatedRank:
    """A host and its device."""

    def __init__(self, simulation: Simulation, rank: int) -> None:
        self.simulation, self.rank = simulation, rank
        self.history = RankHistory()
        self.queues: dict[int, deque[DeviceWork]] = {}
        self.last: dict[int, DeviceWork] = {}
        self.events: dict[int, list[DeviceWork]] = {}
        self.recorded: dict[str, DeviceWork] = {}
        self.free_ns: dict[int, int] = {}
        self.running: list[DeviceWork] = []
        self.communicating = 0
        self.pending: deque[DeviceWork] = deque()
        self.correlation = 1_000
        self.batches_ns: list[int] = []
        self.workers_ns = 0

    def launch_work(self, work: Work, step: int, end_ns: int) -> DeviceWork:
        """Put work into its stream's queue."""
        self.correlation += 1
        item = DeviceWork(
            work,
            self.rank,
            step,
            self.correlation,
            end_ns + LAUNCH_LATENCY_NS,
            self.events.pop(work.stream, []),
        )
        self.queues.setdefault(work.stream, deque()).append(item)
        self.last[work.stream] = item
        self.history.device.append(item)
        self.pending.append(item)
        self.simulation.act_at(end_ns, lambda: self.start_next(work.stream))
        return item

    def start_next(self, stream: int) -> None:
        """Start the first work of a stream's queue, if it can."""
        queue = self.queues.get(stream)
        if not queue or queue[0].start_ns >= 0:
            return
        item, now = queue[0], self.simulation.now
        for awaited in item.after:
            if awaited.end_ns < 0:
                awaited.waiters.append(lambda: self.start_next(stream))
                return
        earliest = max(item.ready_ns, self.free_ns.get(stream, 0))
        if earliest > now:
            self.simulation.act_at(earliest, lambda: self.start_next(stream))
            return
        item.start_ns = now
        work = item.work
        if isinstance(work, Collective):
            self._change_resident(1)
            self.simulation.arrive_at_collective(item)
        elif isinstance(work, Copy):
            self.simulation.act_at(now + work.ns, lambda: self.finish_work(item))
        else:
            item.remaining_ns, item.updated_ns = float(work.ns), now
            self.running.append(item)
            self.schedule_end(item)

    def kernel_rate(self) -> float:
        """Rate of compute kernels: below 1 while communication is resident."""
        return 1.0 / self.simulation.program.contention if self.communicating else 1.0

    def schedule_end(self, item: DeviceWork) -> None:
        """Plan the end of a kernel at the present rate."""
        item.generation += 1
        generation = item.generation

        def end_kernel() -> None:
            if item.generation == generation:
                self.running.remove(item)
                self.finish_work(item)

        self.simulation.act_at(
            self.simulation.now + max(1, round(item.remaining_ns / self.kernel_rate())), end_kernel
        )

    def _change_resident(self, change: int) -> None:
        """Change the number of resident communication kernels, and with it the rate of kernels."""
        now, rate = self.simulation.now, self.kernel_rate()
        for item in self.running:
            item.remaining_ns -= (now - item.updated_ns) * rate
            item.updated_ns = now
        self.communicating += change
        if self.kernel_rate() != rate:
            for item in self.running:
                self.schedule_end(item)

    def finish_work(self, item: DeviceWork) -> None:
        """End work and resume what waited for it."""
        now = self.simulation.now
        item.end_ns = now
        stream = item.work.stream
        self.queues[stream].popleft()
        if isinstance(item.work, Collective):
            self._change_resident(-1)
        self.free_ns[stream] = now + STREAM_GAP_NS
        self.simulation.act_at(now + STREAM_GAP_NS, lambda: self.start_next(stream))
        for resume in item.waiters:
            resume()
        item.waiters.clear()

    def first_unfinished(self, stream: int | None) -> DeviceWork | None:
        """The first work that has not ended, of one stream or of all."""
        for item in (
            self.last.values() if stream is None else [self.last[stream]] if stream in self.last else []
        ):
            if item.end_ns < 0:
                return item
        return None


HostWaits = Iterator[int | DeviceWork]
"""Yields what a host waits for: a time, or the end of a work."""


class Simulation:
    """All ranks on one clock; `simulate_ranks` gives each one's history."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.now = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._arrivals: dict[tuple[object, ...], list[DeviceWork]] = {}
        self._calls: dict[tuple[object, ...], int] = {}
        self._ranks = [_SimulatedRank(self, rank) for rank in range(program.rank_count)]

    def simulate_ranks(self) -> list[RankHistory]:
        """Simulate to the end and return each rank's history."""
        for rank in self._ranks:
            host = self._run_host(rank)
            self.act_at(0, lambda host=host: self._resume_host(host))  # type: ignore[misc]
        while self._heap:
            self.now, _, act = heapq.heappop(self._heap)
            act()
        unfinished = [work for rank in self._ranks for work in rank.history.device if work.end_ns < 0]
        assert not unfinished, f"deadlock at {unfinished[0]}"  # noqa: S101  (a defect of a program)
        return [rank.history for rank in self._ranks]

    def act_at(self, time_ns: int, act: Callable[[], None]) -> None:
        """Schedule `act` for a time."""
        self._count += 1
        heapq.heappush(self._heap, (max(time_ns, self.now), self._count, act))

    def arrive_at_collective(self, item: DeviceWork) -> None:
        """A rank starts its part of a collective; the last one to start it sets its end."""
        work = item.work
        assert isinstance(work, Collective)  # noqa: S101
        direction = {"send": (item.rank, work.peer), "recv": (work.peer, item.rank)}.get(work.kind)
        key = (work.group, direction, "p2p" if direction else work.kind)
        number = self._calls.get((*key, item.rank), 0)
        self._calls[*key, item.rank] = number + 1
        arrivals = self._arrivals.setdefault((*key, number), [])
        arrivals.append(item)
        if len(arrivals) < (2 if direction else len(work.ranks)):
            return
        longest = max(part.work.ns for part in arrivals)
        for part in arrivals:
            part.arrived_ns = self.now
            self.act_at(self.now + longest, lambda part=part: self._ranks[part.rank].finish_work(part))  # type: ignore[misc]

    def _resume_host(self, host: HostWaits) -> None:
        for awaited in host:
            if isinstance(awaited, int):
                if awaited > self.now:
                    self.act_at(awaited, lambda: self._resume_host(host))
                    return
            elif awaited.end_ns < 0:
                awaited.waiters.append(lambda: self._resume_host(host))
                return

    def _drain_stream(self, rank: _SimulatedRank, stream: int | None) -> HostWaits:
        while (item := rank.first_unfinished(stream)) is not None:
            yield item

    def _run_host(self, rank: _SimulatedRank) -> HostWaits:  # noqa: C901  (one case an instruction)
        rows = rank.history.host
        for number, step in enumerate(self.program.steps[rank.rank]):
            begin = self.now
            for instruction in step:
                thread = AUTOGRAD if instruction.phase == "backward" else MAIN
                start = self.now
                match instruction:
                    case ProgramCall():
                        yield from self._run_call(rank, number, instruction, thread)
                    case Synchronize(call, stream):
                        yield from self._drain_stream(rank, stream)
                        yield self.now + (RETURN_NS if self.now > start else CALL_NS)
                        rows.append(HostRow("runtime", call, thread, start, self.now))
                    case StreamWait(stream, awaited_stream, event):
                        yield self.now + CALL_NS
                        rows.append(HostRow("runtime", "cudaStreamWaitEvent", thread, start, self.now))
                        awaited = rank.last.get(awaited_stream) if event is None else rank.recorded.get(event)
                        if awaited is not None:
                            rank.events.setdefault(stream, []).append(awaited)
                            rank.history.waits.append((start, stream, awaited))
                    case Pause(ns, annotation, op):
                        yield self.now + ns
                        if annotation is not None:
                            rows.append(HostRow("annotation", annotation, thread, start, self.now))
                        if op is not None:
                            rows.append(HostRow("op", op, thread, start + 500, self.now - 500))
                    case Batch():
                        yield self._batch_ready_ns(rank, instruction)
                        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
                        rows.append(HostRow("annotation", name, thread, start, self.now))
                    case Runtime(name, ns, drains):
                        if drains:
                            yield from self._drain_stream(rank, None)
                        yield self.now + ns
                        rows.append(HostRow("runtime", name, thread, start, self.now))
            rows.append(HostRow("annotation", f"ProfilerStep#{number + 10}", MAIN, begin, self.now))
            yield self.now + 2_000
        start = self.now
        yield from self._drain_stream(rank, None)
        yield self.now + RETURN_NS
        rows.append(HostRow("runtime", "cudaDeviceSynchronize", MAIN, start, self.now))

    def _batch_ready_ns(self, rank: _SimulatedRank, batch: Batch) -> int:
        """Time of the loader's next batch; workers start a batch when a prefetch slot is free."""
        earlier = rank.batches_ns
        if earlier:
            slot_free = earlier[-batch.prefetch] if len(earlier) >= batch.prefetch else 0
            rank.workers_ns = max(rank.workers_ns, slot_free) + batch.period_ns
        ready = max(rank.workers_ns, self.now + BATCH_NS)
        earlier.append(ready)
        return ready

    def _run_call(self, rank: _SimulatedRank, number: int, call: ProgramCall, thread: int) -> HostWaits:
        rows = rank.history.host
        yield self.now + call.python_ns
        begin = self.now
        yield self.now + call.operator_ns
        for work in call.works:
            while rank.pending and rank.pending[0].end_ns >= 0:
                rank.pending.popleft()
            start = self.now
            if len(rank.pending) >= QUEUE_DEPTH:
                yield rank.pending[0]
            yield self.now + call.launch_ns
            item = rank.launch_work(work, number, self.now)
            if call.blocks and isinstance(work, Copy) and not work.pinned:
                yield from self._drain_stream(rank, work.stream)
                yield self.now + RETURN_NS
            name = {Kernel: "cudaLaunchKernel", Copy: "cudaMemcpyAsync"}.get(
                type(work), "cudaLaunchKernelExC"
            )
            rows.append(HostRow("runtime", name, thread, start, self.now, call, item))
            if call.blocks:
                start = self.now
                yield from self._drain_stream(rank, work.stream)
                yield self.now + (RETURN_NS if self.now > start else CALL_NS)
                rows.append(HostRow("runtime", "cudaStreamSynchronize", thread, start, self.now))
        if call.event is not None and call.works:
            rank.recorded[call.event] = item
        yield self.now + 1_000
        rows.append(HostRow("op", call.op, thread, begin, self.now, call))
