# SPDX-License-Identifier: Apache-2.0
"""Overlap: how much of the communication hides behind compute, and which of it does not."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from cclbench import intervals
from cclbench.analyzers.labels import Label, labels
from cclbench.analyzers.metric import NotApplicable, Value, metric
from cclbench.analyzers.values import NS_PER_S, share
from cclbench.analyzers.view import RankView
from cclbench.intervals import Int64

_NO_COMMUNICATION = "the rank runs no communication in the window"


@metric(
    "overlap.ratio",
    definition="Share of the communication time that is hidden behind compute.",
    formula="|C∩K| / |K|",
    unit="1",
    better="higher",
    not_applicable=_NO_COMMUNICATION,
)
def ratio(rank: RankView) -> Iterator[Value]:
    p = rank.parts
    yield from share(rank, p.overlapped, p.overlapped + p.exposed_comm, of="communication")


@metric(
    "overlap.efficiency",
    definition="How much of what could overlap did: at most the shorter of compute and communication can.",
    formula="Σ |C∩K| / Σ min(|C|, |K|), step by step",
    unit="1",
    better="higher",
    not_applicable="the rank runs no communication or no compute in the window",
)
def efficiency(rank: RankView) -> Iterator[Value]:
    p = rank.parts
    shorter = p.overlapped + np.minimum(p.compute_only, p.exposed_comm)
    yield from share(rank, p.overlapped, shorter, of="compute or no communication")


@metric(
    "overlap.exposed_by",
    definition="Exposed communication time by collective kind, process group and parallel dimension"
    " (category). Each instant goes to the collectives running in it, in equal parts; 'unknown' is what"
    " runs outside any collective of the table. The kinds sum to time.exposed_comm.",
    formula="Σ over instants t in K \\ C of running_x(t) / running(t), per step",
    unit="s",
    better="lower",
    inputs=("events", "collectives", "steps"),
    not_applicable=_NO_COMMUNICATION,
)
def exposed_by(rank: RankView) -> Iterator[Value]:
    if not len(rank.communication):
        raise NotApplicable(_NO_COMMUNICATION)
    steps, total = len(rank.windows), int(rank.parts.exposed_comm.sum())
    table = rank.tables.collectives()
    label, known = labels(table)
    exposed = _exposed(rank, table["start_ns"].to_numpy(), table["end_ns"].to_numpy(), label, len(known))
    kinds: dict[Label, Fraction] = {}
    for one, ns in zip(known, exposed, strict=True):
        for key in one.wider():
            kinds[key] = kinds.get(key, Fraction(0)) + ns
    rest = total - sum(exposed)
    if rest:
        unknown = Label(collective="unknown")
        kinds[unknown] = kinds.get(unknown, Fraction(0)) + rest
    yield Value(value=total / (steps * NS_PER_S))
    for key, ns in kinds.items():
        yield Value(
            value=float(ns / (steps * NS_PER_S)),
            collective=key.collective,
            group=key.group,
            category=key.dimension,
        )


def _exposed(
    rank: RankView, starts: Int64, ends: Int64, label: npt.NDArray[np.int64], count: int
) -> list[Fraction]:
    """Exposed ns of each label, exact: of every piece of exposed time the running ones' equal parts."""
    w = rank.windows
    alone = intervals.subtract(rank.communication, rank.compute)
    edges, (exposed,) = intervals.atoms([alone], np.concatenate([starts, ends, w.starts, w.ends]))
    in_window = rank.window_of(edges[:-1]) >= 0
    length = np.where(exposed & in_window, np.diff(edges), 0)

    def running(chosen: npt.NDArray[np.bool_]) -> Int64:
        at, until = np.searchsorted(edges, starts[chosen]), np.searchsorted(edges, ends[chosen])
        size = len(edges)
        change = np.bincount(at, minlength=size) - np.bincount(until, minlength=size)
        return np.cumsum(change)[:-1]

    everyone = running(np.ones(len(starts), np.bool_))
    parts = []
    for number in range(count):
        shared = length * running(label == number)
        crowds = np.unique(everyone[shared > 0]).tolist()
        parts.append(sum((Fraction(int(shared[everyone == n].sum()), n) for n in crowds), Fraction(0)))
    return parts
