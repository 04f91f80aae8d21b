# SPDX-License-Identifier: Apache-2.0
"""Rows of a GPU's streams that are one execution of an instruction, and what the execution is of.

CUDA's profiles number the annotations around launches (`scope_range_id`), one or a few for an execution: a
sort has one a kernel.  Successive launches of an instruction are one execution if their kernels differ.  If
the same ones follow again, that is the next execution, unless a library launches them without a numbered
annotation: a grouped convolution may launch its kernels for each group.  Launches that are only a part of
those at another time are uncertain, because others may be between them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from cclbench.formats.xplane.hlo_proto import HloProgram, Instruction
from cclbench.formats.xplane.origins import InstructionOrigin, uncounted

_UNKNOWN: Final = "the profile does not state which kernels are one execution of it"


class StreamExecution(NamedTuple):
    """What a stream event states about its execution; empty or None if it states nothing."""

    name: str
    correlation: int | None
    grid: str
    copy: str
    fill: str
    op: str
    program: int | None
    node: int = 0
    """Number of its node in a graph."""
    scope: int = 0
    """Number of the annotation around its launch."""
    module: str = ""
    """Name of its program."""

    @property
    def row_kind(self) -> str:
        """The kind of row."""
        if self.copy or re.match(r"(?i)memcpy", self.name):
            return "copy"
        return "memset" if self.fill or re.match(r"(?i)memset", self.name) else "kernel"


def run_instruction(run: StreamExecution, programs: Mapping[int, HloProgram]) -> Instruction | None:
    """The instruction that an event runs; None if the profile does not have it."""
    program = programs.get(run.program) if run.program is not None else None
    return program.instructions.get(run.op) if program is not None else None


class Executions(NamedTuple):
    """Executions of instructions, by the events that they are."""

    numbers: list[int | None]
    """Of each event that of its execution; None for one that is an execution by itself, or of nothing."""
    uncertain: set[int]
    """Events of which it is not known with which others they are one execution."""


class _Launches(NamedTuple):
    """Launches within one annotation, or one alone: their events, and the names that they run."""

    events: list[int]
    names: tuple[str, ...]


def find_executions(
    runs: Sequence[StreamExecution], programs: Mapping[int, HloProgram], rows: Sequence[int]
) -> Executions:
    """The executions among the events; `rows` is the number of rows that state the same as each event.

    A kernel in a graph is one by itself.
    """
    annotated = defaultdict[tuple[str, int | None, int, int], list[int]](list)
    ordered = defaultdict[tuple[str, int | None], bool](lambda: True)
    for index, run in enumerate(runs):
        if not run.node and run_instruction(run, programs) is not None:
            annotated[run.op, run.program, run.scope, 0 if run.scope else index].append(index)
            ordered[run.op, run.program] &= run.correlation is not None and rows[index] == 1
    launches = sorted(annotated.items(), key=lambda item: runs[item[1][0]].correlation or 0)
    successive = defaultdict[tuple[str, int | None], list[list[_Launches]]](list)
    for key, some in groupby(launches, lambda item: item[0][:2]):
        successive[key].append([_Launches(e, tuple(sorted(runs[i].name for i in e))) for _, e in some])
    numbers: list[int | None] = [None] * len(runs)
    uncertain = set[int]()
    for key, listed in successive.items():
        first = runs[listed[0][0].events[0]]
        instruction = run_instruction(first, programs)
        repeats = first.scope > 0 or (instruction is not None and instruction.opcode != "custom-call")
        executions = [execution for some in listed for execution in _split(some, repeats=repeats)]
        names = [{launch.names for launch in execution} for execution in executions]
        is_known = ordered[key] or len(set().union(*names)) == 1
        for own_names, execution in zip(names, executions, strict=True):
            events = [event for launch in execution for event in launch.events]
            if not is_known or len(own_names) < len(execution) or any(own_names < others for others in names):
                uncertain.update(events)
            elif len(events) > 1:
                for event in events:
                    numbers[event] = events[0] + 1
    return Executions(numbers, uncertain)


def _split(launches: list[_Launches], *, repeats: bool) -> list[list[_Launches]]:
    """Successive launches of an instruction by executions: one, or if it `repeats`, each time the same."""
    names = [launch.names for launch in launches]
    period = len(set(names))
    if not repeats or names != names[:period] * (len(names) // period):
        return [launches]
    return [launches[i : i + period] for i in range(0, len(launches), period)]


def row_origins(
    runs: Sequence[StreamExecution], programs: Mapping[int, HloProgram], executions: Executions
) -> list[InstructionOrigin | None]:
    """Each event's origin, without a cost where its execution is not known: it would count once an event."""
    instructions = [run_instruction(run, programs) for run in runs]
    origins = [None if instruction is None else instruction.origin for instruction in instructions]
    return [
        uncounted(origin, _UNKNOWN) if origin is not None and index in executions.uncertain else origin
        for index, origin in enumerate(origins)
    ]
