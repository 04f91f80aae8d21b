# SPDX-License-Identifier: Apache-2.0
"""Prints how far the collective model is from published sweeps, by sweep and size band, as Markdown tables.

    python scripts/hardware_errors.py ../shared/fixtures/nccl_tests

First from the catalog alone, the sweeps of the folder and those of tests/hardware/published in two halves;
then calibrated, leaving out one node count, and one size, at a time; last what ring, tree and StragglAR cost
on eight GPUs.  docs/hardware-model.md shows what it prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cclbench.formats.nccl_tests import NcclTests
from cclbench.hardware.calibration import deviations, left_out_by_nodes, left_out_by_size
from cclbench.hardware.catalog import system
from cclbench.hardware.collectives import Refusal, price
from cclbench.hardware.deviation import BANDS, Deviation, summary
from cclbench.hardware.sweep import Sweep, sweeps_of
from cclbench.units import humanise

SYSTEMS = {
    "a100_nvswitch": "dgx-a100",
    "alps": "alps-gh200",
    "aws_p5_": "aws-p5",
    "cscs_daint": "alps-gh200",
    "gcp_a3mega": "gcp-a3-mega",
    "h100_1n4": "dgx-h100",
    "vultr_b200": "dgx-b200",
}
PUBLISHED = Path(__file__).parents[1] / "tests" / "hardware" / "published"
HALVES = ("development", "held out")
MISCONFIGURED = "tcp_fallback"
"""A run without its network plug-in: it must stand out, and counts in no total."""


def given(folder: Path) -> list[tuple[str, str, Sweep]]:
    """(file, system, sweep) of every sweep of a folder whose machine the catalog has."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        name = next((known for prefix, known in SYSTEMS.items() if path.name.startswith(prefix)), None)
        if name is None:
            print(f"{path.name}: no system of the catalog is named for it", file=sys.stderr)
            continue
        found.extend((path.stem, name, sweep) for sweep in swept(path))
    return found


def published(half: str) -> list[tuple[str, str, Sweep]]:
    """(file, system, sweep) of every sweep of one half of tests/hardware/published."""
    found = []
    for path in sorted(PUBLISHED.glob("*.csv")):
        lines = (line[2:].partition(": ") for line in path.read_text().splitlines() if line.startswith("# "))
        header = {key: value for key, _, value in lines}
        if header["half"] == half:
            found.extend((path.stem, header["system"], sweep) for sweep in swept(path))
    return found


def swept(path: Path) -> list[Sweep]:
    """The sweeps of a file; rows in none are told on stderr."""
    evidence = NcclTests().read(path)
    version = evidence.facts.get("library_version")
    own, left_out = sweeps_of(evidence.timings, None if version is None else str(version))
    for reason, rows in left_out.items():
        print(f"{path.name}: {rows} rows {reason}", file=sys.stderr)
    return own


def row(name: str, found: Sequence[Deviation]) -> str:
    """A line of a table: by size band, then of all: median, 90th percentile, share within the band."""
    cells = []
    for part in (*([each for each in found if each.band == band] for band in BANDS), found):
        own = summary(part)
        cells.append("-" if own is None else f"{own.median:.0%} / {own.p90:.0%} / {own.within:.0%}")
    return f"| {name} | " + " | ".join(cells) + " |"


def table(title: str, rows: Iterable[str]) -> None:
    """Prints a table under its title."""
    print(f"\n{title}: median / 90th percentile of |error| / share within the printed band\n")
    print("| sweep | " + " | ".join([*BANDS, "all sizes"]) + " |")
    print("| --- |" + " --- |" * (len(BANDS) + 1))
    print("\n".join(rows))


def alone(title: str, known: Sequence[tuple[str, str, Sweep]], every: str) -> int:
    """Prints the table of sweeps from the catalog alone, and returns how many cannot be priced."""
    refused = 0
    rows, total = [], []
    for file, name, sweep in known:
        found = deviations(sweep, system(name))
        if isinstance(found, Refusal):
            print(f"{file}: {found.reason}", file=sys.stderr)
            rows.append(f"| {file} |" + " no price |" * (len(BANDS) + 1))
            refused += 1
            continue
        own = summary(found)
        marked = f"{file} (**{own.slower:.0f} times slower than predicted**)" if own and own.suspect else file
        rows.append(row(marked, found))
        if MISCONFIGURED not in file:
            total += found
    table(title, [*rows, row(every, total)])
    return refused


def eight(machine: str) -> list[str]:
    """Lines of ring, tree and StragglAR in Simple on eight GPUs of a machine, by size."""
    lines = []
    for size, name in ((2**24, "16 MiB"), (2**28, "256 MiB"), (2**32, "4 GiB")):
        times = []
        for algorithm in ("ring", "tree", "stragglar"):
            found = price(
                "all_reduce", size, range(8), system(machine), algorithm=algorithm, protocol="Simple"
            )
            assert not isinstance(found, Refusal)  # noqa: S101  (a defect of the catalog)
            times.append(float(found.time_s[0]))
        ring, tree, late = times
        shown = " | ".join(humanise(each, "s") for each in times)
        lines.append(f"| {machine}, {name} | {shown} | {tree / ring:.2f} | {1 - late / ring:.0%} |")
    return lines


def main() -> int:
    """Prints all tables; 1 where a sweep could not be priced."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    known = given(Path(sys.argv[1]))
    refused = alone("From the catalog alone", known, "**all but the misconfigured**")
    for half in HALVES:
        alone(f"The published sweeps, {half}, from the catalog alone", published(half), "**all**")

    alps = [sweep for file, name, sweep in known if name == "alps-gh200" and MISCONFIGURED not in file]
    by_nodes = left_out_by_nodes(alps, system("alps-gh200"))
    rows = [row(f"{nodes} nodes left out", found) for nodes, found in by_nodes.items()]
    every = [each for found in by_nodes.values() for each in found]
    table("Alps calibrated by its other node counts", [*rows, row("**all**", every)])

    rows = []
    for file, name, sweep in known:
        found = left_out_by_size(sweep, system(name))
        if not isinstance(found, Refusal):
            rows.append(row(file, found))
    table("Calibrated by the sweep itself, one size left out", rows)

    print("\nAll-reduce of eight GPUs in one node, Simple protocol, from the catalog alone\n")
    print("| system, S | ring | tree | StragglAR, from the last arrival on | tree / ring | StragglAR saves |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join([*eight("dgx-a100"), *eight("dgx-h100")]))
    return 1 if refused else 0


if __name__ == "__main__":
    raise SystemExit(main())
