# SPDX-License-Identifier: Apache-2.0
"""A rank's compute by category: of kernels, or of a CPU's innermost operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from cclbench.analyzers.view.columns import event_table, row_spans, word_codes
from cclbench.analyzers.view.exposed import Shared
from cclbench.analyzers.view.host_ops import HostOps, host_ops
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.whole_graphs import graph_times
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals

GRAPHS: Final = "CUDA graphs"
"""In place of a category: graphs that were traced as a whole."""
_OTHER = "other"


def kernels_by_category(rank: RankView) -> dict[str, Intervals]:
    """Busy times of kernels by category, including communication; without a category `other`."""
    table = event_table(rank.tables, ("kernel",), ("start_ns", "dur_ns", "category"))
    starts, ends = row_spans(table)
    numbers, words = word_codes(table, "category")
    parts: dict[str, list[Intervals]] = {}
    for number in np.unique(numbers).tolist():
        in_category = numbers == number
        parts.setdefault(words[number] or _OTHER, []).append(
            intervals.union(starts[in_category], ends[in_category])
        )
    return {name: intervals.join(*pieces) for name, pieces in parts.items()}


def compute_by_category(rank: RankView) -> dict[str, Intervals]:
    """C by category, or `GRAPHS`; on a CPU the innermost operator of each thread counts."""
    if rank.on_host:
        return _ops_by_category(list(host_ops(rank.tables)))
    graphs = graph_times(rank)
    kernels = {name: times for name, times in kernels_by_category(rank).items() if name != "communication"}
    return kernels | ({GRAPHS: graphs} if len(graphs) else {})


def _ops_by_category(batches: list[HostOps]) -> dict[str, Intervals]:
    if not batches:
        return {}
    words = sorted({word or _OTHER for ops in batches for word in ops.categories})
    code_of = {word: number for number, word in enumerate(words)}
    numbers = [np.array([code_of[word or _OTHER] for word in ops.categories], np.int64) for ops in batches]
    category = np.concatenate([n[ops.category] for n, ops in zip(numbers, batches, strict=True)])
    track, starts, ends, works, calls, of_library = (
        np.concatenate([getattr(ops, name) for ops in batches])
        for name in ("track", "starts", "ends", "works", "calls", "of_library")
    )
    pieces: dict[str, list[Intervals]] = {}
    for thread in np.setdiff1d(track, track[of_library]).tolist():
        rows = np.flatnonzero((track == thread) & works)
        calling = (track == thread) & calls
        piece_starts, piece_ends, op = innermost_pieces(starts[rows], ends[rows])
        outside = intervals.union(starts[calling], ends[calling])
        kind = category[rows][op]
        for number in np.unique(kind).tolist():
            running = intervals.union(piece_starts[kind == number], piece_ends[kind == number])
            pieces.setdefault(words[number], []).append(intervals.subtract(running, outside))
    return {word: intervals.join(*parts) for word, parts in sorted(pieces.items())}


def innermost_pieces(starts: Int64, ends: Int64) -> tuple[Int64, Int64, Int64]:
    """The union of intervals in pieces, each with the index of the innermost interval, which began last.

    Of intervals that begin at once, the shortest counts. Returns starts, ends and indices, shape (pieces,).
    """
    full = np.flatnonzero(ends > starts)
    order = full[np.lexsort((-ends[full], starts[full]))]
    begin, end = starts[order], ends[order]
    parents = intervals.enclosing(end)
    until = np.append(begin[1:], np.iinfo(np.int64).max)
    pieces = [(begin, np.minimum(end, until), np.arange(len(order), dtype=np.int32))]
    since, top, until = end, parents, until
    while (remaining := (top >= 0) & (since < until)).any():
        since, top, until = since[remaining], top[remaining], until[remaining]
        pieces.append((since, np.minimum(end[top], until), top))
        since, top = end[top], parents[top]
    since, till, top = (np.concatenate(column) for column in zip(*pieces, strict=True))
    nonempty = till > since
    return since[nonempty], till[nonempty], order[top[nonempty]]


def window_shares(sets: dict[str, Intervals], window_starts: Int64, window_ends: Int64) -> Shared:
    """The time of each window in any of the sets, shared equally by the sets that overlap.

    Labels are the sets in their order, at most 63; windows are disjoint and in order.
    """
    by_crowd = dict(_times_by_crowd([*sets.values()], window_starts, window_ends))
    ns = np.array([*by_crowd.values()], np.int64)
    return Shared(tuple(by_crowd), ns.reshape(len(by_crowd), len(sets), len(window_starts)))


def _times_by_crowd(
    sets: Sequence[Intervals], window_starts: Int64, window_ends: Int64
) -> Iterator[tuple[int, Int64]]:
    """Yield the number of overlapping sets, and each set's time by window, shape (sets, windows)."""
    windows = len(window_starts)
    edges = [edge for s in sets for edge in (s.starts, s.ends)]
    # a set is a bit of a mask, added at the starts of its pieces and removed at their ends
    change = [np.repeat([1 << bit, -1 << bit], len(s)) for bit, s in enumerate(sets)]
    edge = np.concatenate([*edges, window_starts, window_ends])
    order = np.argsort(edge, kind="stable")
    edge = edge[order]
    running = np.cumsum(np.concatenate([*change, np.zeros(2 * windows, np.int64)])[order])[:-1]
    window = np.searchsorted(window_starts, edge[:-1], side="right") - 1
    length = np.where((window >= 0) & (edge[:-1] < window_ends[window]), np.diff(edge), 0)
    running_pieces = (length > 0) & (running > 0)
    masks, mask = np.unique(running[running_pieces], return_inverse=True)
    # sums of whole ns are exact in float64 up to 2^53 ns, a hundred days
    sums = np.bincount(mask * windows + window[running_pieces], length[running_pieces], len(masks) * windows)
    ns = sums.reshape(len(masks), windows).astype(np.int64)
    member = (masks[:, None] >> np.arange(len(sets))) & 1
    crowd = member.sum(axis=1)
    for number in np.unique(crowd).tolist():
        of_number = crowd == number
        yield number, member[of_number].T @ ns[of_number]
