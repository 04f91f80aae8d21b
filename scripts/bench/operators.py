# SPDX-License-Identifier: Apache-2.0
"""Measure the CPU time and peak memory that the operators' table adds to ingesting a Kineto trace.

The same trace is ingested by one process into an empty store, alternately with and without operators;
"without" is the same code with the function that finds and writes them replaced.  Rows of operators are
stored in `events` in both cases, with their arguments.  CPU is user and system time, memory the peak of the
process's pages (Pss).  Goals: at most 30 % more CPU, and memory that does not grow with the trace.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path
from statistics import median

from enlarge_trace import write_enlarged
from peak_memory import CommandError, Measurement, measure
from synthetic_trace import write_trace

REPOSITORY = Path(__file__).resolve().parents[2]
INGEST = """
import sys
import cclbench
from cclbench.ingestion import rank
trace, store, operators = sys.argv[1:]
if operators == "without":
    rank.write_operators = lambda *_, **__: (lambda _: {}, [], 0)
run = cclbench.ingest(trace, store=store, jobs=1)
print(sum(entry.operators for entry in run.record.ranks))
"""
CPU_GOAL, GROWTH_GOAL = 0.3, 0.15


def ingest(trace: Path, operators: str) -> Measurement:
    """Measure ingesting a trace into an empty store, `with` or `without` operators."""
    with tempfile.TemporaryDirectory(dir=trace.parent) as store:
        return measure([sys.executable, "-c", INGEST, str(trace), store, operators], REPOSITORY)


def measure_alternately(trace: Path, repeat: int) -> dict[str, list[Measurement]]:
    """Measurements of each kind, taken alternately."""
    with trace.open("rb") as file:
        while file.read(1 << 24):  # from the page cache for both
            pass
    runs: dict[str, list[Measurement]] = {"without": [], "with": []}
    for _ in range(repeat):
        for operators, own in runs.items():
            own.append(ingest(trace, operators))
    return runs


def report(trace: Path, runs: dict[str, list[Measurement]]) -> dict[str, float]:
    """Print a row per kind and the cost of operators; returns the peak of each kind, bytes."""
    cpu = {operators: median(run.cpu_s for run in own) for operators, own in runs.items()}
    peak = {operators: max(run.peak_bytes for run in own) for operators, own in runs.items()}
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    calls = int(runs["with"][0].stdout)
    size = trace.stat().st_size / 1e6
    print(f"{trace.name}: {size:.0f} MB, {calls:,} launching operators; the machine's load: {load}")
    print(f"  {'':18}{'CPU s':>9}{'wall s':>9}{'peak MB':>9}   CPU s of each run")
    for operators, own in runs.items():
        wall, each = median(run.wall_s for run in own), " ".join(f"{run.cpu_s:.2f}" for run in own)
        cells = f"{cpu[operators]:9.2f}{wall:9.2f}{peak[operators] / 1e6:9.0f}"
        print(f"  {operators + ' operators':18}{cells}   {each}")
    added, more = cpu["with"] / cpu["without"] - 1, peak["with"] - peak["without"]
    verdict = "met" if added <= CPU_GOAL else "NOT met"
    print(f"  operators add {added:.1%} CPU (goal: at most {CPU_GOAL:.0%}: {verdict})")
    print(f"  and {more / 1e6:.0f} MB, {more / max(calls, 1):.0f} B a launching operator", flush=True)
    return {operators: float(most) for operators, most in peak.items()}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "--megabytes", type=float, nargs="+", default=[300.0], help="sizes of trace to measure"
    )
    parser.add_argument("--trace", type=Path, help="a Kineto trace to enlarge, instead of a synthetic one")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; CPU times are their median")
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()) / "cclbench-bench")
    asked = parser.parse_args()
    if asked.repeat < 1 or min(asked.megabytes) <= 0:
        parser.error("--repeat and --megabytes must be positive")
    return asked


def main() -> None:
    """Write the traces, measure and print."""
    asked = arguments()
    asked.workdir.mkdir(parents=True, exist_ok=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}; one process; median of {asked.repeat}; peak: the largest of all runs", flush=True)
    peaks: list[tuple[float, dict[str, float]]] = []
    for megabytes in sorted(asked.megabytes):
        trace = asked.workdir / f"{'synthetic' if asked.trace is None else 'enlarged'}-{megabytes:g}mb.json"
        if asked.trace is None:
            write_trace(trace, megabytes)
        else:
            write_enlarged(asked.trace, trace, megabytes)
        try:
            peak = report(trace, measure_alternately(trace, asked.repeat))
        except CommandError as failure:
            raise SystemExit(str(failure)) from failure
        peaks.append((trace.stat().st_size, peak))
        trace.unlink()
    for size, peak in peaks[1:]:
        without, grown = (peak[operators] / peaks[0][1][operators] - 1 for operators in ("without", "with"))
        goal = f"peak within {GROWTH_GOAL:.0%} at {size / peaks[0][0]:.1f} x the size"
        verdict = "met" if grown <= GROWTH_GOAL else "NOT met"
        print(f"goal: {goal}: {grown:+.0%}, without operators {without:+.0%}: {verdict}")


if __name__ == "__main__":
    main()
