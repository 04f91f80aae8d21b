# SPDX-License-Identifier: Apache-2.0
"""Record results in a manifest, and compare later results with them.

A record has the run's own rows in full, and for each metric a digest over all its rows, including those of
single ranks; no modelled rows, which depend on the hardware model.

Times are whole nanoseconds and sums of integers, so they are equal on all machines.  A sum of floats may
differ in its last digits if a processor adds in another order: a value counts as reproduced within
`TOLERANCE`, and a digest is over values of `DIGITS` digits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final

import msgspec

from cclbench.analyzers.metric import METRICS
from cclbench.record.rows import Row

TOLERANCE: Final = 1e-12
DIGITS: Final = 9
_KEY: Final = ("rank", "step", "group", "collective", "category", "stat", "source")
_NAMED: Final = ("group", "category", "stat")
"""Parts of a key that may be names in the evidence."""
_key: Final[Callable[[Row], tuple[Any, ...]]] = attrgetter(*_KEY)
_HELD: Final = ("unit", "status", "provenance", "window")


class MetricDigest(msgspec.Struct, frozen=True):
    """A metric's version, the number of all its rows, and their SHA-256."""

    version: int
    rows: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.rows} with digest {self.sha256[:12]}"


class RecordedResults(msgspec.Struct, frozen=True):
    """Recorded results: digests by metric, and the run's own rows."""

    metrics: dict[str, MetricDigest]
    rows: list[Row]


@dataclass(frozen=True)
class FigureChange:
    """A recorded figure that was not reproduced; `key` identifies it, values are formatted with units."""

    metric: str
    key: Mapping[str, Any]
    recorded: str
    computed: str

    @property
    def figure_name(self) -> str:
        """The metric with the figure's key."""
        about = ", ".join(f"{name} {value}" for name, value in self.key.items())
        return f"{self.metric} ({about})" if about else self.metric

    def __str__(self) -> str:
        return f"{self.figure_name}: recorded {self.recorded}, computed {self.computed}"


@dataclass(frozen=True)
class RecordComparison:
    """Comparison of computed results with the record.

    `rows` recorded rows of the run were compared, `exact` of them have an identical value; `outdated` are
    metrics that now have another version or are gone; `newer` are metrics that the record lacks.
    """

    rows: int
    exact: int
    changes: tuple[FigureChange, ...]
    outdated: tuple[str, ...]
    newer: tuple[str, ...]


def record_results(rows: Sequence[Row]) -> RecordedResults:
    """The record of result rows; metrics of third-party plug-ins are left out."""
    metrics: dict[str, MetricDigest] = {}
    run_rows: list[Row] = []
    for metric, metric_rows in _by_metric(rows).items():
        metrics[metric] = MetricDigest(metric_rows[0].version, len(metric_rows), _rows_digest(metric_rows))
        run_rows += [row for row in metric_rows if row.rank is None]
    return RecordedResults(metrics, run_rows)


def compare_record(record: RecordedResults, rows: Sequence[Row]) -> RecordComparison:
    """Compare every recorded row with its computed one."""
    computed = _by_metric(rows)
    recorded: dict[str, list[Row]] = {metric: [] for metric in record.metrics}
    for row in record.rows:
        recorded[row.metric].append(row)
    changes: list[FigureChange] = []
    outdated = []
    compared = exact = 0
    for metric, digest in record.metrics.items():
        metric_rows = computed.get(metric)
        if metric_rows is None or metric_rows[0].version != digest.version:
            outdated.append(metric)
            continue
        run_rows = {_key(row): row for row in metric_rows if row.rank is None}
        recorded_rows = {_key(row): row for row in recorded[metric]}
        different = [
            _figure_change(metric, key, recorded_rows.get(key), run_rows.get(key))
            for key in sorted({*recorded_rows, *run_rows}, key=str)
            if not _is_same_value(recorded_rows.get(key), run_rows.get(key))
        ]
        compared += len(recorded_rows)
        exact += sum(
            key in run_rows and row.value == run_rows[key].value for key, row in recorded_rows.items()
        )
        new_digest = MetricDigest(digest.version, len(metric_rows), _rows_digest(metric_rows))
        if not different and new_digest != digest:
            different = [FigureChange(metric, {"rows": "of single ranks"}, str(digest), str(new_digest))]
        changes += different
    newer = tuple(metric for metric in computed if metric not in record.metrics)
    return RecordComparison(compared, exact, tuple(changes), tuple(outdated), newer)


def row_changes(
    before: Sequence[Row], after: Sequence[Row], renamed: Callable[[str], bool] | None = None
) -> list[FigureChange]:
    """Rows that are not bit-identical in two computations, except for the texts of reasons.

    A row of `after` about a `renamed` thing is compared with one of `before` that is equal but for the name.
    """

    def rows_by_key(rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
        return {(row.metric, *_key(row)): row for row in rows}

    rows_before, rows_after = rows_by_key(before), rows_by_key(after)
    for names, only_after in _renamed_rows(rows_before, rows_after, renamed).items():
        unmatched: dict[Row, list[tuple[Any, ...]]] = {}
        for key in rows_before.keys() - rows_after.keys():
            unmatched.setdefault(_without(rows_before[key], *names), []).append(key)
        for key in only_after:
            if alike := unmatched.get(_without(rows_after[key], *names)):
                del rows_before[alike.pop()], rows_after[key]
    return [
        _figure_change(key[0], key[1:], rows_before.get(key), rows_after.get(key))
        for key in sorted({*rows_before, *rows_after}, key=str)
        if not (key in rows_before and key in rows_after)
        or _without(rows_before[key]) != _without(rows_after[key])
    ]


def _renamed_rows(
    before: Mapping[tuple[Any, ...], Row],
    after: Mapping[tuple[Any, ...], Row],
    renamed: Callable[[str], bool] | None,
) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    """Keys of rows of `after` alone that are about renamed things, by the columns of the names."""
    keys: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for key in after.keys() - before.keys() if renamed else ():
        names = tuple(c for c in _NAMED if renamed and renamed(getattr(after[key], c) or ""))
        if names:
            keys.setdefault(names, []).append(key)
    return keys


def _without(row: Row, *names: str) -> Row:
    """A row without the values of the columns `names`, and its reason."""
    return msgspec.structs.replace(row, **dict.fromkeys(("reason", *names)))


def _by_metric(rows: Iterable[Row]) -> dict[str, list[Row]]:
    own_metrics = {name for name in METRICS if METRICS.origin(name).startswith("cclbench.")}
    by_metric: dict[str, list[Row]] = {}
    for row in rows:
        if row.metric in own_metrics and row.provenance != "modelled":
            by_metric.setdefault(row.metric, []).append(row)
    return by_metric


def _rows_digest(rows: Sequence[Row]) -> str:
    lines = (
        json.dumps(
            [
                *_key(row),
                *(getattr(row, column) for column in _HELD),
                None if row.value is None else f"{row.value:.{DIGITS}g}",
            ]
        )
        for row in rows
    )
    return sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _is_same_value(recorded: Row | None, computed: Row | None) -> bool:
    if (
        recorded is None
        or computed is None
        or any(getattr(recorded, column) != getattr(computed, column) for column in _HELD)
    ):
        return False
    recorded_value, computed_value = recorded.value, computed.value
    if recorded_value is None or computed_value is None:
        return recorded_value is computed_value
    return math.isclose(recorded_value, computed_value, rel_tol=TOLERANCE, abs_tol=0)


def _figure_change(
    metric: str, key: tuple[Any, ...], recorded: Row | None, computed: Row | None
) -> FigureChange:
    comparable = recorded is not None and computed is not None
    differing = [name for name in _HELD if comparable and getattr(recorded, name) != getattr(computed, name)]
    named = zip(_KEY, key, strict=True)
    about = {column: value for column, value in named if value is not None and column != "source"}
    return FigureChange(metric, about, _value_words(recorded, differing), _value_words(computed, differing))


def _value_words(row: Row | None, columns: Sequence[str]) -> str:
    """A row's value with its unit, and its other fields that differ."""
    if row is None:
        return "no such row"
    value = row.value
    unit = "" if row.unit == "1" else f" {row.unit}"
    shown = row.status.replace("_", " ") if value is None else f"{value!r}{unit}"
    return ", ".join([shown, *(f"{name} {getattr(row, name)}" for name in columns)])
