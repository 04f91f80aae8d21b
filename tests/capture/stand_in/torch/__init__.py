# SPDX-License-Identifier: Apache-2.0
"""Stands in for PyTorch where it is not installed: of its profiler's protocol what cclbench.torch calls.

It records nothing and its traces are empty: a test with it is of who is called when, and of what is written
where.  Its GPU (STAND_IN_CUDA=1) has a clock that only `advance` moves.
"""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable
from typing import Any

__version__ = "0.0.0+stand.in"

_now_s = 0.0


def advance(seconds: float) -> None:
    """Work of the device."""
    global _now_s
    _now_s += seconds


def tell(*words: object) -> None:
    """Say on stdout what was called."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")


class version:  # noqa: N801 - torch's own names
    """`torch.version`."""

    hip = None


class cuda:  # noqa: N801
    """`torch.cuda`."""

    @staticmethod
    def is_available() -> bool:
        return "STAND_IN_CUDA" in os.environ

    is_initialized = is_available

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def get_device_properties(_: int) -> Any:
        class Properties:
            name = "NVIDIA H100 80GB HBM3"
            total_memory = 85_045_870_592

        return Properties()

    class Event:
        """A moment of the device."""

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at_s = _now_s

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: cuda.Event) -> float:
            return (end.at_s - self.at_s) * 1e3

    class memory:  # noqa: N801
        """`torch.cuda.memory`."""

        @staticmethod
        def _record_memory_history(enabled: str | None = "all", max_entries: int = 0) -> None:
            tell("memory history", enabled, max_entries)

        @staticmethod
        def _dump_snapshot(path: str) -> None:
            tell("snapshot", os.path.basename(path))


class profiler:  # noqa: N801
    """`torch.profiler`."""

    @staticmethod
    def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0) -> Callable[[int], str]:
        cycle = wait + warmup + active

        def action(step: int) -> str:
            if repeat and step >= cycle * repeat:
                return "none"
            place = step % cycle
            return "save" if place == cycle - 1 else "record" if place >= wait + warmup else "none"

        return action

    class profile:  # noqa: N801
        """A profiler that says what it was asked to record."""

        def __init__(
            self, *, schedule: Callable[[int], str], on_trace_ready: Callable[[Any], None], **options: Any
        ) -> None:
            tell("options", *(f"{name}={value}" for name, value in sorted(options.items())))
            self.schedule, self.on_trace_ready = schedule, on_trace_ready
            self.step_num = 0

        def __enter__(self) -> Any:
            return self

        def step(self) -> None:
            if self.schedule(self.step_num) == "save":
                self.on_trace_ready(self)
            self.step_num += 1

        def __exit__(self, *_: object) -> None:
            if self.schedule(self.step_num) in ("record", "save"):
                self.on_trace_ready(self)

        def export_chrome_trace(self, path: str) -> None:
            with gzip.open(path, "wt") as file:
                file.write('{"traceEvents": []}')
