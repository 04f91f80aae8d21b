# SPDX-License-Identifier: Apache-2.0
"""Result rows of ranks whose traces have wrong or missing rows: partial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from cclbench.analyzers.metric import METRICS
from cclbench.record.facts import ran_no_kernel
from cclbench.record.manifest import RankEntry
from cclbench.record.rows import Row


class LackingRows(NamedTuple):
    """Counts: rows with implausible times, missing rows, devices without kernels, all rows."""

    implausible: int
    missing: int
    without_kernels: int
    rows: int


def lacking_rows(entries: Iterable[RankEntry]) -> dict[int | None, LackingRows]:
    """Counts of wrong and missing rows by rank, without ranks that have none; None: of all ranks."""
    counts: dict[int | None, LackingRows] = {
        entry.rank: LackingRows(
            sum(entry.implausible.values()),
            sum(entry.missing.values()),
            int(ran_no_kernel(entry.facts, entry.rows)),
            sum(entry.rows.values()),
        )
        for entry in entries
    }
    total = LackingRows(*map(sum, zip(*counts.values(), strict=True))) if counts else None
    if total is None or not any(total[:-1]):
        return {}
    return {rank: lacking for rank, lacking in counts.items() if any(lacking[:-1])} | {None: total}


def with_lacking(rows: Sequence[Row], counts: Mapping[int | None, LackingRows]) -> list[Row]:
    """The rows, with values from steps as partial for ranks whose trace has wrong or missing rows (`counts`).

    The coverage is at most the share of correct rows of the rank, or of all ranks. A device without kernels
    lacks an unknown number.
    """
    if not counts:
        return list(rows)
    return [
        _partly_lacking(row, counts[row.rank])
        if row.has_value and row.rank in counts and "steps" in METRICS.get(row.metric).inputs
        else row
        for row in rows
    ]


def _partly_lacking(row: Row, lacking: LackingRows) -> Row:
    words = {
        "rows of the traces have implausible times": lacking.implausible,
        "kernels have a launch but no row": lacking.missing,
        "devices ran no kernel": lacking.without_kernels,
    }
    share = lacking.rows / (lacking.rows + lacking.implausible + lacking.missing)
    noted = row.noted("; ".join(f"{count:,} {problem}" for problem, count in words.items() if count))
    coverages = [
        part for part in (row.coverage, None if lacking.without_kernels else share) if part is not None
    ]
    return msgspec.structs.replace(noted, status="partial", coverage=min(coverages, default=None))
