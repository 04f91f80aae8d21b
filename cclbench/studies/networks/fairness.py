# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates of flows on shared links: progressive filling (Bertsekas, Gallager, Data Networks)."""

from __future__ import annotations

import numpy as np

from cclbench.hardware.collectives.cost import Floats


def max_min(use: Floats, capacity: Floats, demand: Floats) -> Floats:
    """Rates, shape (flows,), of flows with `demand` that load link l with `use`[flow, l] times their rate.

    All rates rise together; a flow stops at its demand, or when a link it uses is full.  So no rate can grow
    without reducing one that is not larger.  `use` has shape (flows, links), `capacity` (links,); the demand
    of a flow that uses a link may be infinite.
    """
    rate = np.zeros(len(demand))
    rising = demand > 0
    while rising.any():
        load = use[rising].sum(axis=0)
        room = np.maximum(capacity - rate @ use, 0.0)
        by_link = np.full(len(capacity), np.inf)
        np.divide(room, load, out=by_link, where=load > 0)
        by_flow = np.where(use > 0, by_link, np.inf).min(axis=1, initial=np.inf)
        remaining = np.where(rising, np.minimum(demand - rate, by_flow), np.inf)
        step = remaining.min()
        rate[rising] += step
        rising &= remaining > step * (1 + 1e-12)
    return rate
