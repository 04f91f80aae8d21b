# SPDX-License-Identifier: Apache-2.0
"""Measure the reader of job logs, and a whole `cclbench run`, on a generated log of Megatron-LM's lines.

Each runs in a process of its own; seconds of CPU and wall time, and peak memory, imports included. Goal: a
million steps are read within 2 s and 300 MB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from peak_memory import measure

LINE = (
    " [{stamp:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/{steps:9d} | consumed samples: {samples:12d} |"
    " elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): {flops:.1f} |"
    " learning rate: 1.000000E-04 | global batch size:    32 | lm loss: {loss:.6E} | loss scale: 1.0 |"
    " grad norm: {norm:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
READ = "import sys; from pathlib import Path; from cclbench.formats.job_log import JobLog; " + (
    "print(len(JobLog().read(Path(sys.argv[1])).log_steps))"
)
RUN = "from cclbench.cli import main; main()"


def write_log(path: Path, steps: int) -> None:
    """Steps of 80 to 82 ms, one line each."""
    random, now = np.random.default_rng(34), datetime(2026, 1, 1)
    with path.open("w", encoding="ascii") as file:
        for step in range(1, steps + 1):
            ms, noise = 80 + 2 * random.random(), random.random()
            now += timedelta(milliseconds=ms)
            file.write(
                LINE.format(
                    stamp=now,
                    step=step,
                    steps=steps,
                    samples=32 * step,
                    ms=ms,
                    flops=23 + noise,
                    loss=11 - noise,
                    norm=3 * noise,
                )
            )


def main() -> None:
    """Print one line for the reader and one for a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    steps: int = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "job.log", steps)
        print(f"{steps:,} steps, {(folder / 'job.log').stat().st_size / 1e6:,.0f} MB")
        for what, program, arguments in (
            ("read", READ, ["job.log"]),
            ("run", RUN, ["run", "job.log", "--json", "--jobs", "1"]),
        ):
            done = measure([sys.executable, "-c", program, *arguments], folder)
            print(
                f"{what:5}{done.cpu_s:6.1f} CPU s {done.wall_s:6.1f} wall s {done.peak_bytes / 1e6:6.0f} MB"
            )


if __name__ == "__main__":
    main()
