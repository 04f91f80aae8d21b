# SPDX-License-Identifier: Apache-2.0
"""Arrivals of ranks at matched collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import (
    Coverage,
    NotApplicable,
    Unknown,
    Value,
    count_words,
)
from cclbench.analyzers.view.collectives import (
    Label,
    collective_durations,
    collective_kinds,
    group_sizes,
    label_numbers,
)
from cclbench.analyzers.view.columns import word_codes
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Mask, begins

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

PAIRS = ("send", "recv")
SPENT = ("compute", "copy", "communication", "idle")
"""How a rank spends the time before it arrives: |C|, |M \\ (C∪K)|, |K \\ C| and the rest."""
NOTHING_BEFORE, UNKNOWN_BEFORE = -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Which collectives are matched across all ranks of their group, shape (rows,), and what is left out."""

    complete: Mask
    left_out: Mapping[str, int]
    """Numbers of incomplete rows by reason."""
    coverage: Coverage
    """Coverage of the rows of groups with more than one rank."""


def matched_rows(collectives: pa.Table) -> Matched:
    """Which rows of `schema.COLLECTIVES` are in an instance with a trace of every rank."""
    complete = collectives["wait_ns"].is_valid().to_numpy()
    alone = group_sizes(collectives) == 1
    unmatched = ~complete
    left_out = {}
    for why, mask in (
        ("in groups of one", alone),
        ("in instances that lack a rank", collectives["instance"].is_valid().to_numpy()),
        ("of unknown process group", ~collectives["group"].is_valid().to_numpy()),
        ("not matched with another rank's", np.ones(len(complete), np.bool_)),
    ):
        left_out[why] = int((unmatched & mask).sum())
        unmatched &= ~mask
    coverage = Coverage.from_rows(complete[~alone], collective_durations(collectives)[~alone])
    return Matched(complete, {why: number for why, number in left_out.items() if number}, coverage)


def matched_collectives(rank: RankView) -> tuple[pa.Table, Matched]:
    """The matched collectives in the windows, and of all which; `NotApplicable` without any."""
    matched = rank.matched
    if not matched.complete.any():
        raise no_matched_error(matched)
    return rank.collectives.filter(pa.array(matched.complete)), matched


def no_matched_error(matched: Matched) -> NotApplicable:
    """The exception where no collective of several ranks is complete."""
    why = f"no collective is matched across its ranks: {count_words(matched.left_out)}"
    return Unknown(why, matched.coverage) if matched.coverage.all_rows else NotApplicable(why)


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """One rank's arrivals at matched collectives in its windows; arrays of shape (rows,).

    `members`: number of ranks of the instance; `label`: a code into `labels`; `clock_residual_ns`: residual
    of the clock alignment. `before`: the rank's previous instance in the same group (NOTHING_BEFORE for its
    first); `spent`: ns of each of SPENT from that one's end (for the first: from the rank's first work) to
    the arrival, shape (4, rows). `step`: the step's number, −1 for none.
    Idle time before the rank's first collective counts from zero of the common clock.
    """

    window_ns: int
    on_host: bool
    clock_residual_ns: float
    labels: list[Label]
    label: npt.NDArray[np.int32]
    instance: Int64
    arrival_ns: Int64
    members: npt.NDArray[np.int32]
    before: Int64
    spent: Int64
    step: Int64


def rank_arrivals(rank: RankView) -> tuple[Arrivals, Matched]:
    """The rank's arrivals, and which of its collectives are left out."""
    table, matched = matched_collectives(rank)
    label, labels = label_numbers(table)
    before, spent = _before_and_spent(rank, table)
    return Arrivals(
        window_ns=rank.windows.total,
        on_host=rank.on_host,
        clock_residual_ns=rank.tables.clock_residual_ns,
        labels=labels,
        label=label.astype(np.int32),
        instance=table["instance"].to_numpy(),
        arrival_ns=table["arrival_ns"].to_numpy(),
        members=np.where(np.isin(collective_kinds(table), PAIRS), 2, group_sizes(table)).astype(np.int32),
        before=before,
        spent=spent,
        step=table["step"].fill_null(-1).to_numpy().astype(np.int64),
    ), matched


def arrivals_of(rank: RankView) -> Value:
    """A rank's part of a metric over all ranks' arrivals: their number, with the arrivals as detail."""
    arrivals, matched = rank.arrivals
    return Value(
        value=float(len(arrivals.instance)),
        left_out=matched.left_out,
        coverage=matched.coverage,
        detail=arrivals,
    )


def _before_and_spent(rank: RankView, chosen: pa.Table) -> tuple[Int64, Int64]:
    """`before` and `spent` of the chosen rows, also from work outside the windows."""
    table = rank.all_collectives
    starts, ends = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    instance = table["instance"].fill_null(UNKNOWN_BEFORE).to_numpy()
    group, _ = word_codes(table, "group")
    order = np.lexsort((starts, group))
    first = begins(group[order])
    previous = np.where(first, -1, np.roll(order, 1))[np.argsort(order)]
    key = table["collective"].to_numpy()
    by_key = np.argsort(key)
    row = by_key[np.searchsorted(key[by_key], chosen["collective"].to_numpy())]
    previous, starts = previous[row], starts[row]
    is_first = previous < 0
    compute, communication, copies = rank.busy
    begin = np.minimum(np.where(is_first, np.iinfo(np.int64).min, ends[previous]), starts)
    kernels = intervals.join(compute, communication)
    spent = [
        intervals.within(s, begin, starts)
        for s in (compute, intervals.subtract(copies, kernels), intervals.subtract(communication, compute))
    ]
    idle = np.where(is_first, chosen["arrival_ns"].to_numpy(), starts - begin) - sum(spent)
    return np.where(is_first, NOTHING_BEFORE, instance[previous]), np.array([*spent, idle], np.int64)
