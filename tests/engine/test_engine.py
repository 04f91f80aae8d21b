# SPDX-License-Identifier: Apache-2.0
"""Work in one process, in several, on a cluster: the same results and errors, nothing left running."""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from pickle import PicklingError
from tempfile import mkdtemp
from typing import Any

import pytest

from cclbench.engine import SERIAL, Engine, engine_for, engine_of, pool, processes
from cclbench.engine.processes import Processes
from cclbench.ground.errors import CclbenchError, InputError, UsageError
from cclbench.ingestion.source import find_source


@pytest.fixture(scope="module", params=["serial", "processes", "dask"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """One of each kind."""
    if request.param == "dask":
        pytest.importorskip("distributed")
    name = "dask" if request.param == "dask" else "processes"
    with engine_of(name, jobs=1 if request.param == "serial" else 2) as made:
        yield made


def workers() -> list[str]:
    """Processes that this one has started, but for those of a cluster that other tests use."""
    names = sorted(process.name for process in multiprocessing.active_children())
    return [name for name in names if "Dask" not in name]


def test_results_are_in_the_order_of_the_tasks(engine: Engine) -> None:
    numbers = [5, 0, 3, 4, 1, *range(60)]
    assert engine.map(math.factorial, numbers) == list(map(math.factorial, numbers))
    assert engine.map(math.factorial, []) == []
    done: list[int] = []  # many, which an engine may bundle
    found = engine.map(math.factorial, range(300), progress=lambda _, count, __: done.append(count))
    assert found == list(map(math.factorial, range(300)))
    assert done == list(range(1, 301))


def test_results_are_taken_one_by_one_while_others_are_made(engine: Engine) -> None:
    taken: list[int] = []
    counts: list[tuple[str, int, int, int]] = []
    engine.gather(
        math.factorial,
        range(100),
        taken.append,
        progress=lambda what, done, total: counts.append((what, done, total, len(taken))),
        what="reading",
    )
    assert taken == list(map(math.factorial, range(100)))
    assert {(what, total) for what, _, total, _ in counts} == {("reading", 100)}
    assert [done for _, done, _, _ in counts] == list(range(1, 101))
    # Never all at once: each worker is a bounded number of tasks ahead of what is taken.
    assert all(done - taken <= 2 * 8 for _, done, _, taken in counts)


def test_what_ends_between_two_looks_is_counted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_of(futures: set[Future[object]], **_: object) -> tuple[set[Future[object]], set[Future[object]]]:
        wait(futures)  # all have ended, one is reported
        first = next(iter(futures))
        return {first}, futures - {first}

    monkeypatch.setattr(pool, "wait", one_of)
    counts: list[int] = []
    engine.map(math.factorial, range(20), progress=lambda _, done, __: counts.append(done))
    assert counts == list(range(1, 21))


def test_an_error_of_a_task_is_raised_as_it_was(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder") as raised:
        engine.map(find_source, [f"{tmp_path}/absent", f"{tmp_path}/absent"])
    assert raised.value.where == f"{tmp_path}/absent"
    assert raised.value.exit_code == 3
    # It can be asked again.
    assert engine.map(math.factorial, [3, 4]) == [6, 24]
    with pytest.raises(ValueError, match="negative"):
        engine.map(math.factorial, [*range(200), -1, *range(99)])

    def take(number: int) -> None:
        raise ValueError(f"not wanted: {number}")

    with pytest.raises(ValueError, match="not wanted: 1"):  # an error of who takes results, too
        engine.gather(math.factorial, [1, 2, 3], take)


def test_what_has_not_begun_when_a_task_fails_is_cancelled(engine: Engine) -> None:
    begun = time.monotonic()
    with pytest.raises(ValueError, match="non-negative"):
        engine.map(time.sleep, [-1.0, *[0.5] * 60])
    assert time.monotonic() - begun < 15


class Unsendable:
    """What no process can be sent."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(0.1)  # the others are still to be sent when the first has failed
        raise PicklingError("not to be sent")


def test_tasks_that_cannot_be_sent_are_an_error() -> None:
    with engine_of(jobs=2) as pool, pytest.raises(PicklingError, match="not to be sent"):
        pool.map(repr, [Unsendable() for _ in range(6)])
    assert workers() == []


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="asks /proc who runs the task")
def test_one_job_runs_here_and_two_run_elsewhere_in_one_pool() -> None:
    here = f"/proc/{os.getpid()}"
    assert engine_of(jobs=1).map(os.path.realpath, ["/proc/self"] * 2) == [here] * 2
    with engine_of(jobs=2) as pool:
        first, second = (set(pool.map(os.path.realpath, ["/proc/self"] * 20)) for _ in range(2))
        assert here not in first | second
        assert len(first | second) <= 2
        assert pool.map(os.path.realpath, ["/proc/self"]) == [here]
        # they have no terminal of their own to say warnings of arithmetic on
        ask = "import warnings; assert warnings.filters[0][0::2][:2] == ('ignore', RuntimeWarning)"
        pool.map(exec, [ask] * 2)
    assert workers() == []


def test_idle_processes_end_before_a_long_task_runs_here_and_start_anew() -> None:
    with engine_of(jobs=2) as pool:
        pool.map(math.sqrt, [1.0] * 4)
        started = workers()
        pool.map(math.sqrt, [1.0], size_bytes=processes.SMALL_BYTES)
        assert workers() == started != []
        pool.map(math.sqrt, [1.0], size_bytes=processes.SMALL_BYTES + 1)
        assert workers() == []
        assert pool.map(math.sqrt, [4.0] * 4) == [2.0] * 4


def test_a_worker_that_dies_is_told_with_what_helps() -> None:
    with pytest.raises(CclbenchError, match="process was killed") as raised, engine_of(jobs=2) as pool:
        pool.map(os._exit, [7, 7])
    assert "--jobs" in str(raised.value)
    assert raised.value.exit_code == 4


def test_an_interrupt_ends_the_workers() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), engine_of(jobs=2) as pool:
        pool.map(time.sleep, [0.0, 60.0], progress=interrupt)
    assert time.monotonic() - begun < 20
    assert workers() == []


def test_what_a_killed_process_leaves_is_swept_by_the_next(tmp_path: Path) -> None:
    """The folder of its processes' sockets."""
    script = (
        "import os, signal, time\n"
        "from cclbench.engine import engine_of\n"
        "if __name__ == '__main__':\n"
        "    pool = engine_of(jobs=2)\n"
        "    pool.map(time.sleep, [0, 0])\n"
        "    {end}\n"
    )
    temporary = Path(mkdtemp(prefix="t", dir="/tmp"))
    surroundings = {**os.environ, "TMPDIR": str(temporary)}

    def left_by(end: str) -> list[str]:
        (tmp_path / "script.py").write_text(script.format(end=end))
        subprocess.run([sys.executable, tmp_path / "script.py"], check=False, env=surroundings)
        return [path.name for path in temporary.iterdir()]

    assert len(left_by("os.kill(os.getpid(), signal.SIGKILL)")) == 1
    assert left_by("pool.close()") == []
    temporary.rmdir()


def test_processes_where_temporary_files_have_a_long_path(tmp_path: Path) -> None:
    """The path of a socket has at most 107 characters."""
    script = "from cclbench.engine import engine_of\nif __name__ == '__main__':\n"
    script += "    with engine_of(jobs=2) as pool:\n        print(pool.map(abs, [-1, -2, -3]))\n"
    (tmp_path / "script.py").write_text(script)
    long = tmp_path / ("x" * 100)
    long.mkdir()
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(long)}
    )
    assert (done.stdout, done.stderr) == ("[1, 2, 3]\n", "")


ADDRESS = "is not a scheduler's address; such as tcp://HOST:8786"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"name": "slurm"}, "no engine 'slurm'"), ({"jobs": 0}, "jobs is 0")),
        ({"memory_bytes": 399_999_999}, "at least 400 MB"),
        ({"name": "dask", "memory_bytes": 10**9}, "does not apply to a Dask cluster"),
        *(
            ({"name": one}, ADDRESS)
            for one in ("tcp://", "tcp://host", "tcp://:8786", "tcp://host:", "tls://host:65536")
        ),
    ],
)
def test_an_engine_that_there_is_not_is_refused(options: dict[str, Any], said: str) -> None:
    assert engine_of(jobs=1) is SERIAL
    with pytest.raises(UsageError, match=said):
        engine_of(**options)


def test_a_pool_that_breaks_while_it_is_given_tasks_is_told_alike() -> None:
    told = Processes(2).explain_error(OSError("handle is closed"))
    assert "process was killed" in str(told)
    other = OSError(errno.ENOSPC, "No space left on device")
    assert Processes(2).explain_error(other) is other
    with engine_for(SERIAL) as given:
        assert given is SERIAL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_all_processes_are_known(number: signal.Signals) -> None:
    class EndedError(Exception):
        pass

    def end(*_: object) -> None:
        raise EndedError

    known = []

    def start() -> None:
        with processes._interrupts_later():
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


@pytest.mark.parametrize(
    ("memory_bytes", "jobs", "workers"), [(10**9, 8, 3), (10**9, 2, 2), (649_999_999, 8, 1)]
)
def test_as_many_processes_as_fit_into_memory(memory_bytes: int, jobs: int, workers: int) -> None:
    engine = engine_of(jobs=jobs, memory_bytes=memory_bytes)
    assert getattr(engine, "workers", 1) == workers


def test_what_reads_much_is_prepared_beside_this_process() -> None:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        pytest.skip("this machine's processes have no server to fork from")
    script = (
        "import os, signal\n"
        "from multiprocessing.forkserver import _forkserver as server\n"
        "from cclbench.engine.processes import SMALL_BYTES, Processes\n"
        "with Processes(2) as engine:\n"
        "    engine.prepare(SMALL_BYTES)\n"
        "    print(server._forkserver_pid is None)\n"
        "    engine.prepare(SMALL_BYTES + 1)\n"
        "    began = server._forkserver_pid\n"
        "    os.kill(began, signal.SIGINT)\n"  # Ctrl-C is this process's to handle
        "    engine.prepare(SMALL_BYTES + 1)\n"
        "    same = server._forkserver_pid == began\n"
        "    print(began > 0, engine.has_executor, engine.map(abs, [-1, -2]), same)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["True", "True False [1, 2] True", ""]
    assert not done.stderr
