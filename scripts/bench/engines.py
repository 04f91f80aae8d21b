# SPDX-License-Identifier: Apache-2.0
"""Measure the overhead of a Dask cluster over local processes.

    python scripts/bench/engines.py --ranks 1000 --repeat 3

A job of `scale.py` is read into an empty store and all metrics are computed, alternately with two processes
and with a local cluster of two workers, including the cluster's start and shutdown.  Then tasks that only
sleep run on a cluster of eight workers: efficiency is their time over eight times the wall time.  Goals: at
most 15 % longer with the cluster, and at least 90 % efficiency.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from peak_memory import CommandError, Measurement, measure
from scale import write_job

from cclbench.engine import DASK, PROCESSES, engine_of

REPOSITORY = Path(__file__).resolve().parents[2]
WORKERS, SLEEP_S, TASKS = 8, 0.1, 800
OVERHEAD_GOAL, EFFICIENCY_GOAL = 0.15, 0.9


def run(source: Path, engine: str) -> Measurement:
    """Measure `cclbench run` with that engine into an empty store."""
    with tempfile.TemporaryDirectory(dir=source.parent) as store:
        words = ["run", str(source), "--store", store, "--engine", engine, "--jobs", "2", "--json"]
        return measure([sys.executable, "-m", "cclbench", *words], REPOSITORY, memory=False)


def efficiency() -> float:
    """Time of sleeping tasks over the time of their workers."""
    with engine_of(DASK, jobs=WORKERS) as engine:
        engine.map(time.sleep, [0.0] * WORKERS)
        began = time.perf_counter()
        engine.map(time.sleep, [SLEEP_S] * TASKS)
        return SLEEP_S * TASKS / WORKERS / (time.perf_counter() - began)


def main() -> None:
    """Measure and print a report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--ranks", type=int, default=1000, help="ranks of the job")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; times are their median")
    parser.add_argument("--workdir", type=Path, help="folder for traces and stores, on a large disk")
    asked = parser.parse_args()
    if asked.repeat < 1 or asked.ranks < 1:
        parser.error("--repeat and --ranks must be positive")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; median of {asked.repeat}", flush=True)
    runs: dict[str, list[Measurement]] = {PROCESSES: [], DASK: []}
    with tempfile.TemporaryDirectory(dir=asked.workdir) as folder:
        source = Path(folder, "job")
        rows = write_job(source, asked.ranks)
        print(f"{asked.ranks:,} ranks of {rows:,} rows")
        for _ in range(asked.repeat):
            for engine, measured in runs.items():
                measured.append(run(source, engine))
    wall = {engine: median(one.wall_s for one in measured) for engine, measured in runs.items()}
    for engine, measured in runs.items():
        cpu = median(one.cpu_s for one in measured)
        print(f"  two of {engine:10}{wall[engine]:9.1f} s{cpu:9.1f} CPU s")
    overhead, achieved = wall[DASK] / wall[PROCESSES] - 1, efficiency()
    verdict = "met" if overhead <= OVERHEAD_GOAL else "NOT met"
    print(f"  Dask takes {overhead:+.1%} (goal: at most {OVERHEAD_GOAL:.0%}: {verdict})")
    verdict = "met" if achieved >= EFFICIENCY_GOAL else "NOT met"
    print(f"  {TASKS} tasks that sleep {SLEEP_S} s on {WORKERS} workers: {achieved:.1%} efficiency", end=" ")
    print(f"(goal: at least {EFFICIENCY_GOAL:.0%}: {verdict})")


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(str(error))
