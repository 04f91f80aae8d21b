# SPDX-License-Identifier: Apache-2.0
"""Figures that the paper states, looked up in the published rows: which stand there, and which do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, Final

import msgspec

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.text import first_few
from cclbench.record.rows import Row
from cclbench.studies.claims.claim import Claim, count_words

STATEMENT: Final = "The figures that the paper states stand in its leaderboard's rows."
_SCALES: Final = {"%": ("1", 0.01), "ms": ("s", 1e-3), "GB": ("B", 1e9)}
"""Our unit, and its number, of each unit in which figures are stated."""


class StatedFigure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure as the paper states it: an entry of `figures.yaml`."""

    figure: str
    stated: str
    """Number and unit."""
    workload: str | None = None
    metric: str | None = None

    @property
    def unit(self) -> str:
        """The unit of our metrics that it is in."""
        return _SCALES[self.stated.partition(" ")[2]][0]

    def is_rounded(self, value: float) -> bool:
        """Whether a value in our unit rounds to the stated figure."""
        return self.distance(value) <= 0.5 * 10.0 ** -len(self.stated.partition(" ")[0].partition(".")[2])

    def distance(self, value: float) -> float:
        """Absolute difference from the stated figure, in its unit."""
        number, _, unit = self.stated.partition(" ")
        return abs(value / _SCALES[unit][1] - float(number))

    def in_its_unit(self, value: float) -> str:
        """A value in our unit, in the figure's unit with six digits."""
        unit = self.stated.partition(" ")[2]
        return f"{value / _SCALES[unit][1]:.6g} {unit}"


FIGURES: Final = msgspec.yaml.decode(
    files(__package__).joinpath("figures.yaml").read_bytes(), type=tuple[StatedFigure, ...]
)


def examine_figures(runs: Sequence[ComparisonSubject]) -> Claim:
    """Look for each stated figure in the rows of the leaderboard."""
    board = [run for run in runs if (row := run.stored.record.published) and row.source == "ccl-bench"]
    lines = [_figure_line(figure, board) for figure in FIGURES] if board else []
    missing = [line["stated"] for line in lines if not line["equal"]]
    holds = "not shown" if missing else "holds"
    outcome: Any = holds if lines else "cannot be examined"
    verdict = "the store has no row of the leaderboard"
    if lines:
        verdict = f"{len(lines) - len(missing)} of {count_words(len(lines), 'figure')} stand in the rows"
    if missing:
        verdict += f"; in no row: {first_few(missing, len(missing))}"
    return Claim(
        key="figures",
        statement=STATEMENT,
        outcome=outcome,
        verdict=verdict,
        counts={"stated": len(lines), "equal": len(lines) - len(missing)},
        summary=lines,
        rows=lines,
        caveats=(),
    )


def _figure_line(figure: StatedFigure, board: Sequence[ComparisonSubject]) -> dict[str, Any]:
    """The published number of the figure's row, else the nearest of its unit in any row."""
    numbers = list(_numbers_of(figure, board))
    run, row, value = min(numbers, key=lambda entry: figure.distance(entry[2]), default=(None, None, None))
    equal = value is not None and figure.is_rounded(value)
    return {
        "figure": figure.figure,
        "stated": figure.stated,
        "published": None if value is None else figure.in_its_unit(value),
        "equal": equal,
        "metric": None if row is None else row.metric,
        "workload": None if run is None else run.metadata.get("workload_name"),
        "run": None if run is None else run.id,
    }


def _numbers_of(
    figure: StatedFigure, board: Sequence[ComparisonSubject]
) -> Iterator[tuple[ComparisonSubject, Row, float]]:
    for run in board:
        if figure.workload not in (None, run.metadata.get("workload_name")):
            continue
        for row in run.results.rows:
            if row.value is not None and row.unit == figure.unit and figure.metric in (None, row.metric):
                yield run, row, row.value
