# SPDX-License-Identifier: Apache-2.0
"""Balance: whether the ranks have the same work, and who comes last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cclbench.analyzers.metric import NotApplicable, Value, metric, unanswered
from cclbench.analyzers.values import NS_PER_S
from cclbench.analyzers.view import RankView


def max_over_mean(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """The largest rank's compute time over the mean of all ranks'."""
    times = [value.value or 0.0 for rank in sorted(ranks) for value in ranks[rank]]
    if len(times) < 2:
        raise NotApplicable("balance compares ranks, and there is one")
    if not sum(times):
        raise NotApplicable("no rank computes in the window")
    yield Value(value=max(times) * len(times) / sum(times), reason=f"over {len(times)} ranks")


@metric(
    "balance.load_imbalance",
    definition="How much longer the busiest rank computes than the average one; kernels that wait in"
    " communication do not count. 1 is perfect balance.",
    formula="max over ranks |C| / mean over ranks |C|, with |C| the rank's mean over its steps",
    unit="ratio",
    better="lower",
    not_applicable="there is one rank only, or none computes",
    combine=max_over_mean,
    rank_rows=False,
)
def load_imbalance(rank: RankView) -> Value:
    ns = rank.parts.compute_only + rank.parts.overlapped
    return Value(value=int(ns.sum()) / (len(ns) * NS_PER_S))


unanswered(
    "balance.straggler_delay",
    definition="Share of the window that collectives wait for their last rank, beyond the median one.",
    formula="Σ over matched collectives of (latest − median arrival) / W",
    unit="1",
    better="lower",
    needs="collectives matched across ranks",
    reason="who arrives last can be told only when collectives are matched across ranks",
)
