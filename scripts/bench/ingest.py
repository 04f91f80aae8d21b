# SPDX-License-Identifier: Apache-2.0
"""Compare time and memory of cclbench, from a trace to its metrics, with a JSON parser and other tools.

Each tool runs in new processes on the same file, alternately: `cclbench run --json` into an empty store
(ingest and all metrics), of the file and of its gzip; `orjson.loads` of the file's bytes;
HolisticTraceAnalysis (load, temporal breakdown and overlap); TraceLens (load, timeline and operators).  The
other tools are installed from the package index and a public repository into environments below the work
folder; one that cannot be installed is skipped with the reason.  Traces are synthetic, or a real trace
enlarged.  CPU is user and system time of all processes of a command, memory the peak of the sum of their Pss
(a shared page counts once), measured in a separate run.  1 MB = 1e6 bytes.
"""

from __future__ import annotations

import argparse
import gzip
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
from operator import attrgetter
from pathlib import Path
from statistics import median

from enlarge_trace import write_enlarged
from peak_memory import CommandError, Measurement, measure
from synthetic_trace import write_trace

REPOSITORY = Path(__file__).resolve().parents[2]
# HTA 0.5.0 stores row numbers in the smallest integer type, which pandas 3 refuses to widen.
PEERS = {
    "orjson": ("orjson",),
    "HTA": ("HolisticTraceAnalysis", "pandas<3"),
    "TraceLens": ("git+https://github.com/AMD-AGI/TraceLens.git", "pandas<3"),
}
"""What has to be installed for each."""
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
TRACELENS = """
import os, sys
sys.stdout = sys.stderr  # its messages are not figures
from TraceLens import TreePerfAnalyzer
analyzer = TreePerfAnalyzer.from_file(sys.argv[1])
analyzer.get_df_gpu_timeline()
analyzer.get_df_kernel_launchers()
os._exit(0)
"""
PROGRAMS = {"orjson": ORJSON, "HTA": HTA, "TraceLens": TRACELENS}
OURS, PACKED, LOADS = "cclbench run --json", "the same, of .json.gz", "orjson"
TRACE, GZIP, STORE = "TRACE", "GZIP", "STORE"  # placeholders of paths in the commands
MEANINGS = {"compute": "compute / window", "idle": "idle / window", "overlap": "overlapped comm / comm"}
WALL_GOAL, CPU_GOAL, PEAK_GOAL_MB, GROWTH_GOAL = 0.3, 0.4, 500.0, 0.15
SPEED_GOALS = {"HTA": 10.0, "TraceLens": 20.0}


@dataclass(frozen=True)
class Score:
    """All runs of one tool on one file."""

    sampled: Measurement
    """The run whose memory was sampled, which takes time."""
    runs: tuple[Measurement, ...]

    @property
    def wall_s(self) -> float:
        """Median wall time."""
        return median(run.wall_s for run in self.runs)

    @property
    def cpu_s(self) -> float:
        """Median CPU time."""
        return median(run.cpu_s for run in self.runs)

    @property
    def peak_mb(self) -> float:
        """Peak memory."""
        return self.sampled.peak_bytes / 1e6


def install_peers(folder: Path, asked: list[str]) -> dict[str, str]:
    """Interpreters of environments with the other tools, created on first use; without those that fail."""
    pythons = {}
    for peer in asked:
        python = folder / peer / "bin" / "python"
        if not python.exists():
            print(f"installing {', '.join(PEERS[peer])} into {python.parents[1]}", file=sys.stderr)
            venv.create(python.parents[1], with_pip=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            done = subprocess.run([*pip, *PEERS[peer]], check=False, capture_output=True, text=True)
            if done.returncode:
                shutil.rmtree(python.parents[1])
                errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
                why = errors[-1].strip() if errors else f"pip ended with {done.returncode}"
                print(f"{peer}: skipped: it could not be installed: {why}", flush=True)
                continue
        pythons[peer] = str(python)
    return pythons


def figures(tool: str, stdout: str) -> dict[str, float | None]:
    """Shares of device time, and of communication overlapped by compute, as printed by a tool."""
    if tool not in (OURS, PACKED):
        return dict(json.loads(stdout.splitlines()[-1])) if stdout else {}
    keys = ("rank", "step", "group", "collective", "category", "stat")
    rows = json.loads(stdout)["results"]
    value = {row["metric"]: row["value"] for row in rows if all(row[key] is None for key in keys)}
    idle, step = value.get("time.idle"), value.get("time.step")
    share = None if idle is None or step is None else idle / step
    return {"compute": value.get("compute.busy"), "idle": share, "overlap": value.get("overlap.ratio")}


def measure_tools(trace: Path, workdir: Path, tools: dict[str, list[str]], repeat: int) -> dict[str, Score]:
    """Run every tool once for its memory, then `repeat` times alternately, each with an empty store."""
    runs: dict[str, list[Measurement]] = {tool: [] for tool in tools}
    packed = trace.with_name(f"{trace.name}.gz")
    for path in (trace, packed):
        with path.open("rb") as file:
            while file.read(1 << 24):  # read by all tools from the page cache
                pass
    for repetition in range(1 + repeat):
        for tool, command in tools.items():
            with tempfile.TemporaryDirectory(dir=workdir) as store:
                paths = {TRACE: str(trace), GZIP: str(packed), STORE: store}
                words = [paths.get(word, word) for word in command]
                runs[tool].append(measure(words, REPOSITORY, memory=repetition == 0))
    return {tool: Score(sampled, tuple(timed)) for tool, (sampled, *timed) in runs.items()}


def table(trace: Path, scores: dict[str, Score]) -> Iterator[str]:
    """A row per tool: times and memory, and their ratios to cclbench."""
    ours = scores[OURS]
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    yield f"{trace.name}: {trace.stat().st_size / 1e6:.1f} MB; the machine's load: {load}"
    yield f"  {'':24}{'wall s':>9}{'ratio':>8}{'CPU s':>9}{'ratio':>8}{'peak MB':>10}{'ratio':>8}"
    for tool, score in scores.items():
        wall, cpu = score.wall_s / ours.wall_s, score.cpu_s / ours.cpu_s
        peak = score.peak_mb / ours.peak_mb
        yield (
            f"  {tool:24}{score.wall_s:9.2f}{wall:8.2f}{score.cpu_s:9.2f}{cpu:8.2f}"
            f"{score.peak_mb:10.0f}{peak:8.2f}"
        )


def comparison(scores: dict[str, Score]) -> Iterator[str]:
    """Figures of cclbench and HTA for the same trace."""
    printed = {
        tool: figures(tool, score.runs[0].stdout) for tool, score in scores.items() if score.runs[0].stdout
    }
    yield "figures (HTA rounds times inward to whole µs and counts synchronisation rows as compute)"
    yield f"  {'':24}" + "".join(f"{tool:>22}" for tool in printed)
    for name, meaning in MEANINGS.items():
        shares = (values.get(name) for values in printed.values())
        yield f"  {meaning:24}" + "".join(f"{'not printed' if v is None else f'{v:.2%}':>22}" for v in shares)


def goals(first: dict[str, Score], sizes: list[tuple[float, Score]]) -> Iterator[str]:
    """Each goal, the measured value, and whether it is met; `sizes`: MB and the score of cclbench by file."""
    reached = []
    for tool in (OURS, PACKED):
        if LOADS in first:
            wall, cpu = first[tool].wall_s / first[LOADS].wall_s, first[tool].cpu_s / first[LOADS].cpu_s
            reached.append(
                (f"{tool}: wall <= {WALL_GOAL} x orjson.loads", f"{wall:.2f} x", wall <= WALL_GOAL)
            )
            reached.append((f"{tool}: CPU <= {CPU_GOAL} x orjson.loads", f"{cpu:.2f} x", cpu <= CPU_GOAL))
    for peer, goal_x in SPEED_GOALS.items():
        if peer in first:
            ratio = first[peer].wall_s / first[OURS].wall_s
            reached.append((f"at least {goal_x:g} x faster than {peer}", f"{ratio:.1f} x", ratio >= goal_x))
    for size, score in sizes:
        goal = f"peak memory under {PEAK_GOAL_MB:g} MB at {size:.0f} MB"
        reached.append((goal, f"{score.peak_mb:.0f} MB", score.peak_mb < PEAK_GOAL_MB))
    for size, score in sizes[1:]:
        growth = score.peak_mb / sizes[0][1].peak_mb - 1
        goal = f"peak memory within {GROWTH_GOAL:.0%} at {size / sizes[0][0]:.1f} x the size"
        reached.append((goal, f"{growth:+.1%}", abs(growth) <= GROWTH_GOAL))
    yield "goals"
    for goal, got, is_met in reached:
        yield f"  {goal:52}{got:>10}  {'met' if is_met else 'NOT met'}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        epilog="Other tools run on the smallest size only: they need several times its size in memory.",
    )
    parser.add_argument(
        "--megabytes", type=float, nargs="+", default=[500.0], help="sizes of trace to measure"
    )
    parser.add_argument(
        "--trace", type=Path, help="a Kineto trace to enlarge, in addition to a synthetic one"
    )
    parser.add_argument("--jobs", type=int, help="passed to cclbench")
    parser.add_argument(
        "--repeat", type=int, default=1, help="runs of each tool; wall times are their median"
    )
    parser.add_argument(
        "--skip",
        nargs="+",
        default=[],
        choices=sorted(PEERS),
        help="tools to leave out; HTA and TraceLens take minutes",
    )
    parser.add_argument(
        "--workdir",
        type=Path,
        default=Path(tempfile.gettempdir()) / "cclbench-bench",
        help="folder for traces, stores and environments",
    )
    asked = parser.parse_args()
    if asked.repeat < 1 or min(asked.megabytes) <= 0:
        parser.error("--repeat and --megabytes must be positive")
    return asked


def main() -> None:
    """Write the traces, measure and print."""
    asked = arguments()
    workdir: Path = asked.workdir.resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    pythons = install_peers(workdir / "peers", [peer for peer in PEERS if peer not in asked.skip])
    jobs = [] if asked.jobs is None else ["--jobs", str(asked.jobs)]
    ours = [sys.executable, "-m", "cclbench", "run", TRACE, "--json", "--store", STORE, *jobs]
    own = {OURS: ours, PACKED: [GZIP if word == TRACE else word for word in ours]}
    tools = own | {peer: [python, "-c", PROGRAMS[peer], TRACE] for peer, python in pythons.items()}
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}; wall and CPU: median of {asked.repeat}, peak: largest Pss of all processes together")
    for source in (None, asked.trace) if asked.trace else (None,):
        print("a synthetic trace" if source is None else f"{source.name}, enlarged")
        first: dict[str, Score] = {}
        sizes: list[tuple[float, Score]] = []
        for megabytes in sorted(asked.megabytes):
            trace = workdir / f"{'synthetic' if source is None else 'enlarged'}-{megabytes:g}mb.json"
            _write(source, trace, megabytes)
            try:
                scores = measure_tools(trace, workdir, tools if not first else own, asked.repeat)
            except CommandError as failure:
                raise SystemExit(str(failure)) from failure
            print(*table(trace, scores), sep="\n", flush=True)
            first = first or scores
            largest = max(scores[OURS], scores[PACKED], key=attrgetter("peak_mb"))
            sizes.append((trace.stat().st_size / 1e6, largest))
        print(*comparison(first), *goals(first, sizes), sep="\n")


def _write(source: Path | None, trace: Path, megabytes: float) -> None:
    """A trace of that size, and its gzip beside it."""
    if source is not None:
        write_enlarged(source, trace, megabytes)
    else:
        write_trace(trace, megabytes)
    with trace.open("rb") as plain, gzip.open(f"{trace}.gz", "wb", compresslevel=6) as packed:
        shutil.copyfileobj(plain, packed)


if __name__ == "__main__":
    main()
