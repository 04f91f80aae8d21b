# SPDX-License-Identifier: Apache-2.0
"""Shared by the campaigns: tables, findings, and a clean environment for a command."""

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

from cclbench.ground.evidence_schema import EVIDENCE
from cclbench.record.store import Store

SETTLES_S = 2.0
"""Time after which a leftover counts as one."""
CCLBENCH = [sys.executable, "-m", "cclbench"]


def clean_environment(temporary: Path) -> dict[str, str]:
    """Environment for a command of this checkout, with its temporary files in a separate folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CCLBENCH_")}
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(temporary), "COLUMNS": "80"}


def snapshot(*folders: Path) -> dict[str, tuple[int, int]]:
    """Size and modification time of every file below the folders; (0, 0) for a folder."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            stat = path.lstat()
            found[str(path)] = (0, 0) if path.is_dir() else (stat.st_size, stat.st_mtime_ns)
    return found


def leftovers(temporary: Path) -> list[str]:
    """Leftovers of processes: temporary files, and unused shared semaphores and memory."""
    shared = Path("/dev/shm")  # noqa: S108 - looked at, not written
    names = {path.name for path in shared.iterdir()} if shared.is_dir() else set()
    left = {name for name in names if name.startswith(("sem.mp-", "psm_", "pym-"))}
    for maps in Path("/proc").glob("[0-9]*/maps") if left else ():
        with suppress(OSError):
            left -= set(re.findall(rf"{shared}/(\S+)", maps.read_text()))
    return sorted([*left, *(str(path) for path in temporary.iterdir())])


def keep(folder: Path, name: str, files: Files, record: Mapping[str, Any]) -> None:
    """Write a finding: its files below `input/`, and a record of what happened and how to repeat it."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    write(folder / name / "input", files)
    (folder / name / "finding.json").write_text(json.dumps(record, indent=1) + "\n")


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same keys as a table."""
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


# ---------------------------------------------------------- commands that write, and their folder


@dataclass(frozen=True)
class Command:
    """A command that writes: its words, and its output file or folder."""

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
    """A working folder with sources, a card and a store of two runs, restored for each command."""

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
        """The command's words, with the ids of the runs."""
        return command.words.format(run=self.run, other=self.other, jobs=jobs).split()

    def renew(self, *, runs: bool) -> None:
        """Restore the folder, with the two runs or an empty store."""
        shutil.rmtree(self.here)
        shutil.copytree(self._clean, self.here)
        if runs:
            shutil.copytree(self._runs, self.store)

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start `cclbench WORDS` in the folder, in a new process group."""
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        place = {"cwd": self.here, "env": clean_environment(self.temporary), "start_new_session": True}
        return subprocess.Popen([*CCLBENCH, *words], **{**streams, **place, **options})

    def call(self, words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `cclbench WORDS` and wait for it."""
        process = self.start(words, **options)
        stderr = process.communicate()[1]
        return subprocess.CompletedProcess(words, process.returncode, "", stderr)

    def output(self, command: Command) -> bytes | None:
        """Output of the command: a file's bytes or a folder's listing; None if there is none."""
        path = self.here / (command.output or "nothing")
        if path.is_dir():
            # The next command removes hidden folders of killed ones.
            shown = (p.relative_to(path) for p in sorted(path.rglob("*")))
            listed = [str(name) for name in shown if not name.parts[0].startswith(".")]
            return "\n".join(listed).encode() if listed else None
        return path.read_bytes() if path.is_file() else None

    def strays(self) -> list[str]:
        """Files that no command may leave: unknown files, hidden files in the store, new `leftovers`."""
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
            time.sleep(SETTLES_S)  # resource trackers of other processes may still remove it
            new &= set(leftovers(self.temporary))
        for name in new:
            # Removed, so that it is reported once.
            shutil.rmtree(name, ignore_errors=True)
        self._before = leftovers(self.temporary)
        return [*found, *sorted(new)]


def _board() -> bytes:
    row = {"trace": "a", "metadata": {"workload_name": "llama"}, "metrics": {"avg_step_time": 1.5}}
    return json.dumps({"rows": [row]}).encode()


def damaged(store: Path) -> Iterator[str]:
    """Damage of a store's runs: each must open, all its tables must be readable, all hashes must agree."""
    for run in Store(store).runs():
        try:
            _ = run.record, run.groups(), run.collectives(), run.steps(), run.events(), run.saved_results
            for table in EVIDENCE:
                run.evidence(table)
            for change in run.verify_files().changes:
                yield f"{run.id}: {change.path}: {change.what}"
        except Exception as error:  # noqa: BLE001 - any error is damage
            yield f"{run.id}: {type(error).__name__}: {error}"
