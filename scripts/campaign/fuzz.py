# SPDX-License-Identifier: Apache-2.0
"""Run damaged inputs through every reader, and damaged cards, catalogs, archives and stored runs.

    python scripts/campaign/fuzz.py --inputs 1000 --findings FOLDER [--target NAME] [--state FILE] [--read]

Inputs follow from the seed, the target's name and a number, so that a campaign can be resumed (--state), and
any input can be generated again.  Guaranteed for each: an exit code from 0 to 3, an error of one to three
lines, at most `SECONDS` of CPU time, less memory than twice that of the clean input (or what the process held
before) plus 40 bytes per byte of its own, an unchanged store if the input is refused, and consistent figures
(`meaning`) if it is accepted.  One process per core runs inputs one after another; a crash or hang costs that
process and one input.  With --read the same inputs only pass through their readers: no run is stored and no
figure computed.  Exit code 1 if a guarantee is violated; `--again FOLDER` runs one finding again.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import argparse
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess as Process
from random import Random
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final

import msgspec
from campaign import meaning, shared
from campaign.called import broken_promises, call
from campaign.mutators import mutate
from campaign.seeds import Files, Seed, files_below, kineto, seeds, write

from cclbench.ground.errors import InputError
from cclbench.record.inventory import write_manifest
from cclbench.record.manifest import MANIFEST, Manifest
from cclbench.record.store import Store

SECONDS: Final = 20
"""Limit of CPU time for an input, s; the limit of wall time is ten times that."""
BYTES_A_BYTE: Final = 40
"""Memory allowed for each byte of an input, in addition to twice that of the clean input."""
BREACHES: Final = ("traceback", "exit 4", "crash", "hang", "memory", "message", "store", "meaning")
TRIALS: Final = 80
"""Attempts to reduce the input of a finding."""
Breach = tuple[str, str]
"""Kind and description."""
Task = tuple[str, list[int]]
"""A target and the numbers of its inputs."""


@dataclass
class Outcome:
    """Result of one input."""

    code: int = 0
    breaches: list[Breach] = field(default_factory=list)


@cache
def clean_store() -> Files:
    """The files of a store with one run; processes that are forked later share them."""
    with TemporaryDirectory() as folder:
        write(Path(folder) / "clean", kineto())
        call(["run", f"{folder}/clean", "--store", f"{folder}/store", "--jobs", "1"])
        return files_below(Path(folder) / "store")


def only_read(seed: Seed) -> Seed:
    """The seed with its readers in place of the commands that run it."""
    commands = ("read {source}" if command.startswith("run ") else command for command in seed.commands)
    return replace(seed, commands=tuple(commands))


class Bench:
    """A store with one clean run, and a folder for inputs; one for each process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.input, self.number = folder, folder / "store", folder / "input", 0
        write(self.store, clean_store())
        (self.resident,) = (run.id for run in Store(self.store).runs())
        self.most: dict[str, int] = {}
        """Peak memory of clean inputs, by command."""

    def attempt(self, seed: Seed, files: Files, command: str, *, deep: bool = False) -> Outcome:
        """Run one command on one input; `deep` also compares it with equivalent inputs."""
        # Each in a folder of its own name, since a process may cache the content of a path.
        self.number += 1
        self.input = self.folder / f"input-{self.number}"
        place = self.store / seed.stored if seed.stored else self.input
        try:
            return self._attempt(seed, files, command, place, deep=deep)
        finally:
            for path in (place, *self.folder.glob("out*")):
                shutil.rmtree(path, ignore_errors=True)
                path.unlink(missing_ok=True) if not path.is_dir() else None
            for run in self.store.iterdir():
                if run.name != self.resident:
                    shutil.rmtree(run)

    def _attempt(self, seed: Seed, files: Files, command: str, place: Path, *, deep: bool) -> Outcome:
        write(place, files)
        if seed.stored:
            rewrite_manifest(place)
        words = command.format(
            source=place / seed.entry, run=seed.stored, other=self.resident, out=self.folder / "out"
        )
        before, found = self._store_files(), Outcome()
        breaches = found.breaches
        os.environ["CCLBENCH_STORE"] = str(self.store)
        _reset_peak()
        held = _peak()
        found.code, error, stderr = call(shlex.split(words))
        peak = _peak()
        breaches += broken_promises(found.code, error, stderr)
        size = sum(map(len, files.values()))
        # The allocator may still hold what a larger input before it needed.
        if command in self.most and peak > max(2 * self.most[command], held) + BYTES_A_BYTE * size:
            breaches.append(("memory", f"{peak >> 20} MiB, a clean input {self.most[command] >> 20} MiB"))
        if found.code and self._store_files() != before:
            breaches.append(("store", "changed by a refused input"))
        if seed.entry.startswith("a.") and any(path.is_symlink() for path in self.folder.rglob("*")):
            breaches.append(("meaning", "a link was unpacked"))
        if found.code == 0 and command.startswith("run "):
            breaches += [
                ("meaning", words) for words in self._inconsistencies(seed, files, command, deep=deep)
            ]
        return found

    def _store_files(self) -> dict[str, tuple[int, int]]:
        """The store's files except results, which runs may have gained before another one was refused."""
        files = shared.snapshot(self.store)
        return {name: stat for name, stat in files.items() if not name.endswith("results.parquet")}

    def _inconsistencies(self, seed: Seed, files: Files, command: str, *, deep: bool) -> Iterator[str]:
        (run,) = [run for run in Store(self.store).runs() if run.id != self.resident] or [None]
        if run is None:
            yield "an accepted input left no run"
            return
        for oracle in meaning.ORACLES:
            yield from list(oracle(run))[:1]
        # Rows of a truncated file cannot be reordered: the part before the damage would be another one.
        if not deep or seed.entry or "--allow-truncated" in command:
            return
        before = meaning.figures(run)
        shutil.rmtree(run.path)
        for name, (change, may_refuse) in meaning.SAME.items():
            yield from self._compare_equivalent(name, before, files, command, change, may_refuse=may_refuse)

    def _compare_equivalent(
        self,
        name: str,
        before: meaning.Figures,
        files: Files,
        command: str,
        change: Callable[[Files], Files],
        *,
        may_refuse: bool,
    ) -> Iterator[str]:
        place = self.input
        try:
            changed = change(files)
        except Exception:  # noqa: BLE001 - no such form of this input
            return
        shutil.rmtree(place)
        write(place, changed)
        code, error, stderr = call(shlex.split(command.format(source=place)))
        yield from (f"{name}: {words}" for _, words in broken_promises(code, error, stderr))
        if code in (2, 3):
            yield from () if may_refuse else (f"{name}: refused: {error}",)
            return
        for run in Store(self.store).runs():
            if run.id != self.resident:
                yield from (
                    f"{name}: {line}" for line in list(meaning.differences(before, meaning.figures(run)))[:1]
                )
                shutil.rmtree(run.path)


def rewrite_manifest(run: Path) -> None:
    """Write a run's changed files to its manifest, as an attacker would; ignored if it cannot be read."""
    with suppress(InputError, OSError, ValueError, TypeError, KeyError, msgspec.DecodeError):
        document = json.loads((run / MANIFEST).read_bytes())
        ranks = [{**entry, "stored": []} for entry in document["ranks"]]
        write_manifest(msgspec.convert({**document, "ranks": ranks, "stored": []}, Manifest), run)


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Peak memory of this process since `_reset_peak`, bytes."""
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) << 10


def _set_time_limit() -> None:
    """Start timers that kill this process if an input takes too long."""
    for timer, number, seconds in (
        (signal.ITIMER_PROF, signal.SIGPROF, SECONDS),
        (signal.ITIMER_REAL, signal.SIGALRM, 10 * SECONDS),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, seconds)


# ---------------------------------------------------------------------------------------- inputs


def draw_input(target: list[Seed], name: str, number: int, seed: str) -> tuple[Seed, Files, str, bool]:
    """Input `number` of a target: its seed, files, command, whether to compare it with equivalent ones."""
    chance = Random(f"{seed}/{name}/{number}")  # noqa: S311 - must be repeatable, not unpredictable
    chosen = chance.choice(target)
    files = dict(chosen.files)
    for _ in range(chance.choice((1, 1, 2))):
        file = chance.choice(sorted(files))
        files[file] = mutate(chance, file, files[file])
    return chosen, files, chance.choice(chosen.commands), chance.random() < 0.1


def work(target: list[Seed], name: str, numbers: list[int], seed: str, send: Callable[[Any], None]) -> None:
    """Attempt inputs one after another; sends each number before and each outcome after."""
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for clean in target:
            for command in dict.fromkeys(clean.commands):
                _set_time_limit()
                _reset_peak()
                bench.attempt(clean, clean.files, command)
                bench.most[command] = max(bench.most.get(command, 0), _peak())
        for number in numbers:
            send(("begin", number))
            _set_time_limit()
            chosen, files, command, deep = draw_input(target, name, number, seed)
            outcome = bench.attempt(chosen, files, command, deep=deep)
            send(("end", number, outcome.code, outcome.breaches))


def _start_process(action: Callable[..., None], *arguments: Any) -> tuple[Process, Connection]:
    """A process that runs `action`, and the connection that it sends to."""
    fork = multiprocessing.get_context("fork")
    receiving, sending = fork.Pipe(duplex=False)
    process = fork.Process(target=action, args=(*arguments, sending.send))
    process.start()
    sending.close()
    return process, receiving


def _exit_breach(code: int) -> Breach:
    if code in (-signal.SIGPROF, -signal.SIGALRM):
        return "hang", f"more than {SECONDS} s"
    return "crash", f"ended by {signal.Signals(-code).name if code < 0 else code}"


# -------------------------------------------------------------------------------------- findings


def reductions(files: Files) -> Iterator[Files]:
    """Smaller inputs: without one file, without half a file, without ever smaller stretches."""
    for name in files if len(files) > 1 else ():
        yield {other: data for other, data in files.items() if other != name}
    for name, data in files.items():
        size = len(data) // 2
        while size >= max(len(data) // 16, 1):
            yield from ({**files, name: data[:at] + data[at + size :]} for at in range(0, len(data), size))
            size //= 2


def _includes_breach(breaches: list[Breach], wanted: Breach) -> bool:
    return any(kind == wanted[0] and _signature(words) == _signature(wanted[1]) for kind, words in breaches)


def _reduce(
    chosen: Seed, files: Files, command: str, deep: bool, wanted: Breach | None, send: Callable[[Any], None]
) -> None:
    """Send the breaches of an input, then ever smaller inputs with the breach `wanted`."""
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        _set_time_limit()
        _reset_peak()
        bench.attempt(chosen, chosen.files, command)
        bench.most[command] = _peak()
        send(bench.attempt(chosen, files, command, deep=deep).breaches)
        trials, found = TRIALS if wanted else 0, True
        while found:
            found = False
            for reduced in reductions(files):
                trials -= 1
                if trials < 0:
                    return
                _set_time_limit()
                if _includes_breach(bench.attempt(chosen, reduced, command, deep=deep).breaches, wanted):
                    files, found = reduced, True
                    send(files)
                    break


def reproduce(
    chosen: Seed, files: Files, command: str, deep: bool, wanted: Breach | None = None
) -> tuple[list[Breach], Files]:
    """Breaches of an input in a fresh process, and the smallest input with the breach `wanted`."""
    process, receiving = _start_process(_reduce, chosen, files, command, deep, wanted)
    breaches: list[Breach] | None = None
    try:
        while True:
            if breaches is None:
                breaches = receiving.recv()
                if wanted and not _includes_breach(breaches, wanted):
                    return breaches, files
            else:
                files = receiving.recv()
    except EOFError:
        process.join()
        return [_exit_breach(process.exitcode)] if breaches is None else breaches, files
    finally:
        process.kill()
        process.join()
        receiving.close()


class Campaign:
    """Counts by target and findings by kind, stored in a file between runs."""

    def __init__(self, asked: argparse.Namespace, targets: dict[str, list[Seed]]) -> None:
        self.asked, self.targets = asked, targets
        self.counts: dict[str, Counter[str]] = {}
        self.known: set[str] = set()
        if asked.state and asked.state.exists():
            kept = json.loads(asked.state.read_text())
            asked.seed, self.known = kept["seed"], set(kept["known"])
            self.counts = {name: Counter(counts) for name, counts in kept["targets"].items()}

    def save(self) -> None:
        """Write the state file, if one was requested."""
        if self.asked.state:
            state = {"seed": self.asked.seed, "known": sorted(self.known), "targets": self.counts}
            self.asked.state.write_text(json.dumps(state, indent=1))

    def run(self, tasks: list[Task]) -> None:
        """Attempt the inputs of all tasks in parallel; the rest of a crashed task becomes a new task."""
        at: dict[Connection, tuple[Process, Task, int | None]] = {}
        while tasks or at:
            for task in list(tasks):
                # One process per target at a time: its count is the number of finished inputs.
                busy = {name for _, (name, _), _ in at.values()}
                if len(at) < self.asked.jobs and task[0] not in busy:
                    tasks.remove(task)
                    process, receiving = _start_process(work, self.targets[task[0]], *task, self.asked.seed)
                    at[receiving] = process, task, None
            for receiving in wait(list(at)):
                process, (name, numbers), number = at[receiving]
                try:
                    kind, number, *result = receiving.recv()
                    at[receiving] = process, (name, numbers), number
                    if kind == "end":
                        self._count(name, number, *result)
                except EOFError:
                    process.join()
                    del at[receiving]
                    if process.exitcode and number is None:
                        raise RuntimeError(
                            f"{name}: a clean input: {_exit_breach(process.exitcode)[1]}"
                        ) from None
                    if process.exitcode:
                        self._count(name, number, 0, [_exit_breach(process.exitcode)])
                        tasks.insert(0, (name, [n for n in numbers if n > number]))
                    self.save()

    def _count(self, name: str, number: int, code: int, breaches: list[Breach]) -> None:
        counts = self.counts[name]
        counts["inputs"] += 1
        counts["accepted" if code == 0 else "refused"] += 1
        counts.update({kind for kind, _ in breaches})
        for kind, words in breaches:
            signature = f"{name} {kind} {_signature(words)}"
            if signature not in self.known:
                self.known.add(signature)
                self._keep(name, number, (kind, words))

    def _keep(self, name: str, number: int, breach: Breach) -> None:
        chosen, files, command, deep = draw_input(self.targets[name], name, number, self.asked.seed)
        again, files = reproduce(chosen, files, command, deep, breach)
        words = "" if _includes_breach(again, breach) else " (not reproduced in a fresh process)"
        print(f"{name} {number}: {breach[0]}: {breach[1]}{words}", flush=True)
        if self.asked.findings:
            record = {
                "target": name,
                "seed": self.asked.seed,
                "number": number,
                "kind": breach[0],
                "words": breach[1] + words,
                "command": f"cclbench {command}",
                "entry": chosen.entry,
                "stored": chosen.stored,
                "deep": deep,
                "again": "python scripts/campaign/fuzz.py --again FOLDER",
            }
            shared.keep(self.asked.findings, f"{name}-{number}-{_slug(*breach)}", files, record)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the table: one for each target, and their sum."""
        shown = {name: counts for name, counts in sorted(self.counts.items()) if counts["inputs"]}
        shown["all"] = sum(shown.values(), Counter())
        keys = ("inputs", "refused", "accepted", *BREACHES)
        return [{"target": name, **{key: counts[key] for key in keys}} for name, counts in shown.items()]


def _signature(words: str) -> str:
    """A breach without its figures: one place in the code, or one oracle, is one finding."""
    head = words.split(": ")[0]
    return head if " at " in head else "".join("#" if c.isdigit() else c for c in head)


def _slug(kind: str, words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{kind} {_signature(words)}".lower()).strip("-")[:80]


def _again(folder: Path) -> int:
    record = json.loads((folder / "finding.json").read_text())
    files = {
        str(p.relative_to(folder / "input")): p.read_bytes()
        for p in sorted((folder / "input").rglob("*"))
        if p.is_file()
    }
    clean = seeds()[record["target"]][0].files
    chosen = Seed(clean, entry=record["entry"], stored=record["stored"])
    found, _ = reproduce(chosen, files, record["command"].removeprefix("cclbench "), record["deep"])
    for kind, words in found:
        print(f"{kind}: {words}")
    return int(_includes_breach(found, (record["kind"], record["words"])))


def main() -> int:
    """Run the campaign; returns 1 if a guarantee is violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--inputs", type=int, default=100, help="inputs of each target, including those of earlier runs"
    )
    parser.add_argument("--target", action="append", help="only this one; repeatable")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", default="1")
    parser.add_argument(
        "--read", action="store_true", help="only read the inputs: no run is stored, no figure computed"
    )
    parser.add_argument("--state", type=Path, help="file with the state of the campaign")
    parser.add_argument("--findings", type=Path, help="folder for inputs that violate a guarantee")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="only run this finding again")
    asked = parser.parse_args()
    if asked.again:
        return _again(asked.again)
    targets = seeds()
    if unknown := set(asked.target or ()) - set(targets):
        parser.error(f"no target {', '.join(sorted(unknown))}; known: {', '.join(sorted(targets))}")
    if asked.read:
        targets = {name: [*map(only_read, listed)] for name, listed in targets.items()}
    campaign = Campaign(asked, targets)
    chosen = asked.target or list(targets)
    clean_store()
    temporary = mkdtemp()
    os.environ["TMPDIR"] = temporary
    tasks = []
    for name in chosen:
        done = campaign.counts.setdefault(name, Counter())["inputs"]
        # In tasks of a hundred, so that a long process's memory does not count as an input's.
        tasks += [
            (first, name, list(range(first, min(first + 100, asked.inputs))))
            for first in range(done, asked.inputs, 100)
        ]
    campaign.run([(name, numbers) for _, name, numbers in sorted(tasks)])
    shutil.rmtree(temporary, ignore_errors=True)
    shared.show(campaign.rows())
    return int(any(row[kind] for row in campaign.rows() for kind in BREACHES))


if __name__ == "__main__":
    sys.exit(main())
