# SPDX-License-Identifier: Apache-2.0
"""Kill commands at a random moment, and damage tables of runs; check what is left and what is reported.

    python scripts/campaign/kill.py --kills 1000 --changes 100 --findings FOLDER [--seed S] [--command NAME]

Guaranteed: every run in the store and the output file are complete or absent; no temporary files, shared
memory or semaphores are left (after SIGKILL: once processes have been started again and the command was
repeated); SIGINT ends with 130, SIGTERM with 143, with at most one line on stderr.

Guaranteed for a run with a lost, truncated, extended, replaced or additional table: each command that opens
it ends with exit code 3, names the table and writes nothing; `verify --run` detects it; and naming the source
ingests the run again.  Exit code 1 if a guarantee is violated.

Semaphores of other programs that run at the same time count as leftovers, unless /dev/shm is private, as with
`unshare -m sh -c 'mount -t tmpfs none /dev/shm && python scripts/campaign/kill.py'`.
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
from collections.abc import Sequence
from random import Random
from tempfile import TemporaryDirectory

from campaign import shared
from campaign.shared import COMMANDS, Command, Desk

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
BREACHES = ("half runs", "half files", "leftovers", "exit codes", "messages", "still running")
NEEDS_NO_RUN = ("run", "ingest", "whatif", "contribute", "import")
CHANGES = ("lost", "cut", "lengthened", "replaced", "joined")
READING = ("metrics", "report", "compare", "timeline", "open", "hardware calibrate")
"""Commands that open a run of the store."""
OF_CHANGES = ("accepted", "half files", "not named", "not made again")
GRACE_S = 10.0
"""Time that workers may outlive the command."""


def group_ended(group: int) -> bool:
    """Whether all processes of the group end within `GRACE_S`; kills the others."""
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
    """Signal one command after that time; the violations, by kind."""
    command, found = COMMANDS[name], {}
    desk.renew(runs=name not in NEEDS_NO_RUN)
    process = desk.start(desk.words(command, jobs))
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        # A terminal sends Ctrl-C to the whole group.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    stderr = process.communicate()[1]
    if not group_ended(process.pid):
        found["still running"] = f"workers {GRACE_S:.0f} s after the command"
    allowed = {0, -number} if number == signal.SIGKILL else {0, 128 + number, -number}
    if process.returncode not in allowed:
        found["exit codes"] = f"{process.returncode} after {number.name}"
    # A signal after the work is done leaves both lines.
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("wrote ")]
    if number != signal.SIGKILL and len(lines) > 1:
        found["messages"] = stderr.strip()[-1500:]
    if number == signal.SIGKILL:
        # A command without stored results, so that it starts processes.
        desk.call([*desk.words(COMMANDS["run"], 2), "--window", "trace"])
    if complaints := list(shared.damaged(desk.store)):
        found["half runs"] = complaints[0]
    if desk.output(command) not in (None, whole):
        found["half files"] = f"{command.output} is neither absent nor whole"
    if number == signal.SIGKILL:
        desk.call(desk.words(command, jobs))
    if strays := desk.strays():
        found["leftovers"] = ", ".join(strays[:5])
    return found


def change(table: Path, other: Path, kind: str) -> None:
    """Damage a table of a run; `other` replaces it for the kind `replaced`."""
    content = table.read_bytes()
    if kind == "lost":
        table.unlink()
    elif kind == "joined":
        table.with_name(f"{table.stem}-copy.parquet").write_bytes(content)
    else:
        changed = {"cut": content[:-1], "lengthened": content + b"\0", "replaced": other.read_bytes()}
        table.write_bytes(changed[kind])


def change_run(desk: Desk, names: Sequence[str], kind: str, chance: Random) -> dict[str, str]:
    """Damage one table of a run and open the run with those commands; the violations, by kind."""
    desk.renew(runs=True)
    found: dict[str, str] = {}
    path = desk.store / desk.run
    tables = sorted(set(path.rglob("*.parquet")) - {path / "results.parquet"})
    table = chance.choice(tables)
    # A table of the same size is detected only by commands that read it.
    other = chance.choice([each for each in tables if each.stat().st_size != table.stat().st_size])
    change(table, other, kind)
    place = f"{table.relative_to(path)} {kind}"
    for name in names:
        done = desk.call(desk.words(COMMANDS[name]))
        if done.returncode != 3:
            found["accepted"] = f"{place}: {name}: exit code {done.returncode}"
        if str(table.relative_to(path)).removesuffix(".parquet") not in done.stderr:
            found["not named"] = f"{place}: {name}: {done.stderr.strip()}"
        if desk.output(COMMANDS[name]) is not None:
            found["half files"] = f"{place}: {name}: {COMMANDS[name].output} is there"
    if desk.call(["verify", "--run", desk.run]).returncode != 3:
        found["accepted"] = f"{place}: verify"
    again = desk.call(["ingest", "source", "--jobs", "1", "-q"])
    if again.returncode or desk.call(["verify", "--run", desk.run]).returncode:
        found["not made again"] = f"{place}: {again.stderr.strip()}"
    return found


def change_runs(desk: Desk, names: Sequence[str], number: int, seed: str) -> dict[str, Counter[str]]:
    """Damage `number` runs; returns and prints the violations, counted by kind of change."""
    counts = {kind: Counter[str]() for kind in CHANGES}
    for at in range(number if names else 0):
        kind = CHANGES[at % len(CHANGES)]
        found = change_run(desk, names, kind, Random(f"{seed}/changed/{at}"))  # noqa: S311 - must be repeatable
        counts[kind].update(["runs", *found])
        print(*(f"changed {at}: {words}" for words in found.values()), sep="\n", end="\n" * bool(found))
    return counts


def run_undisturbed(desk: Desk, name: str, command: Command, jobs: int) -> tuple[float, bytes | None]:
    """Duration and output of the command without a signal."""
    desk.renew(runs=name not in NEEDS_NO_RUN)
    began = time.monotonic()
    done = desk.call(desk.words(command, jobs))
    if done.returncode:
        raise RuntimeError(f"{name}: exit code {done.returncode}: {done.stderr.strip()}")
    return time.monotonic() - began, desk.output(command)


def main() -> int:
    """Run the campaign; returns 1 if a guarantee is violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=66, help="total number")
    parser.add_argument("--changes", type=int, default=10, help="total number of runs with a damaged table")
    parser.add_argument(
        "--command", action="append", choices=list(COMMANDS), help="only this one; repeatable"
    )
    parser.add_argument("--seed", default="1")
    parser.add_argument("--findings", type=Path, help="folder for inputs that violate a guarantee")
    asked = parser.parse_args()
    cases = [(name, jobs) for name in asked.command or COMMANDS for jobs in COMMANDS[name].jobs]
    counts: dict[tuple[str, int], Counter[str]] = {case: Counter() for case in cases}
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        alone = {}
        for number in range(asked.kills):
            chance = Random(f"{asked.seed}/{number}")  # noqa: S311 - must be repeatable, not unpredictable
            name, jobs = case = cases[number % len(cases)]
            if case not in alone:
                alone[case] = run_undisturbed(desk, name, COMMANDS[name], jobs)
            lasts_s, whole = alone[case]
            sent, after_s = chance.choice(SIGNALS), chance.uniform(0, lasts_s)
            found = kill(desk, name, jobs, sent, after_s, whole)
            counts[case].update(["kills", *found])
            for kind, words in found.items():
                print(
                    f"{number}: {name} --jobs {jobs}, {sent.name} after {after_s:.3f} s: {kind}: {words}",
                    flush=True,
                )
                if asked.findings:
                    record = {"seed": asked.seed, "number": number, "words": desk.words(COMMANDS[name], jobs)}
                    record |= {"signal": sent.name, "after_s": after_s, "kind": kind, "told": words}
                    shared.keep(asked.findings, f"kill-{number}-{kind.replace(' ', '-')}", {}, record)
        names = [name for name in READING if name in (asked.command or READING)]
        changed = change_runs(desk, names, asked.changes, asked.seed)
    of_changes = [
        {"table": kind, **{key: counted[key] for key in ("runs", *OF_CHANGES)}}
        for kind, counted in changed.items()
        if counted
    ]
    rows = [
        {"command": name, "jobs": jobs, **{key: counts[name, jobs][key] for key in ("kills", *BREACHES)}}
        for name, jobs in cases
        if counts[name, jobs]
    ]
    for table in filter(None, (of_changes, rows)):
        shared.show(table)
    broken = any(row[kind] for row in rows for kind in BREACHES)
    return int(broken or any(row[kind] for row in of_changes for kind in OF_CHANGES))


if __name__ == "__main__":
    sys.exit(main())
