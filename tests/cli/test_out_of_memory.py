# SPDX-License-Identifier: Apache-2.0
"""Too little memory is said to be that, with what helps, and is exit code 3: it is no defect."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from cclbench.cli.failures import report_error
from cclbench.cli.options import Session
from cclbench.ground.errors import CheckFailed, InputError
from cclbench.ground.out_of_memory import LEAST_BYTES, is_out_of_memory
from cclbench.record import files


def raised(work: Callable[[], object], kind: type[Exception]) -> Exception:
    """What a library raises by itself."""
    with pytest.raises(kind) as found:
        work()
    return found.value


def too_large_a_list() -> None:
    with duckdb.connect(config={"memory_limit": "10MB", "temp_directory": ""}) as connection:
        connection.sql("SELECT list(i) FROM range(10000000) t(i)").fetchall()


def following(first: Exception, *, told: bool) -> Exception:
    """An error raised while that one was handled, which is told with it or not."""
    error = RuntimeError("import failed")
    error.__context__, error.__suppress_context__ = first, not told
    return error


ARROW = "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"
SHORTAGES = {
    "python": MemoryError(),
    "numpy": raised(lambda: np.zeros(1 << 50), MemoryError),
    "arrow": raised(lambda: pa.allocate_buffer(1 << 60), pa.ArrowMemoryError),
    "duckdb": raised(too_large_a_list, duckdb.OutOfMemoryException),
    "mmap": OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    "a thread": RuntimeError("can't start new thread"),
    "arrow's thread": OSError(ARROW),
    "a library": ImportError("libarrow.so.2600: failed to map segment from shared object"),
    "a library that another one needs": following(ImportError("x.so: failed to map segment"), told=True),
}


@pytest.mark.parametrize("name", SHORTAGES)
def test_it_is_told_as_what_it_is(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert report_error(SHORTAGES[name], Session()) == 3
    told = capfd.readouterr().err
    assert told.startswith("error: out of memory")
    assert "--memory SIZE" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    "error",
    [
        ImportError("No module named 'pyarrow'"),
        OSError(errno.ENOENT, "No such file"),
        RuntimeError("dictionary changed size"),
        following(MemoryError(), told=False),
        InputError("cannot be read: it says 'Out of Memory'"),
    ],
)
def test_nothing_else_is(error: Exception) -> None:
    """What is told on purpose stays."""
    assert not is_out_of_memory(error)
    failed = CheckFailed("regression")
    failed.__context__ = MemoryError()
    assert report_error(failed, Session()) == 1


def test_a_table_that_memory_does_not_suffice_for_is_not_damaged() -> None:
    with pytest.raises(MemoryError), files.reading(Path("events.parquet")):
        pa.allocate_buffer(1 << 60)
    with pytest.raises(InputError, match="damaged table"), files.reading(Path("events.parquet")):
        raise pa.ArrowInvalid("magic bytes")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space")
def test_a_limit_below_which_libraries_do_not_load() -> None:
    """They would end the process with an exit code of their own, or by a signal."""

    def run(limit: int, *words: str) -> subprocess.CompletedProcess[str]:
        limited = partial(resource.setrlimit, resource.RLIMIT_AS, (limit, limit))
        command = [sys.executable, "-m", "cclbench", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)

    done = run(LEAST_BYTES - 4096, "list", "metrics")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: the address space is limited to 500 MB; at least 500 MB are required: ulimit -v\n"
    )
    assert run(LEAST_BYTES - 4096, "--help").returncode == 0
    assert run(4 * LEAST_BYTES, "list", "metrics").returncode == 0
