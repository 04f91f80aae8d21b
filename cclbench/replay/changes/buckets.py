# SPDX-License-Identifier: Apache-2.0
"""`buckets=4`: collectives merged as by larger buckets of DDP and FSDP."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.intervals import Int64, begins
from cclbench.hardware.collectives.cost import Floats
from cclbench.replay.change import ChangeSubject, change
from cclbench.replay.graph import Graph
from cclbench.replay.modelled import modelled_s
from cclbench.replay.pricing import hockney_line
from cclbench.replay.simulate import cut_pieces
from cclbench.replay.transfers import of_groups

_KINDS = ("all_reduce", "reduce_scatter", "all_gather")


def _read(text: str, value: str) -> int:
    if re.fullmatch(r"[1-9]\d{0,3}", value) is None:
        raise UsageError(f"{text}: {value!r} is no number of collectives from 1 to 9,999", hint="such as 2")
    return int(value)


@change(
    "buckets",
    values="2, 4",
    definition="so many successive all-reduces, reduce-scatters or all-gathers of a group and step are"
    " one: it begins when the last of them could, what awaited any of them awaits it, and it takes their"
    " time together x t(sum of sizes) / sum of t(sizes), t by the named machine's model, else by the"
    " run's own fit α + β·S. Smaller buckets are no setting: when half of one was ready is not in a trace",
    read=_read,
)
def buckets(subject: ChangeSubject, count: int) -> Graph | str:
    """The graph with those collectives; `InputError` where one is awaited before its bucket is full."""
    graph, nodes = subject.graph, subject.graph.nodes
    # of each node the one that is over when it is
    merged, dur = np.arange(len(nodes)), nodes.dur.copy()
    found = False
    for (kind, group), parts in of_groups(subject, *_KINDS).items():
        bucket, last, ratio = _bucketed(subject, kind, group, parts, count)
        found |= bool((last != parts).any())
        merged[parts] = last
        whole = np.zeros(len(nodes))
        np.add.at(whole, last, nodes.dur[parts])
        dur[parts] = np.where(last == parts, np.rint(whole[parts] * ratio[bucket]), 0).astype(np.int64)
    if not found:
        return "no group has two collectives of a kind in a step that could be one"
    source, target, lag = graph.wait_edges()
    new = replace(nodes, dur=dur)
    try:
        return replace(graph, nodes=new, cut=cut_pieces(new, merged[source], target, lag))
    except InputError:
        why = "a collective is awaited before the last of its bucket can begin"
        raise InputError(f"buckets={count}: {why}", hint="such a bucket would never fill") from None


def _bucketed(
    subject: ChangeSubject, kind: str, group: str, parts: Int64, count: int
) -> tuple[Int64, Int64, Floats]:
    """The bucket of each part, the part of its rank that comes last in it, and each bucket's new over old
    time."""
    nodes, calls = subject.graph.nodes, subject.graph.transfers
    instance, step = calls.instance[nodes.call[parts]], nodes.step[parts]
    _, first, one = np.unique(instance, return_index=True, return_inverse=True)
    begun, size = nodes.start[parts[first]], calls.bytes[nodes.call[parts[first]]]
    order = np.lexsort((begun, step[first]))
    new_step = begins(step[first][order])
    begin = np.maximum.accumulate(np.where(new_step, np.arange(len(order)), 0))
    place = (np.arange(len(order)) - begin) // count
    number = np.cumsum(new_step | begins(place)) - 1
    of_instance = np.empty(len(order), np.int64)
    of_instance[order] = number
    together = np.bincount(of_instance, size).astype(np.float64)
    taken = np.zeros(len(first), np.int64)
    np.maximum.at(taken, one, nodes.dur[parts])
    ratio = np.ones(len(together))
    if len(together) < len(size):
        apart, joined = _times(subject, kind, group, size, taken, together)
        ratio = joined / np.bincount(of_instance, apart)
    bucket = of_instance[one]
    latest = np.lexsort((begun[one], nodes.rank[parts], bucket))
    ends = np.append(np.flatnonzero(begins(bucket[latest], nodes.rank[parts][latest])), len(parts))
    last = np.empty(len(parts), np.int64)
    last[latest] = np.repeat(parts[latest[ends[1:] - 1]], np.diff(ends))
    return bucket, last, ratio


def _times(
    subject: ChangeSubject, kind: str, group: str, size: Int64, taken: Int64, together: Floats
) -> tuple[Floats, Floats]:
    """Modelled times of collectives apart, and of buckets, in one unit."""
    if subject.machine.named_system.value is not None:
        members = subject.groups[group]
        apart, joined = (modelled_s(subject, "buckets", kind, members, one) for one in (size, together))
        return apart, joined
    fit = hockney_line(size, np.maximum(taken, 1))
    if fit is None:
        raise InputError(
            f"buckets: {kind} of {group} has no fit of its own to tell what a larger one takes",
            hint="give --system ID",
        )
    alpha, beta, _ = fit
    return np.asarray(alpha + beta * size, np.float64), np.asarray(alpha + beta * together, np.float64)
