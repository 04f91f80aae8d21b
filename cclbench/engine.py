# SPDX-License-Identifier: Apache-2.0
"""Where per-rank work runs: in this process or in several; the results are the same."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.util import get_temp_dir
from typing import Any, Final, TypeVar

from cclbench.errors import CclbenchError, UsageError

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Called with (what, done, total) after each task."""
_WAITING: Final = 2
"""Tasks a process that are taken ahead."""
_NONE: Final[Any] = object()


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    what: str = "",
) -> list[Result]:
    """`[work(t) for t in tasks]`, in up to `jobs` processes (default: the cores there are).

    Tasks are taken as processes become free, so that few of them wait.  The order of the results is that of
    the tasks.  The first failing task, in that order among those finished, raises; what has not begun is
    cancelled.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} processes can do no work", hint="ask for one or more")
    workers = jobs or available_cores()
    total = 0
    if isinstance(tasks, Sized):
        total = len(tasks)
        workers = min(workers, total)
    if workers <= 1:
        results = []
        for task in tasks:
            results.append(work(task))
            if progress:
                progress(what, len(results), total or len(results))
        return results
    pool = ProcessPoolExecutor(
        workers, mp_context=_context(), initializer=_belong_to_parent, initargs=(get_temp_dir(),)
    )
    try:
        futures: list[Future[Result]] = []
        for ended, count in _submitted(pool, work, tasks, _WAITING * workers, futures):
            if any(future.exception() for future in ended):
                break
            if progress:
                progress(what, count, total or len(futures))
        return [future.result() for future in futures]
    except BrokenProcessPool:
        hint = "use fewer with --jobs, or give the machine more memory"
        raise CclbenchError("a worker process died, most likely for want of memory", hint=hint) from None
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submitted(
    pool: ProcessPoolExecutor,
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    most: int,
    futures: list[Future[Result]],
) -> Iterator[tuple[set[Future[Result]], int]]:
    """Submits the tasks into `futures`, at most so many ahead; gives those that ended, and how many have."""
    running: set[Future[Result]] = set()
    coming = iter(tasks)
    while (task := next(coming, _NONE)) is not _NONE or running:
        if task is not _NONE:
            with _interrupts_later():
                futures.append(pool.submit(work, task))
            running.add(futures[-1])
            if len(running) < most:
                continue
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        yield ended, len(futures) - len(running)


def _context() -> multiprocessing.context.BaseContext:
    """Workers forked from a small server process that has the libraries loaded: unlike a fork of this
    process it is safe beside threads (Arrow's, a progress bar's), and starts faster than a new one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cclbench.api"])
    return context


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while processes start, so that none is left that the pool does not know.

    Handlers note them, since any thread may get a signal; the mask is for the processes, which inherit it and
    leave Ctrl-C to the parent.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        for number, handler in handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])


def _belong_to_parent(shared: str) -> None:
    """Ctrl-C is the parent's to handle; without a parent a worker has nothing left to do.

    `shared` is the folder of the processes' socket, which a parent that is killed cannot remove.

    Warnings of numpy's arithmetic would be a worker's own lines on the terminal, which tell people nothing.
    """
    warnings.simplefilter("ignore", RuntimeWarning)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(shared,), daemon=True).start()


def _end_with_parent(shared: str) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        shutil.rmtree(shared, ignore_errors=True)
        os._exit(1)
