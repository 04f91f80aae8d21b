# SPDX-License-Identifier: Apache-2.0
"""The board as data: what the pages' script reads, and a Parquet file of all figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cclbench.analyzers.metric import METRICS
from cclbench.comparison.serving_points import LATENCIES, collected_points
from cclbench.comparison.work_groups import RANKINGS, WorkGroup, ranks_of
from cclbench.ground.text import printable
from cclbench.ground.units import display_scale
from cclbench.present.board.rows import FACTS, BoardRow, page_name
from cclbench.present.topics import KEY_METRICS, metric_order, topic_of
from cclbench.present.words import metric_definition
from cclbench.record.rows import Row

_RANKING_OPTIONS: Final = {
    "": {},
    "p": {"published": True},
    "m": {"modelled": True},
    "pm": {"published": True, "modelled": True},
}
"""What the reader of the board asks for, by its letters: published figures, modelled ones, both."""
_LONGEST: Final = 1000
_FIGURE_COLUMNS: Final = (
    "value",
    "unit",
    "status",
    "provenance",
    "reason",
    "better",
    "window",
    "version",
    "source",
)


@dataclass(frozen=True)
class Board:
    """All rows of a site, and what is said about several of them."""

    rows: Sequence[BoardRow]
    groups: Sequence[WorkGroup]
    verified: Mapping[str, str] = field(default_factory=dict)
    """Status of verification by run, where that was asked for."""
    comparisons: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Pages of comparisons by the ids of two runs."""

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics and parts of which a row has a value, in reading order."""
        names = [
            name
            for name, figures in self.figures.items()
            if any(figure.has_value for figure in figures.values())
        ]
        return sorted(names, key=lambda name: (metric_order(name.partition("[")[0]), name))

    @cached_property
    def figures(self) -> dict[str, dict[int, Row]]:
        """The figures of each metric and part by row, also those without a value."""
        by_name: dict[str, dict[int, Row]] = {}
        for number, row in enumerate(self.rows):
            for name, figure in row.figures.items():
                by_name.setdefault(name, {})[number] = figure
        return by_name

    @cached_property
    def rankings(self) -> dict[str, dict[str, dict[int, int]]]:
        """Ranks by metric, by what is asked for, by row; without empty ones."""
        by_metric: dict[str, dict[str, dict[int, int]]] = {}
        for metric in RANKINGS:
            figures = self.figures.get(metric, {})
            for letters, options in _RANKING_OPTIONS.items():
                if ranks := ranks_of(self.groups, figures, **options):
                    by_metric.setdefault(metric, {})[letters] = ranks
        return by_metric

    def page(self, row: BoardRow) -> str:
        """The address of a row's page."""
        return f"point.html#run={quote(row.id, safe='')}" if row.published else f"runs/{page_name(row.id)}"


class _Texts:
    """Texts by number, each once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: object) -> int | None:
        """The number of a text; None for None."""
        if text is None:
            return None
        full_text = printable(str(text))
        short = full_text if len(full_text) <= _LONGEST else f"{full_text[:_LONGEST]}… (cut)"
        return self.numbers.setdefault(short, len(self.numbers))


def board_document(board: Board) -> dict[str, Any]:
    """The board in packed columns; `cells` are the distinct words about figures."""
    texts = _Texts()
    cells: dict[tuple[Any, ...], int] = {}

    def cell(row: Row) -> int:
        words = (row.status, row.provenance, row.reason, row.window, row.version, row.source)
        return cells.setdefault(words, len(cells))

    figures = []
    for name in board.metrics:
        by_row = board.figures[name]
        figures.append(
            {
                "rows": _ranges(by_row),
                "values": packed_column([row.value for row in by_row.values()]),
                "cells": packed_column([cell(row) for row in by_row.values()]),
            }
        )
    group_of = {member: number for number, group in enumerate(board.groups) for member in group.members}
    number_of = {row.id: number for number, row in enumerate(board.rows)}
    points = collected_points(row.points for row in board.rows)
    columns: dict[str, list[Any]] = {
        "id": [texts.number(row.id) for row in board.rows],
        "page": [None if row.published else board.page(row) for row in board.rows],
        "published": [texts.number(row.published and row.published["source"]) for row in board.rows],
        "verified": [texts.number(board.verified.get(row.id)) for row in board.rows],
        "date": [None if row.date is None else row.date.date().isoformat() for row in board.rows],
        "group": [group_of.get(number) for number in range(len(board.rows))],
    }
    return {
        "facts": [
            {"name": name, "label": label}
            | packed_column([texts.number(row.facts[name]) for row in board.rows])
            for name, label in FACTS.items()
        ],
        "rows": {name: packed_column(values) for name, values in columns.items()},
        "groups": [{"basis": printable(group.basis), "rows": len(group.members)} for group in board.groups],
        "metrics": [_metric_column(board, name) for name in board.metrics],
        "figures": figures,
        "cells": [[texts.number(word) for word in words] for words in cells],
        "rankings": {
            metric: {
                letters: {"rows": list(ranks), "ranks": list(ranks.values())}
                for letters, ranks in by_letters.items()
            }
            for metric, by_letters in board.rankings.items()
        },
        "ranking_names": RANKINGS,
        "comparisons": [
            [number_of[first], number_of[second], page] for (first, second), page in board.comparisons.items()
        ],
        "points": [
            {**line, "row": number_of[line["run"]], "throughput": points.throughput(point)}
            for line, point in zip(points.table, points.points, strict=True)
        ],
        "latencies": [name for name in LATENCIES if name in points.fronts],
        "throughput_of": "per accelerator" if points.is_per_device else "in all",
        "point_notes": list(map(printable, points.notes)),
        "texts": list(texts.numbers),
    }


def _metric_column(board: Board, name: str) -> dict[str, Any]:
    """A metric's column: unit, and the scale in which its median is shown."""
    metric = name.partition("[")[0]
    values = [row.number for row in board.figures[name].values() if row.has_value]
    rows = board.figures[name].values()
    unit = next(row.unit for row in rows if row.has_value)
    factor, symbol = display_scale(float(np.median(np.abs(values))), unit)
    return {
        "name": name,
        "unit": unit,
        "better": next((row.better for row in rows if row.better), None),
        "topic": topic_of(metric),
        "key": metric in KEY_METRICS or metric in RANKINGS,
        "definition": metric_definition(metric),
        "factor": factor,
        "symbol": symbol,
        "page": f"metrics/{page_name(metric)}" if metric in METRICS else None,
    }


def published_document(rows: Sequence[BoardRow]) -> dict[str, Any]:
    """What is published with each row: the rows' numbers, and in packed columns, numbers of texts."""
    texts = _Texts()
    published = {number: row.published for number, row in enumerate(rows) if row.published is not None}
    names = dict.fromkeys(name for metadata in published.values() for name in metadata)

    def number(value: Any) -> int | None:
        if value in (None, "", []):
            return None
        return texts.number(value if isinstance(value, str | int | float) else json.dumps(value))

    columns = {
        name: packed_column([number(metadata.get(name)) for metadata in published.values()]) for name in names
    }
    return {"rows": _ranges(published), "columns": columns, "texts": list(texts.numbers)}


def packed_column(values: Sequence[Any]) -> dict[str, Any]:
    """A column as its values or, where that is shorter, as runs of equal values with their lengths."""
    runs = [(value, sum(1 for _ in run)) for value, run in groupby(values)]
    if 2 * len(runs) >= len(values):
        return {"of": list(values)}
    return {"of": [value for value, _ in runs], "times": [count for _, count in runs]}


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Ascending numbers as ranges: first, and how many."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and sum(ranges[-1]) == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, 1])
    return ranges


def script_of(name: str, document: Mapping[str, Any]) -> str:
    """A script that assigns a document to a global name."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return f"globalThis.{name} = {text};\n"


def write_parquet(board: Board, path: Path) -> None:
    """All figures, a row each, with the run's facts; figures without a value have a reason."""
    figures = [figure for row in board.rows for figure in row.figures.values()]
    counts = np.array([len(row.figures) for row in board.rows], np.int64)
    of_row = pa.array(np.repeat(np.arange(len(board.rows), dtype=np.int32), counts))
    text = pa.dictionary(pa.int32(), pa.string())
    columns = {"run": _repeated([row.id for row in board.rows], of_row)}
    columns |= {name: _repeated([_plain(row.facts[name]) for row in board.rows], of_row) for name in FACTS}
    columns["figure"] = pa.array([name for row in board.rows for name in row.figures], text)
    for name in _FIGURE_COLUMNS:
        kind = {"value": pa.float64(), "version": pa.int32()}.get(name, text)
        columns[name] = pa.array(map(attrgetter(name), figures), kind, size=len(figures))
    pq.write_table(pa.table(columns), path, compression="zstd")


def _repeated(values: Sequence[str | None], of_row: pa.Array) -> pa.Array:
    """The text of each figure's row."""
    return pa.array(values, pa.string()).dictionary_encode().take(of_row)


def _plain(value: str | int | None) -> str | None:
    return None if value is None else str(value)
