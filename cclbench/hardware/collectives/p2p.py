# SPDX-License-Identifier: Apache-2.0
"""Transfers between pairs: send and receive, all-to-all, gather and scatter.

Send T = base + α + S / B_pair.  All-to-all sends S/n to each other rank at once:
T = base + α + (n − 2) · 0.4 µs + max(S (g − 1)/n / B_up, S (n − g)/n / B_nic), both tiers in parallel.
Gather and scatter move (n − 1)/n of S through the root's links.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm
from cclbench.hardware.collectives.cost import CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.transport import LL, SIMPLE

# NCCL's figure per further peer (src/graph/tuning.cc, arity of CollNet's direct exchange).
_PEER_S: Final = 0.4e-6
# Shares of the usable rate: best, expected, worst.  Within a node: sendrecv between A100 reaches 195 of
# 240 GB/s (nccl-tests, published run).  Across nodes: a full interface according to NVIDIA (nccl-tests
# issue 267), 0.45 of its line rate in a run on 2 x 8 B200.
_INSIDE: Final = (1.0, 0.8, 0.7)
_ACROSS: Final = (1.0, 0.9, 0.5)

PAIRS: Final = ("send", "recv", "send_recv")


@algorithm("p2p")
def p2p(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Costs of pairwise transfers; none for other kinds."""
    kind, group, _, assumed, protocols = call
    rates = _pairwise_traffic(kind, group, assumed.edge)
    if rates is None:
        return
    slowest = max(rates, key=lambda traffic: traffic.s_per_byte)
    across = 1 if group.nodes > 1 else 0
    for protocol in (LL, SIMPLE) if LL in protocols else (SIMPLE,):
        step = call.net_s(protocol) if across else call.up_s(protocol)
        rate = slowest.bytes_per_s * assumed.rate * (0.5 if protocol == LL else 1.0)
        peers = group.ranks - 2 if kind not in PAIRS else 0
        yield CollectiveCost(
            "p2p",
            protocol,
            (
                *call.start_steps(protocol),
                CollectiveSteps(1, step, "step over the network" if across else "step in the node"),
                CollectiveSteps(peers, _PEER_S * assumed.latency, "further peers"),
            ),
            Traffic(slowest.share, rate, slowest.what),
            rendezvous=call.rendezvous_steps(across, protocol),
            eager_bytes=(group.eager_bytes or 0.0) * (1 if kind in PAIRS else group.ranks),
        )


def _pairwise_traffic(kind: str, group: Group, edge: int) -> tuple[Traffic, ...] | None:
    n, g = group.ranks, group.per_node
    nic, inside = group.nic_bytes_per_s * _ACROSS[edge], _INSIDE[edge]
    if kind in PAIRS:
        if group.nodes > 1:
            return (Traffic(1.0, nic, "interface of a rank"),)
        return (Traffic(1.0, group.pair_bytes_per_s * inside, "links of a pair"),)
    if kind == "all_to_all":
        near = Traffic((g - 1) / n, group.up_bytes_per_s * inside, "links of an accelerator")
        if group.nodes == 1:
            return (near,)
        across = Traffic((n - g) / n, nic, "interface of a rank")
        return (across,) if g == 1 else (near, across)
    if kind in ("gather", "scatter"):
        if group.nodes > 1:
            return (Traffic((n - g) / n, nic, "interface of the root"),)
        return (Traffic((n - 1) / n, group.up_bytes_per_s * inside, "links of the root"),)
    return None
