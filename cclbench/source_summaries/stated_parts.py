# SPDX-License-Identifier: Apache-2.0
"""Steps as a profiler's own table states them: the mean step of each rank and its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name
from cclbench.source_summaries.summary import FigureColumn, FigureTable, SourceSummary, SummaryInputs

_PARTS: Final = metric_name("time.stated_parts")
_WORDS: Final[Mapping[str, str]] = {
    "compute": "compute",
    "exposed_comm": "exposed communication",
    "free": "free",
    "overlapped": "overlapped",
    "bubble": "bubble",
    "preparing": "preparing",
}
_COLUMNS: Final = (
    FigureColumn(name="rank", key=True),
    FigureColumn(name="step", unit="s", lead=True),
    *(FigureColumn(name=words, unit="s") for words in _WORDS.values()),
)


def summarise_stated_parts(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """A sentence of the mean step, and a row for each rank."""
    rows = {(row.rank, row.category): row.value for row in inputs.results if row.metric == _PARTS}
    step_time = rows.get((None, None))
    if step_time is None:
        return
    shares = [
        f"{_WORDS[part]} {humanise((rows.get((None, part)) or 0.0) / step_time, '1')}"
        for part in ("compute", "exposed_comm", "free")
        if step_time
    ]
    ranks = sorted({rank for rank, _ in rows if rank is not None})
    listed = [("all" if rank is None else f"rank {rank}", rank) for rank in (*ranks, None)]
    yield SourceSummary(
        kind="stated_parts",
        heading="Steps by the profiler's own table",
        sentences=[f"A step takes {humanise(step_time, 's')} in the mean: {', '.join(shares)}."],
        tables=[
            FigureTable(
                subject="steps",
                title="Mean step by part",
                columns=_COLUMNS,
                rows=[(name, *(rows.get((rank, part)) for part in (None, *_WORDS))) for name, rank in listed],
            )
        ],
        absent=["kernels and collectives: the table has sums alone"],
    )
