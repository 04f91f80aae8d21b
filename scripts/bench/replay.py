# SPDX-License-Identifier: Apache-2.0
"""Measure the accuracy and the speed of the replay.

`replay.py identity SOURCE...` replays runs unchanged and prints replayed and measured steps;
`replay.py truth --layouts 100` replays random layouts under another network and prints the errors;
`replay.py scaling --jobs 36` predicts simulated jobs of 8 ranks at 64 ranks, and prints the errors;
`replay.py bands --layouts 100` counts how often the bands of predictions contain the step of simulations that
deviate from the model;
`replay.py scale --ranks 64 --events 100000` writes a run of that size and times a prediction from it.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa

from cclbench.ground.schema import COLLECTIVES, EVENTS, GROUPS, STEPS, group_id
from cclbench.machine import machine_of
from cclbench.record.facts import TraceFacts
from cclbench.record.files import EventFile, write_table
from cclbench.record.inventory import write_manifest
from cclbench.record.manifest import File, Manifest, RankEntry
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.scenario import parse_scenario
from cclbench.workspace import open_run

KERNELS_A_COLLECTIVE = 30
STEPS_OF_RUN = 10
TRANSFER_NS, LATENCY_NS, LAUNCH_NS = 50_000, 5_000, 4_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(dest="mode", required=True)
    identity = modes.add_parser("identity", help="measured and replayed steps of runs")
    identity.add_argument("sources", nargs="+")
    identity.add_argument("--store", default=None)
    truth = modes.add_parser(
        "truth", help="errors for random layouts with a known step under another network"
    )
    truth.add_argument("--layouts", type=int, default=100)
    truth.add_argument("--seed", type=int, default=5)
    scaling = modes.add_parser("scaling", help="errors for jobs of 8 ranks predicted and simulated at 64")
    scaling.add_argument("--jobs", type=int, default=36)
    scaling.add_argument("--from-one", action="store_true", help="jobs of one rank, by `cclbench project`")
    bands = modes.add_parser(
        "bands", help="share of steps within the bands if the machine deviates from the model"
    )
    bands.add_argument("--layouts", type=int, default=100)
    bands.add_argument("--seed", type=int, default=3)
    scale = modes.add_parser("scale", help="time and memory of a large run")
    scale.add_argument("--ranks", type=int, default=64)
    scale.add_argument("--events", type=int, default=100_000, help="events of each rank")
    asked = parser.parse_args()
    if asked.mode == "identity":
        print_identity(asked.sources, asked.store)
    elif asked.mode == "truth":
        print_truth(asked.layouts, asked.seed)
    elif asked.mode == "scaling":
        print_scaling(asked.jobs, asked.from_one)
    elif asked.mode == "bands":
        print_bands(asked.layouts, asked.seed)
    else:
        time_large_run(asked.ranks, asked.events)


def print_identity(sources: list[str], store: str | None) -> None:
    """Print measured and replayed step of each run, and the step without transfer times."""
    print("| run | ranks | nodes | rendezvous | measured ms | replayed ms | off | without transfers ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for source in sources:
        run = open_run(source, store=store)
        replay = Replay(run)
        nodes, off = replay.graph.nodes, replay.unchanged.step_ns / replay.measured_ns - 1
        none = replay._replay_outcome(replay.graph, np.where(nodes.kind == n.TRANSFER, 0.0, 1.0))
        met, measured = int((nodes.kind == n.RENDEZVOUS).sum()), replay.measured_ns / 1e6
        print(
            f"| {run.id} | {len(replay.graph.windowed)} | {len(nodes):,} | {met:,} | {measured:.3f}"
            f" | {replay.unchanged.step_ns / 1e6:.3f} | {off:+.2%} | {none.step_ns / 1e6:.3f} |"
        )


def print_scaling(count: int, from_one: bool) -> None:
    """Print errors of jobs at 64 ranks by scaled dimension, and the share of true steps within bounds."""
    if from_one:
        results = [*map(test_helper("single_rank_jobs").from_one_rank, range(count))]
    else:
        jobs = test_helper("scaled_jobs")
        results = [jobs.scaled(jobs.job(seed)) for seed in range(count)]
    print("| scaled dimension | jobs | median error | maximum | true step within bounds |")
    print("| --- | ---: | ---: | ---: | ---: |")
    groups: dict[str, list] = {}
    for result in results:
        names = [text.removeprefix("parallelism.").partition("=")[0] for text in result.job.settings]
        groups.setdefault(", ".join(names), []).append(result)
    for dimensions, group in [*sorted(groups.items()), ("all", results)]:
        errors = np.abs([result.error for result in group])
        within = np.mean([result.held for result in group])
        print(
            f"| {dimensions} | {len(group)} | {np.median(errors):.1%} | {errors.max():.1%} | {within:.0%} |"
        )


def print_bands(layouts: int, seed: int) -> None:
    """Print shares of random layouts whose true step is within, below and above the band."""
    perturbed = test_helper("perturbed")
    print("| setting | deviates | layouts | within | below | above | band, median |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for setting in ("system=aws-p5", "scale_out.bandwidth=x2", "scale_up.bandwidth=x2"):
        for whole in (True, False):
            found = perturbed.held(layouts, seed, setting, whole=whole)
            shares = [count / max(found.layouts, 1) for count in (found.inside, found.below, found.above)]
            words = f"`{setting}`", "the machine" if whole else "each group and kind", str(found.layouts)
            cells = " | ".join((*words, *(f"{share:.0%}" for share in shares)))
            print(f"| {cells} | {np.median(found.widths or [1]):.2f} times |", flush=True)


def test_helper(name: str) -> ModuleType:
    """Import a helper module of the tests."""
    tests = Path(__file__).parents[2] / "tests"
    sys.path.append(str(tests))
    return importlib.import_module(f"helpers.{name}")


def print_truth(layouts: int, seed: int) -> None:
    """Print errors of random layouts' steps: unchanged, and under another network."""
    steps = test_helper("true_steps")
    print("| network | events | layouts | replayed unchanged, most | predicted, median | p90 | most |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for change in (steps.fast, steps.slow):
        for events in (False, True):
            found = steps.errors(layouts, seed, change, events=events)
            errors = np.abs(found.predicted)
            figures = [np.abs(found.identity).max(), *np.quantile(errors, (0.5, 0.9, 1))]
            words = change.__doc__.rstrip(".").lower(), "traced" if events else "inferred", str(len(errors))
            print(f"| {' | '.join((*words, *(f'{share:.2%}' for share in figures)))} |")


def time_large_run(ranks: int, events: int) -> None:
    """Print seconds and peak memory of reading, building, and two replays with critical paths."""
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "run", ranks, events)
        begin = time.perf_counter()
        replay = Replay(run, machine=machine_of(run, per_node=ranks))
        built = time.perf_counter()
        found = replay.predict(parse_scenario(["scale_up.bandwidth=x2"]))
        done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    pieces = len(replay.graph.cut.head)
    off = replay.unchanged.step_ns / replay.measured_ns - 1
    print(
        f"{ranks} ranks × {events:,} events: {len(replay.graph.nodes):,} nodes in {pieces:,} pieces;"
        f" read, built, replayed unchanged {built - begin:.1f} s ({off:+.3%} beside measured);"
        f" predicted {done - built:.1f} s ({found.high_ns / 1e6:.3f} ms); peak {peak:.2f} GiB"
    )


def write_run(path: Path, ranks: int, events: int) -> Run:
    """Write a run: kernels of random lengths, and after every 30 an awaited all-reduce of all ranks.

    A third of the events each are kernels, launches and host operators.
    """
    random = np.random.default_rng(1)
    blocks = max(events // 3 // KERNELS_A_COLLECTIVE, STEPS_OF_RUN)
    lengths = random.integers(5_000, 60_000, (ranks, blocks, KERNELS_A_COLLECTIVE - 1))
    work = lengths.sum(axis=2)
    latest = np.cumsum(work.max(axis=0) + TRANSFER_NS)
    begin = np.append(1_000_000, 1_000_000 + latest[:-1])
    members = list(range(ranks))
    for rank in members:
        _write(path, rank, lengths[rank], begin, 1_000_000 + latest, members)
    write_table(
        path / "groups.parquet",
        pa.table(
            {
                "group": [group_id(tuple(members))],
                "ranks": [members],
                "size": [ranks],
                "descriptions": [[]],
                "source": ["stated"],
            },
            schema=GROUPS,
        ),
    )
    entries = [
        RankEntry(
            rank=rank,
            facts=TraceFacts(works_on="device", world_size=ranks),
            span_ns=(0, int(1_000_000 + latest[-1])),
            files=[File(f"rank{rank}.json", 0, "", "kineto")],
            rows=dict.fromkeys(
                ("kernel", "launch", "op"), events // 3 // KERNELS_A_COLLECTIVE * KERNELS_A_COLLECTIVE
            ),
        )
        for rank in members
    ]
    write_manifest(Manifest(run=path.name, fingerprint="", source="simulated", ranks=entries), path)
    return Run(path)


def _write(
    path: Path, rank: int, lengths: np.ndarray, begin: np.ndarray, latest: np.ndarray, members: list[int]
) -> None:
    blocks, kernels = lengths.shape
    ends = begin[:, None] + np.cumsum(lengths, axis=1)
    starts = ends - lengths
    step = np.minimum(np.arange(blocks) * STEPS_OF_RUN // blocks, STEPS_OF_RUN - 1)
    start = np.concatenate([starts, ends[:, -1:]], axis=1).ravel()
    end = np.concatenate([ends, latest[:, None]], axis=1).ravel()
    count = len(start)
    comm = np.tile(np.arange(kernels + 1) == kernels, blocks)
    launch = np.arange(count) * LAUNCH_NS
    launch = np.minimum(launch, start - LATENCY_NS)
    key = (rank << 32) + np.arange(blocks)
    folder = path / "events" / f"rank={rank}"
    common = {"correlation": np.arange(count)}
    _events(
        folder,
        "kernel",
        start,
        end - start,
        track=np.where(comm, 20, 7),
        step=np.repeat(step, kernels + 1),
        collective=pa.array(np.where(comm, np.repeat(key, kernels + 1), 0), mask=~comm),
        names=np.where(comm, "ncclDevKernel_AllReduce", "gemm"),
        categories=np.where(comm, "communication", "gemm"),
        **common,
    )
    host = {"track": np.full(count, 1)}
    _events(
        folder,
        "launch",
        launch,
        np.full(count, 2_000),
        names=np.full(count, "cudaLaunchKernel"),
        **host,
        **common,
    )
    _events(folder, "op", launch - 500, np.full(count, 3_000), names=np.full(count, "aten::mm"), **host)
    arrival = ends[:, -1]
    table = {
        "collective": key,
        "instance": np.arange(blocks),
        "rank": np.full(blocks, rank),
        "kind": ["all_reduce"] * blocks,
        "library": ["nccl"] * blocks,
        "group": [group_id(tuple(members))] * blocks,
        "group_size": np.full(blocks, len(members)),
        "seq": np.arange(blocks),
        "in_bytes": np.full(blocks, 1 << 22),
        "out_bytes": np.full(blocks, 1 << 22),
        "step": step,
        "start_ns": arrival,
        "end_ns": latest,
        "arrival_ns": arrival,
        "wait_ns": latest - TRANSFER_NS - arrival,
        "transfer_ns": np.full(blocks, TRANSFER_NS),
    }
    write_table(path / "collectives" / f"rank={rank}.parquet", _table(table, COLLECTIVES, blocks))
    firsts = begin[np.searchsorted(step, np.arange(STEPS_OF_RUN))]
    windows = {
        "rank": np.full(STEPS_OF_RUN, rank),
        "step": np.arange(STEPS_OF_RUN),
        "start_ns": firsts,
        "end_ns": np.append(firsts[1:], latest[-1]),
        "source": ["device"] * STEPS_OF_RUN,
        "open": [False] * STEPS_OF_RUN,
    }
    write_table(path / "steps" / f"rank={rank}.parquet", _table(windows, STEPS, STEPS_OF_RUN))


def _events(folder: Path, kind: str, start: np.ndarray, dur: np.ndarray, **columns: object) -> None:
    count = len(start)
    names = columns.pop("names")
    categories = columns.pop("categories", np.full(count, "other"))
    columns |= {
        "side": ["device" if kind == "kernel" else "host"] * count,
        "kind": [kind] * count,
        "name": names,
        "category": categories,
        "start_ns": start,
        "dur_ns": dur,
    }
    file = EventFile(folder, kind, 0)
    file.write(_table(columns, EVENTS, count))
    file.close()


def _table(columns: dict[str, object], schema: pa.Schema, count: int) -> pa.Table:
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(count, field.type))
        elif pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode().cast(field.type))
        else:
            arrays.append(pa.array(values).cast(field.type))
    return pa.table(arrays, schema=schema)


if __name__ == "__main__":
    main()
