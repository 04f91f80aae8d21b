# SPDX-License-Identifier: Apache-2.0
"""The pages of a site, from its board: front, board, explorer, histories, systems, workloads, metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from cclbench import __version__
from cclbench.analyzers.metric import METRICS
from cclbench.comparison.history import FigureHistory
from cclbench.comparison.history_document import history_rows
from cclbench.ground.units import humanise
from cclbench.present.board.document import (
    Board,
    board_document,
    published_document,
    script_of,
    write_parquet,
)
from cclbench.present.board.rows import BoardRow, page_name
from cclbench.present.html import page_style, render_template
from cclbench.present.topics import KEY_METRICS, topic_of
from cclbench.present.words import name_markup, number_markup
from cclbench.record.metric_name import metric_names

MARK: Final = "cclbench-site.json"
"""A file of every site; a folder without it is not replaced."""
_VENDORED: Final = (
    "tabulator.min.js",
    "tabulator.min.css",
    "tabulator.LICENSE.txt",
    "uplot.min.js",
    "uplot.min.css",
    "uplot.LICENSE.txt",
)
_POLICY: Final = (
    # A page opened from disk has no origin that 'self' could match in every browser.
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:;"
    " base-uri 'none'; form-action 'none'"
)
_NEWEST: Final = 10
_MOST_HEADLINES: Final = 6
_MOST_LISTED: Final = 50
"""Own rows on the page of a system, workload or metric; the board has all rows."""
_SHOWN: Final = metric_names(
    "time.step", "throughput.tokens_per_device", "serving.output_tokens_per_device", "compute.mfu"
)
_DECIDED: Final = ("faster", "slower")


class Headline(NamedTuple):
    """A comparison of equal work: its verdict, and by what the work is proved equal."""

    base: BoardRow
    other: BoardRow
    outcome: str
    words: str
    basis: str
    page: str


@dataclass(frozen=True, slots=True)
class SiteContent:
    """What a site shows; `histories` are by job, `left_out` is what could not be read, and why."""

    board: Board
    headlines: Sequence[Headline]
    histories: Sequence[tuple[str, FigureHistory]]
    left_out: Sequence[str]


class _SubjectKind(NamedTuple):
    """Pages about one thing each: their folder, and what they are called."""

    folder: str
    one: str
    all: str


_SYSTEM: Final = _SubjectKind("systems", "System", "Systems")
_WORKLOAD: Final = _SubjectKind("workloads", "Workload", "Workloads")
_METRIC: Final = _SubjectKind("metrics", "Metric", "Metrics")


def write_site(site: SiteContent, folder: Path) -> None:
    """Write all pages but those of runs and comparisons."""
    board = site.board
    _write_assets(board, site.histories, folder)
    counts = Counter("published" if row.published else "own" for row in board.rows)
    newest = sorted((row for row in board.rows if row.date), key=lambda row: (row.date, row.id), reverse=True)
    headlines = sorted(site.headlines, key=lambda headline: headline.outcome not in _DECIDED)
    common = {"board": board, "counts": counts, "histories": site.histories}
    front = {
        "headlines": headlines[:_MOST_HEADLINES],
        "more_headlines": len(headlines[_MOST_HEADLINES:]),
        "newest": [(row, key_figures(row)) for row in newest[:_NEWEST]],
        "left_out": site.left_out,
        "groups": len(board.groups),
    }
    _write(folder / "index.html", "front", "Benchmarks of ML infrastructure, from traces", common | front)
    for name, title in (
        ("board", "Board"),
        ("point", "Published data point"),
        ("compare", "Side by side"),
        ("explore", "Explorer"),
    ):
        _write(folder / f"{name}.html", name, title, common)
    tables = [
        (name, figure, [row | {"text": _text(row)} for row in history_rows(figure)])
        for name, figure in site.histories
    ]
    _write(folder / "history.html", "history", "History", common | {"tables": tables})
    _write_kind(
        _SYSTEM,
        _group_rows(board.rows, lambda row: str(row.facts["accelerator"] or "unknown")),
        board,
        folder,
    )
    _write_kind(_WORKLOAD, _group_rows(board.rows, lambda row: row.workload), board, folder)
    of_metric = {
        metric: [
            board.rows[number] for number, figure in board.figures.get(metric, {}).items() if figure.has_value
        ]
        for metric in METRICS
    }
    _write_kind(_METRIC, {name: rows for name, rows in of_metric.items() if rows}, board, folder)
    (folder / MARK).write_text(
        f'{{"cclbench": "{__version__}", "rows": {len(board.rows)}}}\n', encoding="utf-8"
    )


def key_figures(row: BoardRow) -> Sequence[tuple[str, Markup]]:
    """The foremost figures of a row that have a value: metric and number."""
    figures = [(name, row.figures[name]) for name in KEY_METRICS if name in row.figures]
    return [(name, number_markup(figure)) for name, figure in figures if figure.has_value][:3]


def _write_assets(board: Board, histories: Sequence[tuple[str, FigureHistory]], folder: Path) -> None:
    """Scripts, styles, libraries and data."""
    assets = folder / "assets"
    assets.mkdir()
    package = resources.files("cclbench.present")
    for name in _VENDORED:
        (assets / name).write_bytes((package / "vendor" / name).read_bytes())
    templates = package / "templates" / "board"
    style = page_style() + (templates / "site.css").read_text(encoding="utf-8")
    (assets / "site.css").write_text(style, encoding="utf-8")
    for name in ("site.js", "grid.js", "downloads.js", "plots.js"):
        (assets / name).write_bytes((templates / name).read_bytes())
    history_document = {
        "series": [
            {
                "name": f"{name}: {figure.figure}",
                "unit": figure.unit,
                "times": [point.date.timestamp() for point in figure.valued],
                "values": [point.value for point in figure.valued],
                "runs": [point.run.id for point in figure.valued],
                "changes": [[change.first, change.verdict] for change in figure.changes],
            }
            for name, figure in histories
        ]
    }
    for name, document in (
        ("board", board_document(board)),
        ("published", published_document(board.rows)),
        ("history", history_document),
    ):
        (assets / f"{name}.js").write_text(script_of(name.upper(), document), encoding="utf-8")
    write_parquet(board, folder / "figures.parquet")


def _write(path: Path, template: str, title: str, context: Mapping[str, Any], root: str = "") -> None:
    about = {
        "title": title,
        "root": root,
        "name": template,
        "policy": _POLICY,
        "version": __version__,
        "name_markup": name_markup,
        "humanise": humanise,
        "page_name": page_name,
    }
    path.write_text(render_template(f"board/{template}.html", about | dict(context)), encoding="utf-8")


def _group_rows(rows: Iterable[BoardRow], key: Any) -> dict[str, list[BoardRow]]:
    groups: dict[str, list[BoardRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _write_kind(
    kind: _SubjectKind, by_subject: Mapping[str, Sequence[BoardRow]], board: Board, folder: Path
) -> None:
    """The list of all, and a page of each, with its rows: own ones first."""
    (folder / kind.folder).mkdir()
    names = (
        list(by_subject)
        if kind is _METRIC
        else sorted(
            by_subject, key=lambda name: (-_own_count(by_subject[name]), -len(by_subject[name]), name)
        )
    )
    context = {"kind": kind, "board": board}
    lines = [(name, page_name(name), len(by_subject[name]), _own_count(by_subject[name])) for name in names]
    _write(folder / f"{kind.folder}.html", "list", kind.all, context | {"lines": lines})
    for name in names:
        rows = sorted((row for row in by_subject[name] if not row.published), key=lambda row: row.id)
        shown = (name,) if kind is _METRIC else _SHOWN
        columns = [metric for metric in shown if any(_has_value(row, metric) for row in rows)]
        about = {
            "subject": name,
            "rows": rows[:_MOST_LISTED],
            "more": len(rows[_MOST_LISTED:]),
            "published": len(by_subject[name]) - len(rows),
            "columns": columns,
            "number": _cell,
            "metric": METRICS.get(name) if kind is _METRIC else None,
            "topic": topic_of(name) if kind is _METRIC else None,
            "filter": board_filter(kind, by_subject[name][0], name),
        }
        _write(folder / kind.folder / page_name(name), "subject", name, context | about, root="../")


def _own_count(rows: Sequence[BoardRow]) -> int:
    """The number of rows that are not published by others."""
    return sum(not row.published for row in rows)


def board_filter(kind: _SubjectKind, row: BoardRow, name: str) -> Mapping[str, str]:
    """The filters of the board that select a page's rows."""
    if kind is _METRIC:
        return {"sort": f"{name}.desc"}
    names = ("accelerator",) if kind is _SYSTEM else ("model", "phase")
    stated = {key: str(value) for key in names if (value := row.facts[key]) is not None}
    return stated | {"published": "1"}


def _has_value(row: BoardRow, metric: str) -> bool:
    figure = row.figures.get(metric)
    return figure is not None and figure.has_value


def _cell(row: BoardRow, metric: str) -> Markup:
    figure = row.figures.get(metric)
    return Markup("") if figure is None else number_markup(figure)


def _text(row: Mapping[str, Any]) -> str:
    return "" if row["value"] is None else humanise(row["value"], row["unit"])
