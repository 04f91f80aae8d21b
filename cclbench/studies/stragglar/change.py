# SPDX-License-Identifier: Apache-2.0
"""`stragglar=measured`: all-reduces that work while waiting for the last rank, by measured arrivals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.ground.intervals import Int64
from cclbench.hardware.collectives.algorithm import CollectiveCall
from cclbench.hardware.collectives.cost import EXPECTED, Floats
from cclbench.hardware.collectives.nccl import nccl_constants
from cclbench.hardware.collectives.transport import SIMPLE
from cclbench.replay.change import ChangeSubject, change, read_choice
from cclbench.replay.graph import Graph
from cclbench.replay.modelled import modelled_group, modelled_s
from cclbench.replay.transfers import transfers_by_group
from cclbench.studies.stragglar.collective import stragglar_cost as algorithm


@change(
    "stragglar",
    values="measured",
    definition="all-reduces of four or more ranks within a node run StragglAR if its formula is faster: all"
    " ranks but the last reduce-scatter from the measured arrival of the second-to-last one on, and the rest"
    " follows the last one's. Times are scaled by its formula / that of the library's choice; changes of"
    " arrivals by other settings are not considered",
    read=read_choice("measured"),
)
def stragglar(subject: ChangeSubject, _: int) -> Graph | str:
    """The graph with the new durations of all-reduces."""
    graph, nodes = subject.graph, subject.graph.nodes
    dur, reached = nodes.dur.copy(), False
    for (_kind, name), parts in transfers_by_group(subject, "all_reduce").items():
        ranks = subject.groups[name]
        if len(ranks) < 4 or subject.machine.tier_of(ranks).value != "scale_up":
            continue
        reached = True
        dur[parts] = np.rint(dur[parts] * _time_ratio(subject, ranks, parts)).astype(np.int64)
    if not reached:
        return "no all-reduce of four or more ranks stays within a node"
    return replace(graph, nodes=replace(nodes, dur=dur))


def _time_ratio(subject: ChangeSubject, ranks: tuple[int, ...], parts: Int64) -> Floats:
    """New time / old time of each part, at most 1."""
    nodes, calls = subject.graph.nodes, subject.graph.transfers
    _, instance = np.unique(calls.instance[nodes.call[parts]], return_inverse=True)
    size = np.zeros(int(instance.max()) + 1)
    np.maximum.at(size, instance, calls.bytes[nodes.call[parts]])
    late = _delay_s(nodes.end[parts - 1], instance)  # the node before a transfer is its arrival
    group = modelled_group(subject, "stragglar", ranks)
    schedule = algorithm(CollectiveCall("all_reduce", group, nccl_constants(None), EXPECTED, (SIMPLE,)))
    library_s = modelled_s(subject, "stragglar", "all_reduce", ranks, size)
    new = (
        library_s
        if schedule is None
        else schedule.late.time_s(size) + np.maximum(schedule.early.time_s(size) - late, 0.0)
    )
    return np.minimum(new / library_s, 1.0)[instance]


def _delay_s(arrival: Int64, instance: Int64) -> Floats:
    """Delay of the last arrival of each instance after the second-to-last one, s."""
    order = np.lexsort((arrival, instance))
    last = np.append(np.flatnonzero(np.diff(instance[order])), len(order) - 1)
    return np.asarray((arrival[order][last] - arrival[order][last - 1]) / 1e9, np.float64)
