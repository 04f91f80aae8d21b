# SPDX-License-Identifier: Apache-2.0
"""The metrics table by topic, and what does not apply and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.table import Table
from rich.text import Text

from cclbench.report.partition import Row
from cclbench.units import humanise

TOPICS: Final = {
    "time": "Time: where a step goes",
    "throughput": "Throughput",
    "compute": "Compute",
    "memory": "Memory",
    "comm": "Communication",
    "overlap": "Overlap",
    "balance": "Balance",
    "serving": "Serving",
    "data": "Data loading",
}
_MOST_PARTS: Final = 5
_NARROWED: Final = ("group", "collective", "category")


@dataclass(slots=True)
class Figure:
    """The rows of one metric, by what they are about."""

    metric: str
    own: Row | None = None
    ranks: list[Row] = field(default_factory=list)
    stats: dict[str, Row] = field(default_factory=dict)
    parts: list[Row] = field(default_factory=list)

    @property
    def applies(self) -> bool:
        """Whether there is a number for the run, or for a part of it."""
        return (self.own is not None and self.own["status"] == "ok") or bool(self.parts)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Rows grouped by metric, in the order of `TOPICS`; rows of single steps are left to --json."""
    found: dict[str, Figure] = {}
    for row in rows:
        figure = found.setdefault(row["metric"], Figure(row["metric"]))
        narrowed = any(row[key] is not None for key in _NARROWED)
        if row["step"] is not None:
            continue
        if row["rank"] is not None:
            if not narrowed and row["stat"] is None and row["status"] == "ok":
                figure.ranks.append(row)
        elif narrowed:
            if row["stat"] is None and row["status"] == "ok":
                figure.parts.append(row)
        elif row["stat"] is None:
            figure.own = row
        elif row["status"] == "ok":
            figure.stats[row["stat"]] = row
    order = list(TOPICS)
    return sorted(found.values(), key=lambda f: order.index(_topic(f)) if _topic(f) in order else len(order))


def metrics_table(rows: Sequence[Row], *, verbose: bool = False) -> Table:
    """A line a metric: the run's value, the least and the largest of its ranks, where it is from."""
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=30, overflow="fold")
    table.add_column(justify="right", min_width=12, no_wrap=True)
    table.add_column(min_width=20, no_wrap=True)
    table.add_column(overflow="fold")
    topic = None
    for figure in figures(rows):
        if not figure.applies:
            continue
        if _topic(figure) != topic:
            if topic is not None:
                table.add_row()
            header = ("of the run", "least..most of a rank") if topic is None else ("", "")
            topic = _topic(figure)
            title = Text(TOPICS.get(topic, topic), "bold")
            table.add_row(title, *(Text(word, "dim") for word in header))
        for cells in _lines(figure, verbose):
            table.add_row(*cells)
    return table


def _topic(figure: Figure) -> str:
    return figure.metric.partition(".")[0]


def _lines(figure: Figure, verbose: bool) -> Iterator[tuple[Text, ...]]:
    own, name = figure.own, Text(f"  {figure.metric}")
    if own is not None and own["status"] == "ok":
        yield name, _value(own), Text(_range(figure)), _origin(own)
        plain = {stat: row for stat, row in figure.stats.items() if stat not in ("low", "high")}
        if plain:
            words = (f"{stat} {_number(row)}" for stat, row in plain.items())
            yield (Text("    " + ", ".join(words), "dim"),)
    else:
        yield (name,)
    parts = figure.parts if verbose else _coarsest(figure.parts)
    ordered = sorted(parts, key=lambda row: -row["value"])
    for row in ordered if verbose else ordered[:_MOST_PARTS]:
        label = " ".join(str(row[key]) for key in ("collective", "category", "group") if row[key] is not None)
        yield Text(f"    {label}", "dim"), _value(row), Text(), _origin(row)
    if len(ordered) > _MOST_PARTS and not verbose:
        yield (Text(f"    ... {len(ordered) - _MOST_PARTS} more: -v or --json", "dim"),)
    if verbose and len(figure.ranks) > 1:
        for row in figure.ranks:
            yield Text(f"    rank {row['rank']}", "dim"), _value(row), Text(), _origin(row)


def _coarsest(parts: Sequence[Row]) -> list[Row]:
    """The parts that are narrowed by the fewest keys: finer ones split the same amounts again."""
    widths = [sum(row[key] is not None for key in _NARROWED) for row in parts]
    return [row for row, width in zip(parts, widths, strict=True) if width == min(widths)]


def _number(row: Row) -> str:
    return humanise(row["value"], row["unit"])


def _value(row: Row) -> Text:
    modelled = row["provenance"] in ("modelled", "published")
    return Text(f"~{_number(row)}", "italic yellow") if modelled else Text(_number(row))


def _range(figure: Figure) -> str:
    if {"low", "high"} <= figure.stats.keys():
        return f"{_number(figure.stats['low'])}..{_number(figure.stats['high'])}"
    if len(figure.ranks) < 2:
        return ""
    least, most = (pick(figure.ranks, key=lambda row: row["value"]) for pick in (min, max))
    return f"{_number(least)}..{_number(most)}"


def _origin(row: Row) -> Text:
    return Text("" if row["provenance"] in (None, "measured") else row["provenance"], "dim")


def qualifiers(rows: Sequence[Row]) -> list[Text]:
    """What the numbers of the run leave out or rest on: a line a reason."""
    found: dict[str, list[str]] = {}
    for figure in figures(rows):
        for row in (figure.own, *figure.parts):
            if row is not None and row["status"] == "ok" and row["reason"]:
                found.setdefault(row["reason"], []).append(figure.metric)
    return [_because(reason, metrics) for reason, metrics in found.items()]


def missing(rows: Sequence[Row], status: str) -> list[Text]:
    """Metrics of which the run has no number, with that status: a line a reason."""
    found: dict[str, list[str]] = {}
    for figure in figures(rows):
        if figure.own is not None and figure.own["status"] == status and not figure.applies:
            found.setdefault(figure.own["reason"], []).append(figure.metric)
    return [_because(reason, metrics) for reason, metrics in found.items()]


def _because(reason: str, metrics: Sequence[str]) -> Text:
    names = ", ".join(dict.fromkeys(metrics))
    return Text().append(names, "bold").append(f": {reason}")
