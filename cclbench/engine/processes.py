# SPDX-License-Identifier: Apache-2.0
"""Tasks in several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize, get_temp_dir
from pathlib import Path
from typing import Final

from cclbench.engine.pool import PoolEngine
from cclbench.ground.errors import CclbenchError
from cclbench.ground.scratch import temporary_folder

SMALL_BYTES: Final = 32 << 20
"""Bytes of text that are read in the time in which processes start: half a second."""
_LONGEST: Final = 32
"""Maximum characters of the folder for temporary files: paths of sockets have at most 107."""


class Processes(PoolEngine):
    """Up to `workers` processes, which live until the engine is closed; a single task runs in this process.

    With `as_it_pays`, tasks of at most `SMALL_BYTES` in total do not start them either.
    """

    def __init__(self, workers: int, *, as_it_pays: bool = False) -> None:
        self.workers, self.as_it_pays = workers, as_it_pays

    def is_worthwhile(self, count: int, size_bytes: int | None) -> bool:
        """See `Engine`."""
        small = self.as_it_pays and size_bytes is not None and size_bytes <= SMALL_BYTES
        return count > 1 and (self.has_executor or not small)

    def prepare(self, size_bytes: int) -> None:
        """See `Engine`: starts the fork server, which loads the libraries."""
        if size_bytes > SMALL_BYTES and not self.has_executor:
            _claim_temporary_folder()
            if _process_context().get_start_method() == "forkserver":
                from multiprocessing import forkserver

                with self.while_submitting():
                    forkserver.ensure_running()

    def release_memory(self, size_bytes: int | None) -> None:
        """See `Engine`: ends the processes, which keep their memory until then."""
        if size_bytes is not None and size_bytes > SMALL_BYTES:
            self.close()

    def start_executor(self) -> tuple[Executor, int]:
        """See `PoolEngine`."""
        _claim_temporary_folder()
        return ProcessPoolExecutor(
            self.workers, mp_context=_process_context(), initializer=belong_to_parent
        ), self.workers

    def stop_executor(self, executor: Executor, *, kill: bool) -> None:
        """See `PoolEngine`."""
        assert isinstance(executor, ProcessPoolExecutor)  # noqa: S101 - `start_executor` made it
        if kill:
            for process in list((executor._processes or {}).values()):
                process.kill()
        # Its own cancelling (cancel_futures) waits forever for a task that cannot be sent to a process.
        executor.shutdown(wait=True)

    def explain_error(self, error: BaseException) -> BaseException:
        """See `PoolEngine`."""
        # A pool that breaks while tasks are submitted has closed the pipe that wakes it.
        closed = isinstance(error, OSError) and error.args == ("handle is closed",)
        if not (closed or isinstance(error, BrokenProcessPool)):
            return error
        hint = "use fewer with --jobs, or give the machine more memory"
        return CclbenchError("a worker process was killed, most likely out of memory", hint=hint)

    def while_submitting(self) -> AbstractContextManager[None]:
        """See `PoolEngine`."""
        return _interrupts_later()


def child_process(target: Callable[..., None], *args: object) -> BaseProcess:
    """An unstarted process that runs `target` and ends with this one at the latest.

    The module of `target` is loaded once for all such processes.
    """
    _claim_temporary_folder()
    # A daemonic process has no children that would be left after a kill.
    return _process_context(target.__module__).Process(target=target, args=args, daemon=True)  # type: ignore[attr-defined,no-any-return]


@cache
def _claim_temporary_folder() -> None:
    """Put the processes' sockets into a folder that is removed later if this process is killed."""
    within = Path(tempfile.gettempdir())
    # Sockets are local to this machine, so they need not be in the job's folder for temporary files.
    within = within if len(str(within)) <= _LONGEST else Path("/tmp")  # noqa: S108 - within a folder of our own
    claimed = ExitStack()
    Finalize(None, claimed.close, exitpriority=-200)  # after the sockets' own folder, at -100
    before, tempfile.tempdir = tempfile.tempdir, str(claimed.enter_context(temporary_folder(within)))
    try:
        get_temp_dir()
    finally:
        tempfile.tempdir = before


def _process_context(*modules: str) -> multiprocessing.context.BaseContext:
    """Workers are forked from a small server process with the libraries loaded: unlike a fork of this
    process that is safe with threads (Arrow's, a progress bar's), and faster than a new process."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context()
    from multiprocessing import resource_tracker

    # Its start lets interrupts through that `_interrupts_later` holds back, so it is started before.
    resource_tracker.ensure_running()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cclbench.api", "cclbench.ingestion.traces", *modules])
    return context


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM while processes start, so that none is left that the pool does not know.

    Handlers record the signals, since any thread may receive them; the mask is for the processes, which
    inherit it and leave Ctrl-C to the parent.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        for number, handler in handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if received:
            signal.raise_signal(received[0])


def belong_to_parent() -> None:
    """Leave Ctrl-C to the parent, and end this worker when the parent ends.

    NumPy's arithmetic warnings are dropped, as in the parent; those of plug-ins that do not load are printed
    as the command line prints them.
    """
    warnings.simplefilter("ignore", RuntimeWarning)
    warnings.showwarning = _print_warning
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"warning: {message}\n")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
