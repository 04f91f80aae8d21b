# SPDX-License-Identifier: Apache-2.0
"""Torus whose idle links carry the job's traffic: bucket algorithms at full egress (Morphlux, 2508.03674).

A chip of a torus of d axes has B/d along each.  A slice that spans fewer, or leaves one open, uses
u = Σ over its axes (1 if it closes into a ring, else 1/2) of the d: B · u/d, and 1 − u/d lies idle.
Circuits that a chip's fabric sets turn those links along the slice's axes, and close them:
T = rounds · Σ X/2 · α + rounds (n − 1)/n · S / B.  Of a ring along one axis of three 2/3 of the bandwidth lay
idle, along two 1/3.  Not counted are what the fabric carries for neighbours, and the time to set circuits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm, chosen_never
from cclbench.hardware.collectives.cost import ROUNDS, CollectiveCost, Traffic
from cclbench.hardware.collectives.torus import axes_of


@algorithm("torus_egress", chosen=chosen_never, on_torus=True)
def redistributed(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """All-reduce and its halves with all links of a chip."""
    axes, rounds = axes_of(call), ROUNDS.get(call.kind)
    if axes is None or rounds is None:
        return
    n, rate = call.group.ranks, call.group.egress_bytes_per_s * call.assumed.rate
    closed = replace(axes, axes=tuple((length, True) for length, _ in axes.axes))
    traffic = Traffic(rounds * (n - 1) / n, rate, "all links of a chip")
    yield CollectiveCost("torus_egress", "ici", (axes.start, closed.hop_steps(rounds)), traffic)
