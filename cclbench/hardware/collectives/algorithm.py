# SPDX-License-Identifier: Apache-2.0
"""Algorithms of collectives, and the registry that each adds itself to.

    @algorithm("star", chosen=chosen_never)
    def star(call: CollectiveCall) -> Iterator[CollectiveCost]:
        if call.kind == "broadcast":
            launch = CollectiveSteps(1, 5e-6, "launch")
            yield CollectiveCost("star", SIMPLE, (launch,), Traffic(1.0, 1e10, "links of the root"))

Other packages name their module in the entry-point group `cclbench.collectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from cclbench.ground.registry import Registry
from cclbench.hardware.collectives.cost import Assumed, CollectiveCost, CollectiveSteps
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.nccl import NcclConstants
from cclbench.hardware.collectives.transport import SIMPLE


class CollectiveCall(NamedTuple):
    """A collective to be costed: the library's constants, the assumptions, the protocols in use."""

    kind: str
    group: Group
    table: NcclConstants
    assumed: Assumed
    protocols: tuple[str, ...]

    def start_steps(
        self, protocol: str, *, like: str = "ring", factor: float = 1.0
    ) -> tuple[CollectiveSteps, CollectiveSteps]:
        """Cost before the first byte: the launch, and the library's base latency for that algorithm."""
        base_s = self.table.base_s(like, protocol) * self.assumed.latency * factor
        return CollectiveSteps(1, self.assumed.launch_s, "launch"), CollectiveSteps(1, base_s, "base")

    def up_s(self, protocol: str, *, like: str = "ring") -> float:
        """Latency of a step within the node, s."""
        return self.table.up_s(like, protocol) * self.group.up_latency * self.assumed.latency

    def net_s(self, protocol: str, *, like: str = "ring") -> float:
        """Latency of a step over the network, s."""
        return self.over_network_s(self.table.net_s(like, protocol), protocol)

    def over_network_s(self, library_s: float, protocol: str) -> float:
        """Latency of a step over the network of which the library itself takes `library_s`, s."""
        return (
            library_s * self.assumed.latency
            + _transport_passes(protocol) * self.group.out_hop[self.assumed.edge]
        )

    def rendezvous_steps(self, steps: float, protocol: str) -> CollectiveSteps | None:
        """Extra cost of messages too large for eager sending; None if the transport makes no difference."""
        if self.group.eager_bytes is None or steps == 0:
            return None
        each = _transport_passes(protocol) * self.group.rendezvous[self.assumed.edge]
        return CollectiveSteps(steps, each, "rendezvous over the network")


def _transport_passes(protocol: str) -> int:
    """Transport latencies per step: Simple needs a second one to flush received data to the accelerator."""
    return 2 if protocol == SIMPLE else 1


Costs = Callable[[CollectiveCall], Iterator[CollectiveCost]]
"""Yields one cost per protocol; none if the algorithm cannot run the collective on the group."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm, and the groups on which libraries choose it by themselves."""

    costs: Costs
    chosen: Callable[[Group], bool]
    on_torus: bool

    def applies_to(self, group: Group, *, by_name: bool) -> bool:
        """Whether it is costed for a group: libraries choose it there, or it is asked for `by_name`."""
        return self.on_torus == (group.peers == "torus") and (by_name or self.chosen(group))


ALGORITHMS: Final[Registry[Algorithm]] = Registry(
    "algorithm", home="cclbench.hardware.collectives", group="cclbench.collectives"
)


def chosen_always(_: Group) -> bool:
    """Libraries choose it wherever it is fastest."""
    return True


def chosen_never(_: Group) -> bool:
    """No library chooses it: it is costed only when asked for by name."""
    return False


def algorithm(
    name: str, *, chosen: Callable[[Group], bool] = chosen_always, on_torus: bool = False
) -> Callable[[Costs], Costs]:
    """Register a cost function under the algorithm name that its costs carry.

    An algorithm is for a torus (`on_torus`) or for every other topology.
    """

    def register(costs: Costs) -> Costs:
        ALGORITHMS.add(name, Algorithm(costs, chosen, on_torus), origin=costs.__module__)
        return costs

    return register
