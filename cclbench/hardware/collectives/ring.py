# SPDX-License-Identifier: Apache-2.0
"""Ring: n − 1 steps for all-gather and reduce-scatter, twice that for all-reduce.

T = base + (steps − network steps) · α_up + network steps · α_net + S · steps/n / B, B the rate of the ring's
bottleneck.  Broadcast and reduce stream through the ring: S / B.  (Patarasuk and Yuan 2009; NCCL.)
"""

from __future__ import annotations

from collections.abc import Iterator

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm
from cclbench.hardware.collectives.cost import ROUNDS, CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.nccl import RING_LL128, net_overhead_s
from cclbench.hardware.collectives.transport import LL, LL128, SIMPLE

PLATEAU = 0.965
"""Share of the usable rate that rings reach at GiB sizes: 0.93 to 0.99 on NVLink 3, 4 and 5."""


@algorithm("ring")
def ring(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Costs of a ring by protocol; none for kinds without a ring algorithm."""
    kind, group, table, assumed, protocols = call
    if kind not in ROUNDS and kind not in ("broadcast", "reduce"):
        return
    n = group.ranks
    rate = ring_bytes_per_s(group)
    rounds = ROUNDS.get(kind)
    total = n - 1 if rounds is None else rounds * (n - 1)
    across = 0 if group.nodes == 1 else (rounds or 1) * (group.nodes - 1)
    share = 1.0 if rounds is None else total / n
    for protocol in protocols:
        if protocol == LL128 and group.architecture == "amd" and group.nodes > 1:
            continue  # RCCL's table gives such a ring 0.08 of its rate: it is never chosen
        protocol_rate = rate
        if protocol == LL:
            protocol_rate = min(rate * table.ring_ll, table.ll_bytes_per_s(group))
        elif protocol == LL128:
            protocol_rate = rate * RING_LL128
        up_s = max(table.up_s("ring", protocol) * group.up_latency, net_overhead_s(group, protocol))
        # With one rank per node nothing hides a hop's latency: NCCL then uses a tree's.
        net_s = call.net_s(protocol, like="tree" if group.per_node == 1 else "ring")
        plateau = table.plateau if protocol == SIMPLE and group.nodes > 1 and kind == "all_reduce" else 1.0
        yield CollectiveCost(
            "ring",
            protocol,
            (
                *call.start_steps(protocol, factor=plateau),
                CollectiveSteps(total - across, up_s * assumed.latency * plateau, "steps in the node"),
                CollectiveSteps(across, net_s * plateau, "steps over the network"),
            ),
            Traffic(share, protocol_rate * assumed.rate, "narrowest place of the ring"),
            rendezvous=call.rendezvous_steps(across, protocol),
            eager_bytes=_eager_limit(group, protocol),
        )


def ring_bytes_per_s(group: Group) -> float:
    """Rate of a ring past each rank, B/s: the accelerator's links, or all interfaces of a node."""
    inside = group.up_bytes_per_s * PLATEAU
    if group.nodes == 1:
        return inside
    if group.peers == "mesh" and group.per_node > 1:
        # A ring that leaves the node uses one link fewer within it, so one more ring fits.
        inside += group.pair_bytes_per_s * PLATEAU
    return group.out_bytes_per_s if group.per_node == 1 else min(inside, group.out_bytes_per_s)


def _eager_limit(group: Group, protocol: str) -> float:
    """Largest S whose step messages, S/n (twice that with LL's flags), are sent eagerly."""
    return (group.eager_bytes or 0.0) * group.ranks / (2 if protocol == LL else 1)
