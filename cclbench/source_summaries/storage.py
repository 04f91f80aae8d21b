# SPDX-License-Identifier: Apache-2.0
"""Storage by DLIO's results: how busy it keeps accelerators, what it delivers, how long checkpoints take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_names
from cclbench.record.rows import Row
from cclbench.source_summaries.summary import FigureColumn, FigureTable, SourceSummary, SummaryInputs

_METRICS: Final = metric_names(
    "storage.accelerator_utilization", "storage.samples", "storage.read_rate", "storage.checkpoint_time"
)
_COLUMNS: Final = (
    FigureColumn(name="result", key=True),
    FigureColumn(name="utilization", unit="1", lead=True),
    FigureColumn(name="samples", unit="1/s", lead=True),
    FigureColumn(name="rate", unit="B/s", lead=True),
    FigureColumn(name="time", unit="s"),
)
_MOST_RESULTS: Final = 8
_TRAINING: Final = "training"


def summarise_storage(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """A row for each result and phase; sentences of the first ones."""
    found: dict[str, dict[str, Row]] = {}
    for row in inputs.results.summary:
        if row.metric in _METRICS and row.rank is None and row.stat is None and row.value is not None:
            found.setdefault(row.category or _TRAINING, {})[row.metric] = row
    if not found:
        return
    yield SourceSummary(
        kind="storage",
        heading="Storage by DLIO",
        sentences=[_sentence(name, rows) for name, rows in list(found.items())[:_MOST_RESULTS]],
        tables=[
            FigureTable(
                subject="storage",
                title="Storage",
                columns=_COLUMNS,
                rows=[
                    (name, *(rows[metric].value if metric in rows else None for metric in _METRICS))
                    for name, rows in found.items()
                ],
                detail=True,
            )
        ],
        absent=["what the storage itself delivered: rates are of samples, and caches may have served some"],
    )


def _sentence(name: str, rows: Mapping[str, Row]) -> str:
    utilization, samples, rate, time = (rows.get(metric) for metric in _METRICS)
    parts = []
    if utilization is not None:
        parts.append(f"accelerators compute {humanise(utilization.number, '1')} of the time")
    if samples is not None:
        parts.append(f"{samples.number:,.4g} samples/s")
    if rate is not None:
        parts.append(humanise(rate.number, "B/s"))
    if time is not None:
        parts.append(f"{humanise(time.number, 's')} a checkpoint")
    return f"{name[:1].upper()}{name[1:]}: {', '.join(parts)}."
