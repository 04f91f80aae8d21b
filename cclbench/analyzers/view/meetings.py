# SPDX-License-Identifier: Apache-2.0
"""Instances of collectives with all their ranks' arrivals."""

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
"""Number of rows that are processed at a time, approximately."""
_COLUMNS: Final = ("rank", "arrival_ns", "before", "spent", "step", "label")
"""Fields of `CollectiveInstances` whose last axis is the rows."""


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveInstances:
    """Instances with all their ranks' arrivals; arrays of shape (rows,), ordered by (instance, arrival).

    `first`: row of each instance's earliest rank, `count`: its number of ranks, shape (instances,); `label`:
    a code into `labels`. `incomplete`: number of instances that lack a rank and are left out.
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

    def select_instances(self, chosen: Mask) -> CollectiveInstances:
        """The instances of a mask, shape (instances,)."""
        return self._take_rows(np.repeat(chosen, self.count), self.count[chosen])

    def of_groups(self) -> CollectiveInstances:
        """Instances other than sends and receives, where one side waits by design; or `NotApplicable`."""
        pairs = [number for number, label in enumerate(self.labels) if label.collective in PAIRS]
        chosen = ~np.isin(self.label[self.first], pairs)
        if not chosen.any():
            raise NotApplicable(
                "all matched collectives are sends and receives, in which one side waits by design"
            )
        return self if chosen.all() else self.select_instances(chosen)

    def parts(self) -> Iterator[CollectiveInstances]:
        """The instances in parts of about `_ROWS` rows: 10,000 ranks have millions."""
        cuts = np.unique(np.searchsorted(self.first, np.arange(0, len(self.rank), _ROWS), side="right")) - 1
        for since, until in pairwise([*cuts.tolist(), len(self.count)]):
            count = self.count[since:until]
            begin = int(self.first[since])
            yield self._take_rows(slice(begin, begin + int(count.sum())), count)

    def _take_rows(self, rows: Mask | Int64 | slice, count: Int64) -> CollectiveInstances:
        return replace(
            self,
            **{name: getattr(self, name)[..., rows] for name in _COLUMNS},
            first=np.cumsum(count) - count,
            count=count,
        )

    @property
    def instance_of_row(self) -> Int64:
        """Index of each row's instance, shape (rows,)."""
        return np.repeat(np.arange(len(self.count)), self.count)

    @property
    def latest_ns(self) -> Int64:
        """Arrival of the last rank, shape (instances,)."""
        return np.asarray(self.arrival_ns[self.first + self.count - 1])

    @property
    def earliest_ns(self) -> Int64:
        """Arrival of the first rank, shape (instances,)."""
        return np.asarray(self.arrival_ns[self.first])


def rank_meetings(ranks: Mapping[int, Sequence[Value]]) -> CollectiveInstances:
    """Instances from the ranks' `Arrivals` (the detail of their first value).

    `NotApplicable` where none has all its ranks.
    """
    parts = parts_of(ranks)
    label_codes: dict[Label, int] = {}
    numbers = [
        np.array([label_codes.setdefault(label, len(label_codes)) for label in part.labels], np.int32)[
            part.label
        ]
        for part in parts.values()
    ]
    sizes = [len(part.instance) for part in parts.values()]

    def column(name: str) -> Int64:
        return np.concatenate([getattr(part, name) for part in parts.values()], axis=-1)

    instance = column("instance")
    order = np.lexsort((column("arrival_ns"), instance))
    first = np.flatnonzero(begins(instance[order]))
    count = np.diff(np.append(first, len(order)))
    complete = count == column("members")[order[first]]
    if not complete.any():
        raise NotApplicable("no collective has all its ranks among the selected ones")
    order, count = order[np.repeat(complete, count)], count[complete]
    return CollectiveInstances(
        rank=np.repeat(np.array([*parts], np.int32), sizes)[order],
        label=np.concatenate(numbers)[order],
        **{name: column(name)[..., order] for name in ("arrival_ns", "before", "spent", "step")},
        labels=[*label_codes],
        first=np.cumsum(count) - count,
        count=count,
        incomplete=int((~complete).sum()),
    )


def parts_of(ranks: Mapping[int, Sequence[Value]]) -> dict[int, Arrivals]:
    """Each rank's `Arrivals`, ordered by rank."""
    details: Iterable[tuple[int, object]] = ((rank, ranks[rank][0].detail) for rank in sorted(ranks))
    return {rank: detail for rank, detail in details if isinstance(detail, Arrivals)}


def value_over_instances(
    ranks: Mapping[int, Sequence[Value]], instances: CollectiveInstances, value: float, reason: str
) -> Value:
    """A value over instances, with the ranks' left-out counts and the number of incomplete instances."""
    firsts = [values[0] for values in ranks.values()]
    incomplete = {"instances that lack a rank in the windows": instances.incomplete}
    return Value(
        value=value,
        reason=reason,
        left_out={**total_left_out(firsts), **incomplete},
        coverage=total_coverage(firsts),
    )
