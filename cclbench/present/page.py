# SPDX-License-Identifier: Apache-2.0
"""The HTML report: of one run, or of a comparison; one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from cclbench.comparison.comparison import PARTS, Change, Comparison, Mover, Versus
from cclbench.comparison.subject import Subject
from cclbench.comparison.work import unknown
from cclbench.present.charts.chart import Chart, charts_of
from cclbench.present.charts.waterfall import signed, waterfall
from cclbench.present.facts_section import facts_section
from cclbench.present.headline import story, tiles
from cclbench.present.html import page, write_page
from cclbench.present.kernels import absent, kernel_table
from cclbench.present.sections import headline
from cclbench.present.subjects import colour
from cclbench.present.table import missing, of_comparison, of_run
from cclbench.present.words import breakable, hover, name, quantity
from cclbench.units import humanise

MOST_MOVERS: Final = 5
"""Listed for each part of the difference."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A part of the difference, the things within it whose time differs most, and how many more there are."""

    label: str
    change: Change
    movers: tuple[Mover, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One subject against the first, as a page shows it."""

    versus: Versus
    short: str
    waterfall: Chart
    moved: tuple[Moved, ...]


def write_run(subject: Subject, path: Path) -> None:
    """Write the report of one run; whole or not at all."""
    write_page(run_page(subject), path)


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the report of a comparison; whole or not at all."""
    write_page(comparison_page(comparison), path)


def run_page(subject: Subject) -> str:
    """The report of one run, as HTML."""
    run = replace(subject, letter="")
    context = {"story": story(run), "tiles": tiles(run), "topics": of_run(run)}
    return page("run.html", _common([run], f"{run.id}: where the step goes") | context)


def comparison_page(comparison: Comparison) -> str:
    """The report of a comparison, as HTML."""
    runs = comparison.subjects
    context = {
        "comparison": comparison,
        "differences": [_difference(versus, comparison) for versus in comparison.versus],
        "topics": of_comparison(comparison),
    }
    title = " against ".join(run.id for run in runs)
    return page("comparison.html", _common(runs, title) | context)


def _common(runs: Sequence[Subject], title: str) -> dict[str, Any]:
    return {
        "title": title,
        "runs": runs,
        "charts": charts_of(runs),
        "kernels": kernel_table(runs),
        "facts": [facts_section(run) for run in runs],
        "missing": missing(runs),
        # What templates call.
        "absent": absent,
        "breakable": breakable,
        "colour": colour,
        "headline": headline,
        "hover": hover,
        "humanise": humanise,
        "name": name,
        "seconds": _seconds,
        "signed": signed,
    }


def _seconds(value: float, *told: str) -> Markup:
    return quantity(value, "s", "measured", *told)


def _difference(versus: Versus, comparison: Comparison) -> Difference:
    moved = tuple(
        Moved(PARTS[c.part], c, c.movers[:MOST_MOVERS], max(0, len(c.movers) - MOST_MOVERS))
        for c in versus.changes
    )
    judged = [one for one in comparison.subjects if one.letter in (versus.base, versus.other)]
    return Difference(versus, _short(versus, any(map(unknown, judged))), waterfall(versus), moved)


def _short(versus: Versus, work_unknown: bool) -> str:
    """`B is 1.35× faster`: the verdict in few words; `step is longer` where the work may differ."""
    if versus.ratio is None or versus.outcome not in ("faster", "slower"):
        return versus.outcome
    factor = humanise(max(versus.ratio, 1 / versus.ratio), "ratio")
    if versus.measure == "time.step" and work_unknown:
        return f"{versus.other}'s step is {factor} {'shorter' if versus.outcome == 'faster' else 'longer'}"
    per = "" if versus.measure == "time.step" else " per token"
    return f"{versus.other} is {factor} {versus.outcome}{per}"
