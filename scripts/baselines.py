# SPDX-License-Identifier: Apache-2.0
"""Times of collectives by NCCL's own tuning model and by α-β, from specifications, to compare the model with.

Both get line rates of the network, and links' rates as NCCL takes them; nothing is learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from typing import Final

import numpy as np
from msgspec import structs

from cclbench.hardware.collectives import Group, NoPrice, group_of
from cclbench.hardware.collectives.cost import EXPECTED, ROUNDS, Floats
from cclbench.hardware.collectives.nccl import (
    NVLS_EFFICIENCY,
    RING_LL128,
    TREE_LL,
    TREE_LL128,
    TREE_LL128_ONE_NODE,
    TREE_RATE,
    NcclConstants,
    nccl_constants,
    usable_protocols,
)
from cclbench.hardware.collectives.transport import LL, LL128, SIMPLE
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.system import System

_TREE_SHARES: Final = {
    LL: (*(1.0,) * 4, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    LL128: (*(1.0,) * 5, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 3, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9, 1.0),
    SIMPLE: (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 6, 0.6, 0.6, 0.7, 0.8, 0.9, 1.0),
}
"""Share of its rate that a tree reaches, at 64 B and its powers of two; the last holds beyond.  Source:
NVIDIA/nccl src/graph/tuning.cc at 01afd20a77b5804e0ecf1042509dd9d20ebf9e93, treeCorrectionFactor."""


def line_rate_group(system: System, sweep: Sweep) -> Group | NoPrice:
    """The sweep's group, with the network's line rate."""
    out = system.scale_out
    if out is not None:
        out = structs.replace(out, fabric=structs.replace(out.fabric, usable_fraction=1.0))
        system = structs.replace(system, scale_out=out)
    return group_of(system, system.group_members(sweep.ranks, sweep.nodes))


def nccl_times(sweep: Sweep, group: Group) -> Floats | None:
    """NCCL's estimate: the fastest of its algorithms and protocols, s; None for kinds that it does not tune.

    T = latency + S / rate, as ncclTopoTuneModel and ncclTopoGetAlgoTime have them, for the release's figures;
    limits per channel are left out, because no specification states the channels.
    """
    if group.peers == "torus":
        return None
    table = nccl_constants(sweep.library_version)
    if group.architecture == "amd":
        table = table.rccl_constants()
    if group.peers == "pcie-tree":
        table = table.over_pci()
    times = list(_nccl_candidates(sweep, group, table))
    return np.min(times, axis=0) if times else None


def _nccl_candidates(sweep: Sweep, group: Group, table: NcclConstants) -> Iterator[Floats]:
    kind, sizes, nodes = sweep.kind, sweep.sizes_bytes, group.nodes
    rate = _bottleneck(group)
    rounds = ROUNDS.get(kind)
    for protocol in usable_protocols(group, EXPECTED, sweep.library_version):
        up_s, net_s = table.up_s("ring", protocol), table.net_s("ring", protocol)
        if rounds is not None:
            steps, across = rounds * (group.ranks - 1), rounds * (nodes - 1)
            plateau = table.plateau if (protocol, kind) == (SIMPLE, "all_reduce") and nodes > 1 else 1.0
            latency = table.base_s("ring", protocol) + (steps - across) * up_s + across * net_s
            own = {LL: min(rate * table.ring_ll, table.ll_bytes_per_s(group)), LL128: rate * RING_LL128}
            yield latency * plateau + sizes * steps / group.ranks / own.get(protocol, rate)
        elif kind in ("broadcast", "reduce"):
            latency = table.base_s("ring", protocol) + (net_s if nodes > 1 else up_s)
            yield latency + sizes / rate
        if kind == "all_reduce":
            hops = (group.per_node - 1) * table.up_s("tree", protocol)
            hops += (nodes.bit_length() - 1) * table.net_s("tree", protocol)
            tree_rate = _bottleneck(group, 2 if nodes == 2 else 1) * TREE_RATE
            own = {
                LL: min(tree_rate * TREE_LL, table.ll_bytes_per_s(group)),
                LL128: tree_rate * (TREE_LL128_ONE_NODE if nodes == 1 else TREE_LL128),
            }
            shares = np.array(_TREE_SHARES[protocol])
            place = np.floor(np.log2(np.maximum(sizes, 64) / 64)).astype(np.int64)
            reached = own.get(protocol, tree_rate) * shares[np.minimum(place, len(shares) - 1)]
            yield table.base_s("tree", protocol) + 2 * hops + 2 * sizes / reached
    efficiency = NVLS_EFFICIENCY.get(group.architecture)
    if efficiency and table.nvls_us and group.reduces and nodes == 1 and rounds is not None:
        share = 1 + 1 / group.ranks if kind == "all_reduce" else 1.0
        yield table.nvls_us * 1e-6 + sizes * share / (rate * efficiency)


def alpha_beta_times(sweep: Sweep, group: Group) -> Floats | None:
    """α-β: T = messages · α + bytes sent by a rank / β, s; None for kinds without a formula.

    α is NCCL's step of a ring, protocol Simple, over the slowest tier, β that tier's rate of a rank.  Steps:
    recursive doubling and halving, pairwise for all-to-all (Thakur, Rabenseifner and Gropp, 2005).
    """
    n, sizes = group.ranks, sweep.sizes_bytes
    table = nccl_constants(sweep.library_version)
    depth = ceil(log2(n))
    part = (n - 1) / n
    steps = {
        "all_reduce": (2 * depth, 2 * part),
        "all_gather": (depth, part),
        "reduce_scatter": (depth, part),
        "broadcast": (depth + n - 1, 2 * part),
        "reduce": (2 * depth, 2 * part),
        "all_to_all": (n - 1, part),
    }.get(sweep.kind)
    if steps is None:
        return None
    one_node = group.nodes == 1
    alpha = table.up_s("ring", SIMPLE) if one_node else table.net_s("ring", SIMPLE)
    beta = group.up_bytes_per_s
    if not one_node:
        # a rank's part of the island's interfaces carries what leaves the island; a ring passes all of them
        beta = group.nic_bytes_per_s if sweep.kind == "all_to_all" else _bottleneck(group)
    return steps[0] * alpha + sizes * steps[1] / beta


def _bottleneck(group: Group, interfaces: int = 1) -> float:
    """Rate past each rank, B/s: links within the island, or all interfaces of one, `interfaces` times.

    Of two nodes each is the root of one tree and a leaf of the other: the trees pass twice the interfaces.
    """
    if group.nodes == 1:
        return group.up_bytes_per_s
    across = group.out_bytes_per_s * interfaces
    return across if group.per_node == 1 else min(group.up_bytes_per_s, across)
