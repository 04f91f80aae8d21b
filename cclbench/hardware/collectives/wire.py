# SPDX-License-Identifier: Apache-2.0
"""What a message between nodes costs in software, the same for all algorithms."""

from __future__ import annotations

from cclbench.hardware.collectives.cost import Assumed, Steps
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.transport import SIMPLE


def network_step_s(group: Group, library_s: float, protocol: str, assumed: Assumed) -> float:
    """A step over the network: the library's own latency and the transport's, s.

    Simple pays the transport twice: received data is flushed to the accelerator's memory (NCCL's model).
    """
    return library_s * assumed.latency + _passes(protocol) * group.out_hop[assumed.edge]


def rendezvous(group: Group, steps: float, protocol: str, assumed: Assumed) -> Steps | None:
    """What messages too large for eager sending add; None where the transport makes no difference."""
    if group.eager_bytes is None or steps == 0:
        return None
    each = _passes(protocol) * group.rendezvous[assumed.edge]
    return Steps(steps, each, "rendezvous over the network")


def _passes(protocol: str) -> int:
    return 2 if protocol == SIMPLE else 1
