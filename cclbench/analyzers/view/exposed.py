# SPDX-License-Identifier: Apache-2.0
"""Whose the exposed communication is: each instant's collectives, waiting told apart from transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.view.collectives import Label, label_numbers
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals, Mask


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Time shared in equal parts: `ns[i]`, shape (labels, windows), is divided among `crowds[i]`."""

    crowds: tuple[int, ...]
    ns: Int64

    def by_label(self) -> list[Fraction]:
        """Exact ns of each label, over all windows."""
        return _divide_among(self.ns.sum(axis=2), self.crowds)

    def by_window(self, chosen: Mask | None = None) -> list[Fraction]:
        """Exact ns of each window, of the labels in the mask or of all."""
        return _divide_among((self.ns if chosen is None else self.ns[:, chosen]).sum(axis=1), self.crowds)


def _divide_among(ns: Int64, crowds: Sequence[int]) -> list[Fraction]:
    whole = [Fraction(0)] * ns.shape[1]
    for n, row in zip(crowds, ns.tolist(), strict=True):
        whole = [sum_ + Fraction(part, n) for sum_, part in zip(whole, row, strict=True)]
    return whole


@dataclass(frozen=True, slots=True, eq=False)
class Exposed:
    """The exposed communication of each window, by label of collective.

    A collective waits until its latest rank arrives and transfers from then on; of a collective that
    was not matched across ranks nobody knows, and it is `unmatched`.  One that lacks some rank's trace waits
    at least until the latest arrival that is seen: the rest of it is `unmatched`.
    """

    labels: list[Label]
    wait: Shared
    transfer: Shared
    unmatched: Shared

    @property
    def any_matched(self) -> bool:
        """Whether any exposed collective is matched."""
        return bool(self.wait.ns.any() or self.transfer.ns.any())

    def by_label(self) -> list[Fraction]:
        """Exact ns of each label, waiting or not."""
        parts = (self.wait.by_label(), self.transfer.by_label(), self.unmatched.by_label())
        return [sum(own, Fraction(0)) for own in zip(*parts, strict=True)]


def split_exposed(
    collectives: pa.Table, alone: Intervals, window_starts: Int64, window_ends: Int64
) -> Exposed:
    """Share each instant of `alone`, which is K \\ C, among the collectives that run in it."""
    label, known = label_numbers(collectives)
    starts, ends = collectives["start_ns"].to_numpy(), collectives["end_ns"].to_numpy()
    matched = collectives["wait_ns"].is_valid().to_numpy()
    waited = pc.coalesce(collectives["wait_ns"], collectives["least_wait_ns"])
    waits = waited.is_valid().to_numpy()
    latest = starts + waited.fill_null(0).to_numpy()
    cuts = np.concatenate([starts, latest, ends, window_starts, window_ends])
    edges, (exposed,) = intervals.atoms([alone], cuts)
    window = np.searchsorted(window_starts, edges[:-1], side="right") - 1
    inside = (window >= 0) & (edges[:-1] < window_ends[window])
    length = np.where(exposed & inside, np.diff(edges), 0)

    def running(begin: Int64, end: Int64) -> Int64:
        at, until = np.searchsorted(edges, begin), np.searchsorted(edges, end)
        size = len(edges)
        change = np.bincount(at, minlength=size) - np.bincount(until, minlength=size)
        return np.cumsum(change)[:-1]

    crowd = running(starts, ends)
    crowds = np.unique(crowd[(length > 0) & (crowd > 0)])
    windows = len(window_starts)
    place = np.searchsorted(crowds, crowd) * windows + window

    def shared(begin: Int64, end: Int64, label: Int64) -> Shared:
        ns = np.zeros((len(crowds), len(known), windows), np.int64)
        for number in np.unique(label).tolist():
            own = label == number
            part = length * running(begin[own], end[own])
            here = part > 0
            # Sums of whole ns stay exact in float64 up to 2^53 ns, a hundred days.
            sums = np.bincount(place[here], part[here], minlength=len(crowds) * windows)
            ns[:, number, :] = sums.reshape(len(crowds), windows)
        return Shared(tuple(crowds.tolist()), ns)

    return Exposed(
        known,
        wait=shared(starts[waits], latest[waits], label[waits]),
        transfer=shared(latest[matched], ends[matched], label[matched]),
        unmatched=shared(latest[~matched], ends[~matched], label[~matched]),
    )
