# SPDX-License-Identifier: Apache-2.0
"""Engines that run tasks: in this process, in several, or on a Dask cluster, with the same results.

A task is coarse: a file or a part of one, a rank.  An `Engine` keeps its pool of processes or its connection
for all tasks until it is closed.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from cclbench.ground.errors import UsageError

if TYPE_CHECKING:
    from distributed import Client

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Called with (what, done, total) after each task."""

PROCESSES: Final = "processes"
DASK: Final = "dask"
OWN_BYTES: Final = 150_000_000
"""Memory of the main process, which starts the others and gathers from few ranks."""
WORKER_BYTES: Final = 250_000_000
"""Memory of a worker process, for a part of a trace or one rank of any size."""
_SCHEDULERS: Final = ("tcp://", "tls://", "ucx://", "ws://", "wss://")
_ADDRESS: Final = re.compile(r"\w+://[^\s/:][^\s/]*:(\d{1,5})(/\S*)?")
_LAST_PORT: Final = 65_535


def text_bytes(path: Path, size: int) -> int:
    """Bytes of text in a file of that size; for a compressed one an estimate, tenfold."""
    return size * (10 if path.suffix == ".gz" else 1)


class Engine(ABC):
    """Runs tasks; resources are started with the first one, and released by `close` or a `with` block."""

    workers = 1
    """Number of tasks that run at once; 1 until it is known."""

    def gather(
        self,
        work: Callable[[Task], Result],
        tasks: Sequence[Task],
        take: Callable[[Result], object],
        *,
        progress: Progress | None = None,
        what: str = "",
        size_bytes: int | None = None,
    ) -> None:
        """Call `take` with `work(t)` of each task, in the order of the tasks.

        Few results wait for `take` at once, so the results need not fit into memory together.  Of the
        finished tasks, the first failing one raises; tasks not yet started are cancelled, and none runs any
        more once the error is raised.  `size_bytes` is the work in terms of bytes of text that could be read
        in the same time; an engine starts no processes for little work.
        """

        def report_progress(done: int) -> None:
            if progress:
                progress(what, done, len(tasks))

        if self.is_worthwhile(len(tasks), size_bytes):
            self.run_tasks(work, tasks, take, report_progress)
        else:
            self.release_memory(size_bytes)
            SERIAL.run_tasks(work, tasks, take, report_progress)

    @abstractmethod
    def run_tasks(
        self,
        work: Callable[[Task], Result],
        tasks: Sequence[Task],
        take: Callable[[Result], object],
        finished: Callable[[int], None],
    ) -> None:
        """Implement `gather`; `finished` is called with the number of finished tasks."""

    def is_worthwhile(self, count: int, size_bytes: int | None) -> bool:  # noqa: ARG002 - most have nothing to weigh
        """Whether the tasks justify starting the engine; otherwise they run in this process."""
        return True

    def prepare(self, size_bytes: int) -> None:  # noqa: B027 - most have nothing to start
        """Start resources for tasks of so much text in the background."""

    def release_memory(self, size_bytes: int | None) -> None:  # noqa: B027 - most have nothing to give up
        """Release memory of workers before tasks of so much text run in this process."""

    def map(
        self,
        work: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        progress: Progress | None = None,
        what: str = "",
        size_bytes: int | None = None,
    ) -> list[Result]:
        """`[work(t) for t in tasks]`, by `gather`."""
        results: list[Result] = []
        self.gather(work, tasks, results.append, progress=progress, what=what, size_bytes=size_bytes)
        return results

    def require_shared(  # noqa: B027 - most engines see what this process sees
        self, *paths: Path
    ) -> None:
        """`UsageError` if a worker does not see one of these files or folders."""

    def close(self) -> None:  # noqa: B027 - most start nothing
        """Release all resources; a further task starts them again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Serial(Engine):
    """Runs tasks one after another in this process."""

    def run_tasks(
        self,
        work: Callable[[Task], Result],
        tasks: Sequence[Task],
        take: Callable[[Result], object],
        finished: Callable[[int], None],
    ) -> None:
        """See `Engine`."""
        for done, task in enumerate(tasks, 1):
            take(work(task))
            finished(done)


SERIAL: Final = Serial()


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def engine_of(
    name: str = PROCESSES,
    *,
    jobs: int | None = None,
    memory_bytes: int | None = None,
    client: Client | None = None,
    tell: Callable[[str], object] | None = None,
) -> Engine:
    """The engine of that name, with `jobs` processes (default: one per core, if the work justifies it).

    `processes` are on this machine, at most as many as fit into `memory_bytes` (`UsageError` if none does);
    with `jobs` 1, tasks run in this process.  `dask` is a Dask cluster on this machine with `jobs` workers;
    an address such as `tcp://host:8786` is the cluster of that scheduler.  A `client` of a Dask cluster takes
    precedence, and stays open.  `tell` is called with the address of a cluster's dashboard.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs is {jobs}", hint="must be at least 1")
    if client is not None or name == DASK or name.startswith(_SCHEDULERS):
        if memory_bytes is not None:
            raise UsageError(
                "--memory does not apply to a Dask cluster", hint="limit its workers' memory there"
            )
        if client is None and name != DASK and not _is_address(name):
            raise UsageError(f"{name!r} is not a scheduler's address", hint="such as tcp://HOST:8786")
        from cclbench.engine.dask import Dask

        return Dask(client or (None if name == DASK else name), jobs, tell)
    if name != PROCESSES:
        raise UsageError(f"no engine {name!r}", hint=f"{PROCESSES}, {DASK}, or a scheduler's tcp://HOST:PORT")
    workers = jobs or available_cores()
    if memory_bytes is not None:
        workers = min(workers, workers_in_memory(memory_bytes))
    if workers == 1:
        return SERIAL
    from cclbench.engine.processes import Processes

    return Processes(workers, as_it_pays=jobs is None)


def workers_in_memory(memory_bytes: int) -> int:
    """Number of worker processes that fit into that much memory; `UsageError` if none does."""
    least = OWN_BYTES + WORKER_BYTES
    if memory_bytes < least:
        raise UsageError(
            f"{memory_bytes / 1e6:,.0f} MB of memory are too little: at least {least / 1e6:,.0f} MB"
        )
    return (memory_bytes - OWN_BYTES) // WORKER_BYTES


@contextmanager
def engine_for(
    engine: Engine | str = PROCESSES, jobs: int | None = 1, client: Client | None = None
) -> Iterator[Engine]:
    """The given engine, left open; or a new one from `engine_of`, closed at the end."""
    if isinstance(engine, Engine):
        yield engine
        return
    with engine_of(engine, jobs=jobs, client=client) as created:
        yield created


def _is_address(name: str) -> bool:
    """Whether a scheduler's address has a host and a port."""
    address = _ADDRESS.fullmatch(name)
    return address is not None and 0 < int(address[1]) <= _LAST_PORT
