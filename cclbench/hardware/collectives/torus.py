# SPDX-License-Identifier: Apache-2.0
"""Torus: bucket algorithms along its axes, all axes at once, both directions of each.

All-gather and reduce-scatter T = hops · α + (n − 1)/n · S / B, all-reduce twice that; B is all links of a
chip in the group's axes.  hops = Σ X/2 over axes of length X with wrap-around, Σ (X − 1) without, where an
end chip has one direction only: B halves.  All-to-all on a ring of length X takes X/8 of S past a link (X/4
without wrap-around): the traffic through the cut in the middle, a quarter of an all-gather.
(scaling-book, sharding, takes the larger of both terms instead of their sum; its α is 1 µs a hop.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.hardware.collectives.cost import ROUNDS, Assumed, Cost, Steps, Traffic
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.p2p import PAIRS

_HOP_S: Final = 1e-6


def torus(kind: str, group: Group, assumed: Assumed) -> Iterator[Cost]:
    """Its cost; none off a torus, over several of them, or for other kinds."""
    if not group.dims or group.nodes > 1:
        return
    n = group.ranks
    hop = (_HOP_S if group.up_hop_s is None else group.up_hop_s) * assumed.latency
    axes = list(zip(group.dims, group.rings, strict=True))
    hops = sum(axis // 2 if closes else axis - 1 for axis, closes in axes)
    per_axis = group.up_bytes_per_s / len(axes)
    links = sum(per_axis * (1.0 if closes else 0.5) for _, closes in axes)
    start = Steps(1, assumed.launch_s, "launch")
    if kind in ROUNDS:
        rounds = ROUNDS[kind]
        share = rounds * (n - 1) / n
        yield Cost(
            "torus_bucket",
            "ici",
            (start, Steps(rounds * hops, hop, "hops along the axes")),
            Traffic(share, links * assumed.rate, "links of a chip"),
        )
    elif kind == "all_to_all":
        # Half of every S crosses the middle of the longest axis: n/2 · S/2 over n/X links, twice with rings.
        longest, closes = max(axes)
        link = per_axis / 2
        cuts = 2 if closes else 1
        yield Cost(
            "torus_all_to_all",
            "ici",
            (start, Steps(hops, hop, "hops along the axes")),
            Traffic(longest / 4 / cuts, link * assumed.rate, "cut through the longest axis"),
        )
    elif kind in PAIRS:
        yield Cost(
            "torus_neighbour",
            "ici",
            (start, Steps(1, hop, "hop to a neighbour")),
            Traffic(1.0, per_axis / 2 * assumed.rate, "link to a neighbour"),
        )
