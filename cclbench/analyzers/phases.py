# SPDX-License-Identifier: Apache-2.0
"""Phases of communication: when each parallel dimension uses the network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import GROUPS, NotApplicable, Value, metric
from cclbench.analyzers.view.collectives import UNKNOWN, group_sizes
from cclbench.analyzers.view.columns import word_codes
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.intervals import Int64, Mask


@metric(
    "comm.windows",
    definition="Communication phases per step: maximal runs of collectives of one parallel dimension"
    " (category), ordered by start, then end, on a rank; in the windows between phases a reconfigurable"
    " fabric could switch. Stats: phase, the mean length of a phase from its first start to its last end;"
    " gap, gap_p50 and gap_max, the time from the end of all earlier communication to the start of a phase, 0"
    " where they overlap. Groups of one rank are left out.",
    formula="n; Σ length / n; Σ gap / (phases after another)",
    unit="count",
    inputs=("collectives", GROUPS, "steps"),
    not_applicable="no collective in the window has a process group of known parallel dimension",
)
def windows(rank: RankView) -> Iterator[Value]:
    table = rank.collectives
    table = table.filter(pa.array(group_sizes(table) != 1))
    if not table["dimension"].is_valid().to_numpy().any():
        raise NotApplicable("no collective in the window has a process group of known parallel dimension")
    dimension, starts, ends, gaps = _communication_phases(table)
    _, words = word_codes(table, "dimension")
    yield from _phase_values(starts, ends, gaps, len(rank.windows), None)
    for code in np.unique(dimension).tolist():
        of_dimension = dimension == code
        yield from _phase_values(
            starts[of_dimension],
            ends[of_dimension],
            gaps[of_dimension],
            len(rank.windows),
            words[code] or UNKNOWN,
        )


def _communication_phases(table: pa.Table) -> tuple[Int64, Int64, Int64, Int64]:
    """Dimension (code), start, end and preceding gap of each phase, −1 for the first; shape (phases,)."""
    dimension, words = word_codes(table, "dimension")
    starts, ends = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    by_name = np.argsort(np.argsort([word or "" for word in words]))
    order = np.lexsort((by_name[dimension], ends, starts))
    dimension, starts, ends = dimension[order], starts[order], ends[order]
    first = np.flatnonzero(np.diff(dimension, prepend=-1))
    busy_until = np.maximum.accumulate(ends)[first - 1]
    gaps = np.maximum(starts[first] - busy_until, 0)
    gaps[0] = -1
    return dimension[first], starts[first], np.maximum.reduceat(ends, first), gaps


def _phase_values(
    starts: Int64, ends: Int64, gaps: Int64, steps: int, category: str | None
) -> Iterator[Value]:
    yield Value(value=len(starts) / steps, category=category)
    length = float((ends - starts).mean() / NS_PER_S)
    yield Value(value=length, category=category, stat="phase", unit="s", weight=len(starts))
    has_gap: Mask = gaps >= 0
    if has_gap.any():
        between, weight = gaps[has_gap] / NS_PER_S, int(has_gap.sum())
        for stat, gap in (
            ("gap", between.mean()),
            ("gap_p50", np.percentile(between, 50)),
            ("gap_max", between.max()),
        ):
            yield Value(value=float(gap), category=category, stat=stat, unit="s", weight=weight)
