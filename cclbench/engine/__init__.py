# SPDX-License-Identifier: Apache-2.0
"""Where tasks run: in this process, in several, or on a Dask cluster; the results are the same.

A task is coarse: a file or a part of one, a rank.  Whoever has tasks holds an `Engine` and asks it; what it
started, a pool of processes or a connection, serves all of them until it is closed.
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
"""Memory of a process that starts others, and gathers from few ranks."""
WORKER_BYTES: Final = 250_000_000
"""Memory of a process that works on a part of a trace, or on one rank, of any size."""
_SCHEDULERS: Final = ("tcp://", "tls://", "ucx://", "ws://", "wss://")
_ADDRESS: Final = re.compile(r"\w+://[^\s/:][^\s/]*:(\d{1,5})(/\S*)?")
_LAST_PORT: Final = 65_535


def text_bytes(path: Path, size: int) -> int:
    """How much text a file of that size holds, estimated where it is compressed: some tenfold."""
    return size * (10 if path.suffix == ".gz" else 1)


class Engine(ABC):
    """Runs tasks; what it needs is started with the first of them, and ended by `close` or a `with` block."""

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

        Few results wait for `take` at once, so that what is gathered need not fit into memory.  The first
        failing task, in that order among those finished, raises; what has not begun is cancelled, and
        nothing runs any more once the error is raised.  `size_bytes` is how much text is read in the time
        that all of them take, by which an engine may see that it is not worth to start anything.
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
        """What `gather` does, here; `finished` is called with how many tasks are."""

    def is_worthwhile(self, count: int, size_bytes: int | None) -> bool:  # noqa: ARG002 - most have nothing to weigh
        """Whether so many tasks are worth what it starts; they run in this process where not."""
        return True

    def prepare(self, size_bytes: int) -> None:  # noqa: B027 - most have nothing to start
        """Begin to start what tasks that read so much text take, beside what this process does meanwhile."""

    def release_memory(self, size_bytes: int | None) -> None:  # noqa: B027 - most have nothing to give up
        """Give up, while tasks of so much text run in this process, what they may need, such as memory."""

    def map(
        self,
        work: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        progress: Progress | None = None,
        what: str = "",
        size_bytes: int | None = None,
    ) -> list[Result]:
        """`[work(t) for t in tasks]`, as `gather` does it."""
        results: list[Result] = []
        self.gather(work, tasks, results.append, progress=progress, what=what, size_bytes=size_bytes)
        return results

    def require_shared(  # noqa: B027 - most engines see what this process sees
        self, *paths: Path
    ) -> None:
        """`UsageError` where something that runs tasks does not see one of these files or folders."""

    def close(self) -> None:  # noqa: B027 - most start nothing
        """End what was started; a further task starts it anew."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Serial(Engine):
    """Tasks one after another, in this process."""

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
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def engine_of(
    name: str = PROCESSES,
    *,
    jobs: int | None = None,
    memory_bytes: int | None = None,
    client: Client | None = None,
    tell: Callable[[str], object] | None = None,
) -> Engine:
    """The engine of that name, with `jobs` processes (default: the cores there are, where it pays).

    So many of this machine's as fit into `memory_bytes`; `UsageError` where none does.

    `processes` is this machine's, in this process where `jobs` is 1; `dask` a Dask cluster of this machine,
    of `jobs` workers; an address such as `tcp://host:8786` the cluster of that scheduler.  A `client` of a
    Dask cluster goes before all of them, and stays open.  `tell` gets the address of a cluster's dashboard.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} processes can do no work", hint="ask for one or more")
    if client is not None or name == DASK or name.startswith(_SCHEDULERS):
        if memory_bytes is not None:
            raise UsageError("a Dask cluster limits its workers' memory itself", hint="leave out --memory")
        if client is None and name != DASK and not _is_address(name):
            raise UsageError(f"{name!r} is no scheduler's address", hint="such as tcp://HOST:8786")
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
    """How many processes, beside the one that starts them, take that much memory; `UsageError` where none."""
    least = OWN_BYTES + WORKER_BYTES
    if memory_bytes < least:
        raise UsageError(
            f"{memory_bytes / 1e6:,.0f} MB of memory are too little: {least / 1e6:,.0f} MB at least"
        )
    return (memory_bytes - OWN_BYTES) // WORKER_BYTES


@contextmanager
def engine_for(
    engine: Engine | str = PROCESSES, jobs: int | None = 1, client: Client | None = None
) -> Iterator[Engine]:
    """An engine that is given, left as it is; else `engine_of` these, closed at the end."""
    if isinstance(engine, Engine):
        yield engine
        return
    with engine_of(engine, jobs=jobs, client=client) as created:
        yield created


def _is_address(name: str) -> bool:
    """Whether a scheduler's address has a host and a port."""
    address = _ADDRESS.fullmatch(name)
    return address is not None and 0 < int(address[1]) <= _LAST_PORT
