# SPDX-License-Identifier: Apache-2.0
"""NVLink SHARP: the switches reduce and multicast, so an accelerator sends only S and 1/g of S.

All-reduce in a node: every rank sends S to the switch, reads its reduced 1/g and multicasts that: S (1 + 1/g)
in each direction.  B is the usable rate times NCCL's efficiency of the switch path (0.85 Hopper, 0.74
Blackwell).  All-gather and reduce-scatter move S once.  Across nodes (NVLSTree) the sums pass a pipelined
tree of N nodes: the slower of switches and network counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2
from typing import Final

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm
from cclbench.hardware.collectives.cost import ROUNDS, CollectiveCost, CollectiveSteps, Pipeline, Traffic
from cclbench.hardware.collectives.nccl import CHUNKS_BYTES, NVLS_EFFICIENCY
from cclbench.hardware.collectives.transport import SIMPLE

_LINKS: Final = "links to the switches"


@dataclass(frozen=True, slots=True)
class _Switches:
    """Transfers from an accelerator to the switches of its node at `rate`, B/s, after the `start` steps."""

    rate: float
    start: tuple[CollectiveSteps, CollectiveSteps]
    reduced: Traffic
    """Traffic of an all-reduce: S to the switch, and the accelerator's own part of the sum."""


def _node_switches(call: CollectiveCall) -> _Switches | None:
    """The node's reducing switches; None if it has none or the release does not use them."""
    _, group, table, assumed, _ = call
    efficiency = NVLS_EFFICIENCY.get(group.architecture)
    if efficiency is None or table.nvls_us is None or not group.reduces or group.per_node < 2:
        return None
    rate = group.up_bytes_per_s * efficiency * assumed.rate
    return _Switches(
        rate,
        (
            CollectiveSteps(1, assumed.launch_s, "launch"),
            CollectiveSteps(
                1, table.nvls_us * 1e-6 * group.up_latency * assumed.latency, "the node's switches"
            ),
        ),
        Traffic(1 + 1 / group.per_node, rate, _LINKS),
    )


@algorithm("nvls")
def nvls(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Cost of the reduction in one node's switches; none for other kinds or across nodes."""
    switches = _node_switches(call) if call.group.nodes == 1 and call.kind in ROUNDS else None
    if switches is None:
        return
    yield CollectiveCost(
        "nvls",
        SIMPLE,
        switches.start,
        switches.reduced if call.kind == "all_reduce" else Traffic(1.0, switches.rate, _LINKS),
        pipeline=Pipeline(switches.start[1].total_s, 2 * CHUNKS_BYTES / switches.rate),
    )


@algorithm("nvls_tree")
def nvls_tree(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Cost of the nodes' sums passing a tree over the network; all-reduce only."""
    switches = _node_switches(call) if call.group.nodes > 1 and call.kind == "all_reduce" else None
    if switches is None:
        return
    _, group, table, assumed, _ = call
    hops = CollectiveSteps(
        2 * ceil(log2(group.nodes)),
        call.over_network_s(table.nvls_tree_net_us * 1e-6, SIMPLE),
        "steps over the network",
    )
    across = group.out_bytes_per_s * assumed.rate / (1 if group.nodes == 2 else 2)
    network = Traffic(1.0, across, "interfaces of a node")
    yield CollectiveCost(
        "nvls_tree",
        SIMPLE,
        (*switches.start, hops),
        max(switches.reduced, network, key=lambda traffic: traffic.s_per_byte),
        pipeline=Pipeline(
            switches.start[1].total_s + hops.total_s,
            CHUNKS_BYTES * (2 / switches.rate + hops.count / (group.out_bytes_per_s * assumed.rate)),
        ),
        rendezvous=call.rendezvous_steps(hops.count, SIMPLE),
        eager_bytes=2 * (group.eager_bytes or 0.0),
    )
