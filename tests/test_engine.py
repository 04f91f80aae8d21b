# SPDX-License-Identifier: Apache-2.0
"""Work in one process and in several: the same results, the same errors, nothing left running."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from cclbench import engine
from cclbench.errors import CclbenchError, InputError
from cclbench.source import find


@pytest.mark.parametrize("jobs", [1, 2, 7, None])
def test_results_are_in_the_order_of_the_tasks(jobs: int | None) -> None:
    assert engine.each(math.factorial, [5, 0, 3, 4, 1], jobs=jobs) == [120, 1, 6, 24, 1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_nothing_to_do_is_done(jobs: int) -> None:
    assert engine.each(math.factorial, [], jobs=jobs) == []


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="asks /proc who runs the task")
def test_one_job_runs_here_and_two_run_elsewhere() -> None:
    here = f"/proc/{os.getpid()}"
    assert engine.each(os.path.realpath, ["/proc/self"] * 2, jobs=1) == [here] * 2
    assert here not in engine.each(os.path.realpath, ["/proc/self"] * 2, jobs=2)


def test_workers_keep_warnings_of_arithmetic_to_themselves() -> None:
    """They have no terminal of their own to say them on."""
    ask = "import warnings; assert warnings.filters[0][0::2][:2] == ('ignore', RuntimeWarning)"
    engine.each(exec, [ask] * 2, jobs=2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_counts_every_task(jobs: int) -> None:
    seen: list[tuple[str, int, int]] = []
    engine.each(
        math.factorial,
        [1, 2, 3],
        jobs=jobs,
        progress=lambda what, done, total: seen.append((what, done, total)),
        what="reading",
    )
    assert {(what, total) for what, _, total in seen} == {("reading", 3)}
    assert sorted(done for _, done, _ in seen)[-1] == 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_a_task_is_raised_as_it_was(jobs: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder") as raised:
        engine.each(find, [f"{tmp_path}/absent", f"{tmp_path}/absent"], jobs=jobs)
    assert raised.value.where == f"{tmp_path}/absent"
    assert raised.value.exit_code == 3


def test_what_has_not_begun_when_a_task_fails_is_cancelled() -> None:
    begun = time.monotonic()
    with pytest.raises(ValueError, match="non-negative"):
        engine.each(time.sleep, [-1.0, *[0.5] * 40], jobs=2)
    assert time.monotonic() - begun < 10
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_is_told_with_what_helps() -> None:
    with pytest.raises(CclbenchError, match="a worker process died") as raised:
        engine.each(os._exit, [7, 7], jobs=2)
    assert "--jobs" in str(raised.value)
    assert raised.value.exit_code == 4


def test_an_interrupt_ends_the_workers() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        engine.each(time.sleep, [0.0, 60.0], jobs=2, progress=interrupt)
    assert time.monotonic() - begun < 20
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_all_processes_are_known(number: signal.Signals) -> None:
    class EndedError(Exception):
        pass

    def end(*_: object) -> None:
        raise EndedError

    known = []

    def start() -> None:
        with engine._interrupts_later():
            os.kill(os.getpid(), number)
            time.sleep(0.1)
            known.append("all")

    before = signal.signal(number, end)
    try:
        with pytest.raises(EndedError):
            start()
    finally:
        signal.signal(number, before)
    assert known == ["all"]
