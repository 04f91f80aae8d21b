# SPDX-License-Identifier: Apache-2.0
"""Commands ended by a signal at a random moment, and runs that lost a table: what is left, what is told?

    python scripts/campaign/kill.py --kills 1000 --changes 100 --findings FOLDER [--seed S] [--command NAME]

Promised is: every run in the store is whole or absent, as is the output file; nothing temporary is left, nor
shared memory or semaphores (after SIGKILL: once processes were started again, and the command was repeated);
SIGINT ends with 130, SIGTERM with 143, with at most one line on stderr.

Of a run one of whose tables was lost, cut, lengthened, replaced or joined by a further one it is promised
that each command that opens it ends with exit code 3, names the table and makes nothing, that `verify --run`
finds it, and that naming the source makes the run as it was.  Exit code 1 where a promise was broken.

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
    if number == signal.SIGKILL:
        desk.call(desk.words(command, jobs))
    if strays := desk.strays():
        found["leftovers"] = ", ".join(strays[:5])
    return found


def change(table: Path, other: Path, kind: str) -> None:
    """Change a table of a run in that way; `other` is another one."""
    content = table.read_bytes()
    if kind == "lost":
        table.unlink()
    elif kind == "joined":
        table.with_name(f"{table.stem}-copy.parquet").write_bytes(content)
    else:
        changed = {"cut": content[:-1], "lengthened": content + b"\0", "replaced": other.read_bytes()}
        table.write_bytes(changed[kind])


def change_run(desk: Desk, names: Sequence[str], kind: str, chance: Random) -> dict[str, str]:
    """Change one table of a run and open it by those commands; the broken promises, by kind."""
    desk.renew(runs=True)
    found: dict[str, str] = {}
    path = desk.store / desk.run
    tables = sorted(set(path.rglob("*.parquet")) - {path / "results.parquet"})
    table = chance.choice(tables)
    # One of the same size is told from it by those alone who read it.
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


def changes(desk: Desk, names: Sequence[str], number: int, seed: str) -> dict[str, Counter[str]]:
    """So many changed runs; the broken promises by kind of change, counted and told."""
    counts = {kind: Counter[str]() for kind in CHANGES}
    for at in range(number if names else 0):
        kind = CHANGES[at % len(CHANGES)]
        found = change_run(desk, names, kind, Random(f"{seed}/changed/{at}"))  # noqa: S311 - wants repeating
        counts[kind].update(["runs", *found])
        print(*(f"changed {at}: {words}" for words in found.values()), sep="\n", end="\n" * bool(found))
    return counts


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
    parser.add_argument("--changes", type=int, default=10, help="runs with a changed table, in all")
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
        names = [name for name in READING if name in (wishes.command or READING)]
        changed = changes(desk, names, wishes.changes, wishes.seed)
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
