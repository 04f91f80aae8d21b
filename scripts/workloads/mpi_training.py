# SPDX-License-Identifier: Apache-2.0
"""Train a small perceptron on random vectors with MPI, data-parallel, and write its calls as an OTF2 archive.

    mpirun -n 4 python mpi_training.py --steps 12 --output traces

Rank 0 broadcasts the weights. In a step every rank computes the gradients of its part of the batch, an
all-reduce a layer sums them, and each rank hands its loss to the next one in a ring: a receive that is posted
first, a send, and one wait for both. Rank 0 has `--late` ms more to do before the all-reduces. Each rank
keeps the times of its calls and regions (CLOCK_MONOTONIC, one clock for all on a machine); rank 0 writes them
with the package otf2, with the bytes that a rank sends to all, itself included, as Score-P counts them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import otf2
from mpi4py import MPI
from otf2.enums import CollectiveOp, GroupType, LocationType, Paradigm, RegionRole

TAG = 7
Event = tuple[Any, ...]


class Recorder:
    """The events of one rank: (time in ns, kind, arguments)."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: str, *about: Any) -> None:
        """An event at this time."""
        self.events.append((time.monotonic_ns(), kind, *about))

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """A region around what is done in it."""
        self.add("enter", name)
        yield
        self.add("leave", name)


def train(comm: MPI.Comm, options: argparse.Namespace, recorder: Recorder) -> None:
    """The job, with its calls recorded."""
    rank, ranks = comm.rank, comm.size
    chance = np.random.default_rng(rank)
    sizes = (options.width, options.width, 16)
    weights = [chance.normal(0, 0.05, shape).astype(np.float32) for shape in pairwise(sizes)]
    for weight in weights:
        with recorder.region("MPI_Bcast"):
            comm.Bcast(weight, root=0)
            recorder.add("collective", "BCAST", 0, ranks * weight.nbytes if rank == 0 else 0, weight.nbytes)
    for step in range(options.steps):
        with recorder.region(f"step {step}"):
            inputs = chance.normal(size=(options.batch, options.width)).astype(np.float32)
            wanted = chance.normal(size=(options.batch, 16)).astype(np.float32)
            with recorder.region("forward"):
                hidden = np.maximum(inputs @ weights[0], 0)
                error = hidden @ weights[1] - wanted
            with recorder.region("backward"):
                gradients = [
                    inputs.T @ ((error @ weights[1].T) * (hidden > 0)),
                    hidden.T @ error,
                ]
            if rank == 0:
                with recorder.region("late"):
                    until = time.monotonic_ns() + options.late * 1_000_000
                    while time.monotonic_ns() < until:
                        pass
            for place, gradient in enumerate(gradients):
                total = np.empty_like(gradient)
                with recorder.region("MPI_Allreduce"):
                    comm.Allreduce(gradient, total)
                    recorder.add("collective", "ALLREDUCE", 0, *[ranks * gradient.nbytes] * 2)
                with recorder.region("update"):
                    weights[place] -= np.float32(1e-4 / (ranks * options.batch)) * total
            exchange_losses(comm, float((error**2).mean()), step, recorder)
    with recorder.region("MPI_Barrier"):
        comm.Barrier()
        recorder.add("collective", "BARRIER", 0, 0, 0)


def exchange_losses(comm: MPI.Comm, loss: float, step: int, recorder: Recorder) -> None:
    """Hand the loss to the next rank in the ring."""
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    own, other = np.array([loss]), np.empty(1)
    with recorder.region("MPI_Irecv"):
        receive = comm.Irecv(other, before, TAG)
        recorder.add("request", step)
    with recorder.region("MPI_Isend"):
        recorder.add("isend", after, own.nbytes, step)
        send = comm.Isend(own, after, TAG)
    with recorder.region("MPI_Waitall"):
        MPI.Request.Waitall([receive, send])
        recorder.add("irecv", before, own.nbytes, step)


def write_archive(folder: str, events: list[list[Event]], first: tuple[int, float]) -> None:
    """All ranks' events as one archive; `first` is a time of the clock, and the same since the epoch in s."""
    with otf2.writer.open(folder, timer_resolution=10**9) as trace:
        define = trace.definitions
        node = define.system_tree_node("node")
        writers = [
            trace.event_writer(
                "Master thread",
                group=define.location_group(f"MPI Rank {rank}", system_tree_parent=node),
                type=LocationType.CPU_THREAD,
            )
            for rank in range(len(events))
        ]
        locations = list(define.locations)
        define.group(name="", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.MPI, members=locations)
        group = define.group(
            name="world", group_type=GroupType.COMM_GROUP, paradigm=Paradigm.MPI, members=locations
        )
        world = define.comm("MPI_COMM_WORLD", group)
        regions: dict[str, Any] = {}
        for own, writer in zip(events, writers, strict=True):
            for at, kind, *about in own:
                if kind in ("enter", "leave"):
                    name = about[0]
                    if name not in regions:
                        role = RegionRole.FUNCTION
                        regions[name] = define.region(name, paradigm=paradigm_of(name), region_role=role)
                    getattr(writer, kind)(at, regions[name])
                elif kind == "collective":
                    operation = getattr(CollectiveOp, about[0])
                    writer.mpi_collective_end(at, operation, world, *about[1:])
                elif kind == "request":
                    writer.mpi_irecv_request(at, about[0])
                else:
                    peer, size, request = about
                    getattr(writer, f"mpi_{kind}")(at, peer, world, TAG, size, request)
        earliest = min(own[0][0] for own in events)
        # The writer takes the time at which it was given its first event.
        trace._realtime_timestamp = first[1] + (earliest - first[0]) / 1e9


def paradigm_of(name: str) -> Paradigm:
    """MPI's functions, the steps that the user marks, and the program's own functions."""
    if name.startswith("MPI_"):
        return Paradigm.MPI
    return Paradigm.USER if name.startswith("step ") else Paradigm.COMPILER


def main() -> None:
    """Train, and write the archive on rank 0."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--output", required=True)
    for option, default in (("steps", 12), ("batch", 128), ("width", 512), ("late", 100)):
        parser.add_argument(f"--{option}", type=int, default=default)
    options = parser.parse_args()
    comm, recorder = MPI.COMM_WORLD, Recorder()
    first = time.monotonic_ns(), time.time()
    train(comm, options, recorder)
    events = comm.gather(recorder.events, root=0)
    if events is not None:
        write_archive(options.output, events, first)


if __name__ == "__main__":
    main()
