# SPDX-License-Identifier: Apache-2.0
"""Stands in for JAX where it is not installed: of its profiler's protocol what cclbench.jax calls.

Each call is a line on stdout; the process is number 3 of 12.
"""

from __future__ import annotations

import os
import sys
from typing import Any

__version__ = "0.0.0"


def tell(*words: object) -> None:
    """Say on stdout what was called."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def live_arrays() -> list[Any]:
    """None."""
    return []


def block_until_ready(_: object) -> None:
    """Nothing to wait for."""
    tell("wait for all")


def process_index() -> int:
    """The last but eight."""
    return 3


def process_count() -> int:
    """Of a job on twelve hosts."""
    return 12


class profiler:  # noqa: N801 - jax's own name
    """`jax.profiler`."""

    class ProfileOptions:
        """Any options."""

    @staticmethod
    def start_trace(folder: os.PathLike[str], *, profiler_options: Any) -> None:
        tell("start", os.path.relpath(folder), "python", profiler_options.python_tracer_level)
        os.makedirs(folder)

    @staticmethod
    def stop_trace() -> None:
        tell("stop")

    class StepTraceAnnotation:
        """A range of the trace."""

        def __init__(self, name: str, *, step_num: int) -> None:
            self._words = name, step_num

        def __enter__(self) -> None:
            tell("begin", *self._words)

        def __exit__(self, *_: object) -> None:
            tell("end", *self._words)
