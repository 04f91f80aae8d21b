# SPDX-License-Identifier: Apache-2.0
"""What a page's zoomable timeline shows: the device work of one step, by rank and stream, with names.

Work shorter than a cell is merged with its neighbours of the same cell; cells are as short as the page's
limit of bytes allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from cclbench.analyzers.view.rank_view import RankView
from cclbench.classify.kernel_labels import kernel_label, shorten_name
from cclbench.ground.errors import UsageError
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.kernels import LONG_NAME
from cclbench.present.timeline import (
    TimelineClock,
    chosen_step,
    clocks_of,
    least_and_most_waiting,
    rank_waits,
    rank_windows,
)
from cclbench.record.run import Run

MOST_RANKS: Final = 8
MOST_LANES: Final = 24
"""Most streams, those with the most work; at least one of each rank."""
MOST_SPANS: Final = 12_000
MOST_BYTES: Final = 300_000
_NOTHING: Final = "the device ran nothing in the step"
_FINEST: Final = 1 << 20
"""Cells of the step at the finest resolution."""
_COARSER: Final = 4
_NAME: Final = 64
_ESCAPED: Final = {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e"}
_COLOURS: Final = {"copy": "copy", "memset": "copy", "graph": "graphs"}
"""Colour by kind; else by category."""
_KINDS: Final = ("kernel", "copy", "memset", "graph")
_SQL: Final = """
    WITH inside AS (
        SELECT track, kind::VARCHAR AS kind, category::VARCHAR AS category, {name} AS name,
            greatest(start_ns, {begin}) - {begin} AS since_ns,
            least(start_ns + dur_ns, {end}) - greatest(start_ns, {begin}) AS ns
        FROM events WHERE rank = {rank} AND side = 'device' AND kind IN {kinds}
            AND dur_ns > 0 AND start_ns < {end} AND start_ns + dur_ns > {begin}
    )
    SELECT track, kind, category, name, since_ns, ns, 1 AS number, ns AS busy_ns
    FROM inside WHERE ns >= {cell}
    UNION ALL
    SELECT track, arg_max(kind, ns), arg_max(category, ns), arg_max(name, ns), min(since_ns),
        max(since_ns + ns) - min(since_ns), count(*), sum(ns)::BIGINT FROM inside WHERE ns < {cell}
    GROUP BY track, since_ns // {cell}
    ORDER BY track, since_ns
    LIMIT {most}
"""


Lanes = Sequence[tuple[str, Sequence[Mapping[str, Any]]]]
"""Label and rows of each stream."""
_MEANINGS: Final = {
    "compute": "compute",
    "transfer": "communication",
    "copy": "copy",
    "graphs": "CUDA graph, unknown inside",
}


@dataclass(frozen=True, slots=True)
class StepSpans:
    """The timeline for a page: its data as text, and what it leaves out."""

    title: str
    data: Markup
    lanes: int
    legend: tuple[tuple[str, str], ...]
    """Colour and meaning of spans."""
    notes: tuple[str, ...]


def step_spans(run: Run) -> StepSpans | str:
    """The device work of the first step that most ranks have, else of the capture; or why there is none."""
    clocks = clocks_of(run.record.clocks)
    views = {rank: RankView(run.rank(rank), rank=rank) for rank in run.ranks}
    by_rank = {rank: rank_windows(view, with_open=False) for rank, view in views.items()}
    try:
        step, windows = chosen_step(by_rank, clocks, None)
    except UsageError as error:
        return str(error)
    if run.record.event_kinds.isdisjoint(_KINDS):
        return _NOTHING
    begin, end = min(first for first, _ in windows.values()), max(last for _, last in windows.values())
    shown = least_and_most_waiting(sorted(windows), rank_waits(run.collectives(), begin, end), MOST_RANKS)
    cell, text, lanes, left_out = max((end - begin) // _FINEST, 1), "", 0, 0
    while True:
        tables = {rank: _rank_spans(run, rank, clocks.get(rank), (begin, end), cell) for rank in shown}
        if all(len(table) <= MOST_SPANS // len(shown) for table in tables.values()):
            chosen, left_out = _chosen_lanes(tables)
            names = _name_places(chosen)
            text, lanes = _spans_text(chosen, names, end - begin), len(chosen)
            if len(text.encode()) <= MOST_BYTES:
                break
        cell *= _COARSER
    if not lanes:
        return _NOTHING
    merged = any(row["number"] > 1 for _, rows in chosen for row in rows)
    notes = [f"work shorter than {humanise(cell / 1e9, 's')} is merged"] if merged else []
    if len(shown) < len(windows):
        notes.append(f"{len(windows) - len(shown)} ranks between those that wait least and most are left out")
    notes += [f"{left_out} streams with less work are left out"] if left_out else []
    colours = {colour for _, colour in names}
    legend = tuple((colour, words) for colour, words in _MEANINGS.items() if colour in colours)
    label = "Capture" if step is None else f"Step {step}"
    title = f"{label}, {humanise((end - begin) / 1e9, 's')}"
    return StepSpans(title, Markup(text), lanes, legend, tuple(notes))  # noqa: S704 - escaped


def _rank_spans(
    run: Run, rank: int, clock: TimelineClock | None, window: tuple[int, int], cell: int
) -> pa.Table:
    """A rank's work in the window, from its begin, by stream and time; cut after one row too many."""
    rank_clock = clock or TimelineClock()
    middle = np.array([sum(window) // 2], np.int64)
    shift = int((middle - rank_clock.on_common_clock(middle))[0])
    begin, end = (at + shift for at in window)
    return run.sql(
        _SQL.format(
            name=LONG_NAME, begin=begin, end=end, rank=rank, kinds=_KINDS, cell=cell, most=MOST_SPANS + 1
        )
    )


def _chosen_lanes(tables: Mapping[int, pa.Table]) -> tuple[list[tuple[str, list[dict[str, Any]]]], int]:
    """Labels and rows of the streams with the most work, by rank and stream; the number of the others."""
    streams: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for rank, table in tables.items():
        for row in table.to_pylist():
            streams.setdefault((rank, row["track"]), []).append(row)
    busy = {key: sum(row["busy_ns"] for row in rows) for key, rows in streams.items()}
    by_work = sorted(streams, key=lambda key: -busy[key])
    first = {rank: next(key for key in by_work if key[0] == rank) for rank, _ in by_work}
    kept = {*first.values(), *by_work[: MOST_LANES - len(first)]}
    single = len(tables) == 1
    return [
        (f"stream {track}" if single else f"rank {rank}, stream {track}", streams[rank, track])
        for rank, track in sorted(kept)
    ], len(streams) - len(kept)


def _name_places(lanes: Lanes) -> dict[tuple[str, str], int]:
    """Each name with its colour, and its place in the list of names."""
    names = dict.fromkeys(_name_of(row) for _, rows in lanes for row in rows)
    return {name: place for place, name in enumerate(names)}


def _name_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """A span's short name and colour."""
    short = shorten_name(printable(kernel_label(row["name"])), _NAME)
    by_category = "transfer" if row["category"] == "communication" else "compute"
    return short, _COLOURS.get(row["kind"], by_category)


def _spans_text(lanes: Lanes, names: Mapping[tuple[str, str], int], length: int) -> str:
    """The JSON text; `spans` of a lane are in turn gap since the last one, ns, place of its name, number."""
    drawn = []
    for label, rows in lanes:
        spans: list[int] = []
        last = 0
        for row in rows:
            spans += [row["since_ns"] - last, row["ns"], names[_name_of(row)], row["number"]]
            last = row["since_ns"] + row["ns"]
        drawn.append({"label": label, "spans": spans})
    document = {"ns": length, "names": list(names), "lanes": drawn}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return "".join(_ESCAPED.get(letter, letter) for letter in text)
