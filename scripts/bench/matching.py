# SPDX-License-Identifier: Apache-2.0
"""Measure time and memory of matching collectives across ranks, as ingestion does it, over growing jobs.

For each size, generated collectives are read, matched, put on one clock, split into wait and transfer and
written back, in a new process: tensor-parallel groups of 8, data-parallel groups across them, one host per 8
ranks with a clock offset of up to 1 ms, every 8th host with a drift of 20 ppm. Memory is the process's peak
resident set; `--jobs` processes write the result. Goal: 4,096 ranks of 2,000 collectives within 2 minutes
and 0.5 GB, cost linear in rows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cclbench.engine import engine_of
from cclbench.ground.schema import COLLECTIVE_KINDS, COLLECTIVES, GROUPS, group_id
from cclbench.ingestion.across import Places, match_ranks
from cclbench.record.files import write_table

TP = 8
DP_EVERY = 4  # one call in four is of the data-parallel group
PERIOD_NS, WORK_NS, SKEW_NS, NOISE_NS = 1_000_000, 400_000, 200_000, 500
GOAL_S, GOAL_GB, GOAL_RANKS = 120.0, 0.5, 4096
LOST = 0.01
VARIANTS = {
    "numbered": "sequence numbers",
    "ordered": "no sequence numbers: by order",
    "lost": "no sequence numbers, 1 % of the rows lost: by longest common subsequence",
}


@dataclass(frozen=True)
class Job:
    """A synthetic job; each rank is in a tensor-parallel and a data-parallel group."""

    ranks: int
    calls: int
    variant: str

    def groups(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ranks of its tensor-parallel and of its data-parallel group."""
        first = rank - rank % TP
        return tuple(range(first, first + TP)), tuple(range(rank % TP, self.ranks, TP))

    def table(self, rank: int) -> pa.Table:
        """The rank's rows of `schema.COLLECTIVES`, not yet matched."""
        random = np.random.default_rng(rank)
        call = np.arange(self.calls)
        dp = call % DP_EVERY == DP_EVERY - 1
        number = np.where(dp, np.cumsum(dp), np.cumsum(~dp))
        kind = np.where(dp, np.where(number % 2, 1, 2), 0)
        payload = np.where(dp, 1 << 24, 1 << 20) + 4096 * (number % 16)
        true = call * PERIOD_NS + rank % TP
        host = np.random.default_rng(rank // TP)
        offset, drift = int(host.integers(-1_000_000, 1_000_000)), 2e-5 * (rank // TP % 8 == 7)
        starts = true + random.integers(0, SKEW_NS, self.calls)
        ends = true + WORK_NS + random.integers(0, NOISE_NS, self.calls)
        starts, ends = (at + offset + (at * drift).astype(np.int64) for at in (starts, ends))
        kept = random.random(self.calls) >= (LOST if self.variant == "lost" else 0)
        words = [group_id(group) for group in self.groups(rank)]
        no_number = np.full(self.calls, self.variant != "numbered")
        columns: dict[str, Any] = {
            "collective": call,
            "rank": np.full(self.calls, rank, np.int32),
            "kind": _dictionary(COLLECTIVES.field("kind").type, kind, COLLECTIVE_KINDS),
            "library": _dictionary(COLLECTIVES.field("library").type, np.zeros_like(kind), ("nccl",)),
            "group": _dictionary(COLLECTIVES.field("group").type, dp.astype(np.int32), words),
            "group_size": np.where(dp, self.ranks // TP, TP).astype(np.int32),
            "seq": pa.array(number, mask=no_number),
            "in_bytes": payload,
            "out_bytes": payload,
            "step": (call // 100).astype(np.int32),
            "start_ns": starts,
            "end_ns": ends,
        }
        arrays = [columns.get(f.name, pa.nulls(self.calls, f.type)) for f in COLLECTIVES]
        return pa.Table.from_arrays([pa.array(a) for a in arrays], schema=COLLECTIVES).filter(pa.array(kept))

    def write(self, folder: Path) -> None:
        """All ranks' tables and the table of groups."""
        for rank in range(self.ranks):
            write_table(folder / "collectives" / f"rank={rank}.parquet", self.table(rank))
        groups = sorted({group for rank in range(self.ranks) for group in self.groups(rank)})
        columns = {
            "group": [group_id(group) for group in groups],
            "ranks": groups,
            "size": [len(group) for group in groups],
            "descriptions": [[] for _ in groups],
            "source": ["stated"] * len(groups),
        }
        write_table(folder / "groups.parquet", pa.table(columns, schema=GROUPS))


def _dictionary(kind: pa.DataType, codes: Any, words: Any) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes).cast(kind.index_type), pa.array(words))


def match(folder: Path, ranks: int, jobs: int) -> None:
    """Match a folder; print seconds, peak bytes and counts of rows."""
    places = Places({rank: rank // TP for rank in range(ranks)}, {})
    with engine_of(jobs=jobs) as engine:
        begin = time.perf_counter()
        _, found, clocks = match_ranks(folder, range(ranks), places, {}, None, engine=engine)
        seconds = time.perf_counter() - begin
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (peak,) = (int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    residual = max(clock.residual_ns for clock in clocks.ranks)
    print(seconds, peak, found.rows, found.matched, found.instances, residual)


def measure(job: Job, workdir: Path | None, jobs: int) -> tuple[float, float]:
    """Print a row for one size; returns seconds and GB."""
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        job.write(Path(folder))
        command = [
            sys.executable,
            __file__,
            "--match",
            folder,
            "--ranks",
            str(job.ranks),
            "--jobs",
            str(jobs),
        ]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    seconds, peak, rows, matched = float(answer[0]), int(answer[1]), int(answer[2]), int(answer[3])
    print(
        f"{job.variant:<9} {job.ranks:>6,} {rows:>10,} {matched / rows:>8.2%} {int(answer[4]):>10,} "
        f"{seconds:>8.1f} {1e6 * seconds / rows:>8.2f} {peak / 1e9:>7.2f} {peak / rows:>7.0f} {answer[5]:>9}",
        flush=True,
    )
    return seconds, peak / 1e9


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--collectives", type=int, default=2000, help="collectives of each rank")
    parser.add_argument("--variant", choices=VARIANTS, nargs="+", default=list(VARIANTS))
    parser.add_argument("--workdir", type=Path, help="folder for the generated tables")
    parser.add_argument("--jobs", type=int, default=2, help="processes that write")
    parser.add_argument("--match", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.match:
        match(arguments.match, *arguments.ranks, arguments.jobs)
        return
    for name in arguments.variant:
        print(f"{name}: {VARIANTS[name]}")
    print(
        f"{'variant':<9} {'ranks':>6} {'rows':>10} {'matched':>8} {'instances':>10} {'s':>8} {'µs/row':>8} "
        f"{'peak GB':>7} {'B/row':>7} {'resid. ns':>9}"
    )
    for name in arguments.variant:
        for ranks in arguments.ranks:
            job = Job(ranks, arguments.collectives, name)
            seconds, gigabytes = measure(job, arguments.workdir, arguments.jobs)
            if ranks == GOAL_RANKS:
                met = seconds <= GOAL_S and gigabytes <= GOAL_GB
                print(f"goal of {GOAL_S:.0f} s and {GOAL_GB} GB: {'met' if met else 'missed'}")


if __name__ == "__main__":
    main()
