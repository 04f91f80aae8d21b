# SPDX-License-Identifier: Apache-2.0
"""Exposed communication by collective, split into wait and transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.collectives import Label, label_numbers
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals, Mask


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Time shared equally: `ns[i]`, shape (labels, windows), is shared by `crowds[i]` labels."""

    crowds: tuple[int, ...]
    ns: Int64

    def by_label(self) -> list[Fraction]:
        """Exact ns by label, over all windows."""
        return _divide_among(self.ns.sum(axis=2), self.crowds)

    def by_window(self, chosen: Mask | None = None) -> list[Fraction]:
        """Exact ns by window, of the labels in the mask or of all."""
        return _divide_among((self.ns if chosen is None else self.ns[:, chosen]).sum(axis=1), self.crowds)


def _divide_among(ns: Int64, crowds: Sequence[int]) -> list[Fraction]:
    sums = [Fraction(0)] * ns.shape[1]
    for n, row in zip(crowds, ns.tolist(), strict=True):
        sums = [sum_ + Fraction(part, n) for sum_, part in zip(sums, row, strict=True)]
    return sums


@dataclass(frozen=True, slots=True, eq=False)
class Exposed:
    """Exposed communication by label of collective and window.

    A collective waits until its last rank arrives, then transfers; one that is not matched across ranks is
    `unmatched`. One that lacks a rank's trace waits at least until the latest known arrival; its rest is
    `unmatched`.
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
        """Exact ns by label, wait and transfer together."""
        parts = (self.wait.by_label(), self.transfer.by_label(), self.unmatched.by_label())
        return [sum(amounts, Fraction(0)) for amounts in zip(*parts, strict=True)]


def split_exposed(
    collectives: pa.Table, alone: Intervals, window_starts: Int64, window_ends: Int64
) -> Exposed:
    """Share the time of `alone`, K \\ C, equally among the collectives that run at once."""
    label, labels = label_numbers(collectives)
    starts, ends = collectives["start_ns"].to_numpy(), collectives["end_ns"].to_numpy()
    matched = collectives["wait_ns"].is_valid().to_numpy()
    waited = collectives["wait_ns"].fill_null(collectives["least_wait_ns"])
    waits = waited.is_valid().to_numpy()
    latest = starts + waited.fill_null(0).to_numpy()
    cuts = np.concatenate([starts, latest, ends, window_starts, window_ends])
    edges, (exposed,) = intervals.atoms([alone], cuts)
    window = np.searchsorted(window_starts, edges[:-1], side="right") - 1
    inside = (window >= 0) & (edges[:-1] < window_ends[window])
    length = np.where(exposed & inside, np.diff(edges), 0)

    def running(begin: Int64, end: Int64) -> Int64:
        begin_edge, until = np.searchsorted(edges, begin), np.searchsorted(edges, end)
        size = len(edges)
        change = np.bincount(begin_edge, minlength=size) - np.bincount(until, minlength=size)
        return np.cumsum(change)[:-1]

    crowd = running(starts, ends)
    crowds = np.unique(crowd[(length > 0) & (crowd > 0)])
    windows = len(window_starts)
    place = np.searchsorted(crowds, crowd) * windows + window

    def shared(begin: Int64, end: Int64, label: Int64) -> Shared:
        ns = np.zeros((len(crowds), len(labels), windows), np.int64)
        for number in np.unique(label).tolist():
            of_label = label == number
            part = length * running(begin[of_label], end[of_label])
            nonzero = part > 0
            # sums of whole ns are exact in float64 up to 2^53 ns, a hundred days
            sums = np.bincount(place[nonzero], part[nonzero], minlength=len(crowds) * windows)
            ns[:, number, :] = sums.reshape(len(crowds), windows)
        return Shared(tuple(crowds.tolist()), ns)

    return Exposed(
        labels,
        wait=shared(starts[waits], latest[waits], label[waits]),
        transfer=shared(latest[matched], ends[matched], label[matched]),
        unmatched=shared(latest[~matched], ends[~matched], label[~matched]),
    )
