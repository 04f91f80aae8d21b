# SPDX-License-Identifier: Apache-2.0
"""Where the step time goes: `time.step` split into parts that sum to it exactly."""

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
"""The parts of a step, and their names for people."""

_NUMBER: Final = {part: number for number, part in enumerate(PARTS)}
_CATCH_ALL: Final = {
    "exposed_wait": "exposed_unmatched",
    "exposed_transfer": "exposed_unmatched",
    "idle_host": "idle_other",
}
"""The part that holds the time of a part that the trace cannot separate."""


class StepPiece(NamedTuple):
    """A part of the step, and within it a collective or a kernel category."""

    part: str
    label: Label | None = None
    category: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RankParts:
    """A rank's windows in pieces: `ns[i]` of `pieces[piece[i]]` in `window[i]`, shared by `crowd[i]` pieces.

    Arrays have shape (amounts,); zero amounts are left out.
    """

    steps: tuple[int | None, ...]
    lengths: Int64
    """Length of each window, ns, shape (windows,)."""
    pieces: tuple[StepPiece, ...]
    piece: Int64
    window: Int64
    crowd: Int64
    ns: Int64
    inseparable: Mapping[str, str]
    """Parts that this trace cannot separate, and why."""


def slowest_rank_parts(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Parts of the slowest rank's window of each step (the lowest rank in a tie); mean over steps."""
    parts_by_rank = {
        rank: rank_parts
        for rank, values in ranks.items()
        if isinstance(rank_parts := values[0].detail, RankParts)
    }
    slowest = _slowest_ranks(parts_by_rank)
    sums: dict[StepPiece, Fraction] = {}
    steps: dict[int, dict[str, Fraction]] = {}
    chosen = sorted({rank for rank, _ in slowest.values()})
    for rank in chosen:
        rank_parts = parts_by_rank[rank]
        numbered = {
            window: step
            for step, (slowest_rank, window) in slowest.items()
            if slowest_rank == rank and step is not None and window is not None
        }
        # a rank without step numbers counts with the mean of its windows
        windows = sorted(numbered) or range(len(rank_parts.steps))
        divisor = len(slowest) * (1 if numbered else len(rank_parts.steps))
        for piece, amount in _piece_amounts(rank_parts, windows, divisor).items():
            sums[piece] = sums.get(piece, Fraction(0)) + amount
        for window, parts in _by_window(rank_parts, sorted(numbered)).items():
            steps[numbered[window]] = {
                p: parts.get(p, Fraction(0)) for p in PARTS if p not in rank_parts.inseparable
            }
    yield Value(value=_as_seconds(sum(sums.values(), Fraction(0))))
    yield from _part_values(sums, [parts_by_rank[rank] for rank in chosen])
    for step in sorted(steps):
        for part, ns in steps[step].items():
            yield Value(value=_as_seconds(ns), step=step, stat=part)


def _slowest_ranks(ranks: Mapping[int, RankParts]) -> dict[int | None, tuple[int, int | None]]:
    """The slowest rank of each step, and its window.

    As in `time.step`, a rank whose windows have no numbers counts with their mean, as step None.
    """
    longest: dict[int | None, tuple[Fraction, int, int | None]] = {}
    for rank, parts in sorted(ranks.items()):
        lengths: list[tuple[int | None, Fraction, int | None]] = [
            (step, Fraction(ns), window)
            for window, (step, ns) in enumerate(zip(parts.steps, parts.lengths.tolist(), strict=True))
            if step is not None
        ]
        for step, ns, window in lengths or [
            (None, Fraction(int(parts.lengths.sum()), len(parts.steps)), None)
        ]:
            if step not in longest or ns > longest[step][0]:
                longest[step] = ns, rank, window
    return {step: (rank, window) for step, (_, rank, window) in longest.items()}


def _piece_amounts(parts: RankParts, windows: Sequence[int], divisor: int) -> dict[StepPiece, Fraction]:
    """Exact ns of each piece in these windows, divided by `divisor`."""
    rows = np.isin(parts.window, windows)
    sums: dict[StepPiece, Fraction] = {}
    for (piece, crowd), amount in _sum_alike(parts.ns[rows], parts.piece[rows], parts.crowd[rows]):
        key = parts.pieces[piece]
        sums[key] = sums.get(key, Fraction(0)) + Fraction(amount, crowd * divisor)
    return sums


def _sum_alike(ns: Int64, *keys: Int64) -> Iterator[tuple[list[int], int]]:
    """Keys and sums of `ns` over the rows with equal `keys`; arrays of shape (rows,)."""
    places, place = np.unique(np.stack(keys), axis=1, return_inverse=True)
    sums = np.zeros(places.shape[1], np.int64)
    np.add.at(sums, place.ravel(), ns)
    return zip(places.T.tolist(), sums.tolist(), strict=True)


def _by_window(parts: RankParts, windows: Sequence[int]) -> dict[int, dict[str, Fraction]]:
    """Exact ns of each part in each of these windows."""
    rows = np.isin(parts.window, windows)
    part = np.array([_NUMBER[piece.part] for piece in parts.pieces], np.int64)[parts.piece[rows]]
    names = list(PARTS)
    by_part: dict[int, dict[str, Fraction]] = {window: {} for window in windows}
    for (window, number, crowd), amount in _sum_alike(
        parts.ns[rows], parts.window[rows], part, parts.crowd[rows]
    ):
        name = names[number]
        by_part[window][name] = by_part[window].get(name, Fraction(0)) + Fraction(amount, crowd)
    return by_part


def _part_values(sums: Mapping[StepPiece, Fraction], ranks: Sequence[RankParts]) -> Iterator[Value]:
    """Each part that any of these ranks can separate, and its breakdown."""
    for part in PARTS:
        if all(part in rank_parts.inseparable for rank_parts in ranks):
            continue
        in_part = {piece: ns for piece, ns in sums.items() if piece.part == part}
        reasons = dict.fromkeys(
            why
            for rank_parts in ranks
            for lacking, why in rank_parts.inseparable.items()
            if _CATCH_ALL.get(lacking) == part
        )
        total = _as_seconds(sum(in_part.values(), Fraction(0)))
        yield Value(value=total, stat=part, reason="; ".join(reasons) or None)
        labels = [piece.label for piece in in_part if piece.label]
        for label, ns in sum_by_wider_label(
            labels, [ns for piece, ns in in_part.items() if piece.label]
        ).items():
            yield labelled_value(label, _as_seconds(ns), stat=part)
        for piece, ns in in_part.items():
            if piece.category is not None:
                yield Value(value=_as_seconds(ns), stat=part, category=piece.category)


def _as_seconds(ns: Fraction) -> float:
    return float(ns / NS_PER_S)


@metric(
    "time.step_parts",
    definition="Where the step time goes: the window of each step's slowest rank, as in time.step, split into"
    " parts (stat), mean over steps; they sum to time.step. compute is |C|, shared equally among the kernel"
    " categories that run at once (category; on a CPU the innermost operator counts); graphs is the compute"
    " time of CUDA graphs that were traced as a whole. exposed_transfer, exposed_wait and exposed_unmatched"
    " are exposed communication as in time.exposed_*, by kind, process group and parallel dimension"
    " (category), exposed_copy is time.exposed_copy, idle_host is time.idle_host and idle_other all other"
    " idle time. What a trace cannot separate is in exposed_unmatched or idle_other.",
    formula="W = |C| + exposed transfer + exposed wait + exposed unmatched + exposed copy + idle",
    unit="s",
    better="lower",
    inputs=("events", MATCHED, "steps"),
    not_applicable="the trace has no work",
    combine=slowest_rank_parts,
    rank_rows=False,
    graphs="counted",
)
def step_parts(rank: RankView) -> Value:
    w, parts = rank.windows, rank.parts
    inseparable: dict[str, str] = {}
    shared = [
        *_compute_pieces(rank, inseparable),
        *_exposed_pieces(rank, inseparable),
        ([StepPiece("exposed_copy")], _unshared_time(parts.exposed_copy)),
        *_idle_pieces(rank, inseparable),
    ]
    pieces: list[StepPiece] = []
    columns: list[tuple[Int64, Int64, Int64, Int64]] = []
    for named, amounts in shared:
        crowd, piece, window = np.nonzero(amounts.ns)
        crowds = np.array(amounts.crowds, np.int64)[crowd]
        columns.append((piece + len(pieces), window, crowds, amounts.ns[crowd, piece, window]))
        pieces += named
    piece, window, crowd, ns = (np.concatenate(column) for column in zip(*columns, strict=True))
    detail = RankParts(w.steps, parts.window, tuple(pieces), piece, window, crowd, ns, inseparable)
    return Value(value=w.total / (len(w) * NS_PER_S), detail=detail)


def _unshared_time(ns: Int64) -> Shared:
    """Time of a single piece, shape (windows,), not shared with others."""
    return Shared((1,), ns[None, None, :])


def _compute_pieces(rank: RankView, inseparable: dict[str, str]) -> Iterator[tuple[list[StepPiece], Shared]]:
    sets = compute_by_category(rank)
    if GRAPHS not in sets:
        inseparable["graphs"] = NO_GRAPHS
    pieces = [StepPiece("graphs") if name == GRAPHS else StepPiece("compute", category=name) for name in sets]
    yield pieces, window_shares(sets, rank.windows.starts, rank.windows.ends)


def _exposed_pieces(rank: RankView, inseparable: dict[str, str]) -> Iterator[tuple[list[StepPiece], Shared]]:
    exposed, exposed_ns = rank.exposed, rank.parts.exposed_comm
    sums = np.zeros((len(exposed.wait.crowds), len(exposed_ns)), np.int64)
    for part in ("transfer", "wait", "unmatched"):
        shared: Shared = getattr(exposed, part)
        yield [StepPiece(f"exposed_{part}", label) for label in exposed.labels], shared
        sums += shared.ns.sum(axis=1)
    # n overlapping collectives are counted n times
    covered = sums // np.array(exposed.wait.crowds, np.int64)[:, None]
    yield (
        [StepPiece("exposed_unmatched", Label(collective=UNKNOWN))],
        _unshared_time(exposed_ns - covered.sum(axis=0)),
    )
    if exposed_ns.any() and not exposed.any_matched:
        inseparable |= dict.fromkeys(("exposed_transfer", "exposed_wait"), UNKNOWN_SPLIT)


def _idle_pieces(rank: RankView, inseparable: dict[str, str]) -> Iterator[tuple[list[StepPiece], Shared]]:
    idle = rank.parts.idle
    try:
        host = rank.inside(linked_idle(rank).host)
    except NotApplicable as why:
        inseparable["idle_host"], host = str(why), np.zeros_like(idle)
    yield [StepPiece("idle_host")], _unshared_time(host)
    yield [StepPiece("idle_other")], _unshared_time(idle - host)
