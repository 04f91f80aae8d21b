# SPDX-License-Identifier: Apache-2.0
"""Damaged inputs to every reader, to cards, catalogs, archives and stored runs.

    python scripts/campaign/fuzz.py --inputs 1000 --findings FOLDER [--target NAME] [--state FILE]

Inputs follow from the seed, the target's name and a number, so that a run can go on where one stopped
(--state), and any input can be made again.  Promised is, for each: an exit code from 0 to 3, an error of one
to three lines, at most `SECONDS` of computing, less than twice the memory of the clean input and 40 bytes for
each of its own, a store untouched where the input is refused, and numbers that mean something (`meaning`)
where it is accepted.  One process a core runs them one after another; a crash or hang costs that process and
one input.  Exit code 1 where a promise was broken; `--again FOLDER` runs one finding again.
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
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess as Process
from random import Random
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final

import msgspec
from campaign import meaning, shared
from campaign.called import call, promised
from campaign.mutators import mutate
from campaign.seeds import Files, Seed, kineto, seeds, write

from cclbench.ground.errors import InputError
from cclbench.record.inventory import write_manifest
from cclbench.record.manifest import MANIFEST, Manifest
from cclbench.record.store import Store

SECONDS: Final = 20
"""Of computing that an input may take; ten times that by the clock."""
BYTES_A_BYTE: Final = 40
"""Memory for each byte of an input, beside twice that of the clean one."""
BREACHES: Final = ("traceback", "exit 4", "crash", "hang", "memory", "message", "store", "meaning")
TRIALS: Final = 80
"""Attempts at making a finding smaller."""
Breach = tuple[str, str]
"""Kind and words."""
Task = tuple[str, list[int]]
"""A target and the numbers of its inputs."""


@dataclass
class Outcome:
    """What one input led to."""

    code: int = 0
    breaches: list[Breach] = field(default_factory=list)


class Bench:
    """A store with one clean run in it, and a place for inputs: one a process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.input, self.number = folder, folder / "store", folder / "input", 0
        write(folder / "clean", kineto())
        call(["run", str(folder / "clean"), "--store", str(self.store), "--jobs", "1"])
        (self.resident,) = (run.id for run in Store(self.store).runs())
        self.most: dict[str, int] = {}
        """Peak memory of clean inputs, by command."""

    def attempt(self, seed: Seed, files: Files, command: str, *, deep: bool = False) -> Outcome:
        """Run one command on one input; `deep` also compares with inputs that mean the same."""
        # Each in a folder of its own name: a process may remember what a file that it knows said.
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
        before, found = self._kept(), Outcome()
        own, more = ("CCLBENCH_STORE", str(self.store)), found.breaches
        os.environ[own[0]] = own[1]
        _reset_peak()
        found.code, error, told = call(shlex.split(words))
        peak = _peak()
        more += promised(found.code, error, told)
        size = sum(map(len, files.values()))
        if command in self.most and peak > 2 * self.most[command] + BYTES_A_BYTE * size:
            more.append(("memory", f"{peak >> 20} MiB where a clean input takes {self.most[command] >> 20}"))
        if found.code and self._kept() != before:
            more.append(("store", "changed by an input that was refused"))
        if seed.entry.startswith("a.") and any(path.is_symlink() for path in self.folder.rglob("*")):
            more.append(("meaning", "a link was unpacked"))
        if found.code == 0 and command.startswith("run "):
            more += [("meaning", words) for words in self._doubts(seed, files, command, deep=deep)]
        return found

    def _kept(self) -> dict[str, tuple[int, int]]:
        """The store's files but results, which runs may have gained before another one was refused."""
        files = shared.snapshot(self.store)
        return {name: told for name, told in files.items() if not name.endswith("results.parquet")}

    def _doubts(self, seed: Seed, files: Files, command: str, *, deep: bool) -> Iterator[str]:
        (run,) = [run for run in Store(self.store).runs() if run.id != self.resident] or [None]
        if run is None:
            yield "an accepted input left no run"
            return
        for oracle in meaning.ORACLES:
            yield from list(oracle(run))[:1]
        # Up to its damage a truncated file has an order.
        if not deep or seed.entry or "--allow-truncated" in command:
            return
        was = meaning.figures(run)
        shutil.rmtree(run.path)
        for name, (change, may_refuse) in meaning.SAME.items():
            yield from self._compared(name, was, files, command, change, may_refuse=may_refuse)

    def _compared(
        self,
        name: str,
        was: meaning.Figures,
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
        code, error, told = call(shlex.split(command.format(source=place)))
        yield from (f"{name}: {words}" for _, words in promised(code, error, told))
        if code in (2, 3):
            yield from () if may_refuse else (f"{name}: refused: {error}",)
            return
        for run in Store(self.store).runs():
            if run.id != self.resident:
                yield from (
                    f"{name}: {line}" for line in list(meaning.differences(was, meaning.figures(run)))[:1]
                )
                shutil.rmtree(run.path)


def rewrite_manifest(run: Path) -> None:
    """List a run's files in its manifest as they are, as who changes them would; where it can be read."""
    with suppress(InputError, OSError, ValueError, TypeError, KeyError, msgspec.DecodeError):
        document = json.loads((run / MANIFEST).read_bytes())
        ranks = [{**entry, "stored": []} for entry in document["ranks"]]
        write_manifest(msgspec.convert({**document, "ranks": ranks, "stored": []}, Manifest), run)


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Bytes of memory that this process had at most since `_reset_peak`."""
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) << 10


def _limited() -> None:
    """End this process when an input takes too long: timers whose default is to kill."""
    for timer, number, seconds in (
        (signal.ITIMER_PROF, signal.SIGPROF, SECONDS),
        (signal.ITIMER_REAL, signal.SIGALRM, 10 * SECONDS),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, seconds)


# ---------------------------------------------------------------------------------------- inputs


def made(target: list[Seed], name: str, number: int, seed: str) -> tuple[Seed, Files, str, bool]:
    """Input `number` of a target: its seed, files, command, and whether to compare it with its like."""
    chance = Random(f"{seed}/{name}/{number}")  # noqa: S311 - wants repeating, not guessing
    chosen = chance.choice(target)
    files = dict(chosen.files)
    for _ in range(chance.choice((1, 1, 2))):
        file = chance.choice(sorted(files))
        files[file] = mutate(chance, file, files[file])
    return chosen, files, chance.choice(chosen.commands), chance.random() < 0.1


def work(target: list[Seed], name: str, numbers: list[int], seed: str, tell: Callable[[Any], None]) -> None:
    """Attempt inputs one after another, telling each number before and each outcome after."""
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for clean in target:
            for command in dict.fromkeys(clean.commands):
                _limited()
                _reset_peak()
                bench.attempt(clean, clean.files, command)
                bench.most[command] = max(bench.most.get(command, 0), _peak())
        for number in numbers:
            tell(("begin", number))
            _limited()
            chosen, files, command, deep = made(target, name, number, seed)
            outcome = bench.attempt(chosen, files, command, deep=deep)
            tell(("end", number, outcome.code, outcome.breaches))


def _started(action: Callable[..., None], *arguments: Any) -> tuple[Process, Connection]:
    """A process of its own that does `action`, and where it tells."""
    fork = multiprocessing.get_context("fork")
    receiving, sending = fork.Pipe(duplex=False)
    process = fork.Process(target=action, args=(*arguments, sending.send))
    process.start()
    sending.close()
    return process, receiving


def _ended(code: int) -> Breach:
    if code in (-signal.SIGPROF, -signal.SIGALRM):
        return "hang", f"more than {SECONDS} s"
    return "crash", f"ended by {signal.Signals(-code).name if code < 0 else code}"


# -------------------------------------------------------------------------------------- findings


def smaller(files: Files) -> Iterator[Files]:
    """The same input with something less: a file, half a file, ever smaller stretches."""
    for name in files if len(files) > 1 else ():
        yield {other: data for other, data in files.items() if other != name}
    for name, data in files.items():
        size = len(data) // 2
        while size >= max(len(data) // 16, 1):
            yield from ({**files, name: data[:at] + data[at + size :]} for at in range(0, len(data), size))
            size //= 2


def _alike(breaches: list[Breach], wanted: Breach) -> bool:
    return any(kind == wanted[0] and _signature(words) == _signature(wanted[1]) for kind, words in breaches)


def _reduce(
    chosen: Seed, files: Files, command: str, deep: bool, wanted: Breach | None, tell: Callable[[Any], None]
) -> None:
    """Tell the breaches of an input, then ever smaller inputs that break the promise `wanted` too."""
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        _limited()
        _reset_peak()
        bench.attempt(chosen, chosen.files, command)
        bench.most[command] = _peak()
        tell(bench.attempt(chosen, files, command, deep=deep).breaches)
        trials, found = TRIALS if wanted else 0, True
        while found:
            found = False
            for less in smaller(files):
                trials -= 1
                if trials < 0:
                    return
                _limited()
                if _alike(bench.attempt(chosen, less, command, deep=deep).breaches, wanted):
                    files, found = less, True
                    tell(files)
                    break


def seen_again(
    chosen: Seed, files: Files, command: str, deep: bool, wanted: Breach | None = None
) -> tuple[list[Breach], Files]:
    """The breaches of one input in a fresh process, and the smallest that breaks the promise `wanted`."""
    process, receiving = _started(_reduce, chosen, files, command, deep, wanted)
    breaches: list[Breach] | None = None
    try:
        while True:
            if breaches is None:
                breaches = receiving.recv()
                if wanted and not _alike(breaches, wanted):
                    return breaches, files
            else:
                files = receiving.recv()
    except EOFError:
        process.join()
        return [_ended(process.exitcode)] if breaches is None else breaches, files
    finally:
        process.kill()
        process.join()
        receiving.close()


class Campaign:
    """Counts by target and findings by kind, kept in a file between runs."""

    def __init__(self, wishes: argparse.Namespace, targets: dict[str, list[Seed]]) -> None:
        self.wishes, self.targets = wishes, targets
        self.counts: dict[str, Counter[str]] = {}
        self.known: set[str] = set()
        if wishes.state and wishes.state.exists():
            kept = json.loads(wishes.state.read_text())
            wishes.seed, self.known = kept["seed"], set(kept["known"])
            self.counts = {name: Counter(counts) for name, counts in kept["targets"].items()}

    def save(self) -> None:
        """Write the state file, if there is to be one."""
        if self.wishes.state:
            told = {"seed": self.wishes.seed, "known": sorted(self.known), "targets": self.counts}
            self.wishes.state.write_text(json.dumps(told, indent=1))

    def run(self, tasks: list[Task]) -> None:
        """Attempt the inputs of each task, side by side; what a crash leaves of one is a further task."""
        at: dict[Connection, tuple[Process, Task, int | None]] = {}
        while tasks or at:
            for task in list(tasks):
                # One process a target at a time: its count says how far it is.
                busy = {name for _, (name, _), _ in at.values()}
                if len(at) < self.wishes.jobs and task[0] not in busy:
                    tasks.remove(task)
                    process, receiving = _started(work, self.targets[task[0]], *task, self.wishes.seed)
                    at[receiving] = process, task, None
            for receiving in wait(list(at)):
                process, (name, numbers), number = at[receiving]
                try:
                    kind, number, *told = receiving.recv()
                    at[receiving] = process, (name, numbers), number
                    if kind == "end":
                        self._count(name, number, *told)
                except EOFError:
                    process.join()
                    del at[receiving]
                    if process.exitcode and number is None:
                        raise RuntimeError(f"{name}: a clean input: {_ended(process.exitcode)[1]}") from None
                    if process.exitcode:
                        self._count(name, number, 0, [_ended(process.exitcode)])
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
        chosen, files, command, deep = made(self.targets[name], name, number, self.wishes.seed)
        again, files = seen_again(chosen, files, command, deep, breach)
        words = "" if _alike(again, breach) else " (not seen again in a fresh process)"
        print(f"{name} {number}: {breach[0]}: {breach[1]}{words}", flush=True)
        if self.wishes.findings:
            told = {
                "target": name,
                "seed": self.wishes.seed,
                "number": number,
                "kind": breach[0],
                "words": breach[1] + words,
                "command": f"cclbench {command}",
                "entry": chosen.entry,
                "stored": chosen.stored,
                "deep": deep,
                "again": "python scripts/campaign/fuzz.py --again FOLDER",
            }
            shared.keep(self.wishes.findings, f"{name}-{number}-{_slug(*breach)}", files, told)

    def rows(self) -> list[dict[str, Any]]:
        """The table: a row a target, and their sum."""
        shown = {name: counts for name, counts in sorted(self.counts.items()) if counts["inputs"]}
        shown["all"] = sum(shown.values(), Counter())
        keys = ("inputs", "refused", "accepted", *BREACHES)
        return [{"target": name, **{key: counts[key] for key in keys}} for name, counts in shown.items()]


def _signature(words: str) -> str:
    """A breach without its figures: the same place in the code, or the same oracle, is the same finding."""
    head = words.split(": ")[0]
    return head if " at " in head else "".join("#" if c.isdigit() else c for c in head)


def _slug(kind: str, words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{kind} {_signature(words)}".lower()).strip("-")[:80]


def _again(folder: Path) -> int:
    told = json.loads((folder / "finding.json").read_text())
    files = {
        str(p.relative_to(folder / "input")): p.read_bytes()
        for p in sorted((folder / "input").rglob("*"))
        if p.is_file()
    }
    clean = seeds()[told["target"]][0].files
    chosen = Seed(clean, entry=told["entry"], stored=told["stored"])
    found, _ = seen_again(chosen, files, told["command"].removeprefix("cclbench "), told["deep"])
    for kind, words in found:
        print(f"{kind}: {words}")
    return int(_alike(found, (told["kind"], told["words"])))


def main() -> int:
    """The campaign; exit code 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--inputs", type=int, default=100, help="of each target, those of earlier runs among them"
    )
    parser.add_argument("--target", action="append", help="only this one; repeatable")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--state", type=Path, help="file that says how far the campaign is")
    parser.add_argument("--findings", type=Path, help="folder for what breaks a promise")
    parser.add_argument(
        "--again", type=Path, metavar="FOLDER", help="run this finding again, and nothing else"
    )
    wishes = parser.parse_args()
    if wishes.again:
        return _again(wishes.again)
    targets = seeds()
    if unknown := set(wishes.target or ()) - set(targets):
        parser.error(f"no target {', '.join(sorted(unknown))}; known: {', '.join(sorted(targets))}")
    campaign = Campaign(wishes, targets)
    chosen = wishes.target or list(targets)
    temporary = mkdtemp()
    os.environ["TMPDIR"] = temporary
    tasks = []
    for name in chosen:
        done = campaign.counts.setdefault(name, Counter())["inputs"]
        # In turns of a hundred: what a long process hoards must not count as an input's.
        tasks += [
            (first, name, list(range(first, min(first + 100, wishes.inputs))))
            for first in range(done, wishes.inputs, 100)
        ]
    campaign.run([(name, numbers) for _, name, numbers in sorted(tasks)])
    shutil.rmtree(temporary, ignore_errors=True)
    shared.show(campaign.rows())
    return int(any(row[kind] for row in campaign.rows() for kind in BREACHES))


if __name__ == "__main__":
    sys.exit(main())
