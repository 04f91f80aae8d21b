# SPDX-License-Identifier: Apache-2.0
"""Frequent kernel sequences of a run, and what fusing them could save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.per_rank import answer_or_reason, answers_by_rank
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.sequences import SUMS, RankSequences, merge_sequences, rank_sequences
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.normalize.steps import POLICIES
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.record.selection import Selection, Steps

COLUMNS: Final = ("kernels", "count", "time_s", "share", "gap_s")
_NS_PER_S: Final = 10**9


@dataclass(frozen=True, slots=True)
class KernelSequence:
    """Consecutive kernels of one stream, by base name, over all ranks and steps."""

    kernels: tuple[str, ...]
    count: int
    """Occurrences; they may overlap."""
    time_s: float
    """Σ durations of the kernels in occurrences, each counted once."""
    share: float
    """Share of the summed durations of all kernels."""
    gap_s: float
    """Σ gaps between kernels of an occurrence, each counted once: upper bound of what fusing could save."""


@dataclass(frozen=True, slots=True)
class FrequentSequences:
    """The sequences of `length` kernels with the most time, and totals."""

    run: str
    length: int
    window: str
    ranks: tuple[int, ...]
    """Ranks that ran kernels."""
    windows: int
    """Number of steps, summed over these ranks."""
    kernels: int
    kernel_time_s: float
    distinct: int
    """Number of different sequences of that length with compute kernels; `rows` are the first ones."""
    rows: tuple[KernelSequence, ...]
    notes: tuple[str, ...]

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows with the columns of `COLUMNS`."""
        return [
            {name: list(row.kernels) if name == "kernels" else getattr(row, name) for name in COLUMNS}
            for row in self.rows
        ]

    @property
    def document(self) -> dict[str, Any]:
        """The document that `--json` prints."""
        return {
            "schema": "sequences.v1",
            "run": self.run,
            "length": self.length,
            "window": self.window,
            "ranks": list(self.ranks),
            "windows": self.windows,
            "kernels": self.kernels,
            "kernel_time_s": self.kernel_time_s,
            "distinct": self.distinct,
            "rows": self.table,
            "notes": list(self.notes),
        }


def frequent_sequences(
    run: Run,
    *,
    length: int = 3,
    top: int = 10,
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
) -> FrequentSequences:
    """The `top` sequences of `length` ≥ 2 kernels by time, within steps.

    `UsageError` if no rank ran kernels.
    """
    Selection(window, steps, ranks).check(run)
    by_rank, notes = answers_by_rank(
        run,
        partial(_rank_sequences, length, window, steps),
        ranks,
        noun="kernel sequences",
        engine=engine,
        progress=progress,
        what="looking for sequences",
    )
    table = merge_sequences([rank.table for rank in by_rank.values()])
    kernel_ns = sum(rank.kernel_ns for rank in by_rank.values())
    return FrequentSequences(
        run=run.id,
        length=length,
        window=max((rank.policy for rank in by_rank.values()), key=POLICIES.index),
        ranks=tuple(by_rank),
        windows=sum(rank.windows for rank in by_rank.values()),
        kernels=sum(rank.kernels for rank in by_rank.values()),
        kernel_time_s=kernel_ns / _NS_PER_S,
        distinct=len(table),
        rows=tuple(_sequence_rows(_top_rows(table, length, top), length, kernel_ns)),
        notes=tuple(notes),
    )


def _rank_sequences(
    length: int, window: str, steps: Steps | None, tables: Rank
) -> RankSequences | NotApplicable:
    """One rank's sequences, or why it has none."""
    view = RankView(tables, rank=tables.entry.rank, window=window, steps=steps)
    return answer_or_reason(view, lambda rank: rank_sequences(rank, length))


def _top_rows(table: pa.Table, length: int, top: int) -> pa.Table:
    """The rows with the most time; ties by number of occurrences, then by name."""
    names = [(str(n), "ascending") for n in range(length)]
    return table.sort_by([("ns", "descending"), ("count", "descending"), *names]).slice(0, top)


def _sequence_rows(table: pa.Table, length: int, kernel_ns: int) -> list[KernelSequence]:
    kernels = zip(*(table[str(n)].to_pylist() for n in range(length)), strict=True)
    sums = zip(*(table[name].to_pylist() for name in SUMS), strict=True)
    return [
        KernelSequence(names, count, ns / _NS_PER_S, ns / kernel_ns if kernel_ns else 0.0, gap_ns / _NS_PER_S)
        for names, (count, ns, gap_ns) in zip(kernels, sums, strict=True)
    ]
