# SPDX-License-Identifier: Apache-2.0
"""Many processes that read, compute, report and delete the same and other runs in one store at once.

    python scripts/campaign/concurrency.py --rounds 10 --processes 8 --findings FOLDER [--seed S]

Promised is: each command succeeds, or says in one to three lines that a run is not there where another
process may have deleted it; every run is whole in the end; nothing temporary is left; and what the store then
tells of every source is what a store of its own tells.  Exit code 1 where a promise was broken.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import argparse
import shutil
import subprocess
from collections import Counter
from random import Random
from tempfile import TemporaryDirectory

from campaign import meaning, shared
from campaign.shared import Desk

from cclbench.record.store import Store

BREACHES = ("exit codes", "messages", "damaged runs", "leftovers", "other results")


def script(desk: Desk, chance: Random, number: int, *, deleting: bool) -> list[list[str]]:
    """The commands of one process, one after another; `delete` removes a run's folder as people do."""
    listed = []
    for at in range(chance.randint(1, 3)):
        source = chance.choice(("source", "first"))
        run = desk.run if source == "source" else desk.other
        choices = [
            ["ingest", source, "--jobs", "1", "-q"],
            ["run", source, "--jobs", "1", "-q"],
            ["metrics", run, "--jobs", "1", "-q"],
            ["report", run, "--jobs", "1", "-o", f"{number}-{at}.html", "-q"],
            ["sql", run, "SELECT count(*) FROM events"],
            ["list", "runs"],
        ]
        listed.append(chance.choice([*choices, *[["delete", run]] * deleting]))
    return listed


def at_once(desk: Desk, scripts: list[list[list[str]]], *, deleting: bool) -> Counter[str]:
    """Run the scripts side by side; the broken promises, counted by kind and told."""
    found: Counter[str] = Counter()
    running: list[tuple[list[list[str]], subprocess.Popen[str] | None]] = [
        (list(each), None) for each in scripts
    ]
    while running:
        still = []
        for left, process in running:
            if process is not None and process.poll() is None:
                still.append((left, process))
                continue
            if process is not None:
                told = process.communicate()[1].strip()
                if process.returncode not in ((0, 2, 3) if deleting else (0,)):
                    found["exit codes"] += 1
                    print(f"{process.args[3:]}: exit code {process.returncode}: {told}", flush=True)
                if process.returncode and len(told.splitlines()) > 3:
                    found["messages"] += 1
                    print(f"{process.args[3:]}: {told}", flush=True)
            while left and left[0][0] == "delete":
                shutil.rmtree(desk.store / left.pop(0)[1], ignore_errors=True)
            if left:
                still.append((left[1:], desk.start(left[0])))
        running = still
    return found


def settled(desk: Desk, expected: dict[str, meaning.Figures], *, deleted: bool) -> Counter[str]:
    """What is wrong with the store in the end."""
    found: Counter[str] = Counter()
    # A run that was being deleted while it was read may lie there in part: deleting is not the store's.
    complaints = [] if deleted else list(shared.damaged(desk.store))
    for kind, words in (
        ("damaged runs", complaints),
        ("leftovers", desk.strays()),
    ):
        words = [word for word in words if not word.endswith(".html")]
        found[kind] += len(words)
        print(*(f"{kind}: {word}" for word in words), sep="\n", end="\n" * bool(words))
    for source, figures in expected.items():
        run = desk.run if source == "source" else desk.other
        if deleted:
            shutil.rmtree(desk.store / run, ignore_errors=True)
        desk.call(["run", source, "--jobs", "1", "-q"])
        opened = Store(desk.store).find(run)
        changed = (
            ["no run"] if opened is None else list(meaning.differences(figures, meaning.figures(opened)))
        )
        found["other results"] += bool(changed)
        print(*(f"{source}: {line}" for line in changed[:3]), sep="\n", end="\n" * bool(changed))
    return found


def main() -> int:
    """The campaign; exit code 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--findings", type=Path, help="folder for what breaks a promise")
    wishes = parser.parse_args()
    rows = {name: Counter[str]() for name in ("new store", "same runs", "with deleting")}
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        serial = Store(desk.store)
        expected = {
            "source": meaning.figures(serial.get(desk.run)),
            "first": meaning.figures(serial.get(desk.other)),
        }
        for number in range(wishes.rounds):
            name = list(rows)[number % len(rows)]
            chance = Random(f"{wishes.seed}/{number}")  # noqa: S311 - wants repeating, not guessing
            desk.renew(runs=name != "new store")
            scripts = [
                script(desk, chance, n, deleting=name == "with deleting") for n in range(wishes.processes)
            ]
            if name == "new store":
                scripts = [
                    [words for words in each if words[0] in ("ingest", "run", "list")] for each in scripts
                ]
            found = at_once(desk, scripts, deleting=name == "with deleting")
            found += settled(desk, expected, deleted=name == "with deleting")
            rows[name].update({"rounds": 1, "commands": sum(map(len, scripts)), **found})
            if found.total() and wishes.findings:
                told = {"seed": wishes.seed, "round": number, "scripts": scripts, "found": found}
                shared.keep(wishes.findings, f"concurrent-{number}", {}, told)
    shared.show(
        [
            {"store": name, **{key: counts[key] for key in ("rounds", "commands", *BREACHES)}}
            for name, counts in rows.items()
            if counts
        ]
    )
    return int(any(counts[kind] for counts in rows.values() for kind in BREACHES))


if __name__ == "__main__":
    sys.exit(main())
