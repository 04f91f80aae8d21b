# SPDX-License-Identifier: Apache-2.0
"""Algorithms of collectives: what one is, and the registry that each adds itself to.

    @algorithm("star", chosen=never)
    def star(call: Call) -> Iterator[Cost]:
        if call.kind == "broadcast":
            yield Cost("star", SIMPLE, (Steps(1, 5e-6, "launch"),), Traffic(1.0, 1e10, "links of the root"))

Others' packages name their module under the entry-point group `cclbench.collectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from cclbench.hardware.collectives.cost import Assumed, Cost
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.nccl import Constants
from cclbench.registry import Registry


class Call(NamedTuple):
    """A collective to be costed: the library's constants, what is assumed, the protocols in use."""

    kind: str
    group: Group
    table: Constants
    assumed: Assumed
    protocols: tuple[str, ...]


Costs = Callable[[Call], Iterator[Cost]]
"""One cost for each protocol; none where the algorithm does not do the collective on the group."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm, and on which groups libraries choose it by themselves."""

    costs: Costs
    chosen: Callable[[Group], bool]
    on_torus: bool

    def applies(self, group: Group, *, asked: bool) -> bool:
        """Whether it is costed for a group: one that is chosen there, or `asked` for by name."""
        return self.on_torus == (group.peers == "torus") and (asked or self.chosen(group))


ALGORITHMS: Final[Registry[Algorithm]] = Registry(
    "algorithm", home="cclbench.hardware.collectives", group="cclbench.collectives"
)


def always(_: Group) -> bool:
    """Libraries choose it wherever it is fastest."""
    return True


def never(_: Group) -> bool:
    """No library chooses it: it is priced when asked for by name."""
    return False


def algorithm(
    name: str, *, chosen: Callable[[Group], bool] = always, on_torus: bool = False
) -> Callable[[Costs], Costs]:
    """Register the function under the name that its costs carry.

    An algorithm is for a torus (`on_torus`) or for everything else.
    """

    def register(costs: Costs) -> Costs:
        ALGORITHMS.add(name, Algorithm(costs, chosen, on_torus), origin=costs.__module__)
        return costs

    return register
