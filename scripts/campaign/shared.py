# SPDX-License-Identifier: Apache-2.0
"""What the campaigns have in common: their table, their findings, clean surroundings for a command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.seeds import REPOSITORY, Files, kineto, write

from cclbench.ground.schema import EVIDENCE
from cclbench.record.store import Store

SETTLES_S = 2.0
"""How long what looks left over may yet be removed."""
CCLBENCH = [sys.executable, "-m", "cclbench"]


def surroundings(temporary: Path) -> dict[str, str]:
    """The environment of a command of this checkout whose temporary files lie in a folder of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CCLBENCH_")}
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(temporary), "COLUMNS": "80"}


def snapshot(*folders: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file below those folders; of a folder (0, 0)."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            told = path.lstat()
            found[str(path)] = (0, 0) if path.is_dir() else (told.st_size, told.st_mtime_ns)
    return found


def leftovers(temporary: Path) -> list[str]:
    """What processes left behind: temporary files, and shared semaphores and memory that no process uses."""
    shared = Path("/dev/shm")  # noqa: S108 - looked at, not written
    names = {path.name for path in shared.iterdir()} if shared.is_dir() else set()
    left = {name for name in names if name.startswith(("sem.mp-", "psm_", "pym-"))}
    for maps in Path("/proc").glob("[0-9]*/maps") if left else ():
        with suppress(OSError):
            left -= set(re.findall(rf"{shared}/(\S+)", maps.read_text()))
    return sorted([*left, *(str(path) for path in temporary.iterdir())])


def keep(folder: Path, name: str, files: Files, told: Mapping[str, Any]) -> None:
    """Write a finding: its files below `input/`, and what happened with how to see it again."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    write(folder / name / "input", files)
    (folder / name / "finding.json").write_text(json.dumps(told, indent=1) + "\n")


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows of the same keys as one table."""
    names = list(rows[0])
    cells = [
        names,
        *([f"{row[n]:,}" if isinstance(row[n], int) else str(row[n]) for n in names] for row in rows),
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    for line in cells:
        first, *rest = (
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join([first, *rest]))


# ------------------------------------------------------------------ commands that write, and where


@dataclass(frozen=True)
class Command:
    """A command that writes: its words, and the file or folder that it makes."""

    words: str
    output: str | None = None
    jobs: tuple[int, ...] = (1, 2)


COMMANDS = {
    "run": Command("run source --jobs {jobs} -q"),
    "ingest": Command("ingest source --jobs {jobs} -q"),
    "metrics": Command("metrics {run} --jobs {jobs} -q"),
    "report": Command("report {run} --jobs {jobs} -o out.html -q", "out.html"),
    "compare": Command("compare {run} {other} --jobs {jobs} -o out.html -q", "out.html"),
    "timeline": Command("timeline {run} --jobs {jobs} -o out.svg", "out.svg"),
    "open": Command("open {run} --jobs {jobs} -o out.json", "out.json"),
    "whatif": Command("whatif source --set kernels.time=x0.9 --jobs {jobs} -q"),
    "contribute": Command(
        "contribute card.yaml --traces source --scripts scripts --licence Apache-2.0 --no-input --allow-gaps"
        " --collection out --jobs {jobs} -q",
        "out",
    ),
    "remove": Command("remove {run} --yes", jobs=(1,)),
    "import": Command("import ccl-bench board.json", jobs=(1,)),
    "hardware calibrate": Command("hardware calibrate {run} --system dgx-h100 -o out.yaml", "out.yaml", (1,)),
}
CARD = """\
version: 2
id: tiny
description: Two simulated ranks.
workload: {phase: training}
hardware: {accelerator: nvidia-h100-sxm, count: 2, per_node: 2}
"""


class Desk:
    """A working folder with sources, a card and a store of two runs, made anew for each command."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temporary = folder, folder / "tmp"
        self.here, self.store, self._clean = folder / "here", folder / "here" / "runs", folder / "clean"
        sources = kineto()
        first = {name: data for name, data in sources.items() if name.startswith("rank0")}
        self.temporary.mkdir(parents=True)
        self._before = leftovers(self.temporary)
        write(self._clean / "source", sources)
        write(self._clean / "first", first)
        write(self._clean / "scripts", {"run.sh": b"true\n"})
        write(self._clean, {"card.yaml": CARD.encode(), "board.json": _board()})
        (self._clean / "out").mkdir()
        shutil.copytree(self._clean, self.here)
        for source in ("source", "first"):
            self.call(["run", source, "--jobs", "1"]).check_returncode()
        self.run, self.other = sorted((run.id for run in Store(self.store).runs()), reverse=True)
        self._runs = folder / "kept"
        shutil.copytree(self.store, self._runs)

    def words(self, command: Command, jobs: int = 1) -> list[str]:
        """The command's words, of these runs."""
        return command.words.format(run=self.run, other=self.other, jobs=jobs).split()

    def renew(self, *, runs: bool) -> None:
        """The folder as it was, with the two runs or an empty store."""
        shutil.rmtree(self.here)
        shutil.copytree(self._clean, self.here)
        if runs:
            shutil.copytree(self._runs, self.store)

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Begin `cclbench WORDS` in the folder, in a process group of its own."""
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        place = {"cwd": self.here, "env": surroundings(self.temporary), "start_new_session": True}
        return subprocess.Popen([*CCLBENCH, *words], **{**streams, **place, **options})

    def call(self, words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """`cclbench WORDS` to its end."""
        process = self.start(words, **options)
        told = process.communicate()[1]
        return subprocess.CompletedProcess(words, process.returncode, "", told)

    def output(self, command: Command) -> bytes | None:
        """What the command made: a file's bytes, a folder's listing; None where there is nothing."""
        path = self.here / (command.output or "nothing")
        if path.is_dir():
            # The next command sweeps hidden folders of those that were killed.
            shown = (p.relative_to(path) for p in sorted(path.rglob("*")))
            listed = [str(name) for name in shown if not name.parts[0].startswith(".")]
            return "\n".join(listed).encode() if listed else None
        return path.read_bytes() if path.is_file() else None

    def strays(self) -> list[str]:
        """What no command is to leave: files here, hidden ones in the store, `leftovers` that are new."""
        known = {path.name for path in self._clean.iterdir()} | {
            "runs",
            "out.html",
            "out.svg",
            "out.json",
            "out.yaml",
        }
        hidden = self.store.glob(".*") if self.store.is_dir() else ()
        found = [p.name for p in self.here.iterdir() if p.name not in known] + [p.name for p in hidden]
        if new := set(leftovers(self.temporary)) - set(self._before):
            time.sleep(SETTLES_S)  # what trackers of other processes are about to remove is not left
            new &= set(leftovers(self.temporary))
        for name in new:
            # Told once: what a later command leaves is its own.
            shutil.rmtree(name, ignore_errors=True)
        self._before = leftovers(self.temporary)
        return [*found, *sorted(new)]


def _board() -> bytes:
    row = {"trace": "a", "metadata": {"workload_name": "llama"}, "metrics": {"avg_step_time": 1.5}}
    return json.dumps({"rows": [row]}).encode()


def damaged(store: Path) -> Iterator[str]:
    """What is wrong with the runs of a store: each must open, all its tables read, all hashes agree."""
    for run in Store(store).runs():
        try:
            _ = run.record, run.groups(), run.collectives(), run.steps(), run.events(), run.saved_results
            for table in EVIDENCE:
                run.evidence(table)
            for change in run.verify_files().changes:
                yield f"{run.id}: {change.path}: {change.what}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is found
            yield f"{run.id}: {type(error).__name__}: {error}"
