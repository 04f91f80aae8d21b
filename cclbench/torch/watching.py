# SPDX-License-Identifier: Apache-2.0
"""Captures one step in N of a job, and has each capture read beside the job."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from cclbench.capture.verdicts import VerdictWriter
from cclbench.ground.errors import UsageError
from cclbench.torch.job import CapturedJob, default_backend, rank_and_world
from cclbench.torch.writing import TraceHandler

LEAST_EVERY = 3
"""A step without the profiler, one that warms it up, and one that it records."""


class TrainingWatch:
    """Made by `cclbench.torch.watch`; call its `step()` at the end of each step of the job."""

    def __init__(self, folder: Path, every: int, log: Path, shapes: bool, job: CapturedJob) -> None:
        if every < LEAST_EVERY:
            raise UsageError(f"every is {every}", hint=f"it is {LEAST_EVERY} or more")
        rank, world = rank_and_world()
        self._write = TraceHandler(folder, job)
        self._verdicts = VerdictWriter(log, world) if rank == 0 else None
        self._every, self._steps, self._ended = every, 0, False
        self._profiler: Any = torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=every - 2, warmup=1, active=1),
            on_trace_ready=self._trace_ready,
            record_shapes=shapes,
        )

    def __enter__(self) -> TrainingWatch:
        if default_backend() == "gloo":
            from cclbench.torch.collectives import annotate_collectives

            annotate_collectives()
        self._profiler.__enter__()
        return self

    def step(self) -> None:
        """Mark the end of a step of the job."""
        self._steps += 1
        self._profiler.step()

    def _trace_ready(self, profiler: Any) -> None:
        if self._ended:  # within a step: its trace lacks the rest of it
            return
        folder = self._write(profiler)
        if self._verdicts is not None:
            self._verdicts.announce(self._steps - 1, folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._profiler.__exit__(kind, error, trace)
        if self._verdicts is not None:
            self._verdicts.close()
