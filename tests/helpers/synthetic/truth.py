# SPDX-License-Identifier: Apache-2.0
"""What is true of a simulated run; times in ns of one true clock, bandwidths in bytes/s."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from helpers.synthetic.program import Layout, Link, Network, Program


class Key(NamedTuple):
    """What collectives are told apart by: the kind a rank's row has, the group's ranks, its dimension."""

    kind: str
    group: tuple[int, ...]
    dimension: str | None

    def wider(self) -> tuple[Wider, ...]:
        """All that it counts under: everything, its kind, its kind and group, its dimension if it has one."""
        every = ((None, None, None), (self.kind, None, None), (self.kind, self.group, None))
        return every if self.dimension is None else (*every, (None, None, self.dimension))


Wider = tuple[str | None, tuple[int, ...] | None, str | None]
"""Kind, group and dimension; None spans them."""


class Bandwidth(NamedTuple):
    """Payload over transfer time, and times nccl-tests' factor."""

    algbw: float
    busbw: float


RateKey = tuple[str | None, tuple[int, ...] | None, int | None]
"""(kind, group, e) of payloads in [4^e, 4^(e+1)) bytes; None spans them: also (kind, group, None),
(kind, None, None) and (None, None, None)."""


@dataclass(frozen=True, slots=True)
class Row:
    """A device event: `kind` compute, copy or communication."""

    kind: str
    stream: int
    start_ns: int
    end_ns: int
    step: int
    correlation: int
    op_start_ns: int
    """Begin of the host op that launches it; of compute and copies that is the launch."""
    launch_ns: int
    launch_end_ns: int
    op_end_ns: int
    nbytes: int | None = None
    instance: int | None = None
    """Index into `Truth.instances`."""
    name: str | None = None
    """Of a kernel that is no matrix product."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One collective, or one transfer (kind `send_recv` with `source` and `target`). wait_r = latest arrival
    − arrival_r; transfer = end − latest arrival; skew = latest − earliest arrival."""

    index: int
    kind: str
    dimension: str | None
    group: tuple[int, ...]
    """Ranks of the process group."""
    members: tuple[int, ...]
    """Ranks that take part: the group, or source and target."""
    group_name: str
    seq: int
    source: int | None
    target: int | None
    payload: int
    in_bytes: int
    out_bytes: int
    coalesced: int
    step: int
    link: Link
    arrival_ns: dict[int, int]
    end_ns: int
    wait_ns: dict[int, int]
    transfer_ns: int
    skew_ns: int
    latest_ns: int
    median_ns: Fraction

    @property
    def last(self) -> tuple[int, ...]:
        """The ranks that arrive last; none where all arrive together."""
        return tuple(r for r, ns in self.arrival_ns.items() if ns == self.latest_ns) if self.skew_ns else ()

    def kind_on(self, rank: int) -> str:
        """The kind of the rank's own row: of a transfer send or recv."""
        if self.source is None:
            return self.kind
        return "send" if rank == self.source else "recv"

    def key_on(self, rank: int) -> Key:
        """What the rank's own row is told apart by."""
        return Key(self.kind_on(rank), self.group, self.dimension)


@dataclass(frozen=True, slots=True)
class StepTruth:
    """One rank's device window of one step; the five parts sum to `window_ns`."""

    step: int
    start_ns: int
    end_ns: int
    compute_ns: int
    """|C|"""
    communication_ns: int
    """|K|"""
    compute_only_ns: int
    overlapped_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int
    idle_host_ns: int
    idle_device_ns: int
    exposed: dict[Key, tuple[Fraction, Fraction]]
    """Exposed wait and exposed transfer, each instant in equal parts to the collectives running in it."""
    exposed_wait_ns: Fraction
    exposed_transfer_ns: Fraction
    bubble_ns: Fraction | None
    """Idle and exposed wait of transfers in pipeline groups; None without a pipeline."""
    count: dict[Key, int]
    """Collectives that begin in the window."""
    volume: dict[Key, int]
    wait_ns: dict[Wider, int]
    """Time in which any of the collectives with other ranks waits for its last rank."""
    transfer_ns: dict[Wider, int]
    """Time in which the last rank of any of them has arrived."""

    @property
    def window_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Phase:
    """A maximal run of collectives of one dimension, in order of start on a rank."""

    dimension: str | None
    start_ns: int
    end_ns: int
    count: int
    gap_ns: int | None
    """From the end of all that ran before, to the start; 0 where they overlap; None before the first."""


@dataclass(frozen=True, slots=True)
class RankTruth:
    """One rank."""

    rank: int
    rows: tuple[Row, ...]
    annotations: tuple[tuple[int, int, int], ...]
    """Step number, begin and end of its host annotation."""
    steps: tuple[StepTruth, ...]
    phases: tuple[Phase, ...]
    bandwidth: dict[RateKey, Bandwidth]

    @property
    def window_ns(self) -> int:
        return sum(step.window_ns for step in self.steps)


@dataclass(frozen=True, slots=True)
class StreamWait:
    """At `at_ns` of its host a stream is told to wait for what another had been given by `recorded_ns`."""

    stream: int
    at_ns: int
    other: int
    recorded_ns: int


@dataclass(frozen=True, slots=True)
class HostRow:
    """A row of the host: category and name as the profiler writes them."""

    category: str
    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Truth:
    """The whole run."""

    layout: Layout
    program: Program
    network: Network
    seed: int
    t0_ns: int
    instances: tuple[Instance, ...]
    ranks: dict[int, RankTruth]
    bandwidth: dict[RateKey, Bandwidth]
    """Over the rows of all ranks, so that within a wider key an instance counts once for each member."""
    hockney: dict[tuple[str, tuple[int, ...]], Link]
    """α and β of each (kind of the rows, group) with other ranks."""
    points: dict[tuple[str, tuple[int, ...]], tuple[int, int]]
    """Instances and different payloads behind each."""
    load_imbalance: float | None
    """max |C| / mean |C| over ranks, |C| the rank's mean over its steps."""
    straggler_delay: float | None
    """Mean over ranks of |∪ [max(own, median arrival), latest arrival)| / ΣW, in collectives of one role."""
    bubble: float | None
    """Σ bubble / ΣW over ranks and steps."""
    waits: dict[int, tuple[StreamWait, ...]] = field(default_factory=dict)
    """What each rank's host tells its streams to wait for, in order of time."""
    host: dict[int, tuple[HostRow, ...]] = field(default_factory=dict)
    """What each rank's host does besides launching, in order of time."""
