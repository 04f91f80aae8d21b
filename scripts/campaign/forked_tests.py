# SPDX-License-Identifier: Apache-2.0
"""Runs tests of a checkout, each time in a fork that has the libraries loaded but not cclbench.

    python scripts/campaign/forked_tests.py FOLDER

A line of stdin is {"tests": [...], "arguments": [...], "cpu_s": ..., "wall_s": ...}; the answer is a line
of stdout, {"code": ..., "output": ...}: what pytest ends with, null where a limit ended it.
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
"""What most tests import, in a second; none starts a thread, which a fork would lack.  Plug-ins of pytest are
not among them: it rewrites their assertions when they are imported."""
PAUSE_S = 0.02
FAILED = 3
"""What pytest ends with after an error of its own."""


def run(folder: Path, arguments: list[str], cpu_s: int, log: Path) -> None:
    """In the fork: run pytest on the folder's own cclbench, and end with its code."""
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
    except Exception:  # noqa: BLE001 - whatever it is, its text is the answer
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int, wall_s: float) -> int | None:
    """The exit code of the fork once it has ended, None where a signal or the time did that."""
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
    """Answer requests until there are no more."""
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
        code = ended(child, asked["wall_s"])
        print(json.dumps({"code": code, "output": log.read_text(errors="replace")}), flush=True)


if __name__ == "__main__":
    main()
