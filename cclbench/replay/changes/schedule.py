# SPDX-License-Identifier: Apache-2.0
"""`schedule=steps.yaml`: a schedule from a file in place of the library's algorithm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cclbench.hardware.collectives.schedule import SendSchedule, read_schedule
from cclbench.replay.change import ChangeSubject, change
from cclbench.replay.graph import Graph
from cclbench.replay.modelled import modelled_s
from cclbench.replay.transfers import transfers_by_group


def _read(_: str, value: str) -> SendSchedule:
    return read_schedule(Path(value))


@change(
    "schedule",
    values="steps.yaml",
    definition="collectives of the kind and number of ranks of a schedule (`hardware predict --schedule`)"
    " follow its steps: their time x modelled time of the schedule / that of the library's algorithm",
    read=_read,
    reads_file=True,
)
def schedule(subject: ChangeSubject, plan: SendSchedule) -> Graph | str:
    """The graph with the schedule's durations."""
    graph, nodes, calls = subject.graph, subject.graph.nodes, subject.graph.transfers
    dur, any_matching = nodes.dur.copy(), False
    for (kind, name), parts in transfers_by_group(subject, plan.kind).items():
        ranks = subject.groups[name]
        if len(ranks) != plan.ranks:
            continue
        any_matching = True
        sizes, size_code = np.unique(calls.bytes[nodes.call[parts]], return_inverse=True)
        new = modelled_s(subject, "schedule", kind, ranks, sizes, plan=plan)
        old = modelled_s(subject, "schedule", kind, ranks, sizes)
        dur[parts] = np.rint(dur[parts] * (new / old)[size_code]).astype(np.int64)
    if not any_matching:
        return f"the run has no {plan.kind} of {plan.ranks} ranks and known size"
    return replace(graph, nodes=replace(nodes, dur=dur))
