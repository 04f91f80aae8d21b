# SPDX-License-Identifier: Apache-2.0
"""Double binary tree: all-reduce in 2 ⌈log2 N⌉ network steps, chains of g − 1 steps within nodes.

T = base + 2 [(g − 1) α_up + ⌈log2 N⌉ α_net] + S / B / efficiency(S).  Each of the two trees carries S/2 up
and S/2 down, so an inner rank sends S twice: B is half of a link.  Of two nodes each is the root of one tree
and a leaf of the other, and sends S once: B is the whole network rate.  (Sanders, Speck, Träff 2009; NCCL.)
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm
from cclbench.hardware.collectives.cost import CollectiveCost, CollectiveSteps, Pipeline, Traffic
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.nccl import (
    CHUNKS_BYTES,
    TREE_LL,
    TREE_LL128,
    TREE_LL128_ONE_NODE,
    TREE_RATE,
)
from cclbench.hardware.collectives.transport import LL, LL128


@algorithm("tree")
def tree(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Costs of the double binary tree by protocol; all-reduce only."""
    kind, group, table, assumed, protocols = call
    if kind != "all_reduce":
        return
    depth = ceil(log2(group.nodes))
    for protocol in protocols:
        rate = _bytes_per_s(group)
        if protocol == LL:
            rate = min(rate * TREE_LL, table.ll_bytes_per_s(group))
        elif protocol == LL128:
            rate *= TREE_LL128_ONE_NODE if group.nodes == 1 else TREE_LL128
        hops = (
            CollectiveSteps(2 * (group.per_node - 1), call.up_s(protocol, like="tree"), "steps in the node"),
            CollectiveSteps(2 * depth, call.net_s(protocol, like="tree"), "steps over the network"),
        )
        yield CollectiveCost(
            "tree",
            protocol,
            (*call.start_steps(protocol, like="tree"), *hops),
            Traffic(2.0, rate * assumed.rate, "narrowest place of the tree"),
            pipeline=Pipeline(sum(hop.total_s for hop in hops), _largest_s(group, depth) / assumed.rate),
            rendezvous=call.rendezvous_steps(2 * depth, protocol),
            eager_bytes=(group.eager_bytes or 0.0) * (1 if protocol == LL else 2),
        )


def _largest_s(group: Group, depth: int) -> float:
    inside = 2 * (group.per_node - 1) / group.up_bytes_per_s if group.per_node > 1 else 0.0
    across = 2 * depth / group.out_bytes_per_s if depth else 0.0
    return CHUNKS_BYTES * (inside + across)


def _bytes_per_s(group: Group) -> float:
    """Rate of the bottleneck, which S passes twice."""
    inside = group.up_bytes_per_s * TREE_RATE
    if group.nodes == 1:
        return inside
    across = group.out_bytes_per_s * (2 if group.nodes == 2 else 1)
    return across if group.per_node == 1 else min(inside, across)
