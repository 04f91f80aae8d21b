# SPDX-License-Identifier: Apache-2.0
"""A replay on a terminal: step times, speedups, critical path, and their basis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.replay.critical_path import Path as Route
from cclbench.replay.result import ReplayResult

_TOLD: Final = 0.03
"""Smallest shown share of the critical path."""
_LABEL: Final = 26
_LONGEST_NOTE: Final = 240
_MERGED: Final = ("inferred from times: ", "weak class: ")
"""Beginnings of notes of which there may be many."""


def whatif_page(found: ReplayResult, verbosity: int) -> list[RenderableType]:
    """Step times and speedups as a table, with the critical path, and their basis."""

    def time_words(ns: float | None) -> str:
        return "" if ns is None else humanise(ns / 1e9, "s")

    def path_words(path: Route) -> str:
        shares = sorted(path.places.items(), key=lambda place: -place[1])
        whole = max(path.length_ns, 1)
        told = [
            f"{place.replace('communication', 'comm.')} {humanise(ns / whole, '1')}"
            for place, ns in shares
            if ns >= _TOLD * whole
        ]
        return "\n".join(told)

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    longest = max(len(part) for one in found.predicted for part in one.scenario.label.split())
    table.add_column("", min_width=min(longest, _LABEL), overflow="fold")
    for heading in ("step", "bounds", "speedup"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("critical path", overflow="fold")
    table.add_row("measured", time_words(found.measured_ns))
    unchanged = found.unchanged
    if unchanged.path.length_ns:
        table.add_row("replayed unchanged", time_words(unchanged.step_ns), "", "", path_words(unchanged.path))
    for one in found.predicted:
        if one.idle is not None:
            table.add_row(Text(printable(one.scenario.label)), "no effect")
            continue
        step = one.step_ns
        low, high = time_words(one.low_ns), time_words(one.high_ns)
        table.add_row(
            Text(printable(one.scenario.label)),
            time_words(step) or "unknown",
            "" if low == high else f"{low} to {high}",
            "" if step is None else humanise(unchanged.step_ns / step, "ratio"),
            path_words(one.path),
        )
    if verbosity <= QUIET:
        return [table]
    knees = [
        f"knee of {row.category}: "
        + (row.reason or "" if row.value is None else f"x{row.value:g}; {row.reason}")
        for row in found.figures
        if row.metric == "whatif.knee"
    ]
    faith = [row.reason for row in found.figures if row.metric == "whatif.replayed_step" and row.reason]
    bases = dict.fromkeys(basis for one in found.predicted for basis in one.basis)
    lines = _merged_notes([*knees, *faith, *bases, *found.notes])
    if verbosity < VERBOSE:
        lines = [_short_note(line) for line in lines]
    return [table, *(Text(printable(f"- {line}")) for line in lines)]


def _merged_notes(lines: Sequence[str]) -> list[str]:
    """The notes, those of one kind as one: `inferred from times: 16 blocking copies; 8 threads that ...`."""
    merged: dict[str, list[str]] = {}
    for line in lines:
        head = next((head for head in _MERGED if line.startswith(head)), "")
        merged.setdefault(head or line, []).append(line.removeprefix(head))
    return [head + "; ".join(ends) if head in _MERGED else head for head, ends in merged.items()]


def _short_note(line: str) -> str:
    """The note up to its first semicolon if it is long, unless it says what to state in a card."""
    head, semicolon, rest = line.partition("; ")
    is_long = semicolon and len(line) > _LONGEST_NOTE and not line.startswith(_MERGED)
    if rest.startswith("state "):
        return line
    return f"{head}; -v says more" if is_long else line
