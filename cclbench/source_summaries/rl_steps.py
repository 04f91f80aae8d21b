# SPDX-License-Identifier: Apache-2.0
"""Steps of reinforcement learning by the trainer's log: roles first, then its own timers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.analyzers.rl_phases import STEP_PARTS
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_STEP: Final = metric_name("rl.step")
_PHASE: Final = metric_name("rl.phase")
_STATS: Final = (None, "p50", "p90", "p99")
_PHASE_STATS: Final = (None, "p50", "max", "sum")
_WORDS: Final = {"weight_sync": "weight sync", "wait_generate": "wait for samples"}


def _columns(key: str, stats: tuple[str | None, ...]) -> tuple[FigureColumn, ...]:
    figures = (FigureColumn(name=stat or "mean", unit="s", lead=stat is None) for stat in stats)
    return FigureColumn(name=key, key=True), *figures


def summarise_rl_steps(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """The mean step by role, and the trainer's timers."""
    rows = {
        (row.metric, row.category, row.stat): row
        for row in inputs.results.summary
        if row.metric in (_STEP, _PHASE) and row.rank is None
    }
    if (step_row := rows.get((_STEP, None, None))) is None or not inputs.view.table("phase_times").num_rows:
        return
    values = {key: row.value for key, row in rows.items()}
    parts = [part for part in STEP_PARTS if values.get((_STEP, part, None)) is not None]
    sentences = []
    if step_row.value is not None:
        shares = [
            f"{_WORDS.get(part, part)} {humanise(rows[_STEP, part, None].number / step_row.value, '1')}"
            for part in parts
        ]
        sentences.append(f"A step takes {humanise(step_row.value, 's')} in the mean: {', '.join(shares)}.")
    roles: list[tuple[Cell, ...]] = [
        (
            "in all" if part is None else _WORDS.get(part, part),
            *(values.get((_STEP, part, stat)) for stat in _STATS),
        )
        for part in (None, *parts)
        if values.get((_STEP, part, None)) is not None
    ]
    names = [name for metric, name, stat in rows if (metric, stat) == (_PHASE, None) and name]
    names.sort(key=lambda name: -rows[_PHASE, name, "sum"].number)
    phases: list[tuple[Cell, ...]] = [
        (name, *(values.get((_PHASE, name, stat)) for stat in _PHASE_STATS)) for name in names
    ]
    tables = [
        FigureTable(subject="roles", title="Step by role", columns=_columns("role", _STATS), rows=roles),
        FigureTable(
            subject="phases",
            title="The trainer's timers",
            columns=_columns("timer", _PHASE_STATS),
            rows=phases,
            detail=bool(roles),
        ),
    ]
    yield SourceSummary(
        kind="rl_steps",
        heading="Steps of reinforcement learning",
        sentences=sentences,
        tables=[table for table in tables if table.rows],
        absent=[] if step_row.reason is None or step_row.status == "ok" else [step_row.reason],
    )
