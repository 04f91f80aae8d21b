# SPDX-License-Identifier: Apache-2.0
"""OTF2 archives of jobs whose times are known, written with the package otf2."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

GHZ = 10**9
Span = tuple[int, int]


class Job:
    """An archive being written: `threads` and `streams` by rank, and the ranks' communicators by name."""

    def __init__(self, trace: Any, ranks: int, comms: dict[str, tuple[int, ...]], streams: bool) -> None:
        import otf2

        self.otf2, self.trace, self.regions = otf2, trace, dict[str, Any]()
        root = trace.definitions.system_tree_node("node secret-host")
        enums = otf2.enums
        processes = [
            trace.definitions.location_group(f"MPI Rank {r}", system_tree_parent=root) for r in range(ranks)
        ]
        self.threads = [
            trace.event_writer("Master thread", group=process, type=enums.LocationType.CPU_THREAD)
            for process in processes
        ]
        self.streams = [
            trace.event_writer("CUDA[1:7]", group=process, type=enums.LocationType.ACCELERATOR_STREAM)
            for process in processes * streams
        ]
        locations = [writer._location for writer in self.threads]
        group = trace.definitions.group
        group(
            name="", group_type=enums.GroupType.COMM_LOCATIONS, paradigm=enums.Paradigm.MPI, members=locations
        )
        kind = {"group_type": enums.GroupType.COMM_GROUP, "paradigm": enums.Paradigm.MPI}
        self.comms = {}
        for name, members in comms.items():
            own = group(name=name, members=[locations[rank] for rank in members], **kind)
            self.comms[name] = trace.definitions.comm(name, own)

    def region(self, name: str, paradigm: str | None = None, role: str = "FUNCTION") -> Any:
        """The region of that name; functions of MPI are recognised."""
        if name not in self.regions:
            enums = self.otf2.enums
            kind = paradigm or ("MPI" if name.startswith("MPI_") else "COMPILER")
            self.regions[name] = self.trace.definitions.region(
                name, paradigm=getattr(enums.Paradigm, kind), region_role=getattr(enums.RegionRole, role)
            )
        return self.regions[name]

    @contextmanager
    def inside(self, writer: Any, name: str, begin: int, end: int, **about: str) -> Iterator[None]:
        """A region around events."""
        writer.enter(begin, self.region(name, **about))
        yield
        writer.leave(end, self.region(name))

    def run(self, writer: Any, name: str, begin: int, end: int, **about: str) -> None:
        """A region without events in it."""
        with self.inside(writer, name, begin, end, **about):
            pass

    def send(self, rank: int, to: int, span: Span, tag: int = 0, size: int = 64, comm: str = "world") -> None:
        """A blocking send; ranks are those of the communicator."""
        with self.inside(self.threads[rank], "MPI_Send", *span):
            self.threads[rank].mpi_send(span[0], to, self.comms[comm], tag, size)

    def receive(
        self, rank: int, source: int, span: Span, tag: int = 0, size: int = 64, comm: str = "world"
    ) -> None:
        with self.inside(self.threads[rank], "MPI_Recv", *span):
            self.threads[rank].mpi_recv(span[1], source, self.comms[comm], tag, size)

    def collective(
        self,
        rank: int,
        function: str,
        span: Span,
        sent: int,
        received: int,
        comm: str = "world",
        root: int = 0,
    ) -> None:
        """A collective; `function` without `MPI_`."""
        operation = getattr(self.otf2.enums.CollectiveOp, function.upper())
        with self.inside(self.threads[rank], f"MPI_{function}", *span):
            self.threads[rank].mpi_collective_begin(span[0])
            self.threads[rank].mpi_collective_end(span[1], operation, self.comms[comm], root, sent, received)


def write_job(
    folder: Path,
    events: Callable[[Job], None],
    *,
    ranks: int = 2,
    comms: dict[str, tuple[int, ...]] | None = None,
    resolution: int = GHZ,
    streams: bool = False,
) -> Path:
    """The anchor file of an archive with these events; the communicator `world` has all ranks."""
    otf2 = pytest.importorskip("otf2", reason="needs the package otf2, to write archives")
    with otf2.writer.open(str(folder), timer_resolution=resolution) as trace:
        events(Job(trace, ranks, {"world": tuple(range(ranks)), **(comms or {})}, streams))
    del trace
    gc.collect()  # its writers close files when they are collected
    return folder / "traces.otf2"
