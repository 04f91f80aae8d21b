# SPDX-License-Identifier: Apache-2.0
"""Bandwidth of collectives: payload over transfer time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from cclbench.analyzers.metric import GROUPS, Value, metric
from cclbench.analyzers.view.collectives import LARGE_SIDE
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.transfers import (
    NONE,
    TIMES,
    bandwidth_rates,
    bus_bytes,
    timed_collectives,
    transfers_before_durations,
)

_bandwidth = partial(
    metric,
    unit="B/s",
    better="higher",
    inputs=("events", "collectives", GROUPS, "steps"),
    not_applicable=NONE,
    version=3,
    combine=transfers_before_durations,
)
_T = f"{TIMES} 1 GB = 1e9 bytes."


@_bandwidth(
    "comm.algbw",
    definition=f"Algorithm bandwidth: payload over time. {LARGE_SIDE} {_T}",
    formula="Σ S / Σ t",
)
def algbw(rank: RankView) -> Iterator[Value]:
    chosen = timed_collectives(rank)
    yield from bandwidth_rates(chosen, chosen.payload.astype(np.float64))


@_bandwidth(
    "comm.busbw",
    definition="Bus bandwidth: algorithm bandwidth times the factor f of nccl-tests, which makes it"
    " comparable with a link's rate: all_reduce 2(n−1)/n; all_gather, reduce_scatter, all_to_all, gather,"
    f" scatter (n−1)/n; others 1, n ranks in the group. {LARGE_SIDE} {_T}",
    formula="Σ f·S / Σ t",
)
def busbw(rank: RankView) -> Iterator[Value]:
    chosen = timed_collectives(rank)
    yield from bandwidth_rates(chosen, bus_bytes(chosen))
