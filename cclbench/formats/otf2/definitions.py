# SPDX-License-Identifier: Apache-2.0
"""What an OTF2 archive defines: clock, processes, communicators, regions, metrics."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64

CPU_THREAD, ACCELERATOR = 1, 2
"""Kinds of locations; others record metrics alone."""
USER, MPI = 1, 4
"""Paradigms of regions."""
PARADIGMS: Final = {
    USER: "user",
    2: "compiler",
    3: "openmp",
    5: "cuda",
    7: "pthread",
    13: "shmem",
    18: "openacc",
    19: "opencl",
    23: "hip",
    24: "kokkos",
    25: "openmp_target",
}
"""Names of paradigms, as they stand before the names of their regions."""
ARTIFICIAL, DATA_TRANSFER = 31, 30
"""Roles of regions: not of the program, such as a flush of the tracer's buffer; copies."""
_ACCELERATOR_GROUP: Final = 2
_COMM_LOCATIONS, _COMM_GROUP, _COMM_SELF = 4, 5, 6
_GLOBAL_MEMBERS: Final = 1
_NS: Final = 10**9
_UINT64: Final = 1 << 64


class Clock(msgspec.Struct, array_like=True, frozen=True):
    """Ticks a second, the first event's tick, and its time since the epoch in ns, None if not stated."""

    resolution: int
    offset: int
    realtime_ns: int | None

    def to_ns(self, ticks: npt.NDArray[np.uint64]) -> Int64:
        """Times of those ticks, int64 ns, rounded down: since the epoch, or since tick 0 if that is unknown.

        ns = ⌊ticks · 10⁹ / resolution⌋, in integers; since the epoch, plus realtime − ns(offset).
        """
        common = np.gcd(_NS, self.resolution)
        up, down = _NS // int(common), self.resolution // int(common)
        seconds, rest = np.divmod(ticks, np.uint64(down))
        if up * down < _UINT64:
            part = rest * np.uint64(up) // np.uint64(down)
        else:  # a product of more than 64 bits
            part = (rest.astype(object) * up // down).astype(np.uint64)
        shift = 0 if self.realtime_ns is None else self.realtime_ns - self.offset * up // down
        return (seconds * np.uint64(up) + part).astype(np.int64) + np.int64(shift)


class LocationGroup(msgspec.Struct, array_like=True, frozen=True):
    """A group of locations; `creator` is the process that an accelerator belongs to."""

    name: str
    kind: int
    creator: int


class Location(msgspec.Struct, array_like=True, frozen=True):
    """A thread of the CPU or a stream of an accelerator."""

    name: str
    kind: int
    events: int
    process: int


class Region(msgspec.Struct, array_like=True, frozen=True):
    """A region of code, by name."""

    name: str
    paradigm: int
    role: int


class RankGroup(msgspec.Struct, array_like=True, frozen=True):
    """Members of a kind that `kind` states: locations, or ranks."""

    kind: int
    paradigm: int
    flags: int
    members: list[int]


class Comm(msgspec.Struct, array_like=True, frozen=True):
    """A communicator, and the number of its group."""

    name: str
    group: int


class MetricMember(msgspec.Struct, array_like=True, frozen=True):
    """One value of a metric: value · base^exponent; `mode` says of which time it is."""

    name: str
    mode: int
    base: int
    exponent: int
    unit: str


class MpiProcess(msgspec.Struct, frozen=True):
    """A process to be read as one rank: its rank in MPI, None without MPI, and its locations by number."""

    name: str
    rank: int | None
    place: int
    threads: tuple[int, ...]
    streams: tuple[int, ...]


class Definitions(msgspec.Struct, frozen=True, dict=True):
    """All definitions, by number."""

    clock: Clock | None
    processes: dict[int, LocationGroup]
    locations: dict[int, Location]
    regions: dict[int, Region]
    groups: dict[int, RankGroup]
    comms: dict[int, Comm]
    members: dict[int, MetricMember]
    metrics: dict[int, list[int] | int]
    creator: str | None = None

    @cached_property
    def world(self) -> tuple[int, ...]:
        """The location of each rank of MPI, in their order; empty without MPI."""
        for group in self.groups.values():
            if group.kind == _COMM_LOCATIONS and group.paradigm == MPI:
                return tuple(group.members)
        return ()

    @cached_property
    def ranks(self) -> tuple[MpiProcess, ...]:
        """Processes with threads, those of MPI first and in the order of their ranks."""
        rank_of = {
            self.locations[number].process: rank
            for rank, number in reversed(list(enumerate(self.world)))
            if number in self.locations
        }
        places: dict[int, tuple[list[int], list[int]]] = {}
        for number, location in self.locations.items():
            group = self.processes.get(location.process)
            is_accelerator = group is not None and group.kind == _ACCELERATOR_GROUP
            owner = group.creator if group is not None and is_accelerator else location.process
            threads, streams = places.setdefault(owner, ([], []))
            if location.kind != 0:
                (streams if location.kind == ACCELERATOR else threads).append(number)
        order = sorted(places, key=lambda process: (process not in rank_of, rank_of.get(process, 0), process))
        return tuple(
            MpiProcess(str(place), rank_of.get(process), place, *map(tuple, map(sorted, places[process])))
            for place, process in enumerate(order)
            if any(self.locations[number].events for number in (*places[process][0], *places[process][1]))
        )

    @cached_property
    def comm_names(self) -> dict[int, str]:
        """Name of each communicator, with its number where another one has the same."""
        names = [comm.name for comm in self.comms.values()]
        return {
            number: comm.name
            if comm.name and names.count(comm.name) == 1
            else f"{comm.name or 'comm'} {number}"
            for number, comm in self.comms.items()
        }

    def comm_ranks(self, comm: int, own_rank: int | None) -> tuple[int, ...] | None:
        """Global ranks in a communicator, None if unknown; `own_rank` is the asking process's."""
        group = self._group_of(comm)
        if group is None:
            return None
        members = group.members if group.kind == _COMM_GROUP else [] if own_rank is None else [own_rank]
        is_valid = members and all(0 <= rank < len(self.world) for rank in members)
        return tuple(members) if is_valid and len(set(members)) == len(members) else None

    def global_rank(self, comm: int, rank: int, own_rank: int | None) -> int | None:
        """The global rank of a rank in a communicator, None if there is none."""
        group, ranks = self._group_of(comm), self.comm_ranks(comm, own_rank)
        if group is None or ranks is None:
            return None
        if group.flags & _GLOBAL_MEMBERS:
            return rank if rank in ranks else None
        return ranks[rank] if rank < len(ranks) else None

    def _group_of(self, comm: int) -> RankGroup | None:
        """The group of a communicator of MPI."""
        group = self.groups.get(self.comms[comm].group) if comm in self.comms else None
        is_mpi = group is not None and group.paradigm == MPI and group.kind in (_COMM_GROUP, _COMM_SELF)
        return group if is_mpi else None

    def metric_members(self, metric: int) -> list[MetricMember]:
        """The values of a metric, or of the metric that it is an instance of; empty if it is undefined."""
        listed = self.metrics.get(metric, [])
        if isinstance(listed, int):
            listed = self.metrics.get(listed, [])
        numbers = listed if isinstance(listed, list) else []
        return [self.members[number] for number in numbers if number in self.members]
