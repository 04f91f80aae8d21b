# SPDX-License-Identifier: Apache-2.0
"""Measure wall time, CPU time and peak memory of a command with all its processes."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PAUSE_S = 0.01
SHARE = 0.1  # of one core at most, for sampling: walking the pages of some GB takes 20 ms


@dataclass(frozen=True)
class Measurement:
    """Times, peak memory and output of a command."""

    wall_s: float
    cpu_s: float
    """User and system time of all its processes."""
    peak_bytes: int
    largest_bytes: int
    """The most that a single process of it had resident, pages that it shares among them."""
    stdout: str


class CommandError(Exception):
    """A measured command with an exit code other than 0."""


def _read(pid: str, name: str) -> str:
    """A file of a process under /proc, empty if the process has ended."""
    try:
        return Path("/proc", pid, name).read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def members(session: int) -> list[str]:
    """The processes of a session: its number follows state, parent and group in /proc/PID/stat."""
    pids = [entry.name for entry in os.scandir("/proc") if entry.name.isdecimal()]
    return [pid for pid in pids if _read(pid, "stat").rpartition(")")[2].split()[3:4] == [str(session)]]


def resident_bytes(pids: list[str]) -> int:
    """Sum of the resident sets: fast to read, an upper bound of the proportional one."""
    sets = (_read(pid, "statm").split()[1:2] for pid in pids)
    return sum(int(pages) for known in sets for pages in known) * os.sysconf("SC_PAGESIZE")


def proportional_bytes(pids: list[str]) -> int:
    """Sum of the proportional sets (Pss): a page that n processes share counts 1/n in each."""
    lines = (line.split() for pid in pids for line in _read(pid, "smaps_rollup").splitlines())
    return sum(int(line[1]) for line in lines if line[0] == "Pss:") * 1024


class Sampler(threading.Thread):
    """Samples a session until stopped; `peak_bytes` is the largest sum of Pss."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.session = session
        self.peak_bytes = 0
        self.largest_bytes = 0
        self.ended = threading.Event()

    def run(self) -> None:
        pause = 0.0
        while not self.ended.wait(pause):
            began = time.thread_time()
            pids = members(self.session)
            self.largest_bytes = max(self.largest_bytes, *(resident_bytes([pid]) for pid in pids), 0)
            if resident_bytes(pids) > self.peak_bytes:
                self.peak_bytes = max(self.peak_bytes, proportional_bytes(pids))
            pause = max(PAUSE_S, (time.thread_time() - began) / SHARE)


def _adopt_orphans() -> None:
    """Make this process the parent of orphans, so that their CPU time is counted (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _cpu_of_children(group: int | None = None) -> float:
    """CPU time of all ended children, s; waits for those of the process group that have not ended yet."""
    with suppress(ChildProcessError):
        while group is not None:
            os.waitpid(-group, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(command: list[str], folder: Path, *, memory: bool = True) -> Measurement:
    """Run a command in `folder`, in a session of its own, and measure it; raises CommandError.

    Sampling `memory` takes up to `SHARE` of a core; without it, the peaks are 0.
    """
    _adopt_orphans()
    before = _cpu_of_children()
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=stdout, stderr=stderr, start_new_session=True)
        sampler = Sampler(process.pid)
        if memory:
            sampler.start()
        try:
            code = process.wait()
            wall_s = time.perf_counter() - began
        finally:
            if process.returncode is None:  # interrupted: the session does not hear of it by itself
                os.killpg(process.pid, signal.SIGKILL)
            sampler.ended.set()
            if memory:
                sampler.join()
        cpu_s = _cpu_of_children(process.pid) - before
        stdout.seek(0)
        stderr.seek(0)
        if code:
            last = (stderr.read().strip().splitlines() or ["no message"])[-1]
            raise CommandError(f"{' '.join(command[:4])} ... ended with {code}: {last}")
        return Measurement(wall_s, cpu_s, sampler.peak_bytes, sampler.largest_bytes, stdout.read())
