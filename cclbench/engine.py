# SPDX-License-Identifier: Apache-2.0
"""Where per-rank work runs: in this process or in several; the results are the same."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.util import get_temp_dir
from typing import Final, TypeVar

from cclbench.errors import CclbenchError, UsageError

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Called with (what, done, total) after each task."""


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


SMALL_BYTES: Final = 32 << 20
"""Bytes of text that are read before processes have started: half a second's work."""


def jobs_for(size_bytes: int, jobs: int) -> int:
    """How many of `jobs` processes pay for work that takes as long as to read so many bytes of text."""
    return 1 if size_bytes <= SMALL_BYTES else jobs


def each(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    what: str = "",
) -> list[Result]:
    """`[work(t) for t in tasks]`, in up to `jobs` processes (default: the cores there are).

    The order of the results is that of the tasks.  The first failing task, in that order among those
    finished, raises; what has not begun is cancelled.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} processes can do no work", hint="ask for one or more")
    total = len(tasks)
    workers = min(jobs or available_cores(), total)
    if workers <= 1:
        results = []
        for task in tasks:
            results.append(work(task))
            if progress:
                progress(what, len(results), total)
        return results
    pool = ProcessPoolExecutor(
        workers, mp_context=_context(), initializer=_belong_to_parent, initargs=(get_temp_dir(),)
    )
    try:
        with _interrupts_later():
            futures = [pool.submit(work, task) for task in tasks]
        for done, future in enumerate(as_completed(futures), 1):
            if future.exception():
                break
            if progress:
                progress(what, done, total)
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


def _context() -> multiprocessing.context.BaseContext:
    """Workers forked from a small server process that has the libraries loaded: unlike a fork of this
    process it is safe beside threads (Arrow's, a progress bar's), and starts faster than a new one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context()
    context = multiprocessing.get_context("forkserver")
    # pandas, since pyarrow imports it where it gives its first NumPy array: once here, not in each worker.
    context.set_forkserver_preload(["cclbench.api", "cclbench.ingestion.traces", "pandas"])
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
