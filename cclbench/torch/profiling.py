# SPDX-License-Identifier: Apache-2.0
"""The profiler as configured for cclbench: steps are timed with and without it, all output in one folder."""

from __future__ import annotations

import re
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import torch

from cclbench.capture.step_times import StepPhase, StepTimes, write_step_times
from cclbench.ground.errors import UsageError
from cclbench.torch.job import CapturedJob, default_backend, rank_and_world
from cclbench.torch.writing import TraceHandler

_MOST_TIMED: Final = 100
"""Maximum number of unprofiled steps that are kept, the last ones before the profiler starts."""
_MOST_ALLOCATIONS: Final = 1_000_000
"""Maximum number of allocator events in a snapshot."""

Mark = Any
"""A point in time, from `_StepClock.mark_now`."""


@dataclass(frozen=True)
class Recording:
    """What is recorded besides times; see `cclbench.torch.profile`."""

    shapes: bool
    stacks: bool
    memory: bool
    memory_snapshot: bool
    execution_trace: bool

    @property
    def enabled_names(self) -> list[str]:
        """The names of the enabled options."""
        return [field.name for field in fields(self) if getattr(self, field.name)]


def has_cuda() -> bool:
    """Whether CUDA is available."""
    return bool(torch.cuda.is_available())


class _StepClock:
    """Times steps: on the GPU by events in its stream, which do not synchronize, else on the host."""

    def __init__(self) -> None:
        self.on_gpu = torch.cuda.is_initialized()

    def mark_now(self) -> Mark:
        """A mark after all work submitted to the device so far."""
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, begin: Mark, end: Mark) -> float:
        """Seconds between two marks, once the device has reached them."""
        if not self.on_gpu:
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    @property
    def is_valid(self) -> bool:
        """Whether it times this job's device."""
        is_same_device = torch.cuda.is_initialized() == self.on_gpu
        other = getattr(torch, "accelerator", None)
        return is_same_device and (torch.cuda.is_available() or other is None or not other.is_available())


class TorchProfile:
    """Made by `cclbench.torch.profile`; `overhead` is known once the trace is written."""

    overhead: float | None = None
    """Relative increase of the step time by the profiler; None if not measured."""

    def __init__(
        self, folder: Path, schedule: tuple[int, int, int], recording: Recording, job: CapturedJob
    ) -> None:
        self._folder, self._recording = folder, recording
        self._wait, self._warmup, self._active = schedule
        if min(self._wait, self._warmup) < 0 or self._active < 1:
            raise UsageError("wait and warmup are 0 or more, active is 1 or more")
        self._write = TraceHandler(folder, job)
        self._step = 0
        self._unprofiled: deque[tuple[Mark, Mark]] = deque(maxlen=_MOST_TIMED)
        self._profiled: list[tuple[Mark, Mark]] = []
        self._began: Mark = None
        self._profiler: Any = None
        self._is_written = False

    @cached_property
    def _step_clock(self) -> _StepClock:
        """Created after the first step, which is not timed: by then the job uses its device."""
        return _StepClock()

    def __enter__(self) -> TorchProfile:
        rank, world = rank_and_world()
        self._folder.mkdir(parents=True, exist_ok=True)
        _refuse_other_ranks(self._folder, world)
        if default_backend() == "gloo":
            from cclbench.torch.collectives import annotate_collectives

            annotate_collectives()
        options: dict[str, Any] = {}
        if self._recording.execution_trace:
            path = str(self._folder / f"rank{rank}_et.json")
            observer = torch.profiler.ExecutionTraceObserver().register_callback(path)
            options["execution_trace_observer"] = observer
        self._profiler = torch.profiler.profile(
            schedule=torch.profiler.schedule(
                wait=self._wait, warmup=self._warmup, active=self._active, repeat=1
            ),
            on_trace_ready=self._trace_ready,
            record_shapes=self._recording.shapes,
            with_stack=self._recording.stacks,
            profile_memory=self._recording.memory,
            **options,
        )
        self._profiler.__enter__()
        self._begin_step()
        return self

    def step(self) -> None:
        """Mark the end of a step of the job."""
        times = self._times_of(self._step)
        if times is not None:
            times((self._began, self._step_clock.mark_now()))
        self._step += 1
        self._profiler.step()
        self._begin_step()

    def _begin_step(self) -> None:
        """Mark the begin of a step."""
        if self._recording.memory_snapshot and self._step == self._wait:
            torch.cuda.memory._record_memory_history(max_entries=_MOST_ALLOCATIONS)
        if self._times_of(self._step) is not None:
            self._began = self._step_clock.mark_now()

    def _times_of(self, step: int) -> Callable[[tuple[Mark, Mark]], None] | None:
        """The function that stores the times of a step; None for the first one and warm-up steps."""
        first = self._wait + self._warmup
        if first <= step < first + self._active:
            return self._profiled.append
        return self._unprofiled.append if 0 < step < self._wait else None

    def _trace_ready(self, profiler: Any) -> None:
        self._is_written = True
        self._write(profiler)
        rank, _ = rank_and_world()
        if self._recording.memory_snapshot:
            torch.cuda.memory._dump_snapshot(str(self._folder / f"rank{rank}_memory_snapshot.pickle"))
        if self._unprofiled and self._profiled and self._step_clock.is_valid:
            seconds = self._step_clock.seconds_between
            times = StepTimes(
                rank=rank,
                profiler="torch.profiler",
                records=self._recording.enabled_names,
                unprofiled=StepPhase.from_seconds([seconds(*step) for step in self._unprofiled]),
                profiled=StepPhase.from_seconds([seconds(*step) for step in self._profiled]),
            )
            write_step_times(times, self._folder)
            self.overhead = times.relative_overhead

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._profiler.__exit__(kind, error, trace)
        if self._recording.memory_snapshot:
            torch.cuda.memory._record_memory_history(enabled=None)
        if kind is None and not self._is_written:
            warnings.warn(
                f"no trace in {self._folder}: the job took {self._step} steps, and the trace begins after"
                f" {self._wait + self._warmup} (wait and warmup)",
                stacklevel=2,
            )


def _refuse_other_ranks(folder: Path, world: int) -> None:
    """`UsageError` if the folder has traces of ranks beyond the world size, from another capture."""
    for path in folder.glob("rank*_trace.json.gz"):
        match = re.match(r"rank(\d{1,9})_", path.name)
        if match and int(match[1]) >= world:
            raise UsageError(
                f"contains {path.name}, but this job has {world} ranks",
                where=str(folder),
                hint="it is from another capture: name another folder",
            )
