# SPDX-License-Identifier: Apache-2.0
"""Try random settings of whatif, search, export, project and `hardware predict` on all available traces.

    python scripts/campaign/settings.py --inputs 2000 [--each] [--data FOLDER] [--seed 1] [--only NUMBER]

Every registered setting is drawn in the form of its examples, with other numbers, names of the catalog and
meaningless words; alone and combined, as settings, scenarios and sweeps.  Guaranteed for each: exit
code 0, or 2 or 3 with an error of one to three lines.  Inputs follow from the seed and a number.  Runs are
the shipped data points and the traces below --data; with --each every run has that many inputs.  A run
is opened, and its graph built, once.  Exit code 1 if a guarantee is violated.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import argparse
import json
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
from campaign import shared
from campaign.called import broken_promises, call
from campaign.seeds import REPOSITORY, kineto, write

import cclbench
from cclbench.ground.errors import CclbenchError
from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.hardware import catalog
from cclbench.record import rank as rank_module
from cclbench.record import run as run_module
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.replay import answer
from cclbench.replay.change import CHANGES
from cclbench.replay.graph import Graph, GraphInput
from cclbench.replay.scenario import key_and_value
from cclbench.replay.selection import MEASURES, words_of
from cclbench.workspace import Workspace

SOURCES: Final = (
    "graph_replay/*",
    "kineto/*",
    "kineto/resnet50_2021/*",
    "kineto_fused/*/*",
    "kineto_more/*",
    "memory/*",
    "nccl_logs",
    "nccl_tests",
    "nsys/*.sqlite",
    "nsys/synthetic/*",
    "serving_repeats",
    "xprof/*.*",
)
"""Sources below the data folder; files that no reader recognises are left out."""
NUMBERS: Final = (
    *("0", "1", "2", "3", "4", "6", "7", "8", "16", "64", "1024", "1048576", "1048577", "999999999"),
    *("0.5", "0.000001", "0.9999", "1.000001", "1000000", "1000001", "99999999999999999999"),
    *("-1", "-0", "nan", "inf", "1e400", "1e3", "", "٣", "0x10"),
)
USUAL: Final = 10
"""Number of the first `NUMBERS` that are drawn most often."""
WORDS: Final = ("none", "off", "tree", "ring", "x", "=", "..", ",", "é", "\x00", "a" * 300, "x2..x8", "graph")
GPUS: Final = ("1", "2", "3", "8", "12", "16", "64", "256", "1000", "4096")
DEGREES: Final = ("tp", "pp", "cp", "ep", "dp", "sp")
ALGORITHMS: Final = ("ring", "tree", "nvls", "nvlstree", "collnet", "direct", "pairwise", "quantum")
SIZES: Final = ("1", "4096", "1MiB", "64MiB,1GiB", "8 KiB", "1000000000000")
NO_SIZES: Final = ("0", "1EB", "-1", "1.5", "1e400", "nan", "1MiB,", "")
SCHEDULE: Final = """\
kind: all_reduce
ranks: 4
steps:
- [[0, 1, 0.5], [1, 0, 0.5], [2, 3, 0.5], [3, 2, 0.5]]
- [[0, 2, 0.5], [2, 0, 0.5], [1, 3, 0.5], [3, 1, 0.5]]
"""


CARD: Final = """\
version: 2
id: {id}
description: A run with a card.
workload: {{phase: training, batch: {{global: {world}, sequence_length: 128}}}}
hardware: {{count: {world}}}
parallelism: {{dp_shard: {world}}}
"""
MEASURED: Final = """\
version: 2
id: measured
description: A job with a measured step.
workload:
  phase: training
  model: {parameters: 2651307520, hidden: 2560, layers: 32, vocabulary: 50257}
  precision: fp16
  batch: {global: 1024, micro: 4, sequence_length: 2048}
parallelism: {dp_replicate: 8, tp: 4, pp: 2}
"""
STEPS: Final = ("6.43s", "10 ms", "1us", "1e9 s", "0s", "-1s", "99999999999999 s", "s", "1.5 parsec")
SMALL: Final = 30_000
"""Rows of a rank below which a run is small."""


class Chance(Random):
    """Random numbers of an input; a third of the inputs are `careless` and may contain meaningless words."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.careless = self.random() < 0.35

    def slips(self, share: float) -> bool:
        """Whether a careless input is wrong here."""
        return self.careless and self.random() < share / 2


Draw = Callable[[Chance, list[str], Path], list[str]]


def number(chance: Chance) -> str:
    """A number as users write it, or an invalid one."""
    return chance.choice(NUMBERS if chance.slips(0.4) else NUMBERS[1:USUAL])


def name(chance: Chance) -> str:
    """An entry of the catalog."""
    entries = (catalog.systems(), catalog.accelerators(), catalog.fabrics())
    return chance.choice(sorted(chance.choice(entries)))


def value(chance: Chance, examples: str) -> str:
    """A value like the examples of a setting, with other numbers or names; sometimes any word."""
    if chance.slips(0.15):
        return chance.choice((*WORDS, number(chance), f"x{number(chance)}"))
    drawn = chance.choice(examples.split(", "))
    for entries in (catalog.fabrics(), catalog.systems(), catalog.accelerators()):
        if drawn in entries or (drawn == "h200" and "nvidia-h200-sxm" in entries):
            return name(chance) if chance.slips(0.5) else chance.choice(sorted(entries))
    if chance.random() < 0.2:
        return drawn
    return re.sub(r"(?<!0)\d+(?!\.)", lambda _: number(chance), drawn)


def setting(chance: Chance) -> str:
    """KEY=VALUE of a random setting."""
    key = chance.choice(list(CHANGES))
    if key == "collective.<kind>":
        return f"collective.{chance.choice(COLLECTIVE_KINDS)}={chance.choice(ALGORITHMS)}"
    drawn = value(chance, CHANGES.get(key).values)
    if key == "schedule" and not chance.slips(0.3):
        drawn = "{folder}/steps.yaml"
    return f"{add_selection(chance, key)}={drawn}"


def add_selection(chance: Chance, key: str) -> str:
    """The key with a rank, step and conditions if it selects nodes."""
    noun, _, measure = key.partition(".")
    if noun not in MEASURES:
        return key
    prefix = ""
    if chance.random() < 0.3:
        prefix += f"rank[{chance.choice(('0', '1', '0-3', '0+2', number(chance), '3-1'))}]."
    if chance.random() < 0.2:
        prefix += f"step[{chance.choice(('0', '1', '0:4', number(chance), '5:5'))}]."
    conditions = []
    if chance.random() < 0.5:
        known = [*words_of(noun)]
        conditions.append("+".join(chance.choice(known) for _ in range(chance.choice((1, 1, 2)))))
    if chance.random() < 0.3:
        conditions.append(chance.choice(("name~gemm", "name~.", "name~(", "group=0-1|0-7", "group=", *WORDS)))
    where = f"[{'&'.join(conditions)}]" if conditions else ""
    return f"{prefix}{noun}{where}.{measure}"


def pick_run(chance: Chance, runs: list[str]) -> str:
    """A random run; half the time one of the first, which have cards."""
    return chance.choice(runs[:7] if chance.random() < 0.5 else runs)


def settings(chance: Chance) -> list[str]:
    """One to three settings."""
    return [setting(chance) for _ in range(chance.choice((1, 1, 1, 1, 2, 2, 3)))]


def machine(chance: Chance) -> list[str]:
    """Options that state the run's machine."""
    words = []
    if chance.random() < 0.4:
        words += ["--system", "aws" if chance.slips(0.2) else chance.choice(sorted(catalog.systems()))]
        words += ["--force-system"] if chance.random() < 0.8 else []
    if chance.random() < 0.2:
        words += ["--per-node", number(chance)]
    return words


def form(chance: Chance) -> list[str]:
    """Options of the output format."""
    return chance.choice(([], [], ["--json"], ["--format", "csv"], ["--format", "md"], ["-v"], ["-q"]))


def whatif(chance: Chance, runs: list[str], _: Path) -> list[str]:
    """Words of `cclbench whatif`: combined settings, scenarios, sweeps."""
    if chance.random() < 0.3:
        return ["whatif", pick_run(chance, runs), "--set", setting(chance)]
    words = ["whatif", pick_run(chance, runs), *machine(chance), *form(chance)]
    how = chance.random()
    if how < 0.8:
        for text in settings(chance):
            words += ["--set", text]
    if how > 0.7:
        for _ in range(chance.choice((1, 2))):
            words += ["--scenario", ",".join(settings(chance))]
    if how > 0.85:
        key = key_and_value(setting(chance))[0]
        low, high = (number(chance), number(chance)) if chance.slips(0.5) else ("0.5", "8")
        words += ["--sweep", f"{key}=x{low}..x{high}"]
    if chance.random() < 0.2:
        words += [
            "--contention",
            chance.choice(("0", "nan", "inf") if chance.slips(0.5) else ("off", "fit", "1.5", "100")),
        ]
    if chance.random() < 0.2:
        words += [
            "--ranks",
            chance.choice(("99", "-1", "3-1", "0-9999999999") if chance.slips(0.5) else ("0", "0,1", "1-3")),
        ]
    return words


def search(chance: Chance, runs: list[str], folder: Path) -> list[str]:
    """Words of `cclbench search`: a space of up to three settings, some with costs."""
    space: dict[str, list[str]] = {}
    for text in settings(chance):
        key, _, first = text.partition("=")
        examples = CHANGES.get(key).values if key in CHANGES else ""
        more = [value(chance, examples) for _ in range(chance.choice((0, 1, 2)))] if examples else []
        space[key] = list(dict.fromkeys([first, *more, "unchanged"]))
    told: dict[str, object] = {"space": space}
    if chance.random() < 0.4:
        key = chance.choice(sorted(space))
        told["cost"] = {
            key: {
                space[key][0]: chance.choice(
                    (-1, float("nan"), float("inf"), "x") if chance.slips(0.5) else (1, 40.5)
                )
            }
        }
    (folder / "space.yaml").write_text(json.dumps(told).replace("{folder}", str(folder)))
    words = [
        "search",
        pick_run(chance, runs),
        "--space",
        "{folder}/space.yaml",
        *machine(chance),
        *form(chance),
    ]
    if chance.random() < 0.3:
        limit = f"{chance.choice(('cost', 'devices', 'step', 'nosuch'))}<={number(chance)}"
        words += ["--constraint", limit + chance.choice(("", "ms", "GB"))]
    words += ["--trials", chance.choice(("1", "3", "10"))]
    words += ["--objective", "tokens_per_second_per_device"] if chance.random() < 0.2 else []
    return words


def predict(chance: Chance, _: list[str], __: Path) -> list[str]:
    """Words of `cclbench hardware predict`, for any machine."""
    system = name(chance) if chance.slips(0.1) else chance.choice(sorted(catalog.systems()))
    words = ["hardware", "predict", "--system", system, *chance.choice(([], [], ["--json"]))]
    if chance.random() < 0.15:
        words += ["--schedule", "{folder}/steps.yaml"]
    else:
        words += ["--collective", chance.choice(COLLECTIVE_KINDS), "--ranks", number(chance) or "2"]
    words += (
        ["--size", chance.choice(NO_SIZES if chance.slips(0.3) else SIZES)] if not chance.slips(0.1) else []
    )
    for option, values, share in (
        ("--nodes", NUMBERS, 0.3),
        ("--algorithm", ALGORITHMS, 0.3),
        ("--protocol", ("LL", "LL128", "Simple", "ll", "none"), 0.2),
        ("--transport", ("tcp", "efa", "ofi", "verbs", "x"), 0.1),
        ("--library-version", ("2.18", "2.23.4", "2.99", "0.0", "9999.9999", "x", "-1"), 0.2),
    ):
        words += [option, chance.choice(values)] if chance.random() < share else []
    return words


def export(chance: Chance, runs: list[str], folder: Path) -> list[str]:
    """Words of `cclbench export`, of the replayed graph."""
    words = ["export", pick_run(chance, runs), "--to", chance.choice(("chakra", "astra-sim"))]
    place = folder / f"graph-{chance.randrange(1 << 40)}"
    return [*words, "--output", str(place), *[word for word in machine(chance) if word != "--force-system"]]


def project(chance: Chance, runs: list[str], _: Path) -> list[str]:
    """Words of `cclbench project`: a machine, a number of accelerators, often a layout and settings."""
    system = name(chance) if chance.slips(0.1) else chance.choice(sorted(catalog.systems()))
    words = ["project", pick_run(chance, runs), "--system", system, *form(chance)]
    if chance.random() < 0.2:
        words[1] = "{folder}/measured.yaml"
        words += ["--step", chance.choice(STEPS if chance.slips(0.4) else STEPS[:2])]
    words += ["--gpus", number(chance) if chance.slips(0.2) else chance.choice(GPUS)]
    if chance.random() < 0.6:
        degrees = chance.sample(DEGREES, chance.choice((1, 1, 2, 3)))
        sizes = (
            number(chance) if chance.slips(0.2) else chance.choice(("1", "2", "4", "8")) for _ in degrees
        )
        words += ["--layout", ",".join(map("=".join, zip(degrees, sizes, strict=True)))]
    if chance.random() < 0.4:
        words += ["--set", chance.choice(("strategy=fsdp", "strategy=ddp", "batch=global", setting(chance)))]
    if chance.random() < 0.1:
        words += ["--per-node", number(chance)]
    return words


COMMANDS: Final[tuple[tuple[Draw, float], ...]] = (
    (whatif, 70),
    (search, 12),
    (predict, 15),
    (export, 3),
    (project, 20),
)


OF_RUNS: Final = tuple(draw.__name__ for draw, _ in COMMANDS if draw is not predict)


def draw_input(
    seed: str, at: int, runs: list[str], folder: Path, commands: Sequence[str] | None = None
) -> list[str]:
    """The words of input number `at`, of any of the commands."""
    chance = Chance(f"{seed}/{at}")
    (draw,) = chance.choices(
        [draw for draw, _ in COMMANDS],
        [weight if commands is None or draw.__name__ in commands else 0 for draw, weight in COMMANDS],
    )
    return [word.replace("{folder}", str(folder)) for word in draw(chance, runs, folder)]


def ingest(data: Path, store: Path) -> Iterator[Run]:
    """Runs of a job, of the data points, of all that can be read below the folder of data; of what has no
    card and is small, one with a card, too."""
    write(store.parent / "job", kineto())
    shipped = sorted((REPOSITORY / "workload_cards").glob("*.yaml"))
    evidence = [path for pattern in SOURCES for path in sorted(data.glob(pattern))]
    for source in [store.parent / "job", *shipped, *evidence]:
        try:
            run = cclbench.ingest(source, store=store)
            yield run
            if run.card is None and run.ranks and sum(run.record.ranks[0].rows.values()) < SMALL:
                yield cclbench.ingest(_with_card(source, run, store.parent / "cards" / run.id), store=store)
        except CclbenchError:
            continue


def _with_card(source: Path, run: Run, folder: Path) -> Path:
    """A copy of the source with a card that says what layout its ranks have."""
    if source.is_dir():
        shutil.copytree(source, folder)
    else:
        folder.mkdir(parents=True)
        shutil.copy(source, folder)
    world = run.rank(run.ranks[0]).facts.world_size or len(run.ranks)
    (folder / f"{folder.name}.yaml").write_text(CARD.format(id=folder.name, world=world))
    return folder


def keep_runs() -> None:
    """Open a run, read its tables and build its graph once for all inputs; a change in place would show."""
    read, build = answer.tables.graph_inputs, answer.build_graph
    open_stored, rank_of, read_table = Workspace.open_run, run_module.Run.rank, rank_module.read_table
    opened: dict[str, Run] = {}
    inputs: dict[tuple[Path, tuple[int, ...] | None], list[GraphInput]] = {}
    graphs: dict[int, Graph] = {}

    def open_once(work: Workspace, run: str | Path | Run) -> Run:
        if not isinstance(run, str):
            return open_stored(work, run)
        if run not in opened:
            opened[run] = open_stored(work, run)
        return opened[run]

    @lru_cache(maxsize=16)
    def rank_once(run: Run, rank: int) -> Rank:
        return rank_of(run, rank).with_column_cache()

    @lru_cache(maxsize=256)
    def table_once(path: Path, columns: tuple[str, ...] | None, *more: object) -> pa.Table:
        schema, listed = more
        return read_table(path, schema, columns=columns, listed=listed)

    def columns_once(path: Path, schema: pa.Schema, *, columns: Any = None, listed: Any = None) -> pa.Table:
        return table_once(path, columns and tuple(columns), schema, listed)

    def read_once(run: Run, chosen: Sequence[int] | None = None) -> list[GraphInput]:
        key = run.path, chosen and tuple(chosen)
        if key not in inputs:
            inputs[key] = read(run, chosen)
        return inputs[key]

    def build_once(ranks: list[GraphInput]) -> Graph:
        if id(ranks) not in graphs:
            graphs[id(ranks)] = build(ranks)
        return graphs[id(ranks)]

    Workspace.open_run, run_module.Run.rank = open_once, rank_once
    run_module.read_table = rank_module.read_table = columns_once
    answer.tables.graph_inputs, answer.build_graph = read_once, build_once


def main() -> int:
    """Attempt the inputs and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--data", type=Path, default=REPOSITORY / "traces", help="folder of traces")
    parser.add_argument("--each", action="store_true", help="that many inputs of each run")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int, help="run only this input, and print its error")
    parser.add_argument(
        "--command", choices=sorted(draw.__name__ for draw, _ in COMMANDS), help="only this one"
    )
    asked = parser.parse_args()
    keep_runs()
    commands = OF_RUNS if asked.each else None
    counts: dict[str, Counter[str]] = {draw.__name__: Counter() for draw, _ in COMMANDS}
    known: set[str] = set()
    slowest = (0.0, "")
    with TemporaryDirectory() as place:
        folder = Path(place)
        store = folder / "store"
        (folder / "steps.yaml").write_text(SCHEDULE)
        (folder / "measured.yaml").write_text(MEASURED)
        runs = [run.id for run in ingest(asked.data, store)]
        print(f"runs: {len(runs)}", flush=True)
        numbers = range(asked.inputs) if asked.only is None else [asked.only]
        for drawn in [[run] for run in runs] if asked.each else [runs]:
            own_seed = f"{asked.seed}/{drawn[0]}" if asked.each else asked.seed
            for at in numbers:
                words = draw_input(
                    own_seed, at, drawn, folder, (asked.command,) if asked.command else commands
                )
                own = counts[words[1] if words[0] == "hardware" else words[0]]
                begin = time.monotonic()
                of_run = [] if words[0] == "hardware" else ["--store", str(store)]
                code, error, stderr = call([*words, *of_run])
                slowest = max(slowest, (time.monotonic() - begin, shlex.join(words)))
                own["inputs"] += 1
                own["refused" if code else "accepted"] += 1
                breaches = list(broken_promises(code, error, stderr))
                if code == 1:
                    breaches.append(("exit 1", stderr))
                own["broken"] += bool(breaches)
                if asked.only is not None:
                    print(shlex.join(words), stderr, sep="\n")
                for kind, what in breaches:
                    if (signature := re.sub(r"[\d.]+", "#", what)) not in known:
                        known.add(signature)
                        print(f"{at}: {kind}: {what}\n    cclbench {shlex.join(words)}", flush=True)
    print(f"longest: {slowest[0]:.1f} s: {slowest[1]}")
    rows = [
        {"command": command, **{what: own[what] for what in ("inputs", "refused", "accepted", "broken")}}
        for command, own in counts.items()
    ]
    total = {what: sum(row[what] for row in rows) for what in rows[0] if what != "command"}
    shared.show([*rows, {"command": "all", **total}])
    return 1 if total["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
