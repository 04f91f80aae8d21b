# SPDX-License-Identifier: Apache-2.0
"""Run every command that writes under limits: on file size, on a full disk, in a read-only or forbidden
store.

    python scripts/campaign/disk.py --sizes 20 --findings FOLDER [--seed S] [--command NAME]

Guaranteed: exit code 2 or 3 with one to three lines (0 if nothing needs to be written), every run and output
file complete or absent, no temporary files left.  The full disk is a tmpfs, which needs root and is skipped
without.  Exit code 1 if a guarantee is violated.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from campaign import shared
from campaign.shared import COMMANDS, Desk

BREACHES = ("exit codes", "messages", "half runs", "half files", "leftovers")
MOUNT, UNMOUNT = (shutil.which(name) or name for name in ("mount", "umount"))
Options = dict[str, Any]


@contextmanager
def small_files(desk: Desk, chance: Random) -> Iterator[Options]:  # noqa: ARG001 - same signature for all
    """Limit the size of files to some KiB."""
    most = int(2 ** chance.uniform(0, 17))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    yield {"preexec_fn": limit}


@contextmanager
def full_disk(desk: Desk, chance: Random) -> Iterator[Options]:
    """Put the working folder, store and temporary files on a disk with some KiB free."""
    kept = desk.folder / "aside"
    desk.here.rename(kept)
    desk.here.mkdir()
    size = sum(size for size, _ in shared.snapshot(kept).values()) * 3 + int(2 ** chance.uniform(12, 19))
    subprocess.run([MOUNT, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(desk.here)], check=True)
    try:
        shutil.copytree(kept, desk.here, dirs_exist_ok=True)
        filler = desk.here / "source" / ".filler"
        free = os.statvfs(desk.here)
        filler.write_bytes(b"\0" * max(free.f_bavail * free.f_frsize - int(2 ** chance.uniform(12, 19)), 0))
        yield {}
        shutil.rmtree(kept)
        shutil.copytree(desk.here, kept, ignore=shutil.ignore_patterns(".filler"))
    finally:
        subprocess.run([UNMOUNT, str(desk.here)], check=True)
        desk.here.rmdir()
        kept.rename(desk.here)


def _drop_capabilities() -> None:
    """Drop root's capability to bypass permissions."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@contextmanager
def _with_mode(desk: Desk, mode: int) -> Iterator[Options]:
    desk.store.mkdir(exist_ok=True)
    desk.store.chmod(mode)
    try:
        yield {"preexec_fn": _drop_capabilities}
    finally:
        desk.store.chmod(0o755)


def read_only(desk: Desk, chance: Random) -> Any:  # noqa: ARG001 - same signature for all
    """A store without write permission."""
    return _with_mode(desk, 0o555)


def forbidden(desk: Desk, chance: Random) -> Any:  # noqa: ARG001
    """A store without any permission."""
    return _with_mode(desk, 0o000)


FAULTS: dict[str, tuple[Callable[[Desk, Random], Any], bool]] = {
    "small files": (small_files, False),
    "full disk": (full_disk, True),
    "read-only store": (read_only, False),
    "forbidden store": (forbidden, False),
}
"""By name: the fault, and whether it needs root."""


def run_under_fault(desk: Desk, name: str, fault: str, chance: Random, whole: bytes | None) -> dict[str, str]:
    """Run one command under one fault; the violations, by kind."""
    command, found = COMMANDS[name], {}
    desk.renew(runs=chance.random() < 0.5 or "{run}" in command.words)
    with FAULTS[fault][0](desk, chance) as options:
        done = desk.call(desk.words(command, chance.choice(command.jobs)), **options)
        stderr = done.stderr.strip()
    if done.returncode not in (0, 2, 3):
        found["exit codes"] = f"{done.returncode}: {stderr[-1500:]}"
    elif done.returncode and not 1 <= len(stderr.splitlines()) <= 3:
        found["messages"] = stderr[-1500:]
    if complaints := list(shared.damaged(desk.store)):
        found["half runs"] = complaints[0]
    if desk.output(command) not in (None, whole):
        found["half files"] = (
            f"{command.output} is neither absent nor whole after exit code {done.returncode}"
        )
    if strays := desk.strays():
        found["leftovers"] = ", ".join(strays[:5])
    return found


def main() -> int:
    """Run the campaign; returns 1 if a guarantee is violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, default=3, help="attempts at each command under each fault")
    parser.add_argument(
        "--command", action="append", choices=list(COMMANDS), help="only this one; repeatable"
    )
    parser.add_argument("--seed", default="1")
    parser.add_argument("--findings", type=Path, help="folder for inputs that violate a guarantee")
    asked = parser.parse_args()
    root = os.geteuid() == 0
    rows = {fault: Counter[str]() for fault, (_, needs_root) in FAULTS.items() if root or not needs_root}
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        whole = {}
        for name in asked.command or COMMANDS:
            desk.renew(runs=True)
            desk.call(desk.words(COMMANDS[name]))
            whole[name] = desk.output(COMMANDS[name])
            for number in range(asked.sizes):
                for fault, counts in rows.items():
                    chance = Random(f"{asked.seed}/{name}/{fault}/{number}")  # noqa: S311 - must be repeatable
                    found = run_under_fault(desk, name, fault, chance, whole[name])
                    counts.update(["commands", *found])
                    for kind, words in found.items():
                        print(f"{fault}: {name}: {kind}: {words}", flush=True)
                        if asked.findings:
                            told = {
                                "seed": asked.seed,
                                "number": number,
                                "fault": fault,
                                "kind": kind,
                                "told": words,
                            }
                            told["words"] = desk.words(COMMANDS[name])
                            shared.keep(
                                asked.findings,
                                f"disk-{fault}-{name}-{number}-{kind}".replace(" ", "-"),
                                {},
                                told,
                            )
    skipped = [{"fault": fault, "commands": "skipped"} for fault in FAULTS if fault not in rows]
    keys = ("commands", *BREACHES)
    shown = [{"fault": fault, **{key: counts[key] for key in keys}} for fault, counts in rows.items()]
    shared.show([*shown, *({**dict.fromkeys(keys, ""), **row} for row in skipped)])
    return int(any(counts[kind] for counts in rows.values() for kind in BREACHES))


if __name__ == "__main__":
    sys.exit(main())
