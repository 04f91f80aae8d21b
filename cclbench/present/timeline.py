# SPDX-License-Identifier: Apache-2.0
"""Timeline of one step as data: compute, wait and transfer of each rank on a common clock.

An instant of a rank's communication is transfer if any of its matched collectives transfers, wait if they
only wait for a later rank, and unmatched if it is in no matched collective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.whole_graphs import graph_times
from cclbench.ground import intervals
from cclbench.ground.errors import UsageError
from cclbench.ground.intervals import Int64, Intervals, Mask
from cclbench.record.manifest import ClockCorrections
from cclbench.record.run import Run

MOST_RANKS: Final = 32
MOST_INSTANCES: Final = 200
Windows = Mapping[int, tuple[int, int]]
"""Begin and end of each rank's window on the common clock, ns."""


@dataclass(frozen=True, slots=True)
class TimelineClock:
    """Correction of a rank's times: offset + drift·(t − reference), ns, is subtracted."""

    offset_ns: float = 0.0
    drift: float = 0.0
    reference_ns: int = 0

    def on_common_clock(self, at: Int64) -> Int64:
        """Times of the rank on the common clock, int64 ns, shape of `at`."""
        shift = np.rint(self.offset_ns + self.drift * (at - self.reference_ns))
        return np.asarray(at - shift.astype(np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class RankLanes:
    """One rank's times on the common clock; wait, transfer and unmatched are disjoint.

    Compute excludes CUDA graphs traced as a whole; copies may overlap anything.
    """

    rank: int
    compute: Intervals
    wait: Intervals
    transfer: Intervals
    unmatched: Intervals
    copy: Intervals
    graphs: Intervals = intervals.EMPTY


@dataclass(frozen=True, slots=True)
class CollectiveInstance:
    """A collective matched on all ranks of its group: the rank that arrived last, and the longest wait."""

    kind: str
    bytes: int | None
    dimension: str | None
    ranks: tuple[int, ...]
    last_rank: int
    last_arrival_ns: int
    waiting_rank: int
    longest_wait_ns: int
    busy_ns: int
    """Wait and transfer summed over its ranks."""


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeline:
    """Lanes and instances from `begin_ns` to `end_ns`; the step begins at `origin_ns`."""

    step: int | None
    origin_ns: int
    begin_ns: int
    end_ns: int
    lanes: tuple[RankLanes, ...]
    instances: tuple[CollectiveInstance, ...]
    """Sorted by longest wait, descending."""
    hidden: int
    """Number of ranks left out beyond `MOST_RANKS`."""


def step_timeline(
    run: Run,
    *,
    step: int | None = None,
    ranks: Sequence[int] | None = None,
    from_ms: float | None = None,
    to_ms: float | None = None,
) -> StepTimeline:
    """The timeline of one step, by default the first that most ranks have; the whole trace without steps.

    It begins where the step begins on the first rank and ends where it ends on the last; `from_ms` and
    `to_ms` restrict it, in ms from the step's start.  Of more than `MOST_RANKS` ranks, those whose
    collectives wait least and most are shown.  `UsageError` for a step or a rank that the run lacks.
    """
    candidates = run.ranks if ranks is None else sorted(set(ranks))
    clocks = clocks_of(run.record.clocks)
    views = {rank: RankView(run.rank(rank), rank=rank) for rank in candidates}
    # An incomplete step is only drawn on request.
    by_rank = {rank: rank_windows(view, with_open=step is not None) for rank, view in views.items()}
    step, windows = chosen_step(by_rank, clocks, step)
    origin, end = min(begin for begin, _ in windows.values()), max(end for _, end in windows.values())
    begin, end = _narrow_window(origin, end, from_ms, to_ms)
    parts = run.collectives()
    shown = least_and_most_waiting(candidates, rank_waits(parts, begin, end), MOST_RANKS)
    return StepTimeline(
        step=step,
        origin_ns=origin,
        begin_ns=begin,
        end_ns=end,
        lanes=tuple(
            _rank_lanes(views[rank], clocks.get(rank, TimelineClock()), begin, end) for rank in shown
        ),
        instances=longest_instances(parts, begin, end, shown),
        hidden=len(candidates) - len(shown),
    )


def clocks_of(account: ClockCorrections) -> dict[int, TimelineClock]:
    """The corrected clocks in the manifest, by rank."""
    return {
        entry.rank: TimelineClock(entry.offset_ns, entry.drift_ppm / 1e6, account.reference_ns)
        for entry in account.ranks
        if entry.applied
    }


def rank_windows(view: RankView, *, with_open: bool) -> list[tuple[int | None, int, int]]:
    """Step, begin and end of each window on the rank's clock; none if it has no work."""
    try:
        window_sets = [view.windows, view.open_windows] if with_open else [view.windows]
    except NotApplicable:
        return []
    return [
        window
        for w in window_sets
        for window in zip(w.steps, w.starts.tolist(), w.ends.tolist(), strict=True)
    ]


def chosen_step(
    by_rank: Mapping[int, Sequence[tuple[int | None, int, int]]],
    clocks: Mapping[int, TimelineClock],
    step: int | None,
) -> tuple[int | None, Windows]:
    """The step to draw and its window on the ranks that have it.

    `by_rank` has each rank's windows as (step, start, end) on its own clock.  Without `step`, the first
    one that most ranks have; None, the whole trace, only if no rank has steps.
    """
    by_step: dict[int | None, dict[int, tuple[int, int]]] = {}
    for rank, windows in by_rank.items():
        for number, *ends in windows:
            begin, end = clocks.get(rank, TimelineClock()).on_common_clock(np.array(ends, np.int64)).tolist()
            by_step.setdefault(number, {}).setdefault(rank, (begin, end))
    if not by_step:
        raise UsageError("there is nothing to draw: no rank's trace has device work")
    numbers = sorted(number for number in by_step if number is not None)
    if step is None and numbers:
        step = max(numbers, key=lambda number: (len(by_step[number]), -number))
    if step not in by_step:
        hint = f"it has {', '.join(map(str, numbers[:12]))}" if numbers else "it has none: omit --step"
        raise UsageError(f"the run has no complete step {step}", hint=hint)
    return step, by_step[step]


def _narrow_window(begin: int, end: int, from_ms: float | None, to_ms: float | None) -> tuple[int, int]:
    length = (end - begin) / 1e6
    first = 0.0 if from_ms is None else from_ms
    last = length if to_ms is None else min(to_ms, length)
    if not 0 <= first < last:
        raise UsageError(f"there is nothing from {first:g} to {last:g} ms", hint=f"it lasts {length:g} ms")
    return begin + round(first * 1e6), begin + round(last * 1e6)


def rank_waits(parts: pa.Table, begin: int, end: int) -> dict[int, int]:
    """Σ wait of each rank's matched collectives that begin in [begin, end), ns."""
    at = parts["arrival_ns"]
    inside = parts.filter(pc.and_(pc.greater_equal(at, begin), pc.less(at, end)))
    total = inside.group_by("rank").aggregate([("wait_ns", "sum")])
    waited = total["wait_ns_sum"].fill_null(0)
    return dict(zip(total["rank"].to_pylist(), waited.to_pylist(), strict=True))


def least_and_most_waiting(ranks: Sequence[int], waited: Mapping[int, int], most: int) -> list[int]:
    """At most `most` ranks, ascending: all, or those that wait least and most."""
    by_wait = sorted(ranks, key=lambda rank: (waited.get(rank, 0), rank))
    return sorted(by_wait if len(ranks) <= most else by_wait[: most // 2] + by_wait[most // 2 - most :])


def _rank_lanes(view: RankView, clock: TimelineClock, begin: int, end: int) -> RankLanes:
    try:
        compute, communication, copies = view.busy
    except NotApplicable:
        compute = communication = copies = intervals.EMPTY
    parts = view.tables.collectives()
    wait, transfer, unmatched = split_communication(communication, parts)
    graphs = graph_times(view)
    sets = (intervals.subtract(compute, graphs), wait, transfer, unmatched, copies, graphs)
    return RankLanes(
        view.rank, *(crop_to_window(shift_to_common(times, clock), begin, end) for times in sets)
    )


def split_communication(communication: Intervals, parts: pa.Table) -> tuple[Intervals, Intervals, Intervals]:
    """Wait, transfer and unmatched of a rank's communication, disjoint, on its own clock."""
    matched_parts = parts.filter(pc.is_valid(parts["wait_ns"]))
    starts, ends = matched_parts["start_ns"].to_numpy(), matched_parts["end_ns"].to_numpy()
    latest = starts + matched_parts["wait_ns"].to_numpy()
    transfer = intervals.union(latest, ends)
    wait = intervals.subtract(intervals.union(starts, latest), transfer)
    return wait, transfer, intervals.subtract(communication, intervals.join(wait, transfer))


def shift_to_common(s: Intervals, clock: TimelineClock) -> Intervals:
    """The set on the common clock."""
    return intervals.union(clock.on_common_clock(s.starts), clock.on_common_clock(s.ends))


def crop_to_window(s: Intervals, begin: int, end: int) -> Intervals:
    """X ∩ [begin, end)."""
    return intervals.union(np.clip(s.starts, begin, end), np.clip(s.ends, begin, end))


def longest_instances(
    parts: pa.Table, begin: int, end: int, ranks: Sequence[int]
) -> tuple[CollectiveInstance, ...]:
    """The matched collectives of any of `ranks` whose last rank arrives in [begin, end), longest wait first.

    At most `MOST_INSTANCES`.
    """
    matched_parts = parts.filter(pc.is_valid(parts["wait_ns"])).sort_by("instance")
    if not len(matched_parts):
        return ()
    instance, rank = matched_parts["instance"].to_numpy(), matched_parts["rank"].to_numpy()
    first = np.flatnonzero(np.diff(instance, prepend=-1))
    bounds = np.append(first, len(instance))
    arrival, wait = matched_parts["arrival_ns"].to_numpy(), matched_parts["wait_ns"].to_numpy()
    busy = np.add.reduceat(wait + matched_parts["transfer_ns"].to_numpy(), first)
    latest = np.maximum.reduceat(arrival, first)
    longest = np.maximum.reduceat(wait, first)
    in_window = (latest >= begin) & (latest < end) & np.logical_or.reduceat(np.isin(rank, ranks), first)
    order = np.argsort(-longest, kind="stable")
    instances = []
    for i in order[in_window[order]][:MOST_INSTANCES].tolist():
        rows = slice(bounds[i], bounds[i + 1])
        part = matched_parts.slice(bounds[i], 1).to_pylist()[0]
        instances.append(
            CollectiveInstance(
                kind=part["kind"],
                bytes=max((b for b in (part["in_bytes"], part["out_bytes"]) if b is not None), default=None),
                dimension=part["dimension"],
                ranks=tuple(rank[rows].tolist()),
                last_rank=int(rank[rows][arrival[rows].argmax()]),
                last_arrival_ns=int(latest[i]),
                waiting_rank=int(rank[rows][wait[rows].argmax()]),
                longest_wait_ns=int(longest[i]),
                busy_ns=int(busy[i]),
            )
        )
    return tuple(instances)


def set_segments(s: Intervals, begin: int, end: int, cells: int) -> tuple[Int64, Int64, Any]:
    """The set as at most 3·`cells` segments: begin and end, ns, and the covered share.

    [begin, end) is divided into `cells` of equal length.  Intervals at least as long as a cell are kept, with
    share 1; shorter ones become cells with the share that they cover.
    """
    edges = np.linspace(begin, end, cells + 1).round().astype(np.int64)
    long: Mask = s.ends - s.starts >= (end - begin) / cells
    short = Intervals(s.starts[~long], s.ends[~long])
    share = intervals.within(short, edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)
    is_covered = share > 0
    return (
        np.concatenate([edges[:-1][is_covered], s.starts[long]]),
        np.concatenate([edges[1:][is_covered], s.ends[long]]),
        np.concatenate([share[is_covered], np.ones(int(long.sum()))]),
    )
