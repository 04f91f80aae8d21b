# SPDX-License-Identifier: Apache-2.0
"""Measure time and memory of cclbench from a trace to its metrics, beside a JSON parser alone and beside HTA.

Each runs in processes of its own, in turn, on the same file: `cclbench run --json` into an empty store, which
is ingest and all metrics; `orjson.loads` of the file's bytes; HolisticTraceAnalysis, which is load, temporal
breakdown and overlap. The latter two come from the package index into an environment below the work folder.
Memory is the peak of the sum of Pss (a shared page counts once) over all processes of a command.
1 MB = 1e6 bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from enlarge_trace import write_enlarged
from peak_memory import CommandError, Measurement, measure
from synthetic_trace import write_trace

REPOSITORY = Path(__file__).resolve().parents[2]
# HTA 0.5.0 stores row numbers in the smallest integer type, which pandas 3 refuses to widen.
PEERS = ("orjson", "HolisticTraceAnalysis", "pandas<3")
# Both leave without freeing what they hold, so that only their work is measured.
ORJSON = """
import os, sys, orjson
trace = orjson.loads(open(sys.argv[1], "rb").read())
os._exit(0)
"""
HTA = """
import json, os, sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
parts = analysis.get_temporal_breakdown(visualize=False).iloc[0]
overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]
print(json.dumps({"compute": parts["compute_time_pctg"] / 100, "idle": parts["idle_time_pctg"] / 100,
                  "overlap": overlap["comp_comm_overlap_pctg"] / 100}))
sys.stdout.flush()
os._exit(0)
"""
OURS = "cclbench run --json"
TRACE, STORE = "TRACE", "STORE"  # stand for their paths in the commands
MEANINGS = {"compute": "compute / window", "idle": "idle / window", "overlap": "overlapped comm / comm"}
WALL_GOAL, SPEED_GOAL, PEAK_GOAL_MB, GROWTH_GOAL = 0.5, 15.0, 500.0, 0.15


@dataclass(frozen=True)
class Score:
    """All runs of one tool on one file."""

    runs: tuple[Measurement, ...]

    @property
    def wall_s(self) -> float:
        """Median wall time."""
        return median(run.wall_s for run in self.runs)

    @property
    def peak_mb(self) -> float:
        """Largest peak."""
        return max(run.peak_bytes for run in self.runs) / 1e6


def peers_python(folder: Path) -> str:
    """The interpreter of an environment that has the peers, made on first use."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(PEERS)} into {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS]
        if subprocess.run(command, check=False).returncode:
            shutil.rmtree(folder)
            raise SystemExit(f"could not install {', '.join(PEERS)}; see pip's message above")
    return str(python)


def figures(tool: str, stdout: str) -> dict[str, float | None]:
    """Shares of the device's time, and of communication's that compute overlaps, as a tool printed them."""
    if tool != OURS:
        return dict(json.loads(stdout.splitlines()[-1])) if stdout else {}
    keys = ("rank", "step", "group", "collective", "category", "stat")
    rows = json.loads(stdout)["results"]
    value = {row["metric"]: row["value"] for row in rows if all(row[key] is None for key in keys)}
    idle, step = value.get("time.idle"), value.get("time.step")
    share = None if idle is None or step is None else idle / step
    return {"compute": value.get("compute.busy"), "idle": share, "overlap": value.get("overlap.ratio")}


def score(trace: Path, workdir: Path, tools: dict[str, list[str]], repeat: int) -> dict[str, Score]:
    """Run every tool on a trace `repeat` times, in turn, each time with an empty store."""
    runs: dict[str, list[Measurement]] = {tool: [] for tool in tools}
    with trace.open("rb") as file:
        while file.read(1 << 24):  # from the page cache for everybody
            pass
    for _ in range(repeat):
        for tool, command in tools.items():
            with tempfile.TemporaryDirectory(dir=workdir) as store:
                command = [
                    str(trace) if word == TRACE else store if word == STORE else word for word in command
                ]
                runs[tool].append(measure(command, REPOSITORY))
    return {tool: Score(tuple(measured)) for tool, measured in runs.items()}


def table(trace: Path, scores: dict[str, Score]) -> Iterator[str]:
    """A line a tool: its times and memory, and how many times ours they are."""
    ours = scores[OURS]
    yield f"{trace.name}: {trace.stat().st_size / 1e6:.1f} MB"
    yield f"  {'':24}{'wall s':>9}{'x ours':>8}{'peak MB':>10}{'x ours':>8}"
    for tool, one in scores.items():
        ratios = one.wall_s / ours.wall_s, one.peak_mb / ours.peak_mb
        yield f"  {tool:24}{one.wall_s:9.2f}{ratios[0]:8.2f}{one.peak_mb:10.0f}{ratios[1]:8.2f}"


def comparison(scores: dict[str, Score]) -> Iterator[str]:
    """What ours and HTA say of the same trace, side by side."""
    told = {tool: figures(tool, one.runs[0].stdout) for tool, one in scores.items() if one.runs[0].stdout}
    yield "figures (HTA rounds times inward to whole µs and counts synchronisation rows as compute)"
    yield f"  {'':24}" + "".join(f"{tool:>22}" for tool in told)
    for name, meaning in MEANINGS.items():
        known = (values.get(name) for values in told.values())
        yield f"  {meaning:24}" + "".join(f"{'not told' if v is None else f'{v:.2%}':>22}" for v in known)


def goals(first: dict[str, Score], sizes: list[tuple[float, Score]]) -> Iterator[str]:
    """Each goal, what this run gave, and whether it held; `sizes` are MB and our score on each file."""
    ours, reached = first[OURS], []
    if "orjson.loads" in first:
        ratio = ours.wall_s / first["orjson.loads"].wall_s
        reached.append(
            (f"wall time at most {WALL_GOAL} x orjson.loads", f"{ratio:.2f} x", ratio <= WALL_GOAL)
        )
    if "HTA" in first:
        ratio = first["HTA"].wall_s / ours.wall_s
        reached.append((f"at least {SPEED_GOAL:g} x faster than HTA", f"{ratio:.1f} x", ratio >= SPEED_GOAL))
    for size, one in sizes:
        goal = f"peak memory under {PEAK_GOAL_MB:g} MB at {size:.0f} MB"
        reached.append((goal, f"{one.peak_mb:.0f} MB", one.peak_mb < PEAK_GOAL_MB))
    for size, one in sizes[1:]:
        growth = one.peak_mb / sizes[0][1].peak_mb - 1
        goal = f"peak memory within {GROWTH_GOAL:.0%} at {size / sizes[0][0]:.1f} x the size"
        reached.append((goal, f"{growth:+.1%}", abs(growth) <= GROWTH_GOAL))
    yield "goals"
    for goal, got, held in reached:
        yield f"  {goal:52}{got:>10}  {'held' if held else 'NOT held'}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        epilog="orjson and HTA run on the smallest size only: they need several times the file in memory.",
    )
    parser.add_argument(
        "--megabytes", type=float, nargs="+", default=[500.0], help="sizes of trace to measure"
    )
    parser.add_argument("--trace", type=Path, help="a Kineto trace to enlarge, rather than a made-up one")
    parser.add_argument("--jobs", type=int, help="passed to cclbench")
    parser.add_argument(
        "--repeat", type=int, default=1, help="runs of each tool; wall times are their median"
    )
    parser.add_argument("--skip-hta", action="store_true", help="leave HTA out, which takes minutes")
    parser.add_argument(
        "--workdir",
        type=Path,
        default=Path(tempfile.gettempdir()) / "cclbench-bench",
        help="where traces, stores and the peers' environment go",
    )
    asked = parser.parse_args()
    if asked.repeat < 1 or min(asked.megabytes) <= 0:
        parser.error("--repeat and --megabytes must be positive")
    return asked


def main() -> None:
    """Make the traces, measure, print."""
    asked = arguments()
    workdir: Path = asked.workdir.resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    python = peers_python(workdir / "peers")
    jobs = [] if asked.jobs is None else ["--jobs", str(asked.jobs)]
    tools = {
        OURS: [sys.executable, "-m", "cclbench", "run", TRACE, "--json", "--store", STORE, *jobs],
        "orjson.loads": [python, "-c", ORJSON, TRACE],
        "HTA": [python, "-c", HTA, TRACE],
    }
    if asked.skip_hta:
        del tools["HTA"]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}; wall: median of {asked.repeat}, peak: largest Pss of all processes together")
    first: dict[str, Score] = {}
    sizes: list[tuple[float, Score]] = []
    for megabytes in sorted(asked.megabytes):
        trace = workdir / f"rank0-{megabytes:g}mb.json"
        if asked.trace:
            write_enlarged(asked.trace, trace, megabytes)
        else:
            write_trace(trace, megabytes)
        try:
            scores = score(trace, workdir, tools if not first else {OURS: tools[OURS]}, asked.repeat)
        except CommandError as failure:
            raise SystemExit(str(failure)) from failure
        print(*table(trace, scores), sep="\n", flush=True)
        first = first or scores
        sizes.append((trace.stat().st_size / 1e6, scores[OURS]))
    print(*comparison(first), *goals(first, sizes), sep="\n")


if __name__ == "__main__":
    main()
