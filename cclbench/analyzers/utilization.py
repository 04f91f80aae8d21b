# SPDX-License-Identifier: Apache-2.0
"""Utilisation of the machine's links by collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.analyzers.metric import GROUPS, Coverage, Unknown, Value, count_words, metric
from cclbench.analyzers.view import platform
from cclbench.analyzers.view.collectives import LARGE_SIDE, collective_durations
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.transfers import (
    TIMES,
    Float64,
    TimedCollectives,
    bandwidth_rates,
    bus_bytes,
    timed_collectives,
    transfers_before_durations,
)
from cclbench.hardware.rates import Rate, rate_of
from cclbench.hardware.system import System

_ABOVE: Final = (
    "above 1: in-network reduction, or two trees over two nodes, send fewer bytes than the factor f counts"
)


@metric(
    "comm.bandwidth_utilization",
    definition="Share of the links' rate that collectives use: bus bandwidth (f and t as in comm.busbw) over"
    " the catalog's rate B of the tier that the group spans. Within a scale-up domain, B is the rate from one"
    " accelerator to the others of the group; across, that of the node's interfaces nearest to the group's"
    " accelerators together: the rate of large messages, or the line rate where that is unknown, and the"
    " reason states it. Ranks are assumed to be numbered node by node. Over groups, the mean weighted by"
    " time. Above 1 with in-network reduction, or where two trees over two nodes send less than f counts."
    f" {LARGE_SIDE} {TIMES}",
    formula="Σ (f·S / B) / Σ t",
    unit="1",
    better="higher",
    inputs=(
        "events",
        "collectives",
        GROUPS,
        "steps",
        "card: hardware.system, else hardware.accelerator, per_node, scale_up and scale_out",
        "catalog: systems, fabrics, accelerators",
    ),
    not_applicable="no collective states kind, payload and group, or the rate of the tier it spans is"
    " unknown",
    combine=transfers_before_durations,
)
def bandwidth_utilization(rank: RankView) -> Iterator[Value]:
    chosen = timed_collectives(rank)
    rank.needs_accelerator("the catalog has no rate of its links")
    system, assumed = platform.run_system(rank)
    limit, lacking, line = _link_limits(rank, chosen, system)
    has_limit = limit > 0
    if not has_limit.any():
        why = f"the links' rate is unknown for the collectives in the window: {count_words(lacking)}"
        raise Unknown(why, Coverage.from_rows(has_limit, collective_durations(chosen.table)))
    chosen = chosen.keep_rows(has_limit, lacking)
    basis = [assumed] if assumed else []
    if line:
        basis.append(f"over the line rate, since the usable rate of {', '.join(sorted(line))} is unknown")
    for value in bandwidth_rates(chosen, bus_bytes(chosen) / limit[has_limit], "; ".join(basis) or None):
        above = value.value is not None and value.value > 1
        yield replace(value, reason="; ".join(filter(None, [value.reason, _ABOVE]))) if above else value


def _link_limits(
    rank: RankView, chosen: TimedCollectives, system: System
) -> tuple[Float64, dict[str, int], set[str]]:
    """Rate B of each collective, B/s, 0 where unknown; counts of these by reason; fabrics at line rate."""
    devices_by_group, row = platform.devices_of(rank, chosen.table, system)
    limit = np.zeros(len(devices_by_group))
    lacking: dict[str, int] = {}
    line: set[str] = set()
    for group, devices in enumerate(devices_by_group):
        rate = devices if isinstance(devices, str) else rate_of(system, devices)
        if isinstance(rate, Rate):
            limit[group] = rate.bytes_per_s
            line |= set() if rate.usable else {rate.fabric}
        else:
            lacking[rate] = lacking.get(rate, 0) + int((row == group).sum())
    return limit[row], lacking, line
