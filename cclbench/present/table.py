# SPDX-License-Identifier: Apache-2.0
"""Metrics table of a page: for one run with its ranks and parts, for several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from markupsafe import Markup

from cclbench.comparison.comparison import Comparison, MetricFigure
from cclbench.comparison.comparison import Line as Compared
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.schema import HAS_VALUE
from cclbench.ground.units import humanise
from cclbench.present.topics import metric_order, topic_of
from cclbench.present.words import (
    hover_attribute,
    metric_definition,
    missing_markup,
    number_markup,
    quantity_markup,
)
from cclbench.record.metric_name import MetricName
from cclbench.record.rows import Row

_SPANS: Final = ("collective", "category", "group", "stat")


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One metric: its cells, each with its provenance on hover, and its parts in a disclosure."""

    metric: str
    hover: Markup
    cells: tuple[Markup, ...]
    tag: str
    """The provenance unless measured, and whether the number is partial."""
    parts: tuple[tuple[str, Markup], ...] = ()
    more: int = 0
    """Number of parts that are not listed."""


Topic = tuple[str, tuple[MetricLine, ...]]


def run_topics(run: ComparisonSubject) -> list[Topic]:
    """The metrics with a number: the run's value, the range over its ranks, and the parts."""
    lines = []
    for metric in sorted(run.results.run, key=metric_order):
        row = run.results.run[metric]
        parts, more = run.results.parts(metric)
        if row.has_value or parts:
            cells = (number_markup(row, defined=False), _rank_range(run, metric, row.unit))
            named = tuple((_span_words(part), number_markup(part)) for part in parts)
            lines.append(
                MetricLine(
                    metric, hover_attribute(metric_definition(metric)), cells, _tag_words([row]), named, more
                )
            )
    return _by_topic(lines)


def comparison_topics(comparison: Comparison) -> list[Topic]:
    """The metrics of any subject: each subject's number, and each further one's change from the first."""
    letters = [subject.letter for subject in comparison.subjects]
    lines = []
    for line in sorted(comparison.lines, key=lambda line: metric_order(line.metric)):
        figures = [line.figures.get(letter) for letter in letters]
        valued = [figure for figure in figures if figure and figure.status in HAS_VALUE]
        if not valued:
            continue
        cells = [_figure_cell(line, letter, figure) for letter, figure in zip(letters, figures, strict=True)]
        cells += [_change_cell(line, figures[0], other) for other in figures[1:]]
        lines.append(
            MetricLine(
                line.metric, hover_attribute(metric_definition(line.metric)), tuple(cells), _tag_words(valued)
            )
        )
    return _by_topic(lines)


def missing_metrics(runs: Sequence[ComparisonSubject]) -> list[tuple[str, list[tuple[bool, str, str]]]]:
    """For each run, missing metrics by reason, failed ones first: (failed, metrics, reason)."""
    missing = []
    for run in runs:
        by_reason: dict[tuple[str, str], list[str]] = {}
        for metric in sorted(run.results.run, key=metric_order):
            row = run.results.run[metric]
            if not row.has_value:
                by_reason.setdefault((row.status, row.reason or "no reason given"), []).append(metric)
        ordered = sorted(by_reason.items(), key=lambda item: item[0][0] != "failed")
        rows = [(status == "failed", ", ".join(metrics), reason) for (status, reason), metrics in ordered]
        missing.append((run.letter, rows))
    return missing


def _by_topic(lines: Sequence[MetricLine]) -> list[Topic]:
    return [
        (topic, tuple(topic_lines))
        for topic, topic_lines in groupby(lines, key=lambda line: topic_of(line.metric))
    ]


def _tag_words(figures: Sequence[Row | MetricFigure]) -> str:
    tags = (
        tag
        for figure in figures
        for tag in (figure.provenance, "partial" if figure.status == "partial" else None)
    )
    return ", ".join(dict.fromkeys(tag for tag in tags if tag and tag != "measured"))


def _span_words(row: Row) -> str:
    return " · ".join(filter(None, (getattr(row, key) for key in _SPANS)))


def _rank_range(run: ComparisonSubject, metric: MetricName, unit: str) -> Markup:
    """`min .. max` over ranks, empty if fewer than two have a number."""
    ranks = run.results.ranks(metric)
    if len(ranks) < 2:
        return Markup("")
    least, most = min(ranks, key=lambda r: ranks[r]), max(ranks, key=lambda r: ranks[r])
    hover_lines = (
        f"{name} of {len(ranks)} ranks: rank {r}, {ranks[r]!r} {unit}"
        for name, r in (("min", least), ("max", most))
    )
    return Markup("<span{}>{} .. {}</span>").format(
        hover_attribute(*hover_lines), humanise(ranks[least], unit), humanise(ranks[most], unit)
    )


def _figure_cell(line: Compared, letter: str, figure: MetricFigure | None) -> Markup:
    if figure is None:
        return missing_markup("–", f"{letter} has no {line.metric}")
    if figure.status not in HAS_VALUE or figure.value is None:
        word = "failed" if figure.status == "failed" else "n/a"
        return missing_markup(
            word, f"{letter}: {line.metric} {figure.status.replace('_', ' ')}", figure.reason
        )
    hover_lines = [f"{letter}: {line.metric} = {figure.value!r} {line.unit}", figure.provenance]
    if figure.coverage is not None:
        hover_lines.append(f"partial: {humanise(figure.coverage, '1')} of the rows")
    if figure.low is not None and figure.high is not None:
        hover_lines.append(
            f"between {humanise(figure.low, line.unit)} and {humanise(figure.high, line.unit)}"
        )
    return quantity_markup(figure.value, line.unit, figure.provenance, *hover_lines, figure.reason)


def _change_cell(line: Compared, base: MetricFigure | None, other: MetricFigure | None) -> Markup:
    """The other's change from the base: `+12.3 %`, coloured if the metric has a better direction."""
    before, after = (figure.value if figure and figure.status == "ok" else None for figure in (base, other))
    if before is None or after is None or before <= 0:
        return Markup("")
    change = after / before - 1
    worse = {"lower": change > 0, "higher": change < 0}.get(line.better or "")
    shown = abs(change) >= 0.0005
    kind = "" if worse is None or not shown else "up" if worse else "down"
    word = "" if not kind else "worse" if worse else "better"
    text = f"{change:+.1%}".replace("%", " %").replace("-", "−") if shown else "0 %"
    if change >= 9:
        text = f"{after / before:,.3g}×"
    hover = hover_attribute(
        f"{after / before!r} times the first", word and f"{line.better} is better: {word}"
    )
    return Markup('<span class="{}"{}>{}</span>').format(kind, hover, text)
