# SPDX-License-Identifier: Apache-2.0
"""PAT (parallel aggregated trees): all-gather and reduce-scatter in log2 N steps, one rank per node in NCCL.

T = base + ⌈log2 N⌉ α_net / 3.5 + n · 2.8 µs + S / (0.75 B): NCCL's formula, whose linear part its authors
intend to remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from typing import Final

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm
from cclbench.hardware.collectives.cost import CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.transport import SIMPLE

_BASE_S: Final = 8e-6
_LINEAR_S: Final = 2.8e-6
_RATE: Final = 0.75
_SINCE: Final = (2, 22)


@algorithm("pat")
def pat(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """The cost; none for other kinds, several ranks per node, or releases before 2.23."""
    kind, group, table, assumed, _ = call
    one_each = group.nodes == group.ranks
    if kind not in ("all_gather", "reduce_scatter") or not one_each or table.since < _SINCE:
        return
    steps = ceil(log2(group.nodes))
    yield CollectiveCost(
        "pat",
        SIMPLE,
        (
            CollectiveSteps(1, assumed.launch_s, "launch"),
            CollectiveSteps(1, _BASE_S * assumed.latency, "base"),
            CollectiveSteps(
                steps / 3.5, call.net_s(SIMPLE, like="tree"), "aggregated steps over the network"
            ),
            CollectiveSteps(group.ranks, _LINEAR_S * assumed.latency, "linear part"),
        ),
        Traffic(1.0, group.out_bytes_per_s * _RATE * assumed.rate, "interfaces of a rank"),
        rendezvous=call.rendezvous_steps(steps / 3.5, SIMPLE),
    )
