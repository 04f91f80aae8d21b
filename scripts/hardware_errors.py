# SPDX-License-Identifier: Apache-2.0
"""Print the errors of the collective model against published sweeps, by sweep and size band, in Markdown.

    python scripts/hardware_errors.py ../shared/fixtures/nccl_tests

Tables, in order: errors on systems that were left out of the learning, by size, by class of machine, of
ratios, and for the most ranks of a machine that is calibrated with fewer; the sweeps of the folder and of
tests/hardware/published in two halves, each without residuals of its own system; calibrated sweeps, leaving
out one node count or one size at a time, and with one, two or three sizes; times of ring, tree and StragglAR
on eight GPUs.  docs/hardware-model.md shows the output.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
from msgspec import structs
from public_sweeps import HALVES, MISCONFIGURED, Public, given, published, usable
from unseen_machines import (
    Missed,
    between_machines,
    between_settings,
    left_out,
    machine_class,
    missed,
    most_ranks,
    together,
)

from cclbench.ground.units import humanise
from cclbench.hardware.calibration import Calibration, left_out_by_nodes, left_out_by_size, sweep_deviations
from cclbench.hardware.catalog import system
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.deviation import BANDS, Deviation, summarise_deviations
from cclbench.hardware.residual_learning import ObservedSweep
from cclbench.hardware.residuals import Residuals, current_residuals, replaced_residuals
from cclbench.hardware.sweep import Sweep

DRAWS: Final = 20
"""Draws of each number of a sweep's sizes."""
_FEW: Final = 5
"""Sizes of a sweep of which none could be held out."""
Known = Sequence[tuple[Public, ObservedSweep]]
ByNumber = Iterable[tuple[int, Missed]]


def row(name: str, found: Sequence[Deviation]) -> str:
    """A row: median, 90th percentile and share within the band, for each size band and for all sizes."""
    cells = []
    for part in (*([each for each in found if each.size_band == band] for band in BANDS), found):
        own = summarise_deviations(part)
        cells.append("-" if own is None else f"{own.median:.0%} / {own.p90:.0%} / {own.within:.0%}")
    return f"| {name} | " + " | ".join(cells) + " |"


def table(title: str, rows: Iterable[str]) -> None:
    """Print a table with a title."""
    print(f"\n{title}: median / 90th percentile of |error| / share within the printed band\n")
    print("| sweep | " + " | ".join([*BANDS, "all sizes"]) + " |")
    print("| --- |" + " --- |" * (len(BANDS) + 1))
    print("\n".join(rows))


def unseen(known: Known, by: Mapping[str, Residuals]) -> None:
    """Print errors on systems that were left out: by size, by class of machine, and of ratios."""
    sweeps = [own for _, own in known]
    print("Systems left out: of all their rows\n")
    print(
        "| sizes | rows | formulas: median error, bias | median error | slower | bias | in band | its width |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for number, band in enumerate(BANDS):
        found = together([missed(own, by[own.system], band=number) for own in sweeps])
        residual = np.concatenate([own.residual[own.size_bands == number] for own in sweeps])
        formulas = f"{np.median(np.abs(np.expm1(-residual))):.0%}, {np.median(residual):+.1%}"
        print(
            f"| {band} | {found.count} | {formulas} | {found.median:.0%} | {found.slower:.0%} "
            f"| {found.bias:+.1%} | {found.within:.0%} | {found.width:.1f} times |"
        )

    print("\nSystems left out, by class of machine\n")
    print("| class | machines | rows | median error | bias | in band |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in sorted({machine_class(own) for own in sweeps}):
        parts = [own for own in sweeps if machine_class(own) == name]
        found = together([missed(own, by[own.system]) for own in parts])
        machines = len({own.machine for own in parts})
        print(
            f"| {name} | {machines} | {found.count} | {found.median:.0%} | {found.bias:+.1%} "
            f"| {found.within:.0%} |"
        )

    print("\nRatios of two times, without what their systems taught\n")
    print("| ratio, sizes | ratios | median error | in band | its width |")
    print("| --- | ---: | ---: | ---: | ---: |")
    ratios("two machines", between_machines(sweeps))
    ratios("one machine, other ranks or collective", between_settings(sweeps, dict(by)))


def ratios(what: str, found: ByNumber) -> None:
    """Print rows of ratios by size band, then of all sizes."""
    every = list(found)
    for number, band in enumerate(BANDS):
        ratio_line(f"{what}, {band}", [each for own, each in every if own == number])
    ratio_line(f"**{what}**", [each for _, each in every])


def ratio_line(name: str, parts: Sequence[Missed]) -> None:
    """Print one row of ratios."""
    own = together(parts)
    print(f"| {name} | {own.count:,} | {own.median:.0%} | {own.within:.0%} | {own.width:.1f} times |")


def extrapolated(known: Known, by: Mapping[str, Residuals]) -> None:
    """Print errors for the most ranks of machines with several counts, calibrated with the other counts."""
    print("\nThe most ranks of a machine, calibrated by its fewer: median error / share within the band\n")
    print("| sweep | rows | calibrated by ranks | formulas | from the catalog alone | calibrated |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for found in most_ranks(known, by):
        cells = [f"{each.median:.1%} / {each.within:.0%}" for each in (found.catalog, found.calibrated)]
        formulas = f"{np.median(np.abs(np.expm1(-found.beside.residual))):.1%}"
        ranks = ", ".join(map(str, found.fewer))
        line = " | ".join([found.public.file, str(found.catalog.count), ranks, formulas, *cells])
        print(f"| {line} |")


def alone(title: str, known: Sequence[Public], every: str, by: Mapping[str, Residuals]) -> int:
    """Print errors of sweeps from the catalog alone; returns the number of sweeps without a price."""
    refused = 0
    rows, total = [], []
    for public in known:
        with replaced_residuals(by.get(public.system, current_residuals())):
            found = sweep_deviations(public.sweep, system(public.system))
        if isinstance(found, NoPrice):
            print(f"{public.file}: {found.reason}", file=sys.stderr)
            rows.append(f"| {public.file} |" + " no price |" * (len(BANDS) + 1))
            refused += 1
            continue
        own = summarise_deviations(found)
        slow = f" (**{own.slower:.0f} times slower than predicted**)" if own and own.is_suspect else ""
        rows.append(row(public.file + slow, found))
        if MISCONFIGURED not in public.file:
            total += found
    table(title, [*rows, row(every, total)])
    return refused


def subsets(count: int, known: int | str) -> list[tuple[int, ...]]:
    """Which of so many sizes calibrate: `DRAWS` draws of so many, the two ends, or all but each in turn."""
    if known == "the two ends":
        return [(0, count - 1)]
    if known == "all but one":
        return [tuple(at for at in range(count) if at != out) for out in range(count)]
    chance = Random(1)  # noqa: S311 - wants repeating, not guessing
    return [tuple(sorted(chance.sample(range(count), int(known)))) for _ in range(DRAWS)]


def part(sweep: Sweep, chosen: Iterable[int]) -> Sweep:
    """The sweep restricted to these sizes."""
    at = list(chosen)
    return structs.replace(
        sweep, bytes=tuple(sweep.bytes[i] for i in at), seconds=tuple(sweep.seconds[i] for i in at)
    )


def by_few_sizes(known: Sequence[Public], by: Mapping[str, Residuals]) -> None:
    """Print errors at the sizes of a sweep that were not used to calibrate, by the number used."""
    print("\nCalibrated by few sizes of a sweep, at all its others: medians over machines\n")
    print(
        "| sizes known | machines | from the catalog alone | calibrated | in band | worse than the catalog |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for how in (1, 2, 3, "the two ends", "all but one"):
        errors = defaultdict[str, list[tuple[float, float, bool]]](list)
        for public in known:
            sweep, machine = public.sweep, system(public.system)
            with replaced_residuals(by.get(public.system, current_residuals())):
                for chosen in subsets(len(sweep.bytes), how) if len(sweep.bytes) > _FEW else ():
                    rest = part(sweep, (at for at in range(len(sweep.bytes)) if at not in chosen))
                    calibration = Calibration(machine.id, (part(sweep, chosen),))
                    without, found = (
                        sweep_deviations(rest, machine),
                        sweep_deviations(rest, machine, calibration),
                    )
                    assert not isinstance(without, NoPrice)  # noqa: S101  (`usable` have a price)
                    assert not isinstance(found, NoPrice)  # noqa: S101
                    errors[public.machine] += [
                        (abs(one.relative_error), abs(other.relative_error), other.is_within_band)
                        for one, other in zip(without, found, strict=True)
                    ]
        rows = np.array([np.median(own, axis=0) for own in errors.values()])
        inside = np.mean([within for own in errors.values() for *_, within in own])
        worse = int((rows[:, 1] > rows[:, 0]).sum())
        alone, calibrated, _ = np.median(rows, axis=0)
        print(f"| {how} | {len(rows)} | {alone:.1%} | {calibrated:.1%} | {inside:.0%} | {worse} |")


def eight(machine: str) -> list[str]:
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
        shown = " | ".join(humanise(each, "s") for each in times)
        lines.append(f"| {machine}, {name} | {shown} | {tree / ring:.2f} | {1 - late / ring:.0%} |")
    return lines


def main() -> int:
    """Print all tables; returns 1 if a sweep has no price."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    known = usable(folder)
    by = left_out([own for _, own in known])
    unseen(known, by)
    extrapolated(known, by)
    own = given(folder)
    refused = alone("From the catalog alone", own, "**all but the misconfigured**", by)
    for half in HALVES:
        title = f"The published sweeps, {half}, from the catalog alone"
        alone(title, published(half), "**all**", by)

    alps = [each.sweep for each in own if each.machine == "alps"]
    with replaced_residuals(by["alps-gh200"]):
        by_nodes = left_out_by_nodes(alps, system("alps-gh200"))
    rows = [row(f"{nodes} nodes left out", found) for nodes, found in by_nodes.items()]
    every = [each for found in by_nodes.values() for each in found]
    table("Alps calibrated by its other node counts", [*rows, row("**all**", every)])

    rows = []
    for public in own:
        with replaced_residuals(by[public.system]):
            found = left_out_by_size(public.sweep, system(public.system))
        if not isinstance(found, NoPrice):
            rows.append(row(public.file, found))
    table("Calibrated by the sweep itself, one size left out", rows)

    by_few_sizes([public for public, _ in known], by)

    print("\nAll-reduce of eight GPUs in one node, Simple protocol, from the catalog alone\n")
    print("| system, S | ring | tree | StragglAR, from the last arrival on | tree / ring | StragglAR saves |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join([*eight("dgx-a100"), *eight("dgx-h100")]))
    return 1 if refused else 0


if __name__ == "__main__":
    raise SystemExit(main())
