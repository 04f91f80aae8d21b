# SPDX-License-Identifier: Apache-2.0
"""Run tests of a checkout, each request in a fork that has loaded the libraries but not cclbench.

    python scripts/campaign/forked_tests.py FOLDER

A request is a line of stdin, {"tests": [...], "arguments": [...], "cpu_s": ..., "wall_s": ...}; the response
is a line of stdout, {"code": ..., "output": ...}, with the exit code of pytest, null if a limit ended it.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

LIBRARIES = ("numpy", "pandas", "pyarrow.compute", "pyarrow.parquet", "pytest", "yaml")
"""Libraries of most tests, loaded in a second; none starts a thread, which a fork would lose.  Not pytest's
plug-ins, whose assertions pytest rewrites when they are imported."""
PAUSE_S = 0.02
FAILED = 3
"""Exit code of pytest after an internal error."""


def run(folder: Path, arguments: list[str], cpu_s: int, log: Path) -> None:
    """In the fork: run pytest on the folder's cclbench, and exit with its code."""
    code = FAILED
    try:
        os.setsid()
        for number, stream in ((os.open(os.devnull, os.O_RDONLY), 0), (os.open(log, os.O_RDWR), 1)):
            os.dup2(number, stream)
        os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        code = int(importlib.import_module("pytest").main(arguments))
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - any error is reported as text
        traceback.print_exc()
    finally:
        os._exit(code)


def await_exit(child: int, wall_s: float) -> int | None:
    """Wait for the fork and return its exit code; None if a signal or the time limit ended it."""
    until = time.monotonic() + wall_s
    status = 0
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(PAUSE_S)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what it started
    if not done:
        os.waitpid(child, 0)
        return None
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None


def main() -> None:
    """Process requests until the end of stdin."""
    folder = Path(sys.argv[1])
    log = folder / "tests.log"
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        selected = folder / "selected_tests.txt"
        selected.write_text("\n".join(asked["tests"]))
        log.write_bytes(b"")
        child = os.fork()
        if not child:
            run(folder, [*asked["arguments"], f"@{selected}"], asked["cpu_s"], log)
        code = await_exit(child, asked["wall_s"])
        print(json.dumps({"code": code, "output": log.read_text(errors="replace")}), flush=True)


if __name__ == "__main__":
    main()
