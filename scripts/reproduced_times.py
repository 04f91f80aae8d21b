# SPDX-License-Identifier: Apache-2.0
"""Print how well micro-benchmarks of `cclbench reproduce` repeat the times of the traces that they are from.

    python scripts/reproduced_times.py [--torch PYTHON] [--rounds N] [OPERATOR...]

In each round, the operators of scripts/workloads/cpu_operators.py are traced on this machine's CPU; then, one
after another, a micro-benchmark is written from each trace and run, and its result is set beside the trace.
PYTHON is an interpreter that has PyTorch, by default this one; OMP_NUM_THREADS sets its number of threads.
Columns of the Markdown table: median time of a call in the trace and in the reproduction, and the ratio of
both, each the median over the rounds; the range of the ratio; the ratio of the least times.
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


def reproduced_round(names: list[str], python: str, folder: Path) -> dict[str, ReproductionCheck]:
    """Traces and reproductions of the operators."""
    subprocess.run([python, WORKLOAD, folder, *names], check=True, stderr=subprocess.DEVNULL)
    checks = {}
    for trace in sorted(folder.glob("*.json.gz")):
        name = trace.name.removesuffix(".json.gz")
        script, result = folder / f"{name}.py", folder / f"{name}.json"
        run = cclbench.ingest(trace, store=folder / "store")
        script.write_text(benchmark_script(calls_of_row(run, 1), "float32"), "utf-8")
        with result.open("w") as output:
            subprocess.run([python, script], check=True, stdout=output, stderr=subprocess.DEVNULL)
        checks[name] = check_result(run, read_result(result))
    return checks


def median_ratio(rounds: list[ReproductionCheck]) -> float:
    """Median of the rounds' ratios."""
    return median(check.ratio for check in rounds if check.ratio is not None)


def table_row(name: str, rounds: list[ReproductionCheck]) -> str:
    """An operator's row of the table."""
    ratios = sorted(check.ratio for check in rounds if check.ratio is not None)
    least = median(check.result.min_s / check.traced["min_s"] for check in rounds)
    traced = median(check.traced["p50_s"] for check in rounds) * 1e3
    made = median(check.result.p50_s for check in rounds) * 1e3
    return (
        f"| {name} | `{rounds[0].result.operator}` | {traced:.2f} ms | {made:.2f} ms"
        f" | {median_ratio(rounds):.3f} | {ratios[0]:.2f} to {ratios[-1]:.2f} | {least:.3f} |"
    )


def main() -> None:
    """Print the table, and how many operators are within `WITHIN`."""
    parser = argparse.ArgumentParser(description="Ratios of reproduced times to those of traces.")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR")
    options = parser.parse_args()
    checks: dict[str, list[ReproductionCheck]] = {}
    for _ in range(options.rounds):
        with TemporaryDirectory() as folder:
            for name, check in reproduced_round(options.operators, options.torch, Path(folder)).items():
                checks.setdefault(name, []).append(check)
    print("| program | operator | trace | reproduction | ratio | range | of the least |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name, rounds in checks.items():
        print(table_row(name, rounds))
    close = sum(abs(median_ratio(rounds) - 1) <= WITHIN for rounds in checks.values())
    print(f"\n{close} of {len(checks)} within {WITHIN:.0%}")


if __name__ == "__main__":
    main()
