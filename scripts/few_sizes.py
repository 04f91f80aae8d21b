# SPDX-License-Identifier: Apache-2.0
"""Print how few sizes of a sweep correct its others, of all published sweeps, in Markdown.

    python scripts/few_sizes.py ../shared/fixtures/nccl_tests ../shared/fixtures/nccl_tests_more

Sweeps of at least six sizes of both folders and of tests/hardware/published, each with residuals learned
without its system.  docs/hardware-model.md shows the output.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs
from public_sweeps import folder_sweeps, priced_sweeps, specified_system, with_formulas
from unseen_machines import residuals_without_system

from cclbench.hardware.calibration import Calibration, sweep_deviations
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.deviation import BANDS
from cclbench.hardware.residuals import Residuals, replaced_residuals
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.system import System

DRAWS: Final = 10
LEAST_SIZES: Final = 6
EQUAL: Final = 0.0005
"""Errors that differ by less, 0.05 points, are equal."""


class Machine(NamedTuple):
    """A published sweep, its system, and residuals learned without that system."""

    name: str
    sweep: Sweep
    system: System
    residuals: Residuals


class Row(NamedTuple):
    """|error| at a size that was not used, from the catalog alone and calibrated; whether within the band."""

    name: str
    band: str
    before: float
    after: float
    within: bool


def swept_machines(folder: Path, others: Path) -> list[Machine]:
    """All sweeps of at least six sizes, those included that nothing is learned from."""
    observed = [*priced_sweeps(folder), *with_formulas(folder_sweeps(others))]
    residuals = residuals_without_system([sweep for _, sweep in observed])
    return [
        Machine(public.file, public.sweep, specified_system(public.system), residuals[public.system])
        for public, _ in observed
        if len(public.sweep.bytes) >= LEAST_SIZES
    ]


def select_sizes(sweep: Sweep, chosen: Sequence[int]) -> Sweep:
    """The sweep at these sizes, by number."""
    return structs.replace(
        sweep, bytes=tuple(sweep.bytes[i] for i in chosen), seconds=tuple(sweep.seconds[i] for i in chosen)
    )


def rows_of_others(machine: Machine, chosen: Sequence[int]) -> list[Row]:
    """Errors at all sizes but the chosen ones, which calibrate."""
    others = [at for at in range(len(machine.sweep.bytes)) if at not in chosen]
    calibration = Calibration(machine.system.id, (select_sizes(machine.sweep, chosen),))
    with replaced_residuals(machine.residuals):
        before, after = (
            sweep_deviations(select_sizes(machine.sweep, others), machine.system, by)
            for by in (None, calibration)
        )
    assert not isinstance(before, NoPrice)  # noqa: S101  (`with_formulas` have a price)
    assert not isinstance(after, NoPrice)  # noqa: S101
    return [
        Row(
            *(machine.name, one.size_band, abs(one.relative_error), abs(other.relative_error)),
            other.is_within_band,
        )
        for one, other in zip(before, after, strict=True)
    ]


def drawn_sizes(machine: Machine, known: int) -> Iterator[list[int]]:
    """`DRAWS` draws of so many sizes."""
    chance = Random(1)  # noqa: S311 - must be repeatable, not unpredictable
    for _ in range(DRAWS):
        yield sorted(chance.sample(range(len(machine.sweep.bytes)), known))


def narrowest_pair(machine: Machine) -> tuple[int, int]:
    """The two sizes, of every second one, that narrow the bands at all most, as `hardware probe` chooses.

    Nothing measured is used: the machine takes the times predicted.
    """
    sweep, own = machine.sweep, machine.system
    members = own.group_members(sweep.ranks, sweep.nodes)

    def mean_width(pair: tuple[int, int]) -> float:
        by = Calibration(own.id, (select_sizes(expected, pair),))
        found = by.price_collective(sweep.kind, sweep.bytes, members, own)
        assert not isinstance(found, NoPrice)  # noqa: S101
        return float(np.log(found.high_s / found.low_s).mean())

    with replaced_residuals(machine.residuals):
        alone = price_collective(sweep.kind, sweep.bytes, members, own, library_version=sweep.library_version)
        assert not isinstance(alone, NoPrice)  # noqa: S101
        expected = structs.replace(sweep, seconds=tuple(alone.time_s.tolist()))
        return min(combinations(range(0, len(sweep.bytes), 2), 2), key=mean_width)


def rises(rows: Sequence[Row]) -> dict[str, float]:
    """By how much the median error of each sweep is larger when calibrated."""
    by_sweep = defaultdict[str, list[Row]](list)
    for row in rows:
        by_sweep[row.name].append(row)
    medians = {
        name: np.median([(row.before, row.after) for row in own], axis=0) for name, own in by_sweep.items()
    }
    return {name: float(after - before) for name, (before, after) in medians.items()}


SELECTIONS: Final[dict[str, Callable[[Machine], Iterator[Sequence[int]]]]] = {
    "one at random": lambda machine: drawn_sizes(machine, 1),
    "two, chosen by their bands alone, as `probe` does": lambda machine: iter([narrowest_pair(machine)]),
    "two at random": lambda machine: drawn_sizes(machine, 2),
    "the two ends": lambda machine: iter([(0, len(machine.sweep.bytes) - 1)]),
    "four at random": lambda machine: drawn_sizes(machine, 4),
    "all but one": lambda machine: combinations(
        range(len(machine.sweep.bytes)), len(machine.sweep.bytes) - 1
    ),
}


def table(machines: Sequence[Machine]) -> Iterator[str]:
    """Rows in Markdown: medians at all other sizes, and the sweeps whose median rises or falls."""
    yield "| sizes | " + " | ".join(BANDS) + " | within the band | sweeps that become worse | better |"
    yield "| --- |" + " --- |" * len(BANDS) + " ---: | --- | --- |"
    for name, select in SELECTIONS.items():
        rows = [row for one in machines for chosen in select(one) for row in rows_of_others(one, chosen)]
        cells = []
        for band in BANDS:
            pairs = [(row.before, row.after) for row in rows if row.band == band]
            before, after = np.median(pairs, axis=0)
            cells.append(f"{100 * before:.1f} to {after:.1%}")
        found = [*rises(rows).values()]
        worse = [rise for rise in found if rise > EQUAL]
        most = f", by {100 * max(worse):.1f} points at most" if worse else ""
        cells.append(f"{np.mean([row.within for row in rows]):.0%}")
        cells.append(f"{len(worse)} of {len(found)}{most}")
        cells.append(f"{sum(rise < -EQUAL for rise in found)}")
        yield f"| {name} | " + " | ".join(cells) + " |"


def main() -> int:
    """Print the table."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    print("\n".join(table(swept_machines(Path(sys.argv[1]), Path(sys.argv[2])))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
