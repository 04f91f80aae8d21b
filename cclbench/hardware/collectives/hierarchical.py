# SPDX-License-Identifier: Apache-2.0
"""Hierarchical: reduce-scatter in the node, rings over nodes on each rail, all-gather in the node.

All-reduce T = 2 (g − 1) α_up + 2 (N − 1) α_net + 2 (g − 1)/g · S / B_up + 2 (N − 1)/N · S/g / B_rail, phases
one after the other; all-gather and reduce-scatter take half.  B_rail is one accelerator's part of its node's
interfaces.  NCCL does not have it: costed only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm, chosen_never
from cclbench.hardware.collectives.cost import ROUNDS, CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.transport import SIMPLE


@algorithm("hierarchical", chosen=chosen_never)
def hierarchical(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """The cost; none for other kinds or where there is only one tier."""
    group, rounds = call.group, ROUNDS.get(call.kind)
    g, nodes = group.per_node, group.nodes
    if rounds is None or nodes == 1 or g == 1:
        return
    inside = rounds * (g - 1) / g
    across = rounds * (nodes - 1) / nodes / g
    s_per_byte = inside / group.up_bytes_per_s + across / group.nic_bytes_per_s
    share = inside + across
    yield CollectiveCost(
        "hierarchical",
        SIMPLE,
        (
            *call.start_steps(SIMPLE),
            CollectiveSteps(rounds * (g - 1), call.up_s(SIMPLE), "steps in the node"),
            CollectiveSteps(rounds * (nodes - 1), call.net_s(SIMPLE), "steps over the network"),
        ),
        Traffic(share, share / s_per_byte * call.assumed.rate, "both tiers, one after the other"),
        rendezvous=call.rendezvous_steps(rounds * (nodes - 1), SIMPLE),
    )
