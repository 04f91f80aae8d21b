# SPDX-License-Identifier: Apache-2.0
"""Wait, transfer and skew of collectives matched across ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import MATCHED, Value, metric
from cclbench.analyzers.view.arrivals import Matched, arrivals_of, no_matched_error
from cclbench.analyzers.view.collectives import Label, label_numbers
from cclbench.analyzers.view.meetings import CollectiveInstances, rank_meetings, value_over_instances
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, labelled_value, per_step, spread_values
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64

_seconds = partial(
    metric,
    unit="s",
    better="lower",
    inputs=("events", MATCHED, "steps"),
    not_applicable="no collective in the window is matched across all ranks of its group",
)
AT_ONCE: Final = "collectives of several groups run at once: rows by kind and group overlap"
_OF = (
    " The rank's value is a union: collectives that run at once count once. By kind, process group and"
    " parallel dimension (category), which may overlap and need not add up. Unmatched collectives are left"
    " out and counted; the value is then partial."
)


@_seconds(
    "comm.wait",
    definition="Time in which a collective waits for its last rank. For a collective that lacks a rank's"
    f" trace, until the latest known arrival: a lower bound.{_OF}",
    formula="|∪ [own arrival, min(latest arrival, end))|, per step",
    version=2,
)
def wait(rank: RankView) -> Iterator[Value]:
    in_windows, matched = rank.collectives, rank.matched
    if not in_windows["least_wait_ns"].is_valid().to_numpy().any() and not matched.complete.any():
        raise no_matched_error(matched)
    table = rank.all_collectives
    waited = table["wait_ns"].fill_null(table["least_wait_ns"])
    table, bounds = table.filter(waited.is_valid()), in_windows["least_wait_ns"].is_valid().to_numpy().sum()
    starts = table["start_ns"].to_numpy()
    reason = f"a lower bound: {bounds} collectives lack a rank's trace" if bounds else None
    yield from _union_values(rank, table, starts, starts + waited.drop_null().to_numpy(), matched, reason)


@_seconds(
    "comm.transfer",
    definition=f"Time in which a collective runs after its last rank's arrival.{_OF} Where none is matched,"
    " modelled for the card's or catalog's machine, by kind.",
    formula="|∪ [latest arrival, end)|, per step",
    version=2,
)
def transfer(rank: RankView) -> Iterator[Value]:
    matched = rank.matched
    if not matched.complete.any():
        raise no_matched_error(matched)
    table = rank.all_collectives
    table = table.filter(table["wait_ns"].is_valid())
    latest = table["start_ns"].to_numpy() + table["wait_ns"].to_numpy()
    yield from _union_values(rank, table, latest, table["end_ns"].to_numpy(), matched)


def _union_values(
    rank: RankView, table: pa.Table, starts: Int64, ends: Int64, matched: Matched, reason: str | None = None
) -> Iterator[Value]:
    """|∪ [starts, ends) ∩ W|: mean, by step, and mean by kind, group and dimension."""
    union_ns = rank.inside(intervals.union(starts, ends))
    yield from per_step(rank, union_ns, reason=reason, left_out=matched.left_out, coverage=matched.coverage)
    label, labels = label_numbers(table)
    holders: dict[Label, list[int]] = {}
    for number, row_label in enumerate(labels):
        for key in dict.fromkeys(row_label.wider_labels()):
            holders.setdefault(key, []).append(number)
    sums: dict[Label, int] = {}
    for key, numbers in holders.items():
        of_key = np.isin(label, numbers)
        sums[key] = int(rank.inside(intervals.union(starts[of_key], ends[of_key])).sum())
    at_once = sum(ns for key, ns in sums.items() if key.group is not None) > union_ns.sum()
    for key, ns in sums.items():
        yield labelled_value(key, ns / (len(union_ns) * NS_PER_S), reason=AT_ONCE if at_once else None)


def mean_over_instances(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over instances of latest − earliest arrival; p50, p95, max; means by kind, group, dimension."""
    instances = rank_meetings(ranks)
    means = _Means(instances.labels)
    parts = []
    for part in instances.parts():
        parts.append(part.latest_ns - part.earliest_ns)
        means.add_instances(part, parts[-1])
    skew = np.concatenate(parts)
    yield value_over_instances(ranks, instances, float(skew.mean() / NS_PER_S), f"{len(skew)} instances")
    yield from spread_values(skew / NS_PER_S)
    for key, mean in means.means_by_label():
        yield labelled_value(key, mean / NS_PER_S)


class _Means:
    """Mean of a quantity of instances by label, over the instances with a row of that label."""

    def __init__(self, labels: Sequence[Label]) -> None:
        """`labels`: the labels of rows."""
        widened = [list(dict.fromkeys(label.wider_labels())) for label in labels]
        self._keys = {key: n for n, key in enumerate(dict.fromkeys(key for keys in widened for key in keys))}
        self._codes = [
            np.array([self._keys[wider[depth]] if depth < len(wider) else -1 for wider in widened], np.int64)
            for depth in range(max(map(len, widened)))
        ]
        """Codes of each label's wider labels, −1 for none."""
        self._total, self._count = np.zeros((2, len(self._keys)), np.int64)

    def add_instances(self, added: CollectiveInstances, of_instances: Int64) -> None:
        """Add instances and their quantity, shape (instances,)."""
        instance_of_row, instances = added.instance_of_row, len(of_instances)
        pairs = []
        for codes in self._codes:
            code = codes[added.label]
            pairs.append(np.unique((code * instances + instance_of_row)[code >= 0]))
        code, instance = np.divmod(np.unique(np.concatenate(pairs)), instances)
        np.add.at(self._total, code, of_instances[instance])
        np.add.at(self._count, code, 1)

    def means_by_label(self) -> Iterator[tuple[Label, float]]:
        """The mean by label, for labels with instances."""
        for key, ns, count in zip(self._keys, self._total.tolist(), self._count.tolist(), strict=True):
            if count:
                yield key, ns / count


@_seconds(
    "comm.skew",
    definition="Time between the first and the last rank's arrival at a collective: mean over instances with"
    " all ranks of their group, p50, p95 (from 20 instances) and max; means by kind, process group and"
    " parallel dimension (category).",
    formula="mean over instances of (latest arrival − earliest arrival)",
    combine=mean_over_instances,
    rank_rows=False,
)
def skew(rank: RankView) -> Value:
    return arrivals_of(rank)
