# SPDX-License-Identifier: Apache-2.0
"""Hierarchical: reduce-scatter in the node, rings over nodes on each rail, all-gather in the node.

All-reduce T = 2 (g − 1) α_up + 2 (N − 1) α_net + 2 (g − 1)/g · S / B_up + 2 (N − 1)/N · S/g / B_rail, phases
one after the other; all-gather and reduce-scatter are half of it.  B_rail is what one accelerator has
of its node's interfaces.  Not an algorithm of NCCL's: priced when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from cclbench.hardware.collectives.algorithm import Call, algorithm, never
from cclbench.hardware.collectives.cost import ROUNDS, Cost, Steps, Traffic
from cclbench.hardware.collectives.transport import SIMPLE
from cclbench.hardware.collectives.wire import network_step_s, rendezvous


@algorithm("hierarchical", chosen=never)
def hierarchical(call: Call) -> Iterator[Cost]:
    """Its cost; none for other kinds or where there is only one tier."""
    kind, group, table, assumed, _ = call
    rounds = ROUNDS.get(kind)
    g, nodes = group.per_node, group.nodes
    if rounds is None or nodes == 1 or g == 1:
        return
    inside = rounds * (g - 1) / g
    across = rounds * (nodes - 1) / nodes / g
    s_per_byte = inside / group.up_bytes_per_s + across / group.nic_bytes_per_s
    yield Cost(
        "hierarchical",
        SIMPLE,
        (
            Steps(1, assumed.launch_s, "launch"),
            Steps(1, table.base_s("ring", SIMPLE) * assumed.latency, "base"),
            Steps(rounds * (g - 1), table.up_s("ring", SIMPLE) * assumed.latency, "steps in the node"),
            Steps(
                rounds * (nodes - 1),
                network_step_s(group, table.net_s("ring", SIMPLE), SIMPLE, assumed),
                "steps over the network",
            ),
        ),
        Traffic(
            inside + across, (inside + across) / s_per_byte * assumed.rate, "both tiers, one after the other"
        ),
        rendezvous=rendezvous(group, rounds * (nodes - 1), SIMPLE, assumed),
    )
