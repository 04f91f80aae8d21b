# SPDX-License-Identifier: Apache-2.0
"""Metrics table by topic, and metrics that do not apply, with reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from textwrap import wrap
from typing import Final

from rich.text import Text

from cclbench.ground.text import printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.present.topics import PARTS_FIRST, key_rows, metric_order, topic_of
from cclbench.present.words import partial_words
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row

_LABEL: Final = 34
_WIDTH: Final = 80
_STUCK: Final = "\N{NO-BREAK SPACE}"
_MOST_PARTS: Final = 5
_MOSTLY: Final = 0.75
_STEP: Final = metric_name("time.step")
_NARROWED: Final = ("group", "collective", "category")


@dataclass(slots=True)
class MetricRows:
    """The rows of one metric: of the run, of ranks, statistics, and parts."""

    metric: str
    run_row: Row | None = None
    ranks: list[Row] = field(default_factory=list)
    stats: dict[str, Row] = field(default_factory=dict)
    parts: list[Row] = field(default_factory=list)

    @property
    def has_number(self) -> bool:
        """Whether there is a number for the run or a part of it."""
        return (self.run_row is not None and self.run_row.has_value) or bool(self.parts)


def group_by_metric(rows: Sequence[Row]) -> list[MetricRows]:
    """Rows grouped by metric, in the order of `TOPICS`, without rows of single steps."""
    by_metric: dict[str, MetricRows] = {}
    for row in rows:
        figure = by_metric.setdefault(row.metric, MetricRows(row.metric))
        if row.rank is not None:
            if not row.narrowed and row.has_value:
                figure.ranks.append(row)
        elif row.step is not None:
            continue
        elif any(getattr(row, key) is not None for key in _NARROWED):
            if row.stat is None and row.has_value:
                figure.parts.append(row)
        elif row.stat is None:
            figure.run_row = row
        elif row.has_value:
            figure.stats[row.stat] = row
    return sorted(by_metric.values(), key=lambda figure: metric_order(figure.metric))


def metrics_lines(rows: Sequence[Row], *, verbose: bool = False) -> Iterator[Text]:
    """A line for each metric: the run's value, the range over ranks, and the provenance."""
    applicable = [figure for figure in group_by_metric(rows) if figure.has_number]
    ranges = "min .. max over ranks" if any(len(figure.ranks) > 1 for figure in applicable) else ""
    by_topic = groupby(applicable, key=lambda figure: topic_of(figure.metric))
    for index, (title, members) in enumerate(by_topic):
        if index:
            yield Text()
            yield Text(title, "bold")
        else:
            yield _figure_line(title, "run", ranges, "bold")
        for figure in members:
            yield from _figure_lines(figure, verbose)


def key_figures(rows: Sequence[Row]) -> Iterator[Text]:
    """The key figures of the run, two on a line, and how much those cover that cover less than most of it."""
    chosen = key_rows(rows)
    half = (len(chosen) + 1) // 2
    covered: dict[str, list[str]] = {}
    for left, right in zip_longest(chosen[:half], chosen[half:]):
        line = Text()
        for row in filter(None, (left, right)):
            name = "capture" if row.metric == _STEP and row.window == "trace" else row.metric
            line.append("  " if line else "").append(name)
            value = _value_words(row)
            if row.status == "partial" and _coverage(row) < _MOSTLY:
                covered.setdefault(partial_words(row), []).append(row.metric)
                value += "*"
            line.append(f"{value:>{_WIDTH // 2 - 1 - len(name)}}", "bold")
        yield line
    for words, metrics in covered.items():
        yield Text(f"* {words} ({', '.join(metrics)})", "dim")


def _figure_lines(figure: MetricRows, verbose: bool) -> Iterator[Text]:
    run_row = figure.run_row if figure.metric not in PARTS_FIRST or not figure.parts else None
    if run_row is not None and run_row.has_value:
        yield _figure_line(
            f"  {figure.metric}", _value_words(run_row), _range_words(figure), origin=_origin_word(run_row)
        )
        plain = [
            f"{stat} {_number_words(row)}".replace(" ", _STUCK)
            for stat, row in figure.stats.items()
            if stat not in ("low", "high")
        ]
        for line in wrap(", ".join(plain), _WIDTH - 4):
            yield Text(f"    {line.replace(_STUCK, ' ')}", "dim")
    else:
        yield Text(f"  {figure.metric}")
    parts = sorted(figure.parts if verbose else _coarsest_parts(figure.parts), key=lambda row: -row.number)
    for row in parts if verbose else parts[:_MOST_PARTS]:
        label = " ".join(filter(None, (row.collective, row.category, row.group)))
        yield _figure_line(f"    {label}", _value_words(row), style="dim", origin=_origin_word(row))
    if run_row is not figure.run_row and figure.run_row is not None and figure.run_row.has_value:
        yield _figure_line(
            "    all",
            _value_words(figure.run_row),
            _range_words(figure),
            "dim",
            origin=_origin_word(figure.run_row),
        )
    if len(parts) > _MOST_PARTS and not verbose:
        yield Text(f"    ... {len(parts) - _MOST_PARTS} more: -v or --json", "dim")
    if verbose and len(figure.ranks) > 1:
        for row in figure.ranks:
            yield _figure_line(
                f"    rank {row.rank}", _value_words(row), style="dim", origin=_origin_word(row)
            )


def _figure_line(label: str, value: str, span: str = "", style: str = "", *, origin: str = "") -> Text:
    line = Text(f"{shorten_middle(printable(label), _LABEL):<{_LABEL}}", style)
    line.append(f" {value:>11}", "italic yellow" if value.startswith("~") else style)
    line.append(f"  {span:<22}", style or "dim")
    return line.append(f" {origin}", "dim")


def _coarsest_parts(parts: Sequence[Row]) -> list[Row]:
    """The parts that are not contained in another: finer ones divide the same amounts again."""
    keys = [{(key, value) for key in _NARROWED if (value := getattr(row, key)) is not None} for row in parts]
    every = {frozenset(labels) for labels in keys}
    return [
        row for row, labels in zip(parts, keys, strict=True) if not any(coarser < labels for coarser in every)
    ]


def _coverage(row: Row) -> float:
    """The share of the time, else of the rows, that a partial figure is of."""
    return (row.coverage or 0.0) if row.coverage_time is None else row.coverage_time


def _number_words(row: Row) -> str:
    return humanise(row.number, row.unit)


def _value_words(row: Row) -> str:
    """The value; a modelled one always has its mark, with or without colour."""
    return ("~" if row.provenance == "modelled" else "") + _number_words(row)


def _range_words(figure: MetricRows) -> str:
    if {"low", "high"} <= figure.stats.keys():
        return f"{_number_words(figure.stats['low'])} .. {_number_words(figure.stats['high'])}"
    if len(figure.ranks) < 2:
        return ""
    least, most = (pick(figure.ranks, key=lambda row: row.number) for pick in (min, max))
    return f"{_number_words(least)} .. {_number_words(most)}"


def _origin_word(row: Row) -> str:
    """Provenance in one word; the notes state how much a partial number covers."""
    if row.status == "partial":
        return "partial"
    return "" if row.provenance == "measured" else str(row.provenance)


def qualifier_lines(rows: Sequence[Row], caveat: str | None = None) -> list[Text]:
    """Qualifiers of the run's numbers: a line for each reason, and one for the common ending `caveat`."""
    by_reason: dict[str, list[str]] = {}
    shared: list[str] = []
    for figure in group_by_metric(rows):
        for row in (figure.run_row, *figure.parts):
            if row is not None and row.has_value and row.reason:
                reason = row.reason
                if caveat and reason.endswith(caveat):
                    shared.append(figure.metric)
                    reason = reason.removesuffix(caveat).removesuffix("; ")
                if row.status == "partial":
                    origin = "" if row.provenance == "measured" else f"{row.provenance}, "
                    reason = f"{origin}{partial_words(row)}; {reason}"
                if reason:
                    by_reason.setdefault(reason, []).append(figure.metric)
    if caveat and shared:
        by_reason[caveat] = _shorten_metrics(list(dict.fromkeys(shared)), {row.metric for row in rows})
    return [_reason_line(reason, metrics) for reason, metrics in by_reason.items()]


def missing_lines(rows: Sequence[Row], status: str) -> list[Text]:
    """Metrics without a number and with this status: a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for figure in group_by_metric(rows):
        if figure.run_row is not None and figure.run_row.status == status and not figure.has_number:
            by_reason.setdefault(figure.run_row.reason or "", []).append(figure.metric)
    every = {row.metric for row in rows}
    return [_reason_line(reason, _shorten_metrics(metrics, every)) for reason, metrics in by_reason.items()]


def _shorten_metrics(metrics: Sequence[str], every: Collection[str]) -> list[str]:
    """Metrics, with `topic.*` for all metrics of a topic."""
    shown = []
    for topic, listed in groupby(metrics, key=lambda metric: metric.partition(".")[0]):
        members, topic_metrics = list(listed), [m for m in every if m.startswith(f"{topic}.")]
        shown += [f"{topic}.*"] if len(members) == len(topic_metrics) > 1 else members
    return shown


def _reason_line(reason: str, metrics: Sequence[str]) -> Text:
    names = ", ".join(dict.fromkeys(metrics))
    return Text().append(names, "bold").append(f": {printable(reason)}")
