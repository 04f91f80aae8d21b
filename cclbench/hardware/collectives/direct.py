# SPDX-License-Identifier: Apache-2.0
"""Direct exchange within a node: all ranks send to all others at once, over a switch or a full mesh.

All-gather and reduce-scatter T = α + (n − 1)/n · S / B; all-reduce does both: twice that.  On a mesh B is the
links to all peers together, which the exchange fills evenly.  Used by custom all-reduce kernels of serving
engines, by MSCCL++, and by RCCL on a mesh where it has MSCCL (releases up to ROCm 7.12); NCCL does not use
it: there it is costed only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm
from cclbench.hardware.collectives.cost import ROUNDS, CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.ring import PLATEAU
from cclbench.hardware.collectives.transport import LL, SIMPLE


@algorithm("direct", chosen=lambda group: group.architecture == "amd" and group.peers == "mesh")
def direct(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """Cost by protocol; none across nodes, on a torus or for other kinds."""
    group = call.group
    n, rounds = group.ranks, ROUNDS.get(call.kind)
    if rounds is None or group.nodes > 1 or group.peers not in ("switch", "mesh"):
        return
    for protocol in (LL, SIMPLE):
        yield CollectiveCost(
            "direct",
            protocol,
            (
                *call.start_steps(protocol),
                CollectiveSteps(rounds, call.up_s(protocol), "exchanges in the node"),
            ),
            Traffic(
                rounds * (n - 1) / n,
                group.up_bytes_per_s * PLATEAU * (0.5 if protocol == LL else 1.0) * call.assumed.rate,
                "links of an accelerator",
            ),
        )
