# SPDX-License-Identifier: Apache-2.0
"""Torus: bucket algorithms along its axes, all axes at once, in both directions.

All-gather and reduce-scatter T = hops · α + (n − 1)/n · S / B, all-reduce twice that; B is all links of a
chip along the group's axes.  hops = Σ X/2 over axes of length X with wrap-around, Σ (X − 1) without, where
end chips have one direction only: B halves.  All-to-all on a ring of length X moves X/8 of S over each link
(X/4 without wrap-around): the traffic through the middle cut, a quarter of an all-gather.
(scaling-book, sharding, takes the larger of the two terms, not their sum; its α is 1 µs a hop.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm
from cclbench.hardware.collectives.cost import ROUNDS, CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.p2p import PAIRS

_HOP_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Axes:
    """A group's axes, (length, whether it closes into a ring), and the cost of its calls and hops."""

    axes: tuple[tuple[int, bool], ...]
    per_axis: float
    start: CollectiveSteps
    hop_s: float

    def hop_steps(self, rounds: int) -> CollectiveSteps:
        """The hops along all axes, in that many rounds."""
        hops = sum(axis // 2 if closes else axis - 1 for axis, closes in self.axes)
        return CollectiveSteps(rounds * hops, self.hop_s, "hops along the axes")


def axes_of(call: CollectiveCall) -> Axes | None:
    """The group's axes; None if it is not on a torus, or spans several."""
    group, assumed = call.group, call.assumed
    if not group.dims or group.nodes > 1:
        return None
    return Axes(
        tuple(zip(group.dims, group.rings, strict=True)),
        group.up_bytes_per_s / len(group.dims),
        CollectiveSteps(1, assumed.launch_s, "launch"),
        (_HOP_S if group.up_hop_s is None else group.up_hop_s) * group.up_latency * assumed.latency,
    )


@algorithm("torus_bucket", on_torus=True)
def bucket(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Cost of an all-reduce, a reduce-scatter or an all-gather along all axes at once."""
    axes, rounds = axes_of(call), ROUNDS.get(call.kind)
    if axes is None or rounds is None:
        return
    n = call.group.ranks
    links = sum(axes.per_axis * (1.0 if closes else 0.5) for _, closes in axes.axes)
    yield CollectiveCost(
        "torus_bucket",
        "ici",
        (axes.start, axes.hop_steps(rounds)),
        Traffic(rounds * (n - 1) / n, links * call.assumed.rate, "links of a chip"),
    )


@algorithm("torus_all_to_all", on_torus=True)
def all_to_all(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Cost of an all-to-all, from the traffic through the middle of the longest axis."""
    axes = axes_of(call)
    if axes is None or call.kind != "all_to_all":
        return
    # Half of every S crosses the middle of the longest axis: n/2 · S/2 over n/X links, twice with rings.
    longest, closes = max(axes.axes)
    cuts = 2 if closes else 1
    yield CollectiveCost(
        "torus_all_to_all",
        "ici",
        (axes.start, axes.hop_steps(1)),
        Traffic(longest / 4 / cuts, axes.per_axis / 2 * call.assumed.rate, "cut through the longest axis"),
    )


@algorithm("torus_neighbour", on_torus=True)
def neighbour(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Cost of a send and receive between neighbours."""
    axes = axes_of(call)
    if axes is None or call.kind not in PAIRS:
        return
    yield CollectiveCost(
        "torus_neighbour",
        "ici",
        (axes.start, CollectiveSteps(1, axes.hop_s, "hop to a neighbour")),
        Traffic(1.0, axes.per_axis / 2 * call.assumed.rate, "link to a neighbour"),
    )
