# SPDX-License-Identifier: Apache-2.0
"""`schedule=steps.yaml`: a schedule given as data in place of what the library chose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cclbench.hardware.collectives.schedule import SendSchedule, read_schedule
from cclbench.replay.change import ChangeSubject, change
from cclbench.replay.graph import Graph
from cclbench.replay.modelled import modelled_s
from cclbench.replay.transfers import of_groups


def _read(_: str, value: str) -> SendSchedule:
    return read_schedule(Path(value))


@change(
    "schedule",
    values="steps.yaml",
    definition="collectives of the kind and number of ranks of a schedule (`hardware predict --schedule`)"
    " follow its steps: their time x formula of the schedule / formula of what the library chooses",
    read=_read,
    reads_file=True,
)
def schedule(subject: ChangeSubject, plan: SendSchedule) -> Graph | str:
    """The graph with those durations."""
    graph, nodes, calls = subject.graph, subject.graph.nodes, subject.graph.transfers
    dur, reached = nodes.dur.copy(), False
    for (kind, name), parts in of_groups(subject, plan.kind).items():
        ranks = subject.groups[name]
        if len(ranks) != plan.ranks:
            continue
        reached = True
        sizes, one = np.unique(calls.bytes[nodes.call[parts]], return_inverse=True)
        new = modelled_s(subject, "schedule", kind, ranks, sizes, plan=plan)
        old = modelled_s(subject, "schedule", kind, ranks, sizes)
        dur[parts] = np.rint(dur[parts] * (new / old)[one]).astype(np.int64)
    if not reached:
        return f"the run has no {plan.kind} of {plan.ranks} ranks and known size"
    return replace(graph, nodes=replace(nodes, dur=dur))
