# SPDX-License-Identifier: Apache-2.0
"""Where the step time goes: `time.step` split into parts that sum to it, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from cclbench.analyzers.metric import MATCHED, NotApplicable, Value, metric
from cclbench.analyzers.time import NO_GRAPHS, UNKNOWN_SPLIT, linked_idle
from cclbench.analyzers.view.categories import GRAPHS, compute_by_category, window_shares
from cclbench.analyzers.view.collectives import UNKNOWN, Label, sum_by_wider_label
from cclbench.analyzers.view.exposed import Shared
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, labelled_value
from cclbench.ground.intervals import Int64

PARTS: Final = {
    "compute": "compute",
    "graphs": "CUDA graphs",
    "exposed_transfer": "exposed transfer",
    "exposed_wait": "exposed wait",
    "exposed_unmatched": "exposed unmatched",
    "exposed_copy": "exposed copies",
    "idle_host": "host-bound idle",
    "idle_other": "other idle",
}
"""The parts of a step, and what people call them."""

_NUMBER: Final = {part: number for number, part in enumerate(PARTS)}
_CATCH_ALL: Final = {
    "exposed_wait": "exposed_unmatched",
    "exposed_transfer": "exposed_unmatched",
    "idle_host": "idle_other",
}
"""Where the time of a part is that a trace cannot tell."""


class StepPiece(NamedTuple):
    """What a stretch of time is of: a part, and within it a collective or a kernel category."""

    part: str
    label: Label | None = None
    category: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RankParts:
    """A rank's windows in pieces: `ns[i]`, of `pieces[piece[i]]` in `window[i]`, shared among `crowd[i]`.

    Arrays have shape (amounts,); amounts of zero are left out.
    """

    steps: tuple[int | None, ...]
    lengths: Int64
    """ns of each window, shape (windows,)."""
    pieces: tuple[StepPiece, ...]
    piece: Int64
    window: Int64
    crowd: Int64
    ns: Int64
    untold: Mapping[str, str]
    """Parts that this trace cannot tell, and why."""


def of_slowest_rank(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Of each step the slowest rank's window (the lowest such rank's); mean over steps of its parts."""
    found = {rank: own for rank, values in ranks.items() if isinstance(own := values[0].detail, RankParts)}
    slowest = _slowest_ranks(found)
    sums: dict[StepPiece, Fraction] = {}
    steps: dict[int, dict[str, Fraction]] = {}
    chosen = sorted({rank for rank, _ in slowest.values()})
    for rank in chosen:
        own = found[rank]
        numbered = {
            window: step
            for step, (of, window) in slowest.items()
            if of == rank and step is not None and window is not None
        }
        # A rank without step numbers counts with the mean of its windows.
        windows = sorted(numbered) or range(len(own.steps))
        divisor = len(slowest) * (1 if numbered else len(own.steps))
        for piece, amount in _piece_amounts(own, windows, divisor).items():
            sums[piece] = sums.get(piece, Fraction(0)) + amount
        for window, parts in _by_window(own, sorted(numbered)).items():
            steps[numbered[window]] = {p: parts.get(p, Fraction(0)) for p in PARTS if p not in own.untold}
    yield Value(value=_as_seconds(sum(sums.values(), Fraction(0))))
    yield from _part_values(sums, [found[rank] for rank in chosen])
    for step in sorted(steps):
        for part, ns in steps[step].items():
            yield Value(value=_as_seconds(ns), step=step, stat=part)


def _slowest_ranks(ranks: Mapping[int, RankParts]) -> dict[int | None, tuple[int, int | None]]:
    """By step the rank that takes longest and its window.

    As in `time.step`, a rank whose windows have no numbers counts with their mean, under None.
    """
    longest: dict[int | None, tuple[Fraction, int, int | None]] = {}
    for rank, own in sorted(ranks.items()):
        lengths: list[tuple[int | None, Fraction, int | None]] = [
            (step, Fraction(ns), window)
            for window, (step, ns) in enumerate(zip(own.steps, own.lengths.tolist(), strict=True))
            if step is not None
        ]
        for step, ns, window in lengths or [(None, Fraction(int(own.lengths.sum()), len(own.steps)), None)]:
            if step not in longest or ns > longest[step][0]:
                longest[step] = ns, rank, window
    return {step: (rank, window) for step, (_, rank, window) in longest.items()}


def _piece_amounts(own: RankParts, windows: Sequence[int], divisor: int) -> dict[StepPiece, Fraction]:
    """Exact ns of each piece over those windows, over `divisor`."""
    rows = np.isin(own.window, windows)
    sums: dict[StepPiece, Fraction] = {}
    for (piece, crowd), amount in _sum_alike(own.ns[rows], own.piece[rows], own.crowd[rows]):
        key = own.pieces[piece]
        sums[key] = sums.get(key, Fraction(0)) + Fraction(amount, crowd * divisor)
    return sums


def _sum_alike(ns: Int64, *keys: Int64) -> Iterator[tuple[list[int], int]]:
    """Sums of `ns` over the rows that are alike in all `keys`, with those; arrays of shape (rows,)."""
    places, place = np.unique(np.stack(keys), axis=1, return_inverse=True)
    sums = np.zeros(places.shape[1], np.int64)
    np.add.at(sums, place.ravel(), ns)
    return zip(places.T.tolist(), sums.tolist(), strict=True)


def _by_window(own: RankParts, windows: Sequence[int]) -> dict[int, dict[str, Fraction]]:
    """Exact ns of each part in each of those windows."""
    rows = np.isin(own.window, windows)
    part = np.array([_NUMBER[piece.part] for piece in own.pieces], np.int64)[own.piece[rows]]
    names = list(PARTS)
    found: dict[int, dict[str, Fraction]] = {window: {} for window in windows}
    for (window, number, crowd), amount in _sum_alike(own.ns[rows], own.window[rows], part, own.crowd[rows]):
        name = names[number]
        found[window][name] = found[window].get(name, Fraction(0)) + Fraction(amount, crowd)
    return found


def _part_values(sums: Mapping[StepPiece, Fraction], ranks: Sequence[RankParts]) -> Iterator[Value]:
    """Each part that any of those ranks can tell, and within it what it is of."""
    for part in PARTS:
        if all(part in one.untold for one in ranks):
            continue
        own = {piece: ns for piece, ns in sums.items() if piece.part == part}
        reasons = dict.fromkeys(
            why for one in ranks for lacking, why in one.untold.items() if _CATCH_ALL.get(lacking) == part
        )
        whole = _as_seconds(sum(own.values(), Fraction(0)))
        yield Value(value=whole, stat=part, reason="; ".join(reasons) or None)
        known = [piece.label for piece in own if piece.label]
        for label, ns in sum_by_wider_label(known, [ns for piece, ns in own.items() if piece.label]).items():
            yield labelled_value(label, _as_seconds(ns), stat=part)
        for piece, ns in own.items():
            if piece.category is not None:
                yield Value(value=_as_seconds(ns), stat=part, category=piece.category)


def _as_seconds(ns: Fraction) -> float:
    return float(ns / NS_PER_S)


@metric(
    "time.step_parts",
    definition="Where the step time goes: of each step the slowest rank's window, the one that time.step"
    " takes, split into parts (stat), mean over steps; they sum to time.step. compute is |C|, within it"
    " each instant is shared in equal parts among the kernel categories running (category; of a CPU's"
    " operators within one another the innermost counts); graphs is what CUDA graphs take of it that were"
    " traced whole: of what, is not recorded. exposed_transfer, exposed_wait and"
    " exposed_unmatched are exposed communication as time.exposed_* tell it, by kind, process group and"
    " parallel dimension (category), exposed_copy is time.exposed_copy, idle_host is time.idle_host and"
    " idle_other all other idle time. What a trace cannot tell is in exposed_unmatched or idle_other.",
    formula="W = |C| + exposed transfer + exposed wait + exposed unmatched + exposed copy + idle",
    unit="s",
    better="lower",
    inputs=("events", MATCHED, "steps"),
    not_applicable="the trace holds no work",
    combine=of_slowest_rank,
    rank_rows=False,
    graphs="counted",
)
def step_parts(rank: RankView) -> Value:
    w, parts = rank.windows, rank.parts
    untold: dict[str, str] = {}
    shared = [
        *_compute_pieces(rank, untold),
        *_exposed_pieces(rank, untold),
        ([StepPiece("exposed_copy")], _unshared_time(parts.exposed_copy)),
        *_idle_pieces(rank, untold),
    ]
    pieces: list[StepPiece] = []
    columns: list[tuple[Int64, Int64, Int64, Int64]] = []
    for named, amounts in shared:
        crowd, piece, window = np.nonzero(amounts.ns)
        crowds = np.array(amounts.crowds, np.int64)[crowd]
        columns.append((piece + len(pieces), window, crowds, amounts.ns[crowd, piece, window]))
        pieces += named
    piece, window, crowd, ns = (np.concatenate(column) for column in zip(*columns, strict=True))
    detail = RankParts(w.steps, parts.window, tuple(pieces), piece, window, crowd, ns, untold)
    return Value(value=w.total / (len(w) * NS_PER_S), detail=detail)


def _unshared_time(ns: Int64) -> Shared:
    """Time of one thing, shape (windows,), that it shares with nothing."""
    return Shared((1,), ns[None, None, :])


def _compute_pieces(rank: RankView, untold: dict[str, str]) -> Iterator[tuple[list[StepPiece], Shared]]:
    sets = compute_by_category(rank)
    if GRAPHS not in sets:
        untold["graphs"] = NO_GRAPHS
    pieces = [StepPiece("graphs") if name == GRAPHS else StepPiece("compute", category=name) for name in sets]
    yield pieces, window_shares(sets, rank.windows.starts, rank.windows.ends)


def _exposed_pieces(rank: RankView, untold: dict[str, str]) -> Iterator[tuple[list[StepPiece], Shared]]:
    exposed, whole = rank.exposed, rank.parts.exposed_comm
    sums = np.zeros((len(exposed.wait.crowds), len(whole)), np.int64)
    for part in ("transfer", "wait", "unmatched"):
        shared: Shared = getattr(exposed, part)
        yield [StepPiece(f"exposed_{part}", label) for label in exposed.labels], shared
        sums += shared.ns.sum(axis=1)
    # n collectives share each instant of a crowd of n, so its sum is n times its time.
    covered = sums // np.array(exposed.wait.crowds, np.int64)[:, None]
    yield (
        [StepPiece("exposed_unmatched", Label(collective=UNKNOWN))],
        _unshared_time(whole - covered.sum(axis=0)),
    )
    if whole.any() and not exposed.any_matched:
        untold |= dict.fromkeys(("exposed_transfer", "exposed_wait"), UNKNOWN_SPLIT)


def _idle_pieces(rank: RankView, untold: dict[str, str]) -> Iterator[tuple[list[StepPiece], Shared]]:
    idle = rank.parts.idle
    try:
        host = rank.inside(linked_idle(rank).host)
    except NotApplicable as why:
        untold["idle_host"], host = str(why), np.zeros_like(idle)
    yield [StepPiece("idle_host")], _unshared_time(host)
    yield [StepPiece("idle_other")], _unshared_time(idle - host)
