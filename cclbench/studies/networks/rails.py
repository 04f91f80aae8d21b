# SPDX-License-Identifier: Apache-2.0
"""`scale_out.rail_oversubscription=x4`: a rail-optimised network with little bandwidth between rails."""

from __future__ import annotations

import numpy as np

from cclbench.replay.change import ChangeSubject, change, factor_of
from cclbench.replay.graph import Graph
from cclbench.studies.networks.sharing import Flows, flows_of, share_links


@change(
    "scale_out.rail_oversubscription",
    values="x4",
    definition="a rail-optimised network: interfaces of the k-th accelerators of all nodes share a leaf, and"
    " the switches above carry 1/factor of a leaf's bandwidth. Groups with the same positions in each of"
    " their nodes stay on their rails and lose nothing; others share the links between rails max-min fairly",
    read=factor_of,
)
def rails(subject: ChangeSubject, factor: float) -> Graph | str:
    """The graph with the new transfer durations."""
    flows = flows_of(subject)
    if flows is None:
        return "no transfer within the run's windows leaves a node"
    off = _off_rails(flows)[flows.flow]
    if not off.any():
        return "all transfers between nodes stay on their rails"
    links = int(flows.local.max()) + 1
    use = flows.link_loads(np.where(off, flows.local, -1), links)
    capacity = np.full(2 * links, float(len(np.unique(flows.place))))
    return share_links(subject.graph, flows, use, capacity, capacity / factor)


def _off_rails(flows: Flows) -> np.ndarray:
    """Which flows have different positions on different nodes, shape (flows,)."""
    held: dict[int, dict[int, set[int]]] = {}
    for flow, place, local in zip(
        flows.flow.tolist(), flows.place.tolist(), flows.local.tolist(), strict=True
    ):
        held.setdefault(flow, {}).setdefault(place, set()).add(local)
    return np.array(
        [len({*map(frozenset, held[flow].values())}) > 1 for flow in range(len(flows.gate))], np.bool_
    )
