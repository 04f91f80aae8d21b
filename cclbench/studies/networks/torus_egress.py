# SPDX-License-Identifier: Apache-2.0
"""Torus whose idle links carry the job's traffic: bucket algorithms at full egress (Morphlux, 2508.03674).

A chip in a torus of d axes has B/d along each.  A slice that spans fewer axes, or leaves one open, uses
B · u/d with u = Σ over its axes (1 if it closes into a ring, else 1/2); the share 1 − u/d is idle.  Circuits
set by the chip's fabric turn the idle links along the slice's axes, and close them:
T = rounds · Σ X/2 · α + rounds (n − 1)/n · S / B.  A ring along one axis of three leaves 2/3 of the bandwidth
idle, along two 1/3.  Neighbours' traffic through the fabric and the time to set circuits are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm, chosen_never
from cclbench.hardware.collectives.cost import ROUNDS, CollectiveCost, Traffic
from cclbench.hardware.collectives.torus import axes_of


@algorithm("torus_egress", chosen=chosen_never, on_torus=True)
def torus_egress(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Cost of an all-reduce, a reduce-scatter or an all-gather over all links of a chip."""
    axes, rounds = axes_of(call), ROUNDS.get(call.kind)
    if axes is None or rounds is None:
        return
    n, rate = call.group.ranks, call.group.egress_bytes_per_s * call.assumed.rate
    closed = replace(axes, axes=tuple((length, True) for length, _ in axes.axes))
    traffic = Traffic(rounds * (n - 1) / n, rate, "all links of a chip")
    yield CollectiveCost("torus_egress", "ici", (axes.start, closed.hop_steps(rounds)), traffic)
