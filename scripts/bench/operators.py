# SPDX-License-Identifier: Apache-2.0
"""Measure the CPU time and peak memory that operators add to `cclbench run`.

    python scripts/bench/operators.py [SOURCE...] [--megabytes SIZE...] [--trace TRACE] [--repeat N]

The same source, or a trace of each size, is run by one process into an empty store, alternately with and
without operators.  "Without" is the same code with the functions replaced that find and write the operators'
table, compute costs, and count the work of an XLA program's instructions: metrics of operators then have no
value.  Rows of operators are stored in `events` in both cases, with their arguments.  CPU is user and system
time, memory the peak of the process's pages (Pss).  Goals: at most 20 % more CPU, and memory that does not
grow with the trace.
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
RUN = """
import sys
from pathlib import Path
import pyarrow.parquet
from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view import rank_view
from cclbench.cli import main
from cclbench.formats.xplane import hlo_proto
from cclbench.ground.schema import OPERATORS
from cclbench.ingestion import rank
from cclbench.record.files import write_table
from cclbench.record.manifest import GraphJoins
source, store, operators = sys.argv[1:]
if operators == "without":
    def no_works(_):
        raise NotApplicable("operators are switched off")
    def write_none(folder, number, *_, **__):
        write_table(folder / "operators" / f"rank={number}.parquet", OPERATORS.empty_table())
        return (lambda _: {}), GraphJoins(), 0
    rank.write_operators = write_none
    rank_view.rank_works = no_works
    hlo_proto._counted_call = lambda *_: (None, ())
if code := main(["run", source, "--store", store, "--jobs", "1", "--format", "csv"]):
    sys.exit(code)
tables = Path(store).glob("*/operators/*.parquet")
print(sum(pyarrow.parquet.read_metadata(table).num_rows for table in tables))
"""
CPU_GOAL, GROWTH_GOAL = 0.2, 0.15


def run_source(source: Path, operators: str, workdir: Path) -> Measurement:
    """Measure `cclbench run` of a source into an empty store, `with` or `without` operators."""
    with tempfile.TemporaryDirectory(dir=workdir) as store:
        return measure([sys.executable, "-c", RUN, str(source), store, operators], REPOSITORY)


def size_in_page_cache(source: Path) -> int:
    """Bytes of the source's files, which are read so that the page cache has them for each run."""
    size = 0
    for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
        if path.is_file():
            with path.open("rb") as file:
                while block := file.read(1 << 24):
                    size += len(block)
    return size


def measure_alternately(source: Path, repeat: int, workdir: Path) -> dict[str, list[Measurement]]:
    """Measurements of each kind, taken alternately."""
    runs: dict[str, list[Measurement]] = {"without": [], "with": []}
    for _ in range(repeat):
        for operators, own in runs.items():
            own.append(run_source(source, operators, workdir))
    return runs


def report(source: Path, repeat: int, workdir: Path) -> dict[str, float]:
    """Measure a source, print a row per kind and the cost of operators; returns each kind's peak, bytes."""
    size = size_in_page_cache(source) / 1e6
    runs = measure_alternately(source, repeat, workdir)
    cpu = {operators: median(run.cpu_s for run in own) for operators, own in runs.items()}
    peak = {operators: max(run.peak_bytes for run in own) for operators, own in runs.items()}
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    calls = int(runs["with"][0].stdout.splitlines()[-1])
    print(f"{source.name}: {size:.1f} MB, {calls:,} launching operators; the machine's load: {load}")
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
    parser.add_argument("sources", type=Path, nargs="*", metavar="SOURCE", help="measured as they are")
    parser.add_argument(
        "--megabytes", type=float, nargs="+", default=[300.0], help="sizes of trace to measure without SOURCE"
    )
    parser.add_argument("--trace", type=Path, help="a Kineto trace to enlarge, instead of a synthetic one")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; CPU times are their median")
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()) / "cclbench-bench")
    asked = parser.parse_args()
    if asked.repeat < 1 or min(asked.megabytes) <= 0:
        parser.error("--repeat and --megabytes must be positive")
    return asked


def measure_sizes(asked: argparse.Namespace) -> None:
    """Write, measure and remove a trace of each size; compare the peaks."""
    peaks: list[tuple[float, dict[str, float]]] = []
    for megabytes in sorted(asked.megabytes):
        trace = asked.workdir / f"{'synthetic' if asked.trace is None else 'enlarged'}-{megabytes:g}mb.json"
        if asked.trace is None:
            write_trace(trace, megabytes)
        else:
            write_enlarged(asked.trace, trace, megabytes)
        peaks.append((trace.stat().st_size, report(trace, asked.repeat, asked.workdir)))
        trace.unlink()
    for size, peak in peaks[1:]:
        without, grown = (peak[operators] / peaks[0][1][operators] - 1 for operators in ("without", "with"))
        goal = f"peak within {GROWTH_GOAL:.0%} at {size / peaks[0][0]:.1f} x the size"
        verdict = "met" if grown <= GROWTH_GOAL else "NOT met"
        print(f"goal: {goal}: {grown:+.0%}, without operators {without:+.0%}: {verdict}")


def main() -> None:
    """Measure and print."""
    asked = arguments()
    asked.workdir.mkdir(parents=True, exist_ok=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}; one process; median of {asked.repeat}; peak: the largest of all runs", flush=True)
    try:
        if asked.sources:
            for source in asked.sources:
                report(source.resolve(), asked.repeat, asked.workdir)
        else:
            measure_sizes(asked)
    except CommandError as failure:
        raise SystemExit(str(failure)) from failure


if __name__ == "__main__":
    main()
