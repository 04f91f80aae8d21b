# SPDX-License-Identifier: Apache-2.0
"""Print the errors of the collective model against published sweeps, by sweep and size band, in Markdown.

    python scripts/hardware_errors.py ../shared/fixtures/nccl_tests

Tables, in order: errors for the most ranks of a machine that is calibrated with fewer; the sweeps of the
folder and of tests/hardware/published in two halves, each without residuals of its own system; calibrated
sweeps, leaving out one node count or one size at a time; times of ring, tree and StragglAR on eight GPUs.
docs/hardware-model.md shows the output.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from public_sweeps import (
    HALVES,
    PublicSweep,
    folder_sweeps,
    priced_sweeps,
    published_sweeps,
    specified_system,
)
from unseen_machines import most_ranks, residuals_without_system

from cclbench.ground.units import humanise
from cclbench.hardware.calibration import left_out_by_nodes, left_out_by_size, sweep_deviations
from cclbench.hardware.catalog import system
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.deviation import BANDS, Deviation, summarise_deviations
from cclbench.hardware.residual_learning import ObservedSweep
from cclbench.hardware.residuals import Residuals, current_residuals, replaced_residuals
from cclbench.hardware.validation import SweepValidation

ObservedSweeps = Sequence[tuple[PublicSweep, ObservedSweep]]


def error_row(name: str, found: Sequence[Deviation]) -> str:
    """A row: median, 90th percentile and share within the band, for each size band and for all sizes."""
    cells = []
    for part in (
        *([deviation for deviation in found if deviation.size_band == band] for band in BANDS),
        found,
    ):
        summary = summarise_deviations(part)
        cells.append(
            "-" if summary is None else f"{summary.median:.0%} / {summary.p90:.0%} / {summary.within:.0%}"
        )
    return f"| {name} | " + " | ".join(cells) + " |"


def print_table(title: str, rows: Iterable[str]) -> None:
    """Print a table with a title."""
    print(f"\n{title}: median / 90th percentile of |error| / share within the printed band\n")
    print("| sweep | " + " | ".join([*BANDS, "all sizes"]) + " |")
    print("| --- |" + " --- |" * (len(BANDS) + 1))
    print("\n".join(rows))


def print_extrapolated(observed_sweeps: ObservedSweeps, residuals: Mapping[str, Residuals]) -> None:
    """Print errors for the most ranks of machines with several counts, calibrated with the other counts."""
    print("\nThe most ranks of a machine, calibrated by its fewer: median error / share within the band\n")
    print("| sweep | rows | calibrated by ranks | formulas | from the catalog alone | calibrated |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for found in most_ranks(observed_sweeps, residuals):
        cells = [
            f"{summary.median:.1%} / {summary.within:.0%}" for summary in (found.catalog, found.calibrated)
        ]
        formulas = f"{np.median(np.abs(np.expm1(-found.observed.residual))):.1%}"
        ranks = ", ".join(map(str, found.fewer))
        line = " | ".join([found.public.file, str(found.catalog.count), ranks, formulas, *cells])
        print(f"| {line} |")


def print_catalog_errors(
    title: str, sweeps: Sequence[PublicSweep], every: str, residuals: Mapping[str, Residuals]
) -> int:
    """Print errors of sweeps from the catalog alone; returns the number of sweeps without a price."""
    refused = 0
    rows, total = [], []
    for public in sweeps:
        with replaced_residuals(residuals.get(public.system, current_residuals())):
            found = sweep_deviations(public.sweep, specified_system(public.system))
        if isinstance(found, NoPrice):
            print(f"{public.file}: {found.reason}", file=sys.stderr)
            rows.append(f"| {public.file} |" + " no price |" * (len(BANDS) + 1))
            refused += 1
            continue
        suspect = SweepValidation(public.sweep, found).suspect_bands
        slow = ", ".join(f"{own.slower:.1f} times slower {band}" for band, own in suspect.items())
        rows.append(error_row(public.file + (f" (**{slow}**)" if slow else ""), found))
        if not public.misconfigured:
            total += found
    print_table(title, [*rows, error_row(every, total)])
    return refused


def eight_gpu_rows(machine: str) -> list[str]:
    """Rows of ring, tree and StragglAR with protocol Simple on eight GPUs of a machine, by size."""
    lines = []
    for size, name in ((2**24, "16 MiB"), (2**28, "256 MiB"), (2**32, "4 GiB")):
        times = []
        for algorithm in ("ring", "tree", "stragglar"):
            found = price_collective(
                "all_reduce", size, range(8), system(machine), algorithm=algorithm, protocol="Simple"
            )
            assert not isinstance(found, NoPrice)  # noqa: S101  (a defect of the catalog)
            times.append(float(found.time_s[0]))
        ring, tree, late = times
        shown = " | ".join(humanise(time, "s") for time in times)
        lines.append(f"| {machine}, {name} | {shown} | {tree / ring:.2f} | {1 - late / ring:.0%} |")
    return lines


def main() -> int:
    """Print all tables; returns 1 if a sweep has no price."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    observed_sweeps = priced_sweeps(folder)
    residuals = residuals_without_system([observed for _, observed in observed_sweeps])
    print_extrapolated(observed_sweeps, residuals)
    sweeps = folder_sweeps(folder)
    refused = print_catalog_errors(
        "From the catalog alone", sweeps, "**all but the misconfigured**", residuals
    )
    for half in HALVES:
        title = f"The published sweeps, {half}, from the catalog alone"
        print_catalog_errors(title, published_sweeps(half), "**all**", residuals)

    alps = [public.sweep for public in sweeps if public.machine == "alps"]
    with replaced_residuals(residuals["alps-gh200"]):
        by_nodes = left_out_by_nodes(alps, system("alps-gh200"))
    rows = [error_row(f"{nodes} nodes left out", found) for nodes, found in by_nodes.items()]
    every = [deviation for found in by_nodes.values() for deviation in found]
    print_table("Alps calibrated by its other node counts", [*rows, error_row("**all**", every)])

    rows = []
    for public in sweeps:
        with replaced_residuals(residuals[public.system]):
            found = left_out_by_size(public.sweep, system(public.system))
        if not isinstance(found, NoPrice):
            rows.append(error_row(public.file, found))
    print_table("Calibrated by the sweep itself, one size left out", rows)

    print("\nAll-reduce of eight GPUs in one node, Simple protocol, from the catalog alone\n")
    print("| system, S | ring | tree | StragglAR, from the last arrival on | tree / ring | StragglAR saves |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join([*eight_gpu_rows("dgx-a100"), *eight_gpu_rows("dgx-h100")]))
    return 1 if refused else 0


if __name__ == "__main__":
    raise SystemExit(main())
