# SPDX-License-Identifier: Apache-2.0
"""`buckets=4`: collectives merged, as with larger DDP or FSDP buckets."""

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
from cclbench.replay.transfers import transfers_by_group

_KINDS = ("all_reduce", "reduce_scatter", "all_gather")


def _read(text: str, value: str) -> int:
    if re.fullmatch(r"[1-9]\d{0,3}", value) is None:
        raise UsageError(f"{text}: {value!r} is not a number of collectives, 1 to 9,999", hint="such as 2")
    return int(value)


@change(
    "buckets",
    values="2, 4",
    definition="this many successive all-reduces, reduce-scatters or all-gathers of a group and step become"
    " one: it begins when the last of them could, everything that waited for one of them waits for it, and it"
    " takes their total time x t(sum of sizes) / sum of t(sizes), t from the named machine's model, else from"
    " the run's fit α + β·S. There are no smaller buckets: a trace does not show when parts of one were"
    " ready",
    read=_read,
)
def buckets(subject: ChangeSubject, count: int) -> Graph | str:
    """The graph with merged collectives; `InputError` where one is awaited before its bucket is full."""
    graph, nodes = subject.graph, subject.graph.nodes
    # the node with whose end each node ends
    merged, dur = np.arange(len(nodes)), nodes.dur.copy()
    any_merged = False
    for (kind, group), parts in transfers_by_group(subject, *_KINDS).items():
        bucket, last, ratio = _bucketed(subject, kind, group, parts, count)
        any_merged |= bool((last != parts).any())
        merged[parts] = last
        total = np.zeros(len(nodes))
        np.add.at(total, last, nodes.dur[parts])
        dur[parts] = np.where(last == parts, np.rint(total[parts] * ratio[bucket]), 0).astype(np.int64)
    if not any_merged:
        return "no group has two collectives of a kind in a step to merge"
    source, target, lag = graph.wait_edges()
    merged_nodes = replace(nodes, dur=dur)
    try:
        return replace(graph, nodes=merged_nodes, cut=cut_pieces(merged_nodes, merged[source], target, lag))
    except InputError:
        why = "a collective is awaited before the last of its bucket can begin"
        raise InputError(f"buckets={count}: {why}", hint="such a bucket would never fill") from None


def _bucketed(
    subject: ChangeSubject, kind: str, group: str, parts: Int64, count: int
) -> tuple[Int64, Int64, Floats]:
    """Bucket of each part, its rank's last part in the bucket, and new over old time of each bucket."""
    nodes, calls = subject.graph.nodes, subject.graph.transfers
    instance, step = calls.instance[nodes.call[parts]], nodes.step[parts]
    _, first, instance_code = np.unique(instance, return_index=True, return_inverse=True)
    starts, size = nodes.start[parts[first]], calls.bytes[nodes.call[parts[first]]]
    order = np.lexsort((starts, step[first]))
    new_step = begins(step[first][order])
    begin = np.maximum.accumulate(np.where(new_step, np.arange(len(order)), 0))
    place = (np.arange(len(order)) - begin) // count
    number = np.cumsum(new_step | begins(place)) - 1
    of_instance = np.empty(len(order), np.int64)
    of_instance[order] = number
    bucket_bytes = np.bincount(of_instance, size).astype(np.float64)
    measured = np.zeros(len(first), np.int64)
    np.maximum.at(measured, instance_code, nodes.dur[parts])
    ratio = np.ones(len(bucket_bytes))
    if len(bucket_bytes) < len(size):
        separate, joined = _times(subject, kind, group, size, measured, bucket_bytes)
        ratio = joined / np.bincount(of_instance, separate)
    bucket = of_instance[instance_code]
    latest = np.lexsort((starts[instance_code], nodes.rank[parts], bucket))
    ends = np.append(np.flatnonzero(begins(bucket[latest], nodes.rank[parts][latest])), len(parts))
    last = np.empty(len(parts), np.int64)
    last[latest] = np.repeat(parts[latest[ends[1:] - 1]], np.diff(ends))
    return bucket, last, ratio


def _times(
    subject: ChangeSubject, kind: str, group: str, size: Int64, measured: Int64, bucket_bytes: Floats
) -> tuple[Floats, Floats]:
    """Modelled times of single collectives and of buckets, in the same unit."""
    if subject.machine.named_system.value is not None:
        members = subject.groups[group]
        separate, joined = (
            modelled_s(subject, "buckets", kind, members, nbytes) for nbytes in (size, bucket_bytes)
        )
        return separate, joined
    fit = hockney_line(size, np.maximum(measured, 1))
    if fit is None:
        raise InputError(
            f"buckets: {kind} of {group} has no fit to predict a larger one",
            hint="give --system ID",
        )
    alpha, beta, _ = fit
    return np.asarray(alpha + beta * size, np.float64), np.asarray(alpha + beta * bucket_bytes, np.float64)
