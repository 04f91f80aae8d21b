# SPDX-License-Identifier: Apache-2.0
"""Waiting told apart from transfer, in collectives matched across ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.metric import MATCHED, Value, metric
from cclbench.analyzers.view.arrivals import Matched, arrivals_of, matched_in_windows, no_matched_error
from cclbench.analyzers.view.collectives import Label, label_numbers
from cclbench.analyzers.view.meetings import CollectiveInstances, of_instances, rank_meetings
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, labelled_value, per_step, spread_values
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64

_seconds = partial(
    metric,
    unit="s",
    better="lower",
    inputs=("events", MATCHED, "steps"),
    not_applicable="none of the window's collectives is matched across all the ranks of its group",
)
AT_ONCE: Final = "collectives of several groups run at once: the rows of kinds and groups overlap"
_OF = (
    " The rank's own figure is a union: collectives that run at once take their time once. By kind, by"
    " process group, by parallel dimension (category); these may overlap, so that they need not add up."
    " Collectives that are not matched are left out and counted: the figure is partial then."
)


@_seconds(
    "comm.wait",
    definition="Time in which some collective waits for its last rank. Of a collective that lacks some rank's"
    f" trace, the latest arrival that is seen: a lower bound.{_OF}",
    formula="|∪ [own arrival, min(latest arrival, end))|, per step",
    version=2,
)
def wait(rank: RankView) -> Iterator[Value]:
    here, found = matched_in_windows(rank)
    if not here["least_wait_ns"].is_valid().to_numpy().any() and not found.complete.any():
        raise no_matched_error(found)
    table = rank.all_collectives
    waited = pc.coalesce(table["wait_ns"], table["least_wait_ns"])
    table, bounds = table.filter(waited.is_valid()), here["least_wait_ns"].is_valid().to_numpy().sum()
    starts = table["start_ns"].to_numpy()
    reason = f"a lower bound: {bounds} collectives lack some rank's trace" if bounds else None
    yield from _union_values(rank, table, starts, starts + waited.drop_null().to_numpy(), found, reason)


@_seconds(
    "comm.transfer",
    definition=f"Time in which some collective runs whose last rank has arrived.{_OF} Where none is matched,"
    " modelled on the machine of card or catalog, by kind.",
    formula="|∪ [latest arrival, end)|, per step",
    version=2,
)
def transfer(rank: RankView) -> Iterator[Value]:
    _, found = matched_in_windows(rank)
    if not found.complete.any():
        raise no_matched_error(found)
    table = rank.all_collectives
    table = table.filter(table["wait_ns"].is_valid())
    latest = table["start_ns"].to_numpy() + table["wait_ns"].to_numpy()
    yield from _union_values(rank, table, latest, table["end_ns"].to_numpy(), found)


def _union_values(
    rank: RankView, table: pa.Table, starts: Int64, ends: Int64, found: Matched, reason: str | None = None
) -> Iterator[Value]:
    """|∪ [starts, ends) ∩ W|, mean and by step, and the means of each kind, group and dimension."""
    whole = rank.inside(intervals.union(starts, ends))
    yield from per_step(rank, whole, reason=reason, left_out=found.left_out, coverage=found.coverage)
    label, known = label_numbers(table)
    holders: dict[Label, list[int]] = {}
    for number, one in enumerate(known):
        for key in dict.fromkeys(one.wider_labels()):
            holders.setdefault(key, []).append(number)
    sums: dict[Label, int] = {}
    for key, numbers in holders.items():
        here = np.isin(label, numbers)
        sums[key] = int(rank.inside(intervals.union(starts[here], ends[here])).sum())
    at_once = sum(ns for key, ns in sums.items() if key.group is not None) > whole.sum()
    for key, ns in sums.items():
        yield labelled_value(key, ns / (len(whole) * NS_PER_S), reason=AT_ONCE if at_once else None)


def mean_over_instances(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over instances of latest − earliest arrival; p50, p95 and max; means by kind, group, dimension."""
    found = rank_meetings(ranks)
    means = _Means(found.labels)
    parts = []
    for some in found.parts():
        parts.append(some.latest_ns - some.earliest_ns)
        means.add_instances(some, parts[-1])
    skew = np.concatenate(parts)
    yield of_instances(ranks, found, float(skew.mean() / NS_PER_S), f"{len(skew)} instances")
    yield from spread_values(skew / NS_PER_S)
    for key, mean in means.of_labels():
        yield labelled_value(key, mean / NS_PER_S)


class _Means:
    """The mean of what instances have, over those that any row of each wider label is in."""

    def __init__(self, known: Sequence[Label]) -> None:
        """`known` are the labels of rows."""
        widened = [list(dict.fromkeys(one.wider_labels())) for one in known]
        self._keys = {key: n for n, key in enumerate(dict.fromkeys(key for keys in widened for key in keys))}
        self._codes = [
            np.array([self._keys[own[depth]] if depth < len(own) else -1 for own in widened], np.int64)
            for depth in range(max(map(len, widened)))
        ]
        """The codes of each label's wider ones, −1 for no more."""
        self._total, self._count = np.zeros((2, len(self._keys)), np.int64)

    def add_instances(self, found: CollectiveInstances, of_instances: Int64) -> None:
        """What further instances have, shape (instances,)."""
        of, instances = found.of, len(of_instances)
        pairs = []
        for codes in self._codes:
            code = codes[found.label]
            pairs.append(np.unique((code * instances + of)[code >= 0]))
        code, instance = np.divmod(np.unique(np.concatenate(pairs)), instances)
        np.add.at(self._total, code, of_instances[instance])
        np.add.at(self._count, code, 1)

    def of_labels(self) -> Iterator[tuple[Label, float]]:
        """The mean of each label of which all ranks of an instance are here."""
        for key, ns, count in zip(self._keys, self._total.tolist(), self._count.tolist(), strict=True):
            if count:
                yield key, ns / count


@_seconds(
    "comm.skew",
    definition="How far apart the ranks arrive at a collective: mean over instances that all ranks of their"
    " group have, with p50, p95 (from 20 on) and max; means by kind, by process group, by parallel dimension"
    " (category).",
    formula="mean over instances of (latest arrival − earliest arrival)",
    combine=mean_over_instances,
    rank_rows=False,
)
def skew(rank: RankView) -> Value:
    return arrivals_of(rank)
