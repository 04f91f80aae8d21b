# SPDX-License-Identifier: Apache-2.0
"""What simulated ranks do: their layout, the program each of them runs, the network between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

DIMENSIONS = ("tp", "ep", "dp", "pp")
"""Parallel dimensions, the one whose neighbours are adjacent ranks first."""
WORLD = "world"
ELEMENT_BYTES = 2
"""Every payload is bfloat16."""


@dataclass(frozen=True, slots=True)
class Layout:
    """dp × tp × pp × ep ranks: rank = ((pp·DP + dp)·EP + ep)·TP + tp."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    gpus_per_host: int = 8

    @property
    def world(self) -> int:
        return prod(getattr(self, dimension) for dimension in DIMENSIONS)

    def group(self, rank: int, dimension: str) -> tuple[int, ...]:
        """The ranks that differ from `rank` in that dimension only, itself included; all for `world`."""
        if dimension == WORLD:
            return tuple(range(self.world))
        stride = prod(getattr(self, d) for d in DIMENSIONS[: DIMENSIONS.index(dimension)])
        degree = getattr(self, dimension)
        first = rank - rank // stride % degree * stride
        return tuple(first + i * stride for i in range(degree))

    def process_groups(self) -> dict[tuple[str, tuple[int, ...]], str]:
        """Name of each process group by (dimension, ranks); `0` is the default one, of all ranks."""
        found: dict[tuple[str, tuple[int, ...]], str] = {}
        for dimension in (WORLD, *DIMENSIONS):
            for rank in range(self.world):
                found.setdefault((dimension, self.group(rank, dimension)), str(len(found)))
        return found

    def host(self, rank: int) -> int:
        return rank // self.gpus_per_host


@dataclass(frozen=True, slots=True)
class Compute:
    """A kernel of `ns` on the compute stream; a matrix product unless it has another name."""

    ns: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A host-to-device copy of `ns`, on the compute stream, or beside it on the copy stream."""

    ns: int
    nbytes: int
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """The host launches nothing for `ns`; a trace has a row of that category and name for it, or none."""

    ns: int
    row: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective over the rank's group in `dimension`, on that dimension's stream. `nbytes` is the
    payload's large side; with `send_recv` every rank of the group exchanges as much with its neighbours in
    one grouped call.  Compute waits for the result, at once or, where there is a `label`, from its `Await` on
    (at the latest at the step's end).  `coalesced` calls run as one kernel."""

    kind: str
    dimension: str
    nbytes: int
    label: str | None = None
    coalesced: int = 1


@dataclass(frozen=True, slots=True)
class Transfer:
    """A `send` to, or `recv` from, the pipeline stage `shift` stages on, or back; none at the pipeline's end.
    A send of `shift` is received by a recv of the same `shift`."""

    role: str
    nbytes: int
    shift: int = 1
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Await:
    """The compute stream waits for the communication of that label."""

    label: str


Op = Compute | Copy | Pause | Collective | Transfer | Await


@dataclass(frozen=True, slots=True)
class Straggler:
    """`rank` is `ns` late at the op with index `op`, in one step or all. Cause `compute`: a kernel before the
    op; `launch`: the host pauses before it; `copy`: a copy before it."""

    rank: int
    cause: str
    ns: int
    op: int = 0
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """What every rank does in each of `steps`. Kernels last `slow[rank]` ‰ of their time, plus up to `jitter`
    ‰ of it by chance.  With `synchronise` the host waits for the device at the end of each step; without, it
    runs ahead.  A `closing` step of one short kernel follows the others, so that it alone is open."""

    ops: tuple[Op, ...]
    steps: int = 1
    jitter: int = 0
    slow: Mapping[int, int] = field(default_factory=dict)
    stragglers: tuple[Straggler, ...] = ()
    synchronise: bool = True
    closing: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """Transfer of S bytes takes α + β·S."""

    alpha_ns: int
    ns_per_kib: int

    @property
    def beta_ns(self) -> Fraction:
        return Fraction(self.ns_per_kib, 1024)

    def transfer_ns(self, nbytes: int) -> int:
        """Whole ns, exact."""
        if nbytes <= 0 or nbytes % 1024:
            raise ValueError(f"{nbytes} bytes: payloads are whole KiB, so that times are whole ns")
        return self.alpha_ns + self.ns_per_kib * (nbytes // 1024)


@dataclass(frozen=True, slots=True)
class Network:
    """The link of each (kind, ranks of the group), else (kind, dimension), else the common one. Sends and
    receives are of kind `send_recv`."""

    common: Link = Link(6_000, 25)
    own: Mapping[tuple[str, str | tuple[int, ...]], Link] = field(default_factory=dict)

    def link(self, kind: str, dimension: str, group: tuple[int, ...]) -> Link:
        return self.own.get((kind, group)) or self.own.get((kind, dimension)) or self.common
