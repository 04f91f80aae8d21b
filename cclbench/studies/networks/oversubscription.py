# SPDX-License-Identifier: Apache-2.0
"""`scale_out.oversubscription=x4`: a network that carries only a part of what the nodes can send."""

from __future__ import annotations

import numpy as np

from cclbench.replay.change import ChangeSubject, change, factor_of
from cclbench.replay.graph import Graph
from cclbench.studies.networks.sharing import flows_of, share_links


@change(
    "scale_out.oversubscription",
    values="x4",
    definition="a fat tree with one node per leaf switch, which has that many times less bandwidth upward"
    " than downward: all transfers from and to a node share 1/factor of its interfaces max-min fairly; a"
    " group alone on a node gets at most what its ranks' interfaces carry",
    read=factor_of,
)
def oversubscription(subject: ChangeSubject, factor: float) -> Graph | str:
    """The graph with the new transfer durations."""
    flows = flows_of(subject)
    if flows is None:
        return "no transfer within the run's windows leaves a node"
    links = int(flows.place.max()) + 1
    use = flows.link_loads(flows.place, links)
    capacity = np.full(2 * links, float(flows.per_node))
    return share_links(subject.graph, flows, use, capacity, capacity / factor)
