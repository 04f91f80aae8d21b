# SPDX-License-Identifier: Apache-2.0
"""Measure `cclbench run`, from traces to all metrics, over numbers of ranks and of processes.

    python scripts/bench/scale.py --ranks 10 100 1000 10000 --jobs 1 2 --page docs/performance.md

A job has tensor-parallel groups of 8 and data-parallel groups across them. Each rank's trace has about 2,000
rows: kernels with their launches and operators, and one collective per six kernels, with the name of its
group, as the PyTorch profiler writes it. Clock offsets of ranks are up to 100 us.

CPU is user and system time of all processes, `largest` the largest resident set of a process. Goals: no
process above 1 GB, and a cost per rank within 20 % from 100 ranks on. With --page the table and the picture
of the page are replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from peak_memory import Measurement, measure

TP = 8
STEPS, KERNELS = 8, 80
PERIOD_US, KERNEL_US = 100.0, 80.0
GOAL_BYTES, GOAL_COST = 1e9, 0.2
BASE_NS = 1_743_465_600_000_000_000
BEGIN, END = "<!-- scale: begin -->", "<!-- scale: end -->"


def event(category: str, name: str, at: float, lasts: float, place: tuple[int, int], **told: Any) -> str:
    """A row of the trace, times in µs."""
    pid, tid = place
    row = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": at, "dur": lasts}
    return json.dumps(row | {"args": told})


def template() -> str:
    """A rank's trace, with placeholders where ranks differ."""
    host, device, comm = (4000, 4000), (0, 7), (0, 20)
    rows = []
    number = 0
    for step in range(STEPS):
        first = step * KERNELS * PERIOD_US
        length = KERNELS * PERIOD_US
        rows.append(event("user_annotation", f"ProfilerStep#{step}", first, length - 1, host))
        for kernel in range(KERNELS):
            number += 1
            at = first + kernel * PERIOD_US
            link = {"correlation": number, "External id": number}
            rows.append(event("cpu_op", "aten::mm", at, 20.0, host, **{"External id": number}))
            rows.append(event("cuda_runtime", "cudaLaunchKernel", at + 5, 5.0, host, **link))
            if kernel % 6 == 5:
                group, size = ("@TP@", TP) if kernel % 12 == 5 else ("@DP@", "@DPSIZE@")
                told = {"Collective name": "allreduce", "In msg nelems": 1 << 18, "Out msg nelems": 1 << 18}
                told |= {"Group size": size, "dtype": "BFloat16", "Process Group Name": group}
                told |= {"Seq": number, "stream": 20, "device": 0}
                name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                rows.append(event("kernel", name, at + 12, KERNEL_US + 40, comm, **link, **told))
            else:
                told = {"stream": 7, "device": 0, "grid": [132, 1, 1]}
                name = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
                rows.append(event("kernel", name, at + 12, KERNEL_US, device, **link, **told))
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85029158912}],
        "distributedInfo": {
            "backend": "nccl",
            "rank": "@RANK@",
            "world_size": "@WORLD@",
            "pg_config": "@GROUPS@",
        },
        "baseTimeNanoseconds": "@BASE@",
    }
    text = json.dumps(head)[:-1] + ', "traceEvents": [\n' + ",\n".join(rows) + "\n]}\n"
    return re.sub(r'"(@(?:RANK|WORLD|GROUPS|BASE|DPSIZE)@)"', r"\1", text)


def write_job(folder: Path, ranks: int) -> int:
    """Write the traces of a job; returns the number of rows of each."""
    folder.mkdir()
    text = template()
    for rank in range(ranks):
        tp = range(rank // TP * TP, min(rank // TP * TP + TP, ranks))
        dp = range(rank % TP, ranks, TP)
        groups = [
            {"pg_name": name, "pg_desc": words, "pg_size": len(members), "ranks": list(members)}
            for name, words, members in (
                (f"tp{rank // TP}", "mesh_tp", tp),
                (f"dp{rank % TP}", "mesh_dp", dp),
            )
        ]
        own = {
            "@RANK@": str(rank),
            "@WORLD@": str(ranks),
            "@GROUPS@": json.dumps(groups),
            "@BASE@": str(BASE_NS + rank * 7919 % 100_000),
            "@TP@": f"tp{rank // TP}",
            "@DP@": f"dp{rank % TP}",
            "@DPSIZE@": str(len(dp)),
        }
        pieces = re.split(r"(@\w+@)", text)
        (folder / f"rank{rank}.json").write_text("".join(own.get(piece, piece) for piece in pieces))
    return text.count('"ph"')


def run(source: Path, jobs: int) -> Measurement:
    """Measure `cclbench run` into an empty store."""
    store = source.with_name("store")
    shutil.rmtree(store, ignore_errors=True)
    words = ["run", str(source), "--store", str(store), "--jobs", str(jobs), "--json"]
    return measure([sys.executable, "-m", "cclbench", *words], source.parent)


def table(rows: list[dict[str, float]]) -> str:
    """The results as Markdown."""
    lines = ["| ranks | processes | wall s | CPU s | CPU ms a rank | largest process MB |"]
    lines.append("| ---: | ---: | ---: | ---: | ---: | ---: |")
    lines += [
        f"| {row['ranks']:,} | {row['jobs']} | {row['wall']:.1f} | {row['cpu']:.1f} | "
        f"{1e3 * row['cpu'] / row['ranks']:.0f} | {row['largest'] / 1e6:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def picture(rows: list[dict[str, float]], path: Path) -> None:
    """Picture of the cost per rank and of the largest process, over ranks."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "scale", "font.size": 9}
    from matplotlib import pyplot as plt

    figure, (cost, memory) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for jobs in sorted({row["jobs"] for row in rows}):
        own = [row for row in rows if row["jobs"] == jobs]
        ranks = [row["ranks"] for row in own]
        label = f"{jobs} process" + "es" * (jobs > 1)
        cost.plot(ranks, [1e3 * row["cpu"] / row["ranks"] for row in own], marker="o", label=label)
        memory.plot(ranks, [row["largest"] / 1e6 for row in own], marker="o", label=label)
    for axes, title in ((cost, "CPU a rank, ms"), (memory, "largest process, MB")):
        axes.set(xscale="log", xlabel="ranks", title=title, ylim=(0, None))
        axes.grid(alpha=0.3)
    cost.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Measure and print; returns 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 10, 100, 1000])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--workdir", type=Path, help="folder for traces and stores, on a large disk")
    parser.add_argument("--page", type=Path, help="page to update with the table and the picture")
    wishes = parser.parse_args()
    rows: list[dict[str, float]] = []
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    for ranks in wishes.ranks:
        with tempfile.TemporaryDirectory(dir=wishes.workdir) as folder:
            each = write_job(Path(folder) / "job", ranks)
            for jobs in wishes.jobs:
                done = run(Path(folder) / "job", jobs)
                row = {"ranks": ranks, "jobs": jobs, "wall": done.wall_s, "cpu": done.cpu_s}
                rows.append(row | {"largest": done.largest_bytes})
                print(f"{each:,} rows a rank:", table(rows[-1:]).splitlines()[-1], flush=True)
    print(table(rows))
    if wishes.page:
        page = wishes.page.read_text()
        head, _, rest = page.partition(BEGIN)
        wishes.page.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{rest.partition(END)[2]}")
        picture(rows, wishes.page.parent / "images" / "scale.svg")
    costs = [row["cpu"] / row["ranks"] for row in rows if row["ranks"] >= 100]
    missed = any(row["largest"] > GOAL_BYTES for row in rows)
    return int(missed or (bool(costs) and max(costs) > (1 + GOAL_COST) * min(costs)))


if __name__ == "__main__":
    sys.exit(main())
