# SPDX-License-Identifier: Apache-2.0
"""How much of the machine's links the collectives use."""

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
    "above 1: switches that reduce, or two trees over two nodes, send fewer bytes than the factor f counts"
)


@metric(
    "comm.bandwidth_utilization",
    definition="Share of the links' rate that collectives use: bus bandwidth (comm.busbw tells f and t) over"
    " the catalog's rate B of the tier that the group spans. Within a scale-up domain, B is what one"
    " accelerator sends to the others of the group; across, what the interfaces of a node that are nearest to"
    " the group's accelerators send together: what large messages attain, or the line rate where nobody"
    " states that, and the reason says so. Ranks are taken to be numbered node by node. Over groups, the mean"
    " weighted by time. Above 1 where switches reduce, or where two trees over two nodes send less than f"
    f" counts. {LARGE_SIDE} {TIMES}",
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
    not_applicable="no collective states kind, bytes and group, or no rate is known of the tier it spans",
    combine=transfers_before_durations,
)
def bandwidth_utilization(rank: RankView) -> Iterator[Value]:
    chosen = timed_collectives(rank)
    rank.needs_accelerator("the catalog has no rate of its links")
    system, assumed = platform.run_system(rank)
    limit, lacking, line = _link_limits(rank, chosen, system)
    known = limit > 0
    if not known.any():
        why = f"no rate is known for the window's collectives: {count_words(lacking)}"
        raise Unknown(why, Coverage.of_rows(known, collective_durations(chosen.table)))
    chosen = chosen.take_known(known, lacking)
    basis = [assumed] if assumed else []
    if line:
        basis.append(f"over the line rate, since what is usable of {', '.join(sorted(line))} is not known")
    for value in bandwidth_rates(chosen, bus_bytes(chosen) / limit[known], "; ".join(basis) or None):
        above = value.value is not None and value.value > 1
        yield replace(value, reason="; ".join(filter(None, [value.reason, _ABOVE]))) if above else value


def _link_limits(
    rank: RankView, chosen: TimedCollectives, system: System
) -> tuple[Float64, dict[str, int], set[str]]:
    """Each collective's rate B, B/s, 0 where unknown; how many lack one and why; fabrics at line rate."""
    meeting, row = platform.devices_of(rank, chosen.table, system)
    limit = np.zeros(len(meeting))
    lacking: dict[str, int] = {}
    line: set[str] = set()
    for number, devices in enumerate(meeting):
        found = devices if isinstance(devices, str) else rate_of(system, devices)
        if isinstance(found, Rate):
            limit[number] = found.bytes_per_s
            line |= set() if found.usable else {found.fabric}
        else:
            lacking[found] = lacking.get(found, 0) + int((row == number).sum())
    return limit[row], lacking, line
