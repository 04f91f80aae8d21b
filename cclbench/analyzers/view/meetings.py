# SPDX-License-Identifier: Apache-2.0
"""Instances of collectives with all their ranks' arrivals: what the ranks' parts make up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from cclbench.analyzers.metric import NotApplicable, Value, total_coverage, total_left_out
from cclbench.analyzers.view.arrivals import PAIRS, Arrivals
from cclbench.analyzers.view.collectives import Label
from cclbench.ground.intervals import Int64, Mask, begins

_ROWS: Final = 1 << 17
"""About how many rows are worked on at a time."""
_COLUMNS: Final = ("rank", "arrival_ns", "before", "spent", "step", "label")
"""Those of `CollectiveInstances` whose last axis is its rows."""


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveInstances:
    """Instances with all their ranks' arrivals: rows in order of (instance, arrival), shape (rows,).

    `first` is the row of each instance's earliest rank, `count` its ranks, shape (instances,); `of` is the
    instance's place of each row, `label` a code into `labels`.  `incomplete` instances lack a rank here and
    are left out.
    """

    rank: Int64
    arrival_ns: Int64
    before: Int64
    spent: Int64
    step: Int64
    label: Int64
    labels: list[Label]
    first: Int64
    count: Int64
    incomplete: int

    def select_instances(self, kept: Mask) -> CollectiveInstances:
        """Some of the instances, of shape (instances,)."""
        return self._of_rows(np.repeat(kept, self.count), self.count[kept])

    def of_groups(self) -> CollectiveInstances:
        """Without sends and receives, in which one side waits by design; not applicable without any left."""
        pairs = [number for number, one in enumerate(self.labels) if one.collective in PAIRS]
        kept = ~np.isin(self.label[self.first], pairs)
        if not kept.any():
            raise NotApplicable(
                "all matched collectives are sends and receives, in which one side waits by design"
            )
        return self if kept.all() else self.select_instances(kept)

    def parts(self) -> Iterator[CollectiveInstances]:
        """The instances, some `_ROWS` rows of them at a time: of 10,000 ranks there are millions."""
        cuts = np.unique(np.searchsorted(self.first, np.arange(0, len(self.rank), _ROWS), side="right")) - 1
        for since, until in pairwise([*cuts.tolist(), len(self.count)]):
            count = self.count[since:until]
            begin = int(self.first[since])
            yield self._of_rows(slice(begin, begin + int(count.sum())), count)

    def _of_rows(self, rows: Mask | Int64 | slice, count: Int64) -> CollectiveInstances:
        return replace(
            self,
            **{name: getattr(self, name)[..., rows] for name in _COLUMNS},
            first=np.cumsum(count) - count,
            count=count,
        )

    @property
    def of(self) -> Int64:
        """The number of each row's instance, from 0."""
        return np.repeat(np.arange(len(self.count)), self.count)

    @property
    def latest_ns(self) -> Int64:
        """When the last rank arrives, shape (instances,)."""
        return np.asarray(self.arrival_ns[self.first + self.count - 1])

    @property
    def earliest_ns(self) -> Int64:
        """When the first rank arrives, shape (instances,)."""
        return np.asarray(self.arrival_ns[self.first])


def rank_meetings(ranks: Mapping[int, Sequence[Value]]) -> CollectiveInstances:
    """The instances that the ranks' `Arrivals` (their first value's detail) make up.

    Not applicable where none has all its ranks.
    """
    parts = parts_of(ranks)
    known: dict[Label, int] = {}
    numbers = [
        np.array([known.setdefault(one, len(known)) for one in part.labels], np.int32)[part.label]
        for part in parts.values()
    ]
    sizes = [len(part.instance) for part in parts.values()]

    def column(name: str) -> Int64:
        return np.concatenate([getattr(part, name) for part in parts.values()], axis=-1)

    instance = column("instance")
    order = np.lexsort((column("arrival_ns"), instance))
    first = np.flatnonzero(begins(instance[order]))
    count = np.diff(np.append(first, len(order)))
    whole = count == column("members")[order[first]]
    if not whole.any():
        raise NotApplicable("no collective has all its ranks among those in view")
    order, count = order[np.repeat(whole, count)], count[whole]
    return CollectiveInstances(
        rank=np.repeat(np.array([*parts], np.int32), sizes)[order],
        label=np.concatenate(numbers)[order],
        **{name: column(name)[..., order] for name in ("arrival_ns", "before", "spent", "step")},
        labels=[*known],
        first=np.cumsum(count) - count,
        count=count,
        incomplete=int((~whole).sum()),
    )


def parts_of(ranks: Mapping[int, Sequence[Value]]) -> dict[int, Arrivals]:
    """Each rank's `Arrivals`, in order of rank."""
    found: Iterable[tuple[int, object]] = ((rank, ranks[rank][0].detail) for rank in sorted(ranks))
    return {rank: detail for rank, detail in found if isinstance(detail, Arrivals)}


def of_instances(
    ranks: Mapping[int, Sequence[Value]], found: CollectiveInstances, value: float, reason: str
) -> Value:
    """A figure over those instances; it leaves out what the ranks do, and instances that lack a rank here."""
    firsts = [values[0] for values in ranks.values()]
    incomplete = {"instances that not all their ranks have in a window": found.incomplete}
    return Value(
        value=value,
        reason=reason,
        left_out={**total_left_out(firsts), **incomplete},
        coverage=total_coverage(firsts),
    )
