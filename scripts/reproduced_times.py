# SPDX-License-Identifier: Apache-2.0
"""Print how well micro-benchmarks of `cclbench reproduce` repeat the times of the traces that they are from.

    python scripts/reproduced_times.py [--torch PYTHON] [--pairs N] [OPERATOR...]

The operators of scripts/workloads/cpu_operators.py are traced on this machine's CPU, and a micro-benchmark of
each is written.  Then each is traced and reproduced in turn, so that other work on the machine affects both,
and each result is compared with the trace before it.  PYTHON is an interpreter that has PyTorch, by default
this one; OMP_NUM_THREADS sets its number of threads.  Columns of the Markdown table: median time of a call in
the trace and in the reproduction, and their ratio, each the median over the pairs; the range of the ratio.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import cclbench
from cclbench.reproduction.check import ReproductionCheck, check_result, read_result
from cclbench.reproduction.recorded import calls_of_row
from cclbench.reproduction.script import benchmark_script

WORKLOAD = Path(__file__).resolve().parent / "workloads" / "cpu_operators.py"
WITHIN = 0.1
"""Deviation of a ratio from 1 that counts as the same time."""


def reproduced_pairs(
    names: list[str], python: str, folder: Path, pairs: int
) -> dict[str, list[ReproductionCheck]]:
    """Each operator's reproductions beside their traces."""
    program = [python, WORKLOAD, folder, *names]
    subprocess.run(program, check=True, stderr=subprocess.DEVNULL)
    written = [trace.name.removesuffix(".json.gz") for trace in sorted(folder.glob("*.json.gz"))]
    for name in written:
        run = cclbench.ingest(folder / f"{name}.json.gz", store=folder / "store")
        (folder / f"{name}.py").write_text(benchmark_script(calls_of_row(run, 1), "float32"), "utf-8")
    subprocess.run([*program, "--pairs", str(pairs)], check=True, stderr=subprocess.DEVNULL)
    return {name: [_checked_pair(folder, f"{name}-{pair}") for pair in range(pairs)] for name in written}


def _checked_pair(folder: Path, name: str) -> ReproductionCheck:
    run = cclbench.ingest(folder / f"{name}.json.gz", store=folder / "store")
    return check_result(run, read_result(folder / f"{name}.json"))


def median_ratio(pairs: list[ReproductionCheck]) -> float:
    """Median of the pairs' ratios."""
    return median(check.ratio for check in pairs if check.ratio is not None)


def table_row(name: str, pairs: list[ReproductionCheck]) -> str:
    """An operator's row of the table."""
    ratios = sorted(check.ratio for check in pairs if check.ratio is not None)
    traced = median(check.traced["p50_s"] for check in pairs) * 1e3
    made = median(check.result.p50_s for check in pairs) * 1e3
    return (
        f"| {name} | `{pairs[0].result.operator}` | {traced:.2f} ms | {made:.2f} ms"
        f" | {median_ratio(pairs):.3f} | {ratios[0]:.2f} to {ratios[-1]:.2f} |"
    )


def main() -> None:
    """Print the table, and how many operators are within `WITHIN`."""
    parser = argparse.ArgumentParser(description="Ratios of reproduced times to those of traces.")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        checks = reproduced_pairs(options.operators, options.torch, Path(folder), options.pairs)
    print("| program | operator | trace | reproduction | ratio | range |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, pairs in checks.items():
        print(table_row(name, pairs))
    close = sum(abs(median_ratio(pairs) - 1) <= WITHIN for pairs in checks.values())
    print(f"\n{close} of {len(checks)} within {WITHIN:.0%}")


if __name__ == "__main__":
    main()
