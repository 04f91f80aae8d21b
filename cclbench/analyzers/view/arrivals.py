# SPDX-License-Identifier: Apache-2.0
"""When ranks arrive at collectives: each rank's part, and the whole instances that the parts make up."""

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
"""What a rank does before it arrives: |C|, |M \\ (C∪K)|, |K \\ C| and the rest."""
NOTHING_BEFORE, UNKNOWN_BEFORE = -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Which collectives all ranks of their group have, shape (rows,), and what is left out."""

    complete: Mask
    left_out: Mapping[str, int]
    """Why how many rows are not complete."""
    coverage: Coverage
    """Of the rows that other ranks take part in: groups of one have nobody to be matched with."""


def matched_rows(collectives: pa.Table) -> Matched:
    """The rows of `schema.COLLECTIVES` that are in an instance of which all ranks have a trace."""
    complete = collectives["wait_ns"].is_valid().to_numpy()
    alone = group_sizes(collectives) == 1
    others = ~complete
    left_out = {}
    for why, here in (
        ("in groups of one", alone),
        ("in instances that lack a rank", collectives["instance"].is_valid().to_numpy()),
        ("of unknown process group", ~collectives["group"].is_valid().to_numpy()),
        ("not matched with another rank's", np.ones(len(complete), np.bool_)),
    ):
        left_out[why] = int((others & here).sum())
        others &= ~here
    coverage = Coverage.of_rows(complete[~alone], collective_durations(collectives)[~alone])
    return Matched(complete, {why: number for why, number in left_out.items() if number}, coverage)


def matched_in_windows(rank: RankView) -> tuple[pa.Table, Matched]:
    """The collectives that begin in the rank's windows, and what of them is matched."""
    table = rank.collectives
    if not len(table):
        raise NotApplicable("there are no collectives in the window")
    return table, matched_rows(table)


def matched_collectives(rank: RankView) -> tuple[pa.Table, Matched]:
    """The rank's collectives in the window that are complete, of all of them; not applicable without any."""
    table, found = matched_in_windows(rank)
    if not found.complete.any():
        raise no_matched_error(found)
    return table.filter(pa.array(found.complete)), found


def no_matched_error(found: Matched) -> NotApplicable:
    """What to raise where no collective of several ranks is complete."""
    why = f"no collective is matched across its ranks: {count_words(found.left_out)}"
    return Unknown(why, found.coverage) if found.coverage.all_rows else NotApplicable(why)


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """One rank's arrivals at matched collectives in its windows, arrays of shape (rows,).

    `members` is how many ranks the instance has, `label` a code into `label_numbers`; `clock_residual_ns`
    is what
    the ranks' clocks leave unexplained.  `before` is the instance that the rank ran before in the same group
    (NOTHING_BEFORE for its first), `spent` the ns of each of SPENT from that one's end (for its first: from
    the rank's first work) to the arrival; shape (4, rows).  `step` is the step's number, −1 for none.
    What the rank idles before its first collective counts from the common clock's zero.
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
    """The rank's arrivals, and what of its collectives is left out."""
    table, found = matched_collectives(rank)
    label, known = label_numbers(table)
    before, spent = _before_and_spent(rank, table)
    return Arrivals(
        window_ns=rank.windows.total,
        on_host=rank.on_host,
        clock_residual_ns=rank.tables.clock_residual_ns,
        labels=known,
        label=label.astype(np.int32),
        instance=table["instance"].to_numpy(),
        arrival_ns=table["arrival_ns"].to_numpy(),
        members=np.where(np.isin(collective_kinds(table), PAIRS), 2, group_sizes(table)).astype(np.int32),
        before=before,
        spent=spent,
        step=table["step"].fill_null(-1).to_numpy().astype(np.int64),
    ), found


def arrivals_of(rank: RankView) -> Value:
    """What a metric over all ranks' arrivals takes of one: how many, and the arrivals as detail."""
    found, others = rank.arrivals
    return Value(
        value=float(len(found.instance)), left_out=others.left_out, coverage=others.coverage, detail=found
    )


def _before_and_spent(rank: RankView, chosen: pa.Table) -> tuple[Int64, Int64]:
    """`before` and `spent` of those of the rank's rows, whatever it ran outside its windows."""
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
    none = previous < 0
    compute, communication, copies = rank.busy
    begin = np.minimum(np.where(none, np.iinfo(np.int64).min, ends[previous]), starts)
    kernels = intervals.join(compute, communication)
    spent = [
        intervals.within(s, begin, starts)
        for s in (compute, intervals.subtract(copies, kernels), intervals.subtract(communication, compute))
    ]
    idle = np.where(none, chosen["arrival_ns"].to_numpy(), starts - begin) - sum(spent)
    return np.where(none, NOTHING_BEFORE, instance[previous]), np.array([*spent, idle], np.int64)
