# SPDX-License-Identifier: Apache-2.0
"""Algorithms of MPI libraries (Open MPI, MPICH, Aluminum) for small messages: all of S moves in log2 n steps.

- recursive doubling, all-reduce: log2 n exchanges of S with partners at distance 1, 2, ..., n/2:
  T = log2 n · (α + S / B);
- binomial tree, broadcast and reduce: T = ⌈log2 n⌉ · (α + S / B);
- Bruck, all-gather: step k sends 2^k blocks of S/n to the rank 2^k before:
  T = ⌈log2 n⌉ α + (n − 1)/n · S / B;
- Bruck, all-to-all: step k sends the blocks whose distance has the k-th bit, at most S/2 of them:
  T = ⌈log2 n⌉ · (α + S / (2 B)).

With ranks numbered node by node, the farthest log2 N steps of the first two cross nodes, and every step of
Bruck's does for some rank.  (Thakur, Rabenseifner, Gropp 2005; Bruck et al. 1997.)  For large messages those
libraries use rings and `halving_doubling`, which is Rabenseifner's.  Which one Open MPI takes is in
`open_mpi`; the latencies of MPI are not known, and NCCL's are used.  Costed when asked for or so chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm, chosen_never
from cclbench.hardware.collectives.cost import CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.transport import SIMPLE


@algorithm("recursive_doubling", chosen=chosen_never)
def recursive_doubling(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """The cost; none but of an all-reduce, or where n is not a power of two."""
    group = call.group
    if call.kind == "all_reduce" and not group.ranks & (group.ranks - 1):
        yield _whole_messages(call, "recursive_doubling")


@algorithm("binomial", chosen=chosen_never)
def binomial(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """The cost; none but of a broadcast or reduce, or where a node's ranks are no power of two."""
    group = call.group
    if call.kind in ("broadcast", "reduce") and not group.per_node & (group.per_node - 1):
        yield _whole_messages(call, "binomial")


@algorithm("bruck", chosen=chosen_never)
def bruck(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """The cost of an all-gather or an all-to-all; none for other kinds."""
    group = call.group
    if call.kind not in ("all_gather", "all_to_all"):
        return
    steps, across = ceil(log2(group.ranks)), group.nodes > 1
    share = steps / 2 if call.kind == "all_to_all" else (group.ranks - 1) / group.ranks
    rate = group.nic_bytes_per_s if across else _pair_bytes_per_s(call)
    each_s, where = (call.net_s(SIMPLE), "over the network") if across else (call.up_s(SIMPLE), "in the node")
    yield CollectiveCost(
        "bruck",
        SIMPLE,
        (*call.start_steps(SIMPLE), CollectiveSteps(steps, each_s, f"steps {where}")),
        Traffic(share, rate * call.assumed.rate, "links of a rank"),
        rendezvous=call.rendezvous_steps(steps if across else 0, SIMPLE),
    )


def _whole_messages(call: CollectiveCall, name: str) -> CollectiveCost:
    """Steps that each move all of S, in the node and then over the network."""
    inside, across = log2(call.group.per_node), ceil(log2(call.group.nodes))
    s_per_byte = (inside / _pair_bytes_per_s(call) if inside else 0.0) + (
        across / call.group.nic_bytes_per_s if across else 0.0
    )
    share = inside + across
    return CollectiveCost(
        name,
        SIMPLE,
        (
            *call.start_steps(SIMPLE),
            CollectiveSteps(inside, call.up_s(SIMPLE), "steps in the node"),
            CollectiveSteps(across, call.net_s(SIMPLE), "steps over the network"),
        ),
        Traffic(share, share / s_per_byte * call.assumed.rate, "both tiers, one after the other"),
        rendezvous=call.rendezvous_steps(across, SIMPLE),
    )


def _pair_bytes_per_s(call: CollectiveCall) -> float:
    """Rate of a rank to one other in its node."""
    return call.group.pair_bytes_per_s if call.group.peers == "mesh" else call.group.up_bytes_per_s
