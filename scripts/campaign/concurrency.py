# SPDX-License-Identifier: Apache-2.0
"""Run many processes that read, compute, report and delete runs in one store at the same time.

    python scripts/campaign/concurrency.py --rounds 10 --processes 8 --findings FOLDER [--seed S]

Guaranteed: each command succeeds, or states in one to three lines that a run is missing if another process
may have deleted it; every run is complete in the end; no temporary files are left; and the results of every
source equal those from a separate store.  Exit code 1 if a guarantee is violated.
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


def draw_commands(desk: Desk, chance: Random, number: int, *, deleting: bool) -> list[list[str]]:
    """Commands of one process, in order; `delete` removes a run's folder as a user would."""
    commands = []
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
        commands.append(chance.choice([*choices, *[["delete", run]] * deleting]))
    return commands


def run_together(desk: Desk, scripts: list[list[list[str]]], *, deleting: bool) -> Counter[str]:
    """Run the scripts at the same time; returns and prints the violations, counted by kind."""
    found: Counter[str] = Counter()
    running: list[tuple[list[list[str]], subprocess.Popen[str] | None]] = [
        (list(each), None) for each in scripts
    ]
    while running:
        unfinished = []
        for left, process in running:
            if process is not None and process.poll() is None:
                unfinished.append((left, process))
                continue
            if process is not None:
                stderr = process.communicate()[1].strip()
                if process.returncode not in ((0, 2, 3) if deleting else (0,)):
                    found["exit codes"] += 1
                    print(f"{process.args[3:]}: exit code {process.returncode}: {stderr}", flush=True)
                if process.returncode and len(stderr.splitlines()) > 3:
                    found["messages"] += 1
                    print(f"{process.args[3:]}: {stderr}", flush=True)
            while left and left[0][0] == "delete":
                shutil.rmtree(desk.store / left.pop(0)[1], ignore_errors=True)
            if left:
                unfinished.append((left[1:], desk.start(left[0])))
        running = unfinished
    return found


def check_store(desk: Desk, expected: dict[str, meaning.Figures], *, deleted: bool) -> Counter[str]:
    """Violations in the store after all commands, counted by kind."""
    found: Counter[str] = Counter()
    # A run that is deleted while it is read may remain in part: the deletion is not the store's.
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
    """Run the campaign; returns 1 if a guarantee is violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--findings", type=Path, help="folder for inputs that violate a guarantee")
    asked = parser.parse_args()
    rows = {name: Counter[str]() for name in ("new store", "same runs", "with deleting")}
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        serial = Store(desk.store)
        expected = {
            "source": meaning.figures(serial.get(desk.run)),
            "first": meaning.figures(serial.get(desk.other)),
        }
        for number in range(asked.rounds):
            name = list(rows)[number % len(rows)]
            chance = Random(f"{asked.seed}/{number}")  # noqa: S311 - must be repeatable, not unpredictable
            desk.renew(runs=name != "new store")
            scripts = [
                draw_commands(desk, chance, n, deleting=name == "with deleting")
                for n in range(asked.processes)
            ]
            if name == "new store":
                scripts = [
                    [words for words in each if words[0] in ("ingest", "run", "list")] for each in scripts
                ]
            found = run_together(desk, scripts, deleting=name == "with deleting")
            found += check_store(desk, expected, deleted=name == "with deleting")
            rows[name].update({"rounds": 1, "commands": sum(map(len, scripts)), **found})
            if found.total() and asked.findings:
                record = {"seed": asked.seed, "round": number, "scripts": scripts, "found": found}
                shared.keep(asked.findings, f"concurrent-{number}", {}, record)
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
