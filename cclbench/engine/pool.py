# SPDX-License-Identifier: Apache-2.0
"""Tasks on an executor of `concurrent.futures`."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, Final

from cclbench.engine import Engine, Result, Task
from cclbench.ground.signals import WAIT_S

_AHEAD: Final = 8
"""Bundles per worker that are submitted and whose results are not yet taken."""
_BUNDLES: Final = 32
"""Minimum number of bundles per worker, for load balance."""


class PoolEngine(Engine):
    """An engine whose tasks run on an executor."""

    _executor: Executor | None = None
    most_bundled = 1
    """Maximum number of tasks per bundle, which is submitted as one."""

    @abstractmethod
    def start_executor(self) -> tuple[Executor, int]:
        """A new executor, and the number of tasks that it runs at once."""

    @abstractmethod
    def stop_executor(self, executor: Executor, *, kill: bool) -> None:
        """Shut the executor down; running tasks are waited for, or with `kill` killed if possible."""

    @abstractmethod
    def explain_error(self, error: BaseException) -> BaseException:
        """The error to raise: an explanation for errors of the executor itself, else `error`."""

    def while_submitting(self) -> AbstractContextManager[None]:
        """The context in which tasks are submitted."""
        return nullcontext()

    def run_tasks(
        self,
        work: Callable[[Task], Result],
        tasks: Sequence[Task],
        take: Callable[[Result], object],
        finished: Callable[[int], None],
    ) -> None:
        """See `Engine`."""
        if not tasks:
            return
        try:
            self._run_bundles(self.ensure_executor(), work, tasks, take, finished)
        except BaseException as error:
            # The caller is about to remove what tasks write: none may continue.
            self._end_executor(kill=not isinstance(error, Exception))
            explained = self.explain_error(error)
            if explained is error:
                raise
            raise explained from None

    @property
    def has_executor(self) -> bool:
        """Whether there is an executor."""
        return self._executor is not None

    def ensure_executor(self) -> Executor:
        """The executor, started if there is none."""
        if self._executor is None:
            self._executor, self.workers = self.start_executor()
        return self._executor

    def _run_bundles(
        self,
        executor: Executor,
        work: Callable[[Task], Result],
        tasks: Sequence[Task],
        take: Callable[[Result], object],
        finished: Callable[[int], None],
    ) -> None:
        remaining = iter(tasks)
        size = max(1, min(self.most_bundled, len(tasks) // (self.workers * _BUNDLES)))
        bundles = iter(lambda: list(islice(remaining, size)), [])
        waiting: deque[Future[list[Result]]] = deque()
        running: set[Future[Any]] = set()
        count = 0
        try:
            while True:
                with self.while_submitting():
                    for bundle in islice(bundles, self.workers * _AHEAD - len(waiting)):
                        waiting.append(executor.submit(_run_each, work, bundle))
                        running.add(waiting[-1])
                if not waiting:
                    return
                done, running = wait(running, timeout=WAIT_S, return_when=FIRST_COMPLETED)
                for future in waiting:
                    if future in done and (error := future.exception()):
                        raise error
                for future in done:
                    for _ in future.result():
                        count += 1
                        finished(count)
                # A future that finished after `wait` is counted in the next round.
                while waiting and waiting[0] not in running:
                    for result in waiting.popleft().result():
                        take(result)
        finally:
            for future in waiting:
                future.cancel()

    def _end_executor(self, *, kill: bool) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            self.stop_executor(executor, kill=kill)

    def close(self) -> None:
        """See `Engine`."""
        self._end_executor(kill=False)


def _run_each(work: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    return [work(task) for task in tasks]
