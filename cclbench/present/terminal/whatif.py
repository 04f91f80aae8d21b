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

_LEAST_SHARE: Final = 0.03
"""Smallest shown share of the critical path."""
_LABEL: Final = 26
_LONGEST_NOTE: Final = 240
_MERGED: Final = ("inferred from times: ", "weak class: ")
"""Beginnings of notes of which there may be many."""


def whatif_page(replay: ReplayResult, verbosity: int) -> list[RenderableType]:
    """Step times and speedups as a table, with the critical path, and their basis."""

    def time_words(ns: float | None) -> str:
        return "" if ns is None else humanise(ns / 1e9, "s")

    def path_words(path: Route) -> str:
        shares = sorted(path.places.items(), key=lambda place: -place[1])
        length_ns = max(path.length_ns, 1)
        words = [
            f"{place.replace('communication', 'comm.')} {humanise(ns / length_ns, '1')}"
            for place, ns in shares
            if ns >= _LEAST_SHARE * length_ns
        ]
        return "\n".join(words)

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    longest = max(len(part) for prediction in replay.predicted for part in prediction.scenario.label.split())
    table.add_column("", min_width=min(longest, _LABEL), overflow="fold")
    for heading in ("step", "bounds", "speedup"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("critical path", overflow="fold")
    table.add_row("measured", time_words(replay.measured_ns))
    unchanged = replay.unchanged
    if unchanged.path.length_ns:
        table.add_row("replayed unchanged", time_words(unchanged.step_ns), "", "", path_words(unchanged.path))
    for prediction in replay.predicted:
        if prediction.idle is not None:
            table.add_row(Text(printable(prediction.scenario.label)), "no effect")
            continue
        step = prediction.step_ns
        low, high = time_words(prediction.low_ns), time_words(prediction.high_ns)
        table.add_row(
            Text(printable(prediction.scenario.label)),
            time_words(step) or "unknown",
            "" if low == high else f"{low} to {high}",
            "" if step is None else humanise(unchanged.step_ns / step, "ratio"),
            path_words(prediction.path),
        )
    if verbosity <= QUIET:
        return [table]
    knees = [
        f"knee of {row.category}: "
        + (row.reason or "" if row.value is None else f"x{row.value:g}; {row.reason}")
        for row in replay.figures
        if row.metric == "whatif.knee"
    ]
    faith = [row.reason for row in replay.figures if row.metric == "whatif.replayed_step" and row.reason]
    bases = dict.fromkeys(basis for prediction in replay.predicted for basis in prediction.basis)
    lines = _merged_notes([*knees, *faith, *bases, *replay.notes])
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
