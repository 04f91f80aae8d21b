# SPDX-License-Identifier: Apache-2.0
"""Histories on a terminal: the newest runs, placed between the lowest and highest value, and changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.comparison.change_points import LEAST_RUNS
from cclbench.comparison.comparison import GateCheck
from cclbench.comparison.history import FigureHistory, LevelChange
from cclbench.comparison.history_document import history_rows
from cclbench.ground.text import printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.present.terminal import QUIET
from cclbench.present.terminal.output import titled_bullets

_LANE: Final = 20
"""Characters of the place between the lowest and the highest value."""
_NEWEST: Final = 20
_NAME: Final = 30


def history_page(
    histories: Sequence[FigureHistory], checks: Sequence[GateCheck], *, verbosity: int, unicode: bool
) -> list[RenderableType]:
    """Each history, and the checks; all runs if verbose, none if quiet."""
    parts: list[RenderableType] = []
    for history in histories:
        parts += [] if not parts else [Text()]
        parts += [Text(line) for line in _summary_lines(history)]
        if verbosity != QUIET:
            parts += [Text(), _runs_table(history, None if verbosity > 0 else _NEWEST, unicode=unicode)]
        parts += titled_bullets(
            "Changes of level", [change_words(history, change) for change in history.changes]
        )
    shown = [f"{check.expression}: {check.outcome}: {check.reason}" for check in checks]
    return [*parts, *titled_bullets("Checks", shown)]


def _summary_lines(history: FigureHistory) -> list[str]:
    valued = history.valued
    missing = len(history.points) - len(valued)
    first, last = (f"{history.points[place].date:%Y-%m-%d}" for place in (0, -1))
    line = f"{history.figure} of {len(valued):,} runs from {first} to {last}"
    lines = [line + (f"; {missing:,} without a value" if missing else "")]
    noise = history.levels.noise
    if len(valued) < LEAST_RUNS:
        lines.append(f"too few runs to tell a change of level from noise: {LEAST_RUNS} are needed")
    elif noise is not None:
        size = f"{100 * noise:.2g} %" if history.levels.logarithmic else humanise(noise, history.unit)
        count = len(history.changes)
        lines.append(
            f"noise between runs {size} (standard deviation within a level);"
            f" {count or 'no'} change{'s'[: count != 1]} of level"
        )
    lines += [history.drift_words] if history.drift_words else []
    return lines


def _runs_table(history: FigureHistory, newest: int | None, *, unicode: bool) -> Table:
    """The newest runs in order of time."""
    values = [point.value for point in history.points if point.value is not None]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("date", no_wrap=True)
    table.add_column("run", no_wrap=True)
    table.add_column(Text(history.figure), justify="right", no_wrap=True)
    table.add_column(f"{humanise(low, history.unit)} to {humanise(high, history.unit)}", no_wrap=True)
    mark, change_mark = ("●", "◆") if unicode else ("*", "#")
    rows = []
    for row in history_rows(history):
        name, date, value = Text(shorten_middle(printable(row["run"]), _NAME)), row["date"][:10], row["value"]
        if value is None:
            rows.append((date, name, Text(""), Text(printable(row["reason"] or ""), overflow="ellipsis")))
            continue
        place = round((_LANE - 1) * (value - low) / (high - low)) if high > low else 0
        lane = Text(" " * place + (change_mark if row["change"] else mark))
        if row["change"]:
            lane.append(" " * (_LANE - place) + row["change"], "bold")
        elif row["outlier"]:
            lane.append(" " * (_LANE - place) + "outlier")
        rows.append((date, name, Text(humanise(value, history.unit)), lane))
    left_out = 0 if newest is None else max(len(rows) - newest, 0)
    if left_out:
        table.add_row("", Text(f"{left_out:,} earlier ones: -v", "dim"))
    for cells in rows[left_out:]:
        table.add_row(*cells)
    return table


def change_words(history: FigureHistory, change: LevelChange) -> str:
    """A change in words: when, what kind, how large, since how many runs, and what changed beside it."""
    valued = history.valued
    first = valued[change.first]
    later = [other.first for other in history.changes if other.first > change.first]
    runs = (later[0] if later else len(valued)) - change.first
    if history.levels.logarithmic:
        size = (
            f"{100 * (change.after / change.before - 1):+.2f} %"
            f" (95 % interval {100 * (change.low - 1):+.2f} to {100 * (change.high - 1):+.2f} %)"
        )
    else:
        size = f"95 % interval of the difference {change.low:+.4g} to {change.high:+.4g} {history.unit}"
    words = (
        f"{first.date:%Y-%m-%d} {first.run.id}: {change.verdict},"
        f" {humanise(change.before, history.unit)} to {humanise(change.after, history.unit)}, {size},"
        f" {runs:,} run{'s'[: runs != 1]}"
    )
    if change.work:
        words += f"; the work differs: {'; '.join(change.work)}"
    if change.beside:
        facts = (f"{name} {old or 'none'} to {new or 'none'}" for name, old, new in change.beside)
        words += f"; changed beside it: {', '.join(facts)}"
    elif not change.work:
        words += "; nothing that is recorded changed beside it"
    return words
