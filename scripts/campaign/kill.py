# SPDX-License-Identifier: Apache-2.0
"""Every command that writes, ended by SIGKILL, SIGTERM or SIGINT at a random moment: what is left?

    python scripts/campaign/kill.py --kills 1000 --findings FOLDER [--seed S] [--command NAME]

Promised is: every run in the store is whole or absent, as is the output file; nothing temporary is left, nor
shared memory or semaphores (after SIGKILL: once processes were started again); SIGINT ends with 130, SIGTERM
with 143, with at most one line on stderr.  Exit code 1 where a promise was broken.

Semaphores are the machine's: what other programs make meanwhile counts as left behind, unless /dev/shm is
this script's own, as by `unshare -m sh -c 'mount -t tmpfs none /dev/shm && python scripts/campaign/kill.py'`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import argparse
import os
import signal
import subprocess
import time
from collections import Counter
from random import Random
from tempfile import TemporaryDirectory

from campaign import shared
from campaign.shared import COMMANDS, Command, Desk

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
BREACHES = ("half runs", "half files", "leftovers", "exit codes", "messages", "still running")
NEEDS_NO_RUN = ("run", "ingest", "whatif", "contribute", "import")
GRACE_S = 10.0
"""How long workers may outlive the command."""


def group_ended(group: int) -> bool:
    """Whether no process of the group is left, within `GRACE_S`; ends what is."""
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    os.killpg(group, signal.SIGKILL)
    return False


def kill(
    desk: Desk, name: str, jobs: int, number: signal.Signals, after_s: float, whole: bytes | None
) -> dict[str, str]:
    """End one command after that time; the broken promises, by kind."""
    command, found = COMMANDS[name], {}
    desk.renew(runs=name not in NEEDS_NO_RUN)
    process = desk.start(desk.words(command, jobs))
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        # A terminal sends Ctrl-C to the whole group.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    told = process.communicate()[1]
    if not group_ended(process.pid):
        found["still running"] = f"workers {GRACE_S:.0f} s after the command"
    allowed = {0, -number} if number == signal.SIGKILL else {0, 128 + number, -number}
    if process.returncode not in allowed:
        found["exit codes"] = f"{process.returncode} after {number.name}"
    # What came after the work was done leaves both lines.
    lines = [line for line in told.splitlines() if line.strip() and not line.startswith("wrote ")]
    if number != signal.SIGKILL and len(lines) > 1:
        found["messages"] = told.strip()[-1500:]
    if number == signal.SIGKILL:
        # One that the store has no results for, so that it starts processes.
        desk.call([*desk.words(COMMANDS["run"], 2), "--window", "trace"])
    if complaints := list(shared.damaged(desk.store)):
        found["half runs"] = complaints[0]
    if desk.output(command) not in (None, whole):
        found["half files"] = f"{command.output} is neither absent nor whole"
    if strays := desk.strays():
        found["leftovers"] = ", ".join(strays[:5])
    return found


def measured(desk: Desk, name: str, command: Command, jobs: int) -> tuple[float, bytes | None]:
    """How long the command takes when left alone, and what it makes."""
    desk.renew(runs=name not in NEEDS_NO_RUN)
    began = time.monotonic()
    done = desk.call(desk.words(command, jobs))
    if done.returncode:
        raise RuntimeError(f"{name}: exit code {done.returncode}: {done.stderr.strip()}")
    return time.monotonic() - began, desk.output(command)


def main() -> int:
    """The campaign; exit code 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=66, help="in all")
    parser.add_argument(
        "--command", action="append", choices=list(COMMANDS), help="only this one; repeatable"
    )
    parser.add_argument("--seed", default="1")
    parser.add_argument("--findings", type=Path, help="folder for what breaks a promise")
    wishes = parser.parse_args()
    cases = [(name, jobs) for name in wishes.command or COMMANDS for jobs in COMMANDS[name].jobs]
    counts: dict[tuple[str, int], Counter[str]] = {case: Counter() for case in cases}
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        alone = {}
        for number in range(wishes.kills):
            chance = Random(f"{wishes.seed}/{number}")  # noqa: S311 - wants repeating, not guessing
            name, jobs = case = cases[number % len(cases)]
            if case not in alone:
                alone[case] = measured(desk, name, COMMANDS[name], jobs)
            lasts_s, whole = alone[case]
            sent, after_s = chance.choice(SIGNALS), chance.uniform(0, lasts_s)
            found = kill(desk, name, jobs, sent, after_s, whole)
            counts[case].update(["kills", *found])
            for kind, words in found.items():
                print(
                    f"{number}: {name} --jobs {jobs}, {sent.name} after {after_s:.3f} s: {kind}: {words}",
                    flush=True,
                )
                if wishes.findings:
                    told = {"seed": wishes.seed, "number": number, "words": desk.words(COMMANDS[name], jobs)}
                    told |= {"signal": sent.name, "after_s": after_s, "kind": kind, "told": words}
                    shared.keep(wishes.findings, f"kill-{number}-{kind.replace(' ', '-')}", {}, told)
    rows = [
        {"command": name, "jobs": jobs, **{key: counts[name, jobs][key] for key in ("kills", *BREACHES)}}
        for name, jobs in cases
        if counts[name, jobs]
    ]
    shared.show(rows)
    return int(any(row[kind] for row in rows for kind in BREACHES))


if __name__ == "__main__":
    sys.exit(main())
