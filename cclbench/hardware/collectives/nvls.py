# SPDX-License-Identifier: Apache-2.0
"""NVLink SHARP: the switches reduce and multicast, so an accelerator sends S once and 1/g of S more.

All-reduce in a node: every rank offers S to the switch, reads its 1/g reduced and multicasts that:
S (1 + 1/g) leaves it, and as much arrives.  B is the usable rate times NCCL's efficiency of the switch path
(0.85 Hopper, 0.74 Blackwell).  Gather and scatter halves move S once.  Over nodes (NVLSTree) the
sums cross a tree of N nodes, pipelined: the narrower of both counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2

from cclbench.hardware.collectives.cost import Assumed, Cost, Pipeline, Steps, Traffic
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.nccl import CHUNKS_BYTES, NVLS_EFFICIENCY, Constants
from cclbench.hardware.collectives.transport import SIMPLE
from cclbench.hardware.collectives.wire import network_step_s, rendezvous


def nvls(kind: str, group: Group, table: Constants, assumed: Assumed) -> Iterator[Cost]:
    """Costs with reduction in the switches; none where there are no such switches or the release has none."""
    efficiency = NVLS_EFFICIENCY.get(group.architecture)
    if efficiency is None or table.nvls_us is None or not group.reduces or group.per_node < 2:
        return
    rate = group.up_bytes_per_s * efficiency * assumed.rate
    start = (
        Steps(1, assumed.launch_s, "launch"),
        Steps(1, table.nvls_us * 1e-6 * assumed.latency, "the node's switches"),
    )
    reduced = 1 + 1 / group.per_node
    if group.nodes == 1 and kind in ("all_reduce", "all_gather", "reduce_scatter"):
        share = reduced if kind == "all_reduce" else 1.0
        yield Cost(
            "nvls",
            SIMPLE,
            start,
            Traffic(share, rate, "links to the switches"),
            pipeline=Pipeline(start[1].total_s, 2 * CHUNKS_BYTES / rate),
        )
    elif group.nodes > 1 and kind == "all_reduce":
        hops = Steps(
            2 * ceil(log2(group.nodes)),
            network_step_s(group, table.nvls_tree_net_us * 1e-6, SIMPLE, assumed),
            "steps over the network",
        )
        across = group.out_bytes_per_s * assumed.rate / (1 if group.nodes == 2 else 2)
        narrow = Traffic(reduced, rate, "links to the switches")
        network = Traffic(1.0, across, "interfaces of a node")
        yield Cost(
            "nvls_tree",
            SIMPLE,
            (*start, hops),
            max(narrow, network, key=lambda traffic: traffic.s_per_byte),
            pipeline=Pipeline(
                start[1].total_s + hops.total_s,
                CHUNKS_BYTES * (2 / rate + hops.count / (group.out_bytes_per_s * assumed.rate)),
            ),
            rendezvous=rendezvous(group, hops.count, SIMPLE, assumed),
            eager_bytes=2 * (group.eager_bytes or 0.0),
        )
