# SPDX-License-Identifier: Apache-2.0
"""Instances of collectives with all their ranks' arrivals: what the ranks' parts make up, some at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cclbench.analyzers.metric import NotApplicable, Value, total_coverage, total_left_out
from cclbench.analyzers.view.arrivals import PAIRS, SPENT, Arrivals
from cclbench.analyzers.view.collectives import Label
from cclbench.disk_columns import DiskTable, release
from cclbench.disk_order import cuts, parted
from cclbench.intervals import Int64, Mask, begins

_ROWS: Final = 1 << 17
"""About how many rows are in memory at a time."""
_COLUMNS: Final = ("rank", "arrival_ns", "before", "spent", "step", "label")
"""Those of `Instances` whose last axis is its rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Instances:
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

    def chosen(self, kept: Mask) -> Instances:
        """Some of the instances, of shape (instances,)."""
        return self._of_rows(np.repeat(kept, self.count), self.count[kept])

    def by(self, key: Int64) -> dict[int, Instances]:
        """The instances of each key, of shape (instances,), in order of the key."""
        order = np.argsort(key, kind="stable")
        count = self.count[order]
        begin = np.cumsum(count) - count
        row = np.repeat(self.first[order] - begin, count) + np.arange(len(self.rank))
        sorted_ = self._of_rows(row, count)
        keys, cuts = np.unique(key[order], return_index=True)
        ends = [*cuts[1:].tolist(), len(order)]
        rows = [*begin.tolist(), len(row)]
        return {
            one: sorted_._of_rows(slice(rows[cut], rows[end]), count[cut:end])
            for one, cut, end in zip(keys.tolist(), cuts.tolist(), ends, strict=True)
        }

    def _of_rows(self, rows: Mask | Int64 | slice, count: Int64) -> Instances:
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


class CollectiveInstances:
    """Instances of which all ranks' arrivals wait on disk: iterated over, some at a time, in a fixed order.

    `incomplete` instances lack a rank here and are left out; `labels` are those of all rows.
    """

    def __init__(self, rows: DiskTable, labels: list[Label]) -> None:
        """`rows` as `Instances` has them, with `instance` and how many `members` it has, in rank order.

        Not applicable where no instance is complete.
        """
        self._rows, self.labels = rows, labels
        self._pairs = [n for n, one in enumerate(labels) if one.collective in PAIRS]
        self._left_out: list[int] = []
        self.incomplete = complete = 0
        self._has_groups = False
        for chosen, count, incomplete in self._complete():
            self.incomplete += incomplete
            complete += len(count)
            self._has_groups |= not np.isin(self._column("label", chosen), self._pairs).all()
        if not complete:
            raise NotApplicable("no collective has all its ranks among those in view")

    def of_groups(self) -> CollectiveInstances:
        """Without sends and receives, in which one side waits by design; not applicable without any left."""
        if not self._has_groups:
            raise NotApplicable(
                "all matched collectives are sends and receives, in which one side waits by design"
            )
        found = copy(self)
        found._left_out = self._pairs
        return found

    def __iter__(self) -> Iterator[Instances]:
        for rows, count, incomplete in self._complete():
            some = Instances(
                **{name: self._column(name, rows) for name in _COLUMNS if name != "spent"},
                spent=np.array([self._column(name, rows) for name in SPENT], np.int64),
                labels=self.labels,
                first=np.cumsum(count) - count,
                count=count,
                incomplete=incomplete,
            )
            kept = ~np.isin(some.label[some.first], self._left_out)
            if kept.any():
                yield some if kept.all() else some.chosen(kept)

    def whole(self) -> Instances:
        """All of them at once."""
        parts = list(self)
        count = np.concatenate([part.count for part in parts])

        def column(name: str) -> Int64:
            return np.concatenate([getattr(part, name) for part in parts], axis=-1)

        return Instances(
            **{name: column(name) for name in _COLUMNS},
            labels=self.labels,
            first=np.cumsum(count) - count,
            count=count,
            incomplete=self.incomplete,
        )

    def _complete(self) -> Iterator[tuple[Int64, Int64, int]]:
        """The rows of some complete instances in order, how many each has, and how many others there are."""
        number = self._rows["instance"]
        for chosen in parted(number, cuts(_ROWS, number)):
            instance = self._column("instance", chosen)
            order = np.lexsort((self._column("arrival_ns", chosen), instance))
            first = np.flatnonzero(begins(instance[order]))
            count = np.diff(np.append(first, len(order)))
            whole = count == self._column("members", chosen[order][first])
            yield chosen[order][np.repeat(whole, count)], count[whole], int((~whole).sum())

    def _column(self, name: str, rows: Int64) -> Int64:
        values: Int64 = self._rows[name][rows]
        self._rows.release()
        return values


def meetings(ranks: Mapping[int, Sequence[Value]]) -> CollectiveInstances:
    """The instances that the ranks' `Arrivals` (their first value's detail) make up."""
    rows = DiskTable(
        rank=np.int32,
        instance=np.int64,
        arrival_ns=np.int64,
        members=np.int32,
        before=np.int64,
        step=np.int64,
        label=np.int32,
        **dict.fromkeys(SPENT, np.int64),
    )
    known: dict[Label, int] = {}
    read = 0
    for rank, part in parts_of(ranks).items():
        labels = np.array([known.setdefault(one, len(known)) for one in part.labels], np.int32)
        rows.append(
            rank=np.full(len(part.instance), rank, np.int32),
            label=labels[part.label],
            **{name: getattr(part, name) for name in ("instance", "arrival_ns", "members", "before", "step")},
            **dict(zip(SPENT, part.spent, strict=True)),
        )
        read += len(part.instance)
        if read > _ROWS:
            release(part)  # and with it all that were read of the same file
            read = 0
    return CollectiveInstances(rows, [*known])


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
