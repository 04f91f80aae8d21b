# SPDX-License-Identifier: Apache-2.0
"""The command line's entry: exit codes, messages and what opens a run."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import time
import warnings
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from helpers.command_line import Call

from cclbench import api
from cclbench.cli.failures import report_error
from cclbench.cli.options import Session
from cclbench.ground.errors import CheckFailed, InputError, UsageError
from cclbench.present.perfetto import serve
from cclbench.selfcheck.reading import row_key
from cclbench.selfcheck.relations import TimesScaled

HEAVY = ("numpy", "pandas", "pyarrow", "duckdb", "matplotlib", "rich", "yaml", "jsonschema", "msgspec")
LATE = ("pyarrow.compute", "pyarrow.parquet", "pandas", "matplotlib", "duckdb", "cclbench.findings.causes")
FULL = "standard output: No space left on device; free some space or write elsewhere"
DENIED = "/x/y: Permission denied; check the permissions or write elsewhere"
DEFECT = "a defect of cclbench; re-run with --debug for the traceback"


def shell(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`python -m cclbench ARGUMENTS` in a process of its own."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60} | options
    return subprocess.run([sys.executable, "-m", "cclbench", *arguments], text=True, check=False, **options)


@pytest.mark.parametrize(
    ("words", "heavy", "says"),
    [
        *((words, HEAVY, "Usage") for words in (["--help"], ["run", "--help"], ["list", "--help"])),
        *((["sql", "--help"], HEAVY, "Usage"), (["card", "validate", "--help"], HEAVY, "Usage")),
        # `pyarrow.compute` makes some 250 functions when it is imported; causes are for other names
        *((words, LATE, "time.step") for words in (["list", "metrics"], ["explain", "time.step"])),
    ],
)
def test_nothing_is_imported_that_is_not_needed(words: list[str], heavy: tuple[str, ...], says: str) -> None:
    program = f"import sys\nfrom cclbench.cli import main\nmain({words!r})\n"
    program += f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert says in done.stdout
    assert done.stderr.strip() == "[]"


def test_module_and_entry_point_agree() -> None:
    assert shell("--version").stdout == "cclbench 0.2.0\n"


@pytest.mark.parametrize("words", [("card",), ("hardware",)])
def test_a_group_alone_shows_its_help(call: Call, words: tuple[str, ...]) -> None:
    answer = call(*words)
    assert answer.code == 2
    assert answer.err.startswith("Usage: cclbench")
    assert answer.err.count("Usage: ") == 1


def raising(error: BaseException) -> Callable[..., Any]:
    def compute(*_: object, **__: object) -> None:
        raise error

    return compute


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CheckFailed("a regression"), 1, "error: a regression"),
        (UsageError("no metric", hint="did you mean x?"), 2, "error: no metric; did you mean x?"),
        (InputError("cut", where="a.json: byte 9"), 3, "error: a.json: byte 9: cut"),
        (OSError(errno.ENOSPC, "No space left on device"), 3, f"error: {FULL}"),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), 3, f"error: {DENIED}"),
        (ZeroDivisionError("first\nsecond"), 4, f"internal error: ZeroDivisionError: first\n{DEFECT}"),
        (KeyboardInterrupt(), 130, "\ninterrupted"),
    ],
)
def test_errors_become_messages_and_exit_codes(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    monkeypatch.setattr(api, "run", raising(error))
    assert call("run", "x") == (code, "", f"{message}\n")


class Collected:
    """Is told of by the interpreter's garbage collection, in which exceptions are ignored."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def swallow(number: signal.Signals) -> None:
    """As a library may, which fails later for what it did not get done."""
    with suppress(KeyboardInterrupt):
        signal.raise_signal(number)
    raise AttributeError("partially initialized module")


def collect(_: signal.Signals) -> None:
    Collected()
    time.sleep(5)


@pytest.mark.parametrize(
    ("meet", "number", "default", "code", "said"),
    [
        (swallow, signal.SIGINT, signal.default_int_handler, 130, "interrupted\n"),
        (swallow, signal.SIGTERM, signal.SIG_DFL, 143, "terminated\n"),
        (collect, signal.SIGTERM, signal.SIG_DFL, 143, "\nterminated\n"),
    ],
)
def test_a_signal_that_was_lost_ends_the_command(
    call: Call, monkeypatch: Any, meet: Any, number: signal.Signals, default: Any, code: int, said: str
) -> None:
    monkeypatch.setattr(api, "run", lambda *_, **__: meet(number))
    before = signal.signal(number, default)
    try:
        answer = call("run", "x")
        assert signal.getsignal(number) is default
    finally:
        signal.signal(number, before)
    assert answer == (code, "", said)


@pytest.mark.parametrize("arguments", [("--debug", "run", "x"), ("run", "x", "--debug")])
def test_debug_has_the_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """Of that call, and not of the next."""
    monkeypatch.setattr(api, "run", raising(InputError("cut")))
    answer = call(*arguments)
    assert answer.code == 3
    assert answer.err.startswith("Traceback")
    assert answer.err.endswith("error: cut\n")
    assert call("run", "x").err == "error: cut\n"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["explain"]])
def test_a_closed_pipe_is_quiet(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = shell(*arguments, stdout=closed)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_behind_stdout_is_said() -> None:
    with open("/dev/full", "w") as full:
        done = shell("list", "metrics", "--json", stdout=full)
    assert (done.returncode, done.stderr) == (3, f"error: {FULL}\n")


def test_a_narrow_encoding_does_not_break_the_table(trace: Path, tmp_path: Path) -> None:
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii", "CCLBENCH_STORE": str(tmp_path / "store")}
    done = shell("run", str(trace), env=narrow)
    assert done.returncode == 0, done.stderr
    assert "# compute only" in done.stdout


def test_a_warning_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of numpy's arithmetic reach nobody."""

    def warns(*_: object, **__: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("plug-in 'x' did not load", stacklevel=1)
            zero = np.zeros(1)
            _ = np.ones(1) / zero, zero / zero, np.full(2, 1e308).sum(), np.log(zero)
        raise InputError("cut")

    monkeypatch.setattr(api, "run", warns)
    assert call("run", "x").err == "warning: plug-in 'x' did not load\nerror: cut\n"


def test_a_long_name_out_of_a_file_does_not_fill_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    error = InputError(f"plane {'n' * 70_000} is damaged", where="host0.xplane.pb", hint="profile again")
    assert report_error(error, Session()) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: host0.xplane.pb: plane nnn")
    assert line.endswith("is damaged; profile again")
    assert len(line) <= 1000


def body_of(address: str) -> bytes:
    """What is served there."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", parts.path)
    return connection.getresponse().read()


def test_a_file(call: Call, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    answer = call("open", trace, "-o", path)
    # 2 annotations, 6 launches, 6 device rows, 2 steps by annotation and 2 by device; one rank of two.
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith(f"wrote {path}: 18 slices, arrows through 0 collectives, ")
    written = json.loads(path.read_text())
    (gemm, _) = (one for one in written["traceEvents"] if one["name"] == "ampere_sgemm_128x64_nn")
    assert (gemm["ts"], gemm["dur"]) == (10, 40)
    assert gemm["args"] == {"category": "gemm", "step": 0, "correlation": 1, "blocks": 54}
    assert written["otherData"]["run"].startswith("rank0")
    assert call("open", trace, "-o", tmp_path / "a.json.gz").code == 0
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == path.read_bytes()


def test_the_page_fetches_the_trace(call: Call, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[bytes] = []

    def browser(link: str) -> bool:
        page, _, address = link.partition("/#!/?url=")
        assert page == "https://ui.perfetto.dev"
        Thread(target=lambda: fetched.append(body_of(address))).start()
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setattr(serve.serve_file, "__kwdefaults__", {"port": 0})
    answer = call("open", trace, "--steps", "1:")
    assert answer.code == 0
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert lines[-1] == "loaded by the viewer"
    assert lines[-3].startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
    (packed,) = fetched
    names = {one["name"] for one in json.loads(gzip.decompress(packed))["traceEvents"]}
    assert "step 1" in names
    assert "step 0" not in names


def test_the_command(call: Call, test_data: Path) -> None:
    """Without traces there is nothing to check."""
    answer = call("selfcheck", test_data / "kineto" / "cpu_only", "--json")
    assert answer.code == 0
    document = json.loads(answer.out)
    assert document["schema"] == "selfcheck.v1"
    assert {one["status"] for one in document["checks"]} == {"holds", "not_applicable"}
    page = call("selfcheck", test_data / "kineto" / "cpu_only").out
    assert page.splitlines()[0] == "10 of 10 checks hold"
    answer = call("selfcheck", test_data / "nccl_tests")
    assert (answer.code, "holds no traces to check" in answer.err) == (3, True)


def test_a_check_that_fails(call: Call, test_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimesScaled, "expected_row", lambda _, row: (row_key(row), 3.0))
    answer = call("selfcheck", test_data / "kineto" / "cpu_only")
    assert answer.code == 1
    assert "1 of 18 checks do not hold: scaling of time" in answer.err
