# SPDX-License-Identifier: Apache-2.0
"""Compare time and memory of ingesting an Nsight Systems export with sqlite3 and pandas.

`cclbench ingest` reads the whole file into an empty store.  The other tool, in a new process on the same
file, loads the same tables into data frames with `pandas.read_sql_query` and the standard library's sqlite3,
and merges the names, as the first step of an analysis in pandas.  Memory is the peak of the sum of Pss over
all processes of a command.  Goals: a million rows in 5 s, memory that does not grow with the file.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path
from statistics import median

from peak_memory import CommandError, Measurement, measure
from synthetic_nsys import write_export

REPOSITORY = Path(__file__).resolve().parents[2]
GOAL_S_PER_MILLION, GROWTH_GOAL = 5.0, 0.25
PANDAS = """
import os, sqlite3, sys
import pandas as pd
connection = sqlite3.connect(sys.argv[1])
names = pd.read_sql_query("SELECT id, value FROM StringIds", connection)
frames = [
    pd.read_sql_query(f'SELECT start, "end", {columns} FROM {table}', connection)
    for table, columns in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId, streamId, correlationId, globalPid, demangledName AS id"),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "deviceId, streamId, correlationId, globalPid, bytes, copyKind"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid, correlationId, nameId AS id"),
        ("NVTX_EVENTS", "globalTid, text, textId, domainId, eventType"),
    )
]
frames = [frame.merge(names, on="id", how="left") if "id" in frame else frame for frame in frames]
sys.stdout.write(str(sum(map(len, frames))))
sys.stdout.flush()
os._exit(0)
"""


def ingest(trace: Path, repeat: int) -> list[Measurement]:
    """Runs of `cclbench ingest`, each into an empty store."""
    runs = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(dir=trace.parent) as store:
            command = [sys.executable, "-m", "cclbench", "ingest", str(trace), "--store", store]
            runs.append(measure(command, REPOSITORY))
    return runs


def line(name: str, runs: list[Measurement], rows: int) -> str:
    """A row: time, speed and memory of a tool."""
    wall, peak = median(run.wall_s for run in runs), max(run.peak_bytes for run in runs)
    return f"  {name:20}{wall:9.2f}{rows / wall / 1e6:16.2f}{peak / 1e6:10.0f}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000], help="rows of exports to measure")
    parser.add_argument("--ranks", type=int, default=2, help="processes in an export")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; wall times are their median")
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()) / "cclbench-bench")
    asked = parser.parse_args()
    if asked.repeat < 1 or asked.ranks < 1 or min(asked.rows) < 1:
        parser.error("--rows, --ranks and --repeat must be positive")
    return asked


def main() -> None:
    """Write the exports, measure and print."""
    asked = arguments()
    asked.workdir.mkdir(parents=True, exist_ok=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}; wall: median of {asked.repeat}, peak: largest Pss of all processes together")
    peaks: list[int] = []
    for rows in sorted(asked.rows):
        trace = asked.workdir / f"nsys-{rows}.sqlite"
        written = write_export(trace, rows, asked.ranks)
        try:
            ours = ingest(trace, asked.repeat)
            theirs = [
                measure([sys.executable, "-c", PANDAS, str(trace)], REPOSITORY) for _ in range(asked.repeat)
            ]
        except CommandError as failure:
            raise SystemExit(str(failure)) from failure
        print(f"{written:,} rows of {asked.ranks} ranks, {trace.stat().st_size / 1e6:.0f} MB")
        print(f"  {'':20}{'wall s':>9}{'million rows/s':>16}{'peak MB':>10}")
        print(line("cclbench ingest", ours, written), line("sqlite3 + pandas", theirs, written), sep="\n")
        wall, goal = median(run.wall_s for run in ours), GOAL_S_PER_MILLION * max(written / 1e6, 1)
        print(f"  goal: within {goal:.1f} s: {'met' if wall <= goal else 'NOT met'}")
        peaks.append(max(run.peak_bytes for run in ours))
        trace.unlink()
    for rows, peak in zip(sorted(asked.rows)[1:], peaks[1:], strict=True):
        growth = peak / peaks[0] - 1
        verdict = "met" if growth <= GROWTH_GOAL else "NOT met"
        print(f"goal: peak at {rows:,} rows grows by at most {GROWTH_GOAL:.0%}: {growth:+.0%}: {verdict}")


if __name__ == "__main__":
    main()
