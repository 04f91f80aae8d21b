# SPDX-License-Identifier: Apache-2.0
"""A search on a terminal: the best scenarios, the Pareto front, and reasons why others are infeasible."""

from __future__ import annotations

from collections import Counter
from typing import Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.replay.search import SearchResult, SearchTrial

_SHOWN: Final = 12
_REASONS: Final = 5
_LABEL: Final = 26


def search_page(search: SearchResult, verbosity: int) -> list[RenderableType]:
    """The best scenarios as a table, with * for the Pareto front; number and reasons of the others."""
    most = len(search.ranked) if verbosity >= VERBOSE else _SHOWN
    shown = [*search.ranked[:most], *(trial for trial in search.front if trial not in search.ranked[:most])]
    costs = search.priced_by == "cost" and bool(search.front)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    longest = max((len(text) for trial in shown for text in trial.scenario.label.split(", ")), default=0)
    table.add_column("", min_width=min(longest, _LABEL), overflow="fold")
    headings = ["step", "bounds", "speedup"]
    headings += ["tokens/s/device"] if search.tokens is not None else []
    headings += ["devices", "memory"] if search.relaid else []
    if costs:
        headings.append("cost" if search.unit == "1" else f"cost, {printable(search.unit)}")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=not heading.startswith("cost"))
    table.add_row("replayed unchanged", _time_words(search.unchanged_ns))
    for trial in shown:
        table.add_row(
            Text(printable(trial.scenario.label).replace(", ", "\n")), *_trial_cells(search, trial, costs)
        )
    if verbosity <= QUIET:
        return [table]
    tried = len(search.ranked) + len(search.infeasible)
    lines = [f"{tried:,} of {search.points:,} scenarios examined, {len(search.ranked):,} feasible"]
    if search.front:
        lines.append(f"*: no other is both faster and {'cheaper' if costs else 'on fewer devices'}")
    lines += dict.fromkeys(trial.unexamined for trial in shown if trial.unexamined)
    if len(search.ranked) > len(shown):
        lines.append(f"{len(search.ranked) - len(shown):,} more feasible ones: -v shows them")
    reasons = Counter(trial.infeasible for trial in search.infeasible)
    lines += [f"infeasible: {number:,}: {reason}" for reason, number in reasons.most_common(_REASONS)]
    if len(reasons) > _REASONS:
        lines.append(f"infeasible for {len(reasons) - _REASONS:,} other reasons: see --json")
    lines += dict.fromkeys(basis for trial in shown if trial.predicted for basis in trial.predicted.basis)
    return [table, *(Text(printable(f"- {line}")) for line in lines)]


def _time_words(ns: float) -> str:
    return humanise(ns / 1e9, "s")


def _trial_cells(search: SearchResult, trial: SearchTrial, costs: bool) -> list[str]:
    low, high = _time_words(trial.low_ns), _time_words(trial.high_ns)
    step = trial.step_ns
    cells = [
        "unknown" if step is None else _time_words(step),
        "" if low == high else f"{low} to {high}",
        "" if step is None else humanise(search.unchanged_ns / step, "ratio"),
    ]
    if search.tokens is not None:
        tokens = search.tokens_of(trial)
        cells.append("" if tokens is None else f"{tokens:,.6g}")
    if search.relaid:
        star = "* " if trial in search.front and not costs else ""
        cells.append(f"{star}{trial.devices:,}")
        cells.append("unknown" if trial.memory is None else humanise(trial.memory.total_bytes, "B"))
    if costs:
        cells.append(f"{'* ' if trial in search.front else ''}{trial.cost or 0.0:g}")
    return cells
