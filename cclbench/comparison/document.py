# SPDX-License-Identifier: Apache-2.0
"""A comparison as JSON: comparison.v3 (`cclbench/schemas/comparison.json`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any, Final

from cclbench.comparison.comparison import Comparison, MetricFigure, Versus
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.summaries import TableComparison
from cclbench.source_summaries.summary import column_document

COLUMNS: Final = ("metric", "unit", "better", "subject", *(field.name for field in fields(MetricFigure)))
"""Columns of `flat_rows`."""


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The comparison.v3 document."""
    return {
        "schema": "comparison.v3",
        "subjects": [_subject_document(subject) for subject in comparison.subjects],
        "warnings": list(comparison.warnings),
        "versus": [_versus_document(entry) for entry in comparison.versus],
        "cards": [_as_lists(asdict(entry)) for entry in comparison.cards],
        "lines": [_as_lists(asdict(entry)) for entry in comparison.lines],
        "operators": [_as_lists(asdict(entry)) for entry in comparison.operators],
        "tables": [_table_document(entry) for entry in comparison.tables],
        "checks": [{**asdict(entry), "passed": entry.is_passed} for entry in comparison.checks],
        "passed": comparison.is_passed,
    }


def flat_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """The lines as flat rows, one per metric and subject, with the keys of `COLUMNS`."""
    for line in comparison.lines:
        head = {"metric": line.metric, "unit": line.unit, "better": line.better}
        for letter, figure in line.figures.items():
            yield {**head, "subject": letter, **asdict(figure)}


def _table_document(table: TableComparison) -> dict[str, Any]:
    """Rows as objects by column: cells of keys, else base, other and their ratio."""
    keys, names = ([column.name for column in columns] for columns in (table.keys, table.columns))
    return {
        "base": table.base,
        "other": table.other,
        "kind": table.kind,
        "subject": table.subject,
        "titles": list(table.titles),
        "columns": [column_document(column) for column in (*table.keys, *table.columns)],
        "unmatched": list(table.unmatched),
        "rows": [
            {
                **dict(zip(keys, row.keys, strict=True)),
                **{
                    name: {"base": before, "other": after, "ratio": ratio}
                    for name, before, after, ratio in zip(
                        names, row.before, row.after, row.ratios, strict=True
                    )
                },
            }
            for row in table.rows
        ],
    }


def _versus_document(versus: Versus) -> dict[str, Any]:
    document = _as_lists(asdict(versus))
    return {
        **document,
        "spread": versus.spread and {**document["spread"], "source": versus.spread.basis_words},
    }


def _subject_document(subject: ComparisonSubject) -> dict[str, Any]:
    record = subject.stored.record
    return {
        "letter": subject.letter,
        "id": subject.id,
        "captures": [capture.id for capture in subject.each_capture],
        "source": record.source,
        "card": record.card.id if record.card else None,
        "published": subject.is_published,
        "devices": list(subject.devices),
        "device_count": subject.device_count,
        "ranks": subject.ranks,
        "world_size": subject.world_size,
        "steps": subject.step_count,
        "window": subject.window_policy,
        "reader": subject.stored.reader,
    }


def _as_lists(value: Any) -> Any:
    """The value with all tuples, nested ones included, as lists."""
    if isinstance(value, dict):
        return {key: _as_lists(item) for key, item in value.items()}
    return [_as_lists(item) for item in value] if isinstance(value, list | tuple) else value
