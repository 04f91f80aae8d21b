# SPDX-License-Identifier: Apache-2.0
"""Recursive halving and doubling: log2 n exchanges with partners at distance n/2, n/4, ..., 1.

All-reduce T = 2 log2 n · α + 2 (n − 1)/n · S / B; its halves are reduce-scatter and all-gather.  With ranks
numbered node by node, the log2 N farthest exchanges cross nodes, each rank of a node on its own rail.
(Thakur, Rabenseifner, Gropp 2005.)  NCCL does not have it: costed only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm, chosen_never
from cclbench.hardware.collectives.cost import ROUNDS, CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.transport import SIMPLE


@algorithm("halving_doubling", chosen=chosen_never)
def halving_doubling(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """The cost; none for other kinds or where n is not a power of two."""
    group = call.group
    n, rounds = group.ranks, ROUNDS.get(call.kind)
    if rounds is None or n & (n - 1) or group.nodes & (group.nodes - 1):
        return
    inside, across = log2(group.per_node), log2(group.nodes)
    up = group.pair_bytes_per_s if group.peers == "mesh" else group.up_bytes_per_s
    # Bytes exchanged across nodes: S/2 + S/4 + ... over log2 N exchanges; the rest stays in the node.
    far = 1 - 1 / group.nodes
    near = 1 / group.nodes - 1 / n
    s_per_byte = (far / group.nic_bytes_per_s if far else 0.0) + (near / up if near > 0 else 0.0)
    share = rounds * (far + near)
    yield CollectiveCost(
        "halving_doubling",
        SIMPLE,
        (
            *call.start_steps(SIMPLE),
            CollectiveSteps(rounds * inside, call.up_s(SIMPLE), "exchanges in the node"),
            CollectiveSteps(rounds * across, call.net_s(SIMPLE), "exchanges over the network"),
        ),
        Traffic(share, share / (rounds * s_per_byte) * call.assumed.rate, "both tiers, one after the other"),
        rendezvous=call.rendezvous_steps(rounds * across, SIMPLE),
    )
