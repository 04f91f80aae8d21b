# SPDX-License-Identifier: Apache-2.0
"""`scale_out.failed_links=0:0.25`: a share of one node's interfaces has failed."""

from __future__ import annotations

import re

import numpy as np

from cclbench.ground.errors import UsageError
from cclbench.replay.change import ChangeSubject, change
from cclbench.replay.graph import Graph
from cclbench.studies.networks.sharing import flows_of, share_links

_VALUE = re.compile(r"(\d{1,7}):(0(?:\.\d{1,6})?)")


def _parse_failure(text: str, value: str) -> tuple[int, float]:
    match = _VALUE.fullmatch(value)
    if match is None:
        raise UsageError(
            f"{text}: {value!r} is not NODE:SHARE, with a share from 0 to below 1",
            hint="such as 0:0.25, a quarter of the first node's interfaces",
        )
    return int(match[1]), float(match[2])


@change(
    "scale_out.failed_links",
    values="0:0.25",
    definition="that share of the node's interfaces (nodes count from 0) has failed: transfers from and to"
    " the node share the others max-min fairly, regardless of which accelerators they belong to",
    read=_parse_failure,
)
def failed_links(subject: ChangeSubject, value: tuple[int, float]) -> Graph | str:
    """The graph with the new transfer durations."""
    node, share = value
    flows = flows_of(subject)
    if flows is None or not (flows.place == node).any():
        return f"no transfer within the run's windows leaves or reaches node {node}"
    links = int(flows.place.max()) + 1
    use = flows.link_loads(flows.place, links)
    capacity = np.full(2 * links, float(flows.per_node))
    reduced = capacity.copy()
    reduced[2 * node : 2 * node + 2] *= 1 - share
    return share_links(subject.graph, flows, use, capacity, reduced)
