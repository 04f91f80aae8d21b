# SPDX-License-Identifier: Apache-2.0
"""A rank's host in stretches of its time: calls of operators, annotations, rows of Python around launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from cclbench.classify.serving_steps import is_vllm_step, serving_phase
from cclbench.disk_order import cuts
from cclbench.ingestion.host_rows import HostRows, Stretch, read_calls, read_named
from cclbench.ingestion.launched import Launched
from cclbench.intervals import Index, Int64
from cclbench.normalize.phases import HostStretch, Phases, Training, runs_node, starts_backward

STRETCH_ROWS: Final = 1 << 16
"""Rows that begin in a stretch of time, about."""
MODULE: Final = "nn.Module: "
_FRAMEWORK: Final = re.compile(
    r"(.*/)?(torch|jax|jaxlib)/|<|nn\.Module: |.*/lib/python[\d.]*/"
    r"|(threading|contextlib|functools|runpy|queue)\.py\("
)
"""Rows of Python that are not a line of the workload's own."""


class Now(NamedTuple):
    """What the host ran in one stretch of its time."""

    number: int
    calls: Stretch
    annotations: Stretch
    python: Stretch
    ran: HostStretch


class Host:
    """The host's rows of one rank that hold a launch; of a rank without a device all of them."""

    def __init__(self, folder: Path, launched: Launched | None) -> None:
        """`folder` holds the rank's events; `launched` is None where the host is the device."""
        at = None if launched is None else launched.by_thread()
        stated = np.empty(0, np.int64) if launched is None else launched.stated()
        calls, last = read_calls(folder, at, stated)
        annotations = read_named(folder, "annotation", at, lambda _: True)
        python = read_named(folder, "python", at, _tells)
        starts = (read.columns["start_ns"].values() for read in (calls, annotations, python))
        found = np.array(cuts(STRETCH_ROWS, *starts, *(at or {}).values()), np.int64)
        del at, stated
        if launched is not None:
            launched.release()
        self.calls = HostRows(calls, found, last)
        self.annotations, self.python = HostRows(annotations, found), HostRows(python, found)
        self.training = Training(lambda: (now.ran for now in self.stretches()))

    def stretches(self) -> Iterator[Now]:
        """The stretches, in order of time."""
        several = (self.calls, self.annotations, self.python)
        for number in range(self.calls.stretches):
            calls, annotations, python = (rows.stretch(number) for rows in several)
            self.calls.go_on(calls, number, with_parents=True)
            self.annotations.go_on(annotations, number)
            self.python.go_on(python, number)
            named = calls.named
            node = calls.column("in_backward") | runs_node(named)
            marks = [annotations.named, python.named.of(~python.named.where(is_site))]
            ran = HostStretch(calls.since, named, calls.column("sequence"), node, marks)
            yield Now(number, calls, annotations, python, ran)
            for rows in several:
                rows.release()

    def phases(self, now: Now) -> Phases:
        """The phases of a stretch."""
        return Phases(now.ran, self.training)

    @cached_property
    def _serves(self) -> Callable[[str], bool]:
        """Which annotations are steps of a serving engine.

        An engine that names its steps in both ways nests them: then vLLM's tell more.
        """
        names = self.annotations.names
        return is_vllm_step if (names.where(is_vllm_step) & self.annotations.names_used).any() else _is_step

    def step_at(self, now: Now, track: Int64, at: Int64) -> Index:
        """The number of the annotation of a serving engine's step around each instant, −1 for none."""
        return innermost(now.annotations, self._serves, track, at)


def innermost(rows: Stretch, chosen: Callable[[str], bool], track: Int64, at: Int64) -> Index:
    """The number of the name of the innermost of those ranges around each instant, −1 for none."""
    own = rows.named.of(rows.named.where(chosen))
    return np.append(own.name, np.int32(-1))[own.ranges.innermost(track, at)]


def is_module(name: str) -> bool:
    """Whether a row of Python is a module's run."""
    return name.startswith(MODULE)


def is_site(name: str) -> bool:
    """Whether a row of Python is a line of the workload's own."""
    return _FRAMEWORK.match(name) is None


def _tells(name: str) -> bool:
    """Whether a row of Python tells a module, a line of the workload or the call of backward."""
    return is_module(name) or is_site(name) or starts_backward(name)


def _is_step(name: str) -> bool:
    return serving_phase(name) is not None
