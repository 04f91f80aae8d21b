# SPDX-License-Identifier: Apache-2.0
"""Modelled time of collectives that only the new layout has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.machine import Machine
from cclbench.replay import nodes as n
from cclbench.replay.change import TimeBounds
from cclbench.replay.graph import Graph
from cclbench.replay.other_system import changed_system
from cclbench.replay.pricing import hockney_line, on_system, ring_growth
from cclbench.replay.scenario import Scenario

_NS_PER_S = 1e9
_BASES = ("all_reduce", "all_gather", "reduce_scatter")
"""Kinds from whose times those of another kind follow, by a ring's steps and traffic."""


def price_new(
    graph: Graph,
    change: Scenario,
    machine: Machine,
    groups: Mapping[str, tuple[int, ...]],
    library_version: str | None,
    kind: str,
    ranks: tuple[int, ...],
    nbytes: float,
) -> TimeBounds:
    """The time by the catalog's machine; else from the run's transfers of this kind, or of another ring, in
    the same tier.

    The latter use a fit t = α + β·S, else bounds: the median transfer of the nearest size, as if all latency,
    and as if all bandwidth. `InputError` without any.
    """
    system = machine.named_system.value
    if system is not None:
        sizes = np.array([nbytes])
        price, factors = on_system(
            kind,
            sizes,
            ranks,
            machine,
            system,
            changed_system(system, change),
            library_version,
            None,
            uneven=True,
        )
        expected, low, high = factors
        return TimeBounds(
            float(price.low_s[0]) * low * _NS_PER_S,
            float(price.time_s[0]) * expected * _NS_PER_S,
            float(price.high_s[0]) * high * _NS_PER_S,
            price.all_marks,
        )
    for base, count, size, measured_ns in _measured_transfers(graph, machine, groups, kind, ranks):
        delay, rate = ring_growth(base, count, kind, len(ranks))
        line = hockney_line(size, measured_ns)
        if line is not None:
            alpha, beta, error = line
            middle, error_ns = alpha * delay + beta * nbytes * rate, error * delay
            return TimeBounds(max(middle - error_ns, 0.0), middle, middle + error_ns)
        nearest = size == size[np.argmin(abs(np.log(size / nbytes)))]
        time = float(np.median(measured_ns[nearest]))
        ends = time * delay, time * rate * nbytes / float(size[nearest][0])
        return TimeBounds(min(ends), None, max(ends))
    raise InputError(
        f"{kind} of {len(ranks):,} ranks is not in the run, and no machine is known to model it",
        hint="give --system ID",
    )


def _measured_transfers(
    graph: Graph,
    machine: Machine,
    groups: Mapping[str, tuple[int, ...]],
    kind: str,
    ranks: tuple[int, ...],
) -> Iterator[tuple[str, int, Int64, Int64]]:
    """Kind, ranks, bytes and ns of the run's transfers, of each kind and group in the same tier; one part
    each."""
    nodes, calls, tier = graph.nodes, graph.transfers, machine.tier_of(ranks).value
    at = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.call >= 0))
    at = at[calls.is_split[nodes.call[at]] & (calls.bytes[nodes.call[at]] > 0) & (nodes.dur[at] > 0)]
    at = at[np.sort(np.unique(calls.instance[nodes.call[at]], return_index=True)[1])]
    words = [(calls.kind[call], calls.group[call]) for call in nodes.call[at].tolist()]
    for base in dict.fromkeys((kind, *_BASES)):
        for group in dict.fromkeys(group for _, group in words):
            members = groups.get(group or "", ())
            in_group = np.array([word == (base, group) for word in words], np.bool_)
            if (
                in_group.any()
                and len(members) > 1
                and tier is not None
                and machine.tier_of(members).value == tier
            ):
                yield base, len(members), calls.bytes[nodes.call[at[in_group]]], nodes.dur[at[in_group]]
