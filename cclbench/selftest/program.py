# SPDX-License-Identifier: Apache-2.0
"""Instructions of a rank's host in a step: operators that launch device work, waits, pauses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

COMPUTE: Final = 7
"""The stream of compute kernels."""
COPIES: Final = 13
MAIN: Final = 1
AUTOGRAD: Final = 2
RECOMPUTE_OFFSET: Final = 1_000_000
"""Offset of an operator's sequence number if the backward pass runs it again."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compute kernel and its duration alone on the device."""

    name: str
    ns: int
    grid: int = 256
    stream: int = COMPUTE


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the copy engines: HtoD, DtoH or DtoD, from or to pinned or pageable host memory."""

    direction: str
    size: int
    ns: int
    pinned: bool = True
    stream: int = COMPUTE


@dataclass(frozen=True, slots=True)
class Collective:
    """One rank's part of a collective: it starts when all `ranks` have arrived, and takes `ns` from then."""

    kind: str
    group: str
    ranks: tuple[int, ...]
    elements: int
    ns: int
    stream: int
    latency_ns: int = 0
    """The part of `ns` that does not depend on the size."""
    peer: int | None = None


Work = Kernel | Copy | Collective


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """An operator: Python before it, its own time, then the launches of its works."""

    op: str
    works: tuple[Work, ...] = ()
    python_ns: int = 2_000
    operator_ns: int = 5_000
    launch_ns: int = 4_500
    dims: tuple[tuple[int, ...], ...] = ()
    dtype: str = "c10::BFloat16"
    family: str = ""
    phase: str = "forward"
    layer: int = -1
    node: str | None = None
    """The autograd node that runs it."""
    sequence: int | None = None
    blocks: bool = False
    """Whether the host waits until the works have ended: a blocking copy, `.item()`."""
    event: str | None = None
    """Event recorded after the last work."""


def item_call(phase: str) -> ProgramCall:
    """`.item()` of a tensor on the device."""
    copy = Copy("DtoH", 4, 1_500, pinned=False)
    return ProgramCall("aten::_local_scalar_dense", (copy,), family="item", phase=phase, blocks=True)


@dataclass(frozen=True, slots=True)
class Synchronize:
    """The host waits for one stream, or for all."""

    call: str = "cudaDeviceSynchronize"
    stream: int | None = None
    phase: str = "forward"


@dataclass(frozen=True, slots=True)
class StreamWait:
    """A stream waits for the event of that name, else for all work queued on the awaited stream so far."""

    stream: int
    awaited_stream: int
    event: str | None = None
    phase: str = "forward"


@dataclass(frozen=True, slots=True)
class Pause:
    """Host time without a launch: unrecorded Python, or a named range."""

    ns: int
    annotation: str | None = None
    op: str | None = None
    """An operator within the range that takes its time."""
    phase: str = "forward"


@dataclass(frozen=True, slots=True)
class Batch:
    """The next batch of a loader whose workers need `period_ns` for each and keep `prefetch` ready."""

    period_ns: int
    prefetch: int = 2
    phase: str = "loader"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime call such as cudaMalloc; one that `drains` returns after the device's work has ended."""

    name: str
    ns: int
    drains: bool = False
    phase: str = "forward"


Instruction = ProgramCall | Synchronize | StreamWait | Pause | Batch | Runtime
Step = tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """The steps of each rank, and the device's constants."""

    steps: tuple[tuple[Step, ...], ...]
    """By rank, then step."""
    groups: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Process groups: name, description, ranks."""
    device: str = "NVIDIA A100-SXM4-80GB"
    contention: float = 1.0
    """Slowdown of a compute kernel while communication is resident on its device."""
    clock_offsets_ns: tuple[int, ...] = ()
    sync_events: bool = False
    """Whether the traces have the profiler's rows of event waits."""

    @property
    def rank_count(self) -> int:
        """Number of ranks."""
        return len(self.steps)


Edit = Callable[[int, int, Instruction], Sequence[Instruction]]
"""Returns the replacement of an instruction, from rank, step and instruction."""


def edit_steps(steps: Sequence[Sequence[Step]], edit: Edit) -> tuple[tuple[Step, ...], ...]:
    """The steps with each instruction replaced."""
    return tuple(
        tuple(
            tuple(new for instruction in step for new in edit(rank, number, instruction))
            for number, step in enumerate(rank_steps)
        )
        for rank, rank_steps in enumerate(steps)
    )
