# SPDX-License-Identifier: Apache-2.0
"""The entry point: what is imported, exit codes, what an error reads like."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call

from cclbench import api
from cclbench.cli.failures import report_error
from cclbench.cli.options import Session
from cclbench.ground.errors import CheckFailed, InputError, UsageError

HEAVY = ("numpy", "pandas", "pyarrow", "duckdb", "matplotlib", "rich", "yaml", "jsonschema", "msgspec")


def shell(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`python -m cclbench ARGUMENTS` in a process of its own."""
    command = [sys.executable, "-m", "cclbench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


@pytest.mark.parametrize("command", ["", "run", "list", "sql"])
def test_help_imports_nothing_heavy(command: str) -> None:
    program = f"""
import sys
from cclbench.cli import main
main([word for word in [{command!r}, "--help"] if word])
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("words", [["list", "metrics"], ["explain", "time.step"]])
def test_metrics_are_listed_without_what_computes_them(words: list[str]) -> None:
    """`pyarrow.compute` makes some 250 functions when it is imported; causes are for other names."""
    program = f"""
import sys
from cclbench.cli import main
main({words!r})
print([name for name in ("pyarrow.compute", "cclbench.findings.causes") if name in sys.modules],
      file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "time.step" in done.stdout
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
        (CheckFailed("a regression"), 1, "error: a regression\n"),
        (
            UsageError("no such metric", hint="did you mean time.step?"),
            2,
            "error: no such metric; did you mean time.step?\n",
        ),
        (InputError("cut", where="a.json: byte 9"), 3, "error: a.json: byte 9: cut\n"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            3,
            "error: standard output: No space left on device; free some space or write elsewhere\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x/y"),
            3,
            "error: /x/y: Permission denied; check the permissions or write elsewhere\n",
        ),
        (
            ZeroDivisionError("first line\nsecond line"),
            4,
            "internal error: ZeroDivisionError: first line\n"
            "a defect of cclbench; re-run with --debug for the traceback\n",
        ),
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
    ],
)
def test_errors_become_messages_and_exit_codes(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    monkeypatch.setattr(api, "run", raising(error))
    answer = call("run", "x")
    assert (answer.code, answer.out) == (code, "")
    assert answer.err == message


@pytest.mark.parametrize(
    ("number", "default", "code", "word"),
    [
        (signal.SIGINT, signal.default_int_handler, 130, "interrupted"),
        (signal.SIGTERM, signal.SIG_DFL, 143, "terminated"),
    ],
)
def test_an_error_for_want_of_what_a_signal_interrupted_is_the_signals(
    call: Call, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, default: Any, code: int, word: str
) -> None:
    """A library may swallow the interrupt, and fail later for what it did not get done."""

    def fail(*_: object, **__: object) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        raise AttributeError("partially initialized module")

    monkeypatch.setattr(api, "run", fail)
    before = signal.signal(number, default)
    try:
        answer = call("run", "x")
        assert signal.getsignal(number) is default
    finally:
        signal.signal(number, before)
    assert (answer.code, answer.out, answer.err) == (code, "", f"{word}\n")


def test_a_signal_in_a_callback_of_the_interpreter_ends_the_command(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Collected:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def collect(*_: object, **__: object) -> None:
        Collected()
        time.sleep(5)

    monkeypatch.setattr(api, "run", collect)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        answer = call("run", "x")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (answer.code, answer.out, answer.err) == (143, "", "\nterminated\n")


@pytest.mark.parametrize("arguments", [("--debug", "run", "x"), ("run", "x", "--debug")])
def test_debug_shows_the_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(api, "run", raising(InputError("cut")))
    answer = call(*arguments)
    assert answer.code == 3
    assert answer.err.startswith("Traceback")
    assert answer.err.endswith("error: cut\n")


def test_debug_of_one_call_does_not_stay(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "run", raising(InputError("cut")))
    call("--debug", "run", "x")
    assert call("run", "x").err == "error: cut\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rum",), "unknown command 'rum'; did you mean run?"),
        (("run",), "Missing argument 'SOURCE'"),
        (("run", "x", "--widnow", "steps"), "--widnow"),
        (("run", "x", "--window", "epoch"), "'epoch' is not one of"),
        (("run", "x", "--steps", "5"), "'5' is not A:B, such as 2:5"),
        (("run", "x", "--steps", "5:5"), "holds no step"),
        (("run", "x", "--ranks", "0,b"), "not a list of ranks"),
        (("run", "x", "--jobs", "0"), "'--jobs'"),
        (("run", "x", "--step-annotation", "("), "not a regular expression"),
        (("run", "x", "--json", "--format", "csv"), "--json contradicts --format csv"),
        (("run", "x", "-v", "-q"), "-q contradicts -v"),
        (("run", "x", "--plot", "x.gif"), "use .png, .svg, .pdf"),
        (("list", "dragons"), "'dragons' is not one of"),
        (("explain", "time.stpe"), "time.step"),
        (("metrics", "no-such-run"), "no run 'no-such-run'"),
        (("sql", "no-such-run", "SELECT 1"), "no run 'no-such-run'"),
    ],
)
def test_wrong_usage_exits_with_2(call: Call, arguments: tuple[str, ...], says: str) -> None:
    answer = call(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert says in answer.err
    assert answer.err.startswith("error: ")
    assert len(answer.err.splitlines()) <= 3


def test_a_store_that_is_a_file_is_wrong_usage(call: Call, trace: Path) -> None:
    answer = call("run", trace, "--store", trace)
    assert answer.code == 2
    assert "is a file" in answer.err


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["explain"]])
def test_a_closed_pipe_is_quiet(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "cclbench", *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_behind_stdout_is_said() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cclbench", "list", "metrics", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == (
        "error: standard output: No space left on device; free some space or write elsewhere\n"
    )


def test_a_narrow_encoding_does_not_break_the_table(trace: Path, tmp_path: Path) -> None:
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii", "CCLBENCH_STORE": str(tmp_path / "store")}
    done = shell("run", str(trace), env=narrow)
    assert done.returncode == 0, done.stderr
    assert "# compute only" in done.stdout


def test_a_warning_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    def warns(*_: object, **__: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("plug-in 'x' did not load", stacklevel=1)
        raise InputError("cut")

    monkeypatch.setattr(api, "run", warns)
    assert call("run", "x").err == "warning: plug-in 'x' did not load\nerror: cut\n"


def test_no_warning_of_numpys_arithmetic_reaches_a_user(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    import numpy as np

    def divides(*_: object, **__: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            _ = (
                np.ones(1) / np.zeros(1),
                np.zeros(1) / np.zeros(1),
                np.full(2, 1e308).sum(),
                np.log(np.zeros(1)),
            )
        raise InputError("cut")

    monkeypatch.setattr(api, "run", divides)
    assert call("run", "x").err == "error: cut\n"


def test_shell_completion_offers_the_commands() -> None:
    words = {"_CCLBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "cclbench ", "COMP_CWORD": "1"}
    done = shell(env={**os.environ, **words})
    assert {"plain,run", "plain,explain"} <= set(done.stdout.splitlines())


def test_a_long_name_out_of_a_file_does_not_fill_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    error = InputError(f"plane {'n' * 70_000} is damaged", where="host0.xplane.pb", hint="profile again")
    assert report_error(error, Session()) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: host0.xplane.pb: plane nnn")
    assert line.endswith("is damaged; profile again")
    assert len(line) <= 1000
