# SPDX-License-Identifier: Apache-2.0
"""Waiting told apart from transfer, in collectives matched across ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from cclbench.analyzers.arrivals import Meetings, left_out, matched_collectives, meetings
from cclbench.analyzers.labels import Label
from cclbench.analyzers.metric import Value, metric
from cclbench.analyzers.values import NS_PER_S, per_step_and_label
from cclbench.analyzers.view import RankView
from cclbench.intervals import Int64

_INPUTS = ("collectives matched across ranks", "steps")
_NONE = "none of the window's collectives is matched across all the ranks of its group"
_OF = (
    " Sums over the collectives that begin in the window and that all ranks of their group have; by kind, by"
    " process group, by parallel dimension (category); the others are counted."
)


@metric(
    "comm.wait",
    definition=f"Time in collectives before the last rank arrives, at most the collective's own time.{_OF}",
    formula="Σ min(latest arrival − own arrival, end − own arrival), per step",
    unit="s",
    better="lower",
    inputs=_INPUTS,
    not_applicable=_NONE,
)
def wait(rank: RankView) -> Iterator[Value]:
    table, others = matched_collectives(rank)
    yield from per_step_and_label(rank, table, table["wait_ns"].to_numpy(), left_out=others)


@metric(
    "comm.transfer",
    definition=f"Time of collectives after the last rank has arrived.{_OF} Where none is matched, modelled on"
    " the machine of card or catalog, by kind.",
    formula="Σ max(end − latest arrival, 0), per step",
    unit="s",
    better="lower",
    inputs=_INPUTS,
    not_applicable=_NONE,
)
def transfer(rank: RankView) -> Iterator[Value]:
    table, others = matched_collectives(rank)
    yield from per_step_and_label(rank, table, table["transfer_ns"].to_numpy(), left_out=others)


def mean_over_instances(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over instances of latest − earliest arrival; p50, p95 and max; means by kind, group, dimension."""
    found = meetings(ranks)
    skew = found.latest_ns - found.earliest_ns
    yield Value(
        value=float(skew.mean() / NS_PER_S), reason=f"{len(skew)} instances", left_out=left_out(ranks, found)
    )
    for stat, q in (("p50", 50), ("p95", 95), ("max", 100)):
        yield Value(value=float(np.percentile(skew, q) / NS_PER_S), stat=stat)
    for key, mean in _means(found, skew):
        yield Value(value=mean / NS_PER_S, collective=key.collective, group=key.group, category=key.dimension)


def _means(found: Meetings, of_instances: Int64) -> Iterator[tuple[Label, float]]:
    """The mean of what instances have, over those that any row of each wider label is in."""
    widened = [list(dict.fromkeys(one.wider())) for one in found.labels]
    keys = {key: n for n, key in enumerate(dict.fromkeys(key for keys in widened for key in keys))}
    of, instances = found.of, len(of_instances)
    pairs = [np.empty(0, np.int64)]
    for depth in range(max(map(len, widened))):
        code = np.array([keys[own[depth]] if depth < len(own) else -1 for own in widened])[found.label]
        pairs.append(np.unique((code * instances + of)[code >= 0]))
    code, instance = np.divmod(np.unique(np.concatenate(pairs)), instances)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, code, of_instances[instance])
    # A label all of whose instances lack a rank has none here.
    for key, ns, count in zip(
        keys, total.tolist(), np.bincount(code, minlength=len(keys)).tolist(), strict=True
    ):
        if count:
            yield key, ns / count


@metric(
    "comm.skew",
    definition="How far apart the ranks arrive at a collective: mean over instances that all ranks of their"
    " group have, with p50, p95 and max; means by kind, by process group, by parallel dimension (category).",
    formula="mean over instances of (latest arrival − earliest arrival)",
    unit="s",
    better="lower",
    inputs=_INPUTS,
    not_applicable=_NONE,
    combine=mean_over_instances,
    rank_rows=False,
)
def skew(rank: RankView) -> Value:
    found, others = rank.arrivals
    return Value(value=float(len(found.instance)), left_out=others, detail=found)
