# SPDX-License-Identifier: Apache-2.0
"""Side-by-side tables: the card fields that differ, and every metric's value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cclbench.comparison.comparison import CardDifference, Line, MetricFigure
from cclbench.comparison.subject import ComparisonSubject
from cclbench.record.metric_name import MetricName
from cclbench.record.results import KEYS

_NO_CARD_FIELDS: Final = ("version", "id", "description", "evidence", "contributor")
"""Fields that identify a card, not what ran."""
_BAND: Final = ("low", "high")


def card_differences(subjects: Sequence[ComparisonSubject]) -> tuple[CardDifference, ...]:
    """Fields in which the cards differ, by path; subjects without a card are not compared."""
    cards = {s.letter: dict(flatten_card(s.card)) for s in subjects if s.card is not None}
    differences = []
    for path in sorted({path for card in cards.values() for path in card}):
        values = [card.get(path) for card in cards.values()]
        if any(value != values[0] for value in values):
            differences.append(
                CardDifference(path, {s.letter: cards.get(s.letter, {}).get(path) for s in subjects})
            )
    return tuple(differences)


def flatten_card(card: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Fields of a card by dotted path, without those that identify the card."""
    for name, value in card.items():
        if not before and name in _NO_CARD_FIELDS:
            continue
        if isinstance(value, Mapping):
            yield from flatten_card(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def metric_lines(subjects: Sequence[ComparisonSubject], metrics: Sequence[MetricName]) -> tuple[Line, ...]:
    """One line per metric, with each subject's whole-run value.

    A metric that some subject has in parts only (a kind of collective, a percentile) has a line per part,
    named as `--fail-on` selects it: `serving.ttft[stat=p50]`.
    """
    lines: list[Line] = []
    for metric in metrics:
        if any(s.results.row(metric) is not None for s in subjects):
            lines.append(_metric_line(subjects, metric, {}))
        parts = {
            keys for s in subjects if s.results.value(metric) is None for keys in _narrowing_keys(s, metric)
        }
        lines += [_metric_line(subjects, metric, dict(keys)) for keys in sorted(parts)]
    return tuple(lines)


def _narrowing_keys(subject: ComparisonSubject, metric: MetricName) -> Iterator[tuple[tuple[str, str], ...]]:
    """Keys of a subject's partial rows of a metric; the ends of a band are not figures of their own."""
    for row in subject.results.rows:
        if row.metric != metric or not row.has_value or row.stat in _BAND:
            continue
        keys = tuple((key, value) for key in KEYS if (value := getattr(row, key)) is not None)
        if keys:
            yield keys


def _metric_line(subjects: Sequence[ComparisonSubject], metric: MetricName, keys: Mapping[str, str]) -> Line:
    rows = [row for s in subjects if (row := s.results.row(metric, **keys)) is not None]
    first = next((row for row in rows if row.has_value), rows[0])
    return Line(
        metric_selector(metric, keys),
        first.unit,
        first.better,
        {s.letter: subject_figure(s, metric, keys) for s in subjects},
    )


def metric_selector(metric: MetricName, keys: Mapping[str, str]) -> str:
    """Selector of a metric or a part of it: `comm.busbw[collective=all_reduce]`."""
    return metric + (f"[{','.join(f'{key}={value}' for key, value in keys.items())}]" if keys else "")


def subject_figure(subject: ComparisonSubject, metric: MetricName, keys: Mapping[str, str]) -> MetricFigure:
    """The subject's value, with its band if modelled, or why it has none."""
    row = subject.results.row(metric, **keys)
    if row is None:
        return MetricFigure(None, "not_applicable", None, "the run has no such figure")
    low, high = (
        subject.results.value(metric, **{**keys, "stat": end}) if row.provenance == "modelled" else None
        for end in _BAND
    )
    return MetricFigure(row.value, row.status, row.provenance, row.reason, low, high, row.coverage)
