# SPDX-License-Identifier: Apache-2.0
"""Verdicts on captures while their job runs: `python -m cclbench.capture.verdicts LOG WORLD`.

The job writes a line of JSON to this process for each capture, `{"step": 999, "folder": "traces/my-job"}`.
Captures are read one after another, at the lowest priority, and each adds a line to LOG: the step, the
folder, and the brief answer of `cclbench run`, or the error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cclbench.ground.text import cut_text

TRACES: Final = "rank*_trace.json.gz"
_PATIENCE_S: Final = 120.0
"""Seconds to wait for the traces of other ranks."""
_POLL_S: Final = 0.2
_LOWEST: Final = 19


class VerdictWriter:
    """The process that writes verdicts, as its job sees it; it is started by the first capture."""

    def __init__(self, log: Path, world: int) -> None:
        self._log, self._world = log, world
        self._process: subprocess.Popen[str] | None = None

    def announce(self, step: int, folder: Path) -> None:
        """Have the capture of a step read, without waiting for that."""
        if self._process is None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "cclbench.capture.verdicts", str(self._log), str(self._world)],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C ends the job, which ends this
            )
        assert self._process.stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):  # it has failed, and said why
            print(json.dumps({"step": step, "folder": str(folder)}), file=self._process.stdin, flush=True)

    def close(self) -> None:
        """Wait until all captures are read."""
        if self._process is not None:
            with suppress(BrokenPipeError):
                self._process.communicate()


def verdict_of(capture: Mapping[str, Any], world: int) -> dict[str, Any]:
    """The line for a capture, once the traces of all ranks are there, or `_PATIENCE_S` have passed."""
    folder, deadline = Path(capture["folder"]), time.monotonic() + _PATIENCE_S
    while (ranks := len(list(folder.glob(TRACES)))) < world and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    command = [sys.executable, "-m", "cclbench", "run", str(folder), "--jobs", "1", "--json", "--brief"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - cclbench itself
    answer = json.loads(done.stdout) if done.returncode == 0 else {"error": cut_text(done.stderr.strip())}
    missing = {"missing_ranks": world - ranks} if ranks < world else {}
    return {**capture, **missing, **answer}


def main() -> None:
    """Write the verdicts on all captures that stdin names."""
    log, world = Path(sys.argv[1]), int(sys.argv[2])
    os.nice(_LOWEST)
    for line in sys.stdin:
        verdict = verdict_of(json.loads(line), world)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(verdict, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
